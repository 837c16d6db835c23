"""Draw the example figures of docs/experiments.md with the packaged model and texts.

    python docs/make_experiments.py [--work FOLDER]

Writes docs/experiments/<name>.svg. Needs the extra ``demo``; no network; a few minutes on two cores. What is
in FOLDER is taken up where it was left.
"""

import argparse
import tempfile
from pathlib import Path

from layerscope.analysis import analyze
from layerscope.corpus import read_corpus
from layerscope.experiments import perturb
from layerscope.extraction import extract
from layerscope.metrics import get_metric
from layerscope.packaged import minilm, news
from layerscope.perturbation import KINDS
from layerscope.plots import plot_perturbation, plot_sites, save_figure
from layerscope.plots.curves import figure_of

HERE = Path(__file__).parent / "experiments"
TEXTS, MAX_LENGTH, METRIC = 20, 64, "prompt_entropy"
LEVELS = {"repeat": (0, 0.1, 0.5, 1), "random-token": (0, 0.1, 0.5, 1), "random-prompt": (8, 16, 32, 62)}


def main() -> None:
    """Run the experiments and draw them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "layerscope-experiments")
    work = parser.parse_args().work
    corpus = read_corpus(news()[:TEXTS], name=f"the first {TEXTS} Lee background news")
    labels = {METRIC: get_metric(METRIC).label}
    for kind in KINDS:
        frame = perturb(
            minilm(), corpus, path=work, kind=kind, levels=LEVELS[kind], max_length=MAX_LENGTH, pooling="mean"
        )
        drawn = plot_perturbation(frame, METRIC, labels=labels)
        save_figure(figure_of(drawn), HERE / kind, ("svg",))
    cache = extract(
        minilm(), corpus, path=work / "sites", max_length=MAX_LENGTH, pooling="mean",
        sites=("block", "attn", "mlp"),
    )  # fmt: skip
    drawn = plot_sites(analyze(cache, [METRIC]), METRIC, labels=labels)
    save_figure(figure_of(drawn), HERE / "sites", ("svg",))


if __name__ == "__main__":
    main()
