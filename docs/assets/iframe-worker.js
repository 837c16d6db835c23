/* Browsers refuse a Worker to a page opened from disk. The search asks for one: give it a hidden frame that
   runs the same script and passes the same messages. Pages from a server keep the real Worker. */
(() => {
  if (location.protocol !== "file:") return;

  class FrameWorker extends EventTarget {
    #frame = document.createElement("iframe");
    #ready;

    constructor(url) {
      super();
      const frame = this.#frame;
      frame.hidden = true;
      this.#ready = new Promise((resolve) => {
        frame.addEventListener("load", () => this.#start(String(url)).then(resolve), { once: true });
      });
      document.body.append(frame);
    }

    postMessage(data) {
      this.#ready.then(() => {
        this.#frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
      });
    }

    terminate() {
      this.#frame.remove();
    }

    /* In a worker, postMessage() answers whoever made it, and importScripts() loads more code. */
    #start(url) {
      const inside = this.#frame.contentWindow;
      const load = (address) =>
        new Promise((resolve, reject) => {
          const script = inside.document.createElement("script");
          script.src = address;
          script.onload = resolve;
          script.onerror = () => reject(new Error(`cannot load ${address}`));
          inside.document.body.append(script);
        });
      inside.postMessage = (data) => this.#answer(data);
      inside.importScripts = (...addresses) =>
        addresses.reduce((before, address) => before.then(() => load(address)), Promise.resolve());
      return load(url);
    }

    #answer(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      this.onmessage?.(event);
    }
  }

  window.Worker = FrameWorker;
})();
