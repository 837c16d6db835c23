"use strict";
// All that the page does beyond standing there: sort its tables, read values off its figures, copy commands.
document.documentElement.classList.add("scripted");

// A table by the clicked column; cells without a value stay last either way.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  heads.forEach((head, column) => head.addEventListener("click", () => {
    const rising = head.getAttribute("aria-sort") !== "ascending";
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", rising ? "ascending" : "descending");
    const key = row => row.cells[column].dataset.sort;
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === "" || y === "") return (x === "") - (y === "");
      return (rising ? 1 : -1) * (Number(x) - Number(y));
    });
    body.append(...rows);
  }));
}

// The values at the layer that is pointed at or has the focus. One stop of the tab key a figure; arrows move
// from layer to layer.
const readout = document.createElement("div");
readout.className = "readout";
readout.hidden = true;
readout.setAttribute("aria-hidden", "true"); // a focused layer is its own label
document.body.append(readout);
let shown = null;

function hide() {
  shown?.classList.remove("shown");
  shown = null;
  readout.hidden = true;
}

// Beside the mark of what is shown, within the window; hidden while that is scrolled out of it.
function place() {
  const mark = shown.querySelector("line, circle").getBoundingClientRect();
  readout.hidden = mark.bottom < 0 || mark.top > innerHeight;
  const box = readout.getBoundingClientRect();
  const right = mark.right + 10;
  const left = right + box.width <= innerWidth - 8 ? right : mark.left - box.width - 10;
  const top = mark.top + mark.height / 2 - box.height / 2;
  readout.style.left = `${Math.max(8, Math.min(left, innerWidth - box.width - 8))}px`;
  readout.style.top = `${Math.max(8, Math.min(top, innerHeight - box.height - 8))}px`;
}

function show(reading) {
  if (reading === shown) return;
  hide();
  shown = reading;
  reading.classList.add("shown");
  readout.textContent = reading.dataset.text;
  readout.style.left = readout.style.top = "0"; // its own width, not what is left beside the last place
  place();
}

for (const drawing of document.querySelectorAll("svg.drawing")) {
  const readings = [...drawing.querySelectorAll(".reading")];
  if (!readings.length) continue;
  drawing.setAttribute("role", "group"); // a picture has no parts that can be focused
  for (const part of drawing.children) {
    if (!part.matches(".readings")) part.setAttribute("aria-hidden", "true");
  }
  readings.forEach((reading, at) => {
    const title = reading.querySelector("title");
    reading.dataset.text = title.textContent;
    reading.setAttribute("aria-label", title.textContent);
    reading.setAttribute("role", "img");
    reading.setAttribute("tabindex", at ? "-1" : "0");
    title.remove(); // or the browser would show it too
    reading.addEventListener("pointerenter", () => show(reading));
    reading.addEventListener("focus", () => show(reading));
    reading.addEventListener("blur", hide);
    reading.addEventListener("keydown", event => {
      const steps = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: readings.length - 1 };
      const next = readings[steps[event.key]];
      if (!next) return;
      event.preventDefault();
      reading.setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    });
  });
  drawing.addEventListener("pointerleave", hide);
}
document.addEventListener("keydown", event => { if (event.key === "Escape") hide(); });
document.addEventListener("pointerdown", event => { if (!event.target.closest(".reading")) hide(); });
addEventListener("scroll", () => { if (shown) place(); }, { passive: true, capture: true });

// A command into the clipboard; where the browser refuses, it is selected, to be copied by hand.
async function copy(code) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(code);
    return document.execCommand("copy");
  }
}

for (const button of document.querySelectorAll("button.copy")) {
  button.addEventListener("click", async () => {
    const copied = await copy(button.parentElement.querySelector("code"));
    document.getElementById("copied").textContent = copied ? "Command copied" : "Command selected";
    button.textContent = copied ? "Copied" : "Selected";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}
