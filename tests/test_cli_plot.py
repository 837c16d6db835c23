"""``layerscope plot``: the right figure in the right file, and one line for everything else."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest

from layerscope import cli
from layerscope.analysis import compare_layers
from layerscope.cli.figures import KINDS
from layerscope.frames import write_frame
from tests.caches import make_cache
from tests.plot_frames import decoder, encoder

BEGINS = {"png": b"\x89PNG", "svg": b"<?xm", "pdf": b"%PDF"}


@pytest.fixture
def plot(monkeypatch, capsys):
    """Call the command in this process; gives exit code and standard error."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["layerscope", "plot", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return int(stop.value.code or 0), capsys.readouterr().err

    return call


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A frame of every kind, and a cache."""
    folder = tmp_path_factory.mktemp("frames")
    metrics, scores, _ = encoder()
    rng = np.random.default_rng(0)
    drawn = metrics.assign(
        draws=[rng.normal(value, 0.1, 20) for value in metrics["value"]], direction="higher"
    )
    write_frame(drawn, folder / "small.parquet")
    write_frame(decoder()[0], folder / "deep.parquet")
    steps = [metrics.assign(step=step, revision=f"s{step}") for step in (1, 10, 100)]
    write_frame(pd.concat(steps), folder / "steps.parquet")
    levels = [metrics.assign(perturbation="repeat", level=level) for level in (0.0, 0.5)]
    write_frame(pd.concat(levels), folder / "levels.parquet")
    inside = metrics[metrics["layer_name"].str.startswith("block")]
    attention = inside.assign(layer_name=inside["layer_name"].str.replace("block", "attn"))
    write_frame(pd.concat([metrics, attention]), folder / "sites.parquet")
    write_frame(scores, folder / "scores.parquet")
    correlations = {"model": "m", "metric": "dime", "variant": "", "statistic": "spearman", "task": "STS-B"}
    pd.DataFrame([correlations | {"value": 0.5, "p": 0.1}]).to_parquet(folder / "correlations.parquet")
    vectors = {f"mean/{name}": rng.normal(size=(30, 6)) for name in ("embed", "block.1")}
    columns = {"topic": [f"t{k % 3}" for k in range(30)]}
    cache = make_cache(folder / "cache", vectors, n_blocks=1, columns=columns)
    write_frame(compare_layers(cache, batch=15), folder / "cka.parquet")
    return folder


SOURCES = {
    "curves": ["small.parquet"], "heatmap": ["small.parquet"], "models": ["small.parquet", "deep.parquet"],
    "training": ["steps.parquet", "--pooling", "mean"], "stability": ["small.parquet"],
    "scores": ["scores.parquet"], "cka": ["cka.parquet"], "correlations": ["correlations.parquet"],
    "embeddings": ["cache", "--label", "topic"], "sites": ["sites.parquet", "--pooling", "mean"],
    "perturbation": ["levels.parquet", "--metric", "dime"],
}  # fmt: skip


def at(folder, arguments):
    return [folder / word if (folder / word).exists() else word for word in arguments]


def test_every_kind_is_tried_here():
    assert set(SOURCES) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_written_in_every_format(plot, data, kind, tmp_path):
    for suffix, begins in BEGINS.items():
        target = tmp_path / f"figure.of.{kind}.{suffix}"
        code, error = plot(*at(data, SOURCES[kind]), "--kind", kind, "-o", target)
        assert (code, error) == (0, "")
        assert target.read_bytes()[:4] == begins
        assert [path.name for path in tmp_path.glob(f"*.{suffix}")] == [target.name]


def test_rows_are_chosen_by_metric_and_pooling(plot, data, tmp_path, monkeypatch):
    drawn = []

    def remember(figure, *_):
        drawn.append(figure)
        return []

    monkeypatch.setattr("layerscope.plots.save_figure", remember)
    words = ["--kind", "models", "--metric", "uniformity", "--metric", "curvature", "--pooling", "mean"]
    assert plot(data / "small.parquet", data / "deep.parquet", *words, "-o", tmp_path / "x.png") == (0, "")
    panels = drawn[0].axes
    assert [ax.get_ylabel().split()[0] for ax in panels] == ["Uniformity", "Curvature"]
    assert drawn[0].get_suptitle() == "texts: sts-b; pooling: mean"


@pytest.mark.parametrize(("kind", "title"), [("sites", "pooling: mean"), ("perturbation", "share of tokens")])
def test_panels_of_a_kind_share_one_legend(plot, data, tmp_path, monkeypatch, kind, title):
    drawn = []
    monkeypatch.setattr("layerscope.plots.save_figure", lambda figure, *_: drawn.append(figure) or [])
    words = ["--kind", kind, "--metric", "uniformity", "--metric", "dime", "-o", tmp_path / "x.png"]
    assert plot(data / SOURCES[kind][0], *words) == (0, "")
    (figure,) = drawn
    assert [ax.get_legend() for ax in figure.axes] == [None, None]
    (legend,) = figure.legends
    assert legend.get_title().get_text().startswith(title)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["small.parquet", "--kind", "model", "-o", "x.png"], 2, "did you mean 'models'?"),
        (["small.parquet", "--kind", "models", "-o", "x.jpg"], 2, "a figure is a .png, .svg or .pdf file"),
        (["small.parquet", "--kind", "models", "-o", "x"], 2, "a figure is a .png, .svg or .pdf file"),
        (["scores.parquet", "--kind", "models", "-o", "x.png"], 1, "is not a metrics frame"),
        (["small.parquet", "--kind", "cka", "-o", "x.png"], 1, "is not a layer pairs frame"),
        (["small.parquet", "--kind", "training", "-o", "x.png"], 1, "lacks the column(s) step"),
        (["deep.parquet", "--kind", "stability", "-o", "x.png"], 1, "--draws 100"),
        (["cache", "--kind", "models", "-o", "x.png"], 2, "is a cache, and a figure of kind models"),
        (["cache", "cache", "--kind", "embeddings", "-o", "x.png"], 2, "is of one cache, 2 are given"),
        (["small.parquet", "--kind", "embeddings", "-o", "x.png"], 1, "no cache at"),
        (["cache", "--kind", "embeddings", "--label", "topc", "-o", "x.png"], 2, "did you mean 'topic'?"),
        (["small.parquet", "--kind", "models", "--label", "a", "-o", "x.png"], 2, "takes no --label"),
        (["small.parquet", "--kind", "models", "--metric", "dim", "-o", "x.png"], 1, "did you mean 'dime'?"),
        (
            ["small.parquet", "--kind", "models", "--corpus", "stsb", "-o", "x.png"],
            1,
            "did you mean 'sts-b'?",
        ),
        (["small.parquet", "--kind", "models", "--pooling", "cls", "-o", "x.png"], 1, "the pooling 'cls'"),
        (["nothing.parquet", "--kind", "models", "-o", "x.png"], 1, "no metrics frame at nothing.parquet"),
        (["small.parquet", "-o", "x.png"], 2, "Missing option '--kind'"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_line(
    plot, data, arguments, code, says, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    found, error = plot(*at(data, arguments))
    assert found == code
    (line,) = error.splitlines()
    assert line.startswith("error: ")
    assert says in line
    assert not list(tmp_path.iterdir())


def test_a_corpus_must_be_chosen_where_there_are_several(plot, data, tmp_path):
    frame = pd.read_parquet(data / "small.parquet")
    write_frame(pd.concat([frame, frame.assign(corpus="news")]), tmp_path / "two.parquet")
    words = [tmp_path / "two.parquet", "--kind", "stability", "-o", tmp_path / "x.png"]
    code, error = plot(*words)
    assert code == 2
    assert "choose one with --corpus (sts-b, news)" in error
    assert plot(*words, "--corpus", "news") == (0, "")
