"""A training run: a line a step, coloured by it, with the values of the frame."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import LogNorm, Normalize, SymLogNorm, to_rgb

from layerscope.errors import FrameError
from layerscope.frames import read_frame, write_frame
from layerscope.plots import plot_training, save_figure
from layerscope.plots.training_curves import _bar_ticks, _scale
from tests.drawn import legend_texts, lines, marks, tight_box
from tests.plot_frames import LABELS, decoder

STEPS = [0, 1, 8, 64, 512, 1000, 16000, 143000]


@pytest.fixture(scope="module")
def run():
    frame = decoder()[0]
    parts = [
        frame.assign(revision=f"step{step}", step=step, value=frame["value"] * (1 + nth))
        for nth, step in enumerate(STEPS)
    ]
    return pd.concat(parts, ignore_index=True)


def panels(figure):
    return [ax for ax in figure.axes if lines(ax)]


def luminance(colour):
    return float(np.dot(to_rgb(colour), [0.2126, 0.7152, 0.0722]))


def test_a_panel_a_metric_and_a_line_a_step_with_the_frames_values(run):
    figure = plot_training(run, ["dime", "uniformity"], pooling="mean", labels=LABELS)
    assert [ax.get_ylabel().replace("\n", " ") for ax in panels(figure)] == [
        LABELS["dime"],
        LABELS["uniformity"],
    ]
    for ax, metric in zip(panels(figure), ("dime", "uniformity"), strict=True):
        assert len(lines(ax)) == len(STEPS)
        for line, step in zip(lines(ax), STEPS, strict=True):
            rows = run[(run["metric"] == metric) & (run["pooling"] == "mean") & (run["step"] == step)]
            blocks, norm = rows[rows["layer_name"] != "norm"], rows[rows["layer_name"] == "norm"]
            np.testing.assert_array_equal(line.get_xydata(), blocks[["depth", "value"]].to_numpy(float))
            assert norm["value"].iloc[0] in [mark.get_ydata()[0] for mark in marks(ax, "norm")]


def test_later_steps_are_darker_and_first_and_last_are_marked(run):
    drawn = lines(panels(plot_training(run, ["dime"], pooling="mean"))[0])
    shades = [luminance(line.get_color()) for line in drawn]
    assert all(later < earlier for earlier, later in itertools.pairwise(shades))
    assert [line.get_marker() for line in drawn] == ["o", *["None"] * (len(STEPS) - 2), "s"]
    assert drawn[0].get_markerfacecolor() == "white"
    assert legend_texts(panels(plot_training(run, ["dime"], pooling="mean"))[0]) == [
        "first step (0)", "last step (143,000)",
    ]  # fmt: skip


def test_the_last_step_alone_has_its_interval(run):
    ax = panels(plot_training(run, ["uniformity"], pooling="mean"))[0]
    rows = run[(run["metric"] == "uniformity") & (run["pooling"] == "mean") & (run["step"] == STEPS[-1])]
    rows = rows[rows["layer_name"] != "norm"]
    (band,) = [part.get_paths()[0].get_extents() for part in ax.collections if len(part.get_paths())]
    assert (band.y0, band.y1) == (rows["ci_low"].min(), rows["ci_high"].max())


def test_colours_go_by_the_logarithm_only_where_steps_span_decades():
    assert type(_scale([100, 200, 400])) is Normalize
    assert type(_scale([1, 10, 1000])) is LogNorm
    scale = _scale(STEPS)
    assert type(scale) is SymLogNorm
    places = [float(scale(step)) for step in STEPS]
    assert places[0] == 0
    assert places[-1] == 1
    assert places == sorted(places)
    assert places[4] - places[3] == pytest.approx(places[3] - places[2])  # 8, 64, 512


def test_ticks_of_the_scale_do_not_touch(run):
    many = [0, *(2**k for k in range(10)), *range(1000, 143001, 1000)]
    ticks = _bar_ticks(many, _scale(many), length=200)
    assert ticks[0] == 0
    assert ticks[-1] == 143000
    figure = plot_training(
        pd.concat([run[run["step"] == 0].assign(step=step) for step in many]), ["dime"], pooling="mean"
    )
    figure.canvas.draw()
    bar = next(ax for ax in figure.axes if not lines(ax))
    boxes = [tight_box(tick, figure) for tick in bar.get_xticklabels()]
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


def test_a_pooling_takes_the_token_metrics_of_its_tokens_along(run):
    figure = plot_training(run, ["curvature", "dime"], pooling="mean-nosink")
    assert len(panels(figure)) == 2
    assert figure.get_suptitle() == "model: meta/decoder-1B; texts: sts-b; pooling: mean-nosink"


def test_wrong_frames_are_refused_in_one_line(run):
    cases = [
        (run.drop(columns="step"), "mean", "lacks the column(s) step"),
        (run, None, "'dime' has several poolings (mean, mean-nosink): choose one"),
        (run[run["step"] == 8], "mean", "this frame has one step (8)"),
        (run.assign(step=run["step"].where(run["step"] > 0)), "mean", "a step is missing"),
        (run.assign(model=run["revision"]), "mean", "several values of model"),
        (pd.concat([run, run]), "mean", "two values of 'dime' for layer embed at step 0"),
    ]  # fmt: skip
    for frame, pooling, says in cases:
        with pytest.raises(FrameError) as raised:
            plot_training(frame, ["dime"], pooling=pooling)
        assert says in str(raised.value)
        assert "\n" not in str(raised.value)


def test_revisions_of_a_model_may_stand_in_one_file(run, tmp_path):
    write_frame(run, tmp_path / "run.parquet")
    assert len(read_frame(tmp_path / "run.parquet", "metrics")) == len(run)
    write_frame(pd.concat([run, run]), tmp_path / "twice.parquet")
    with pytest.raises(FrameError, match="the same model, revision, step"):
        read_frame(tmp_path / "twice.parquet", "metrics")


def test_saves_in_three_formats(run, tmp_path):
    written = save_figure(
        plot_training(run, ["dime"], pooling="mean"), tmp_path / "run", ("png", "svg", "pdf")
    )
    assert [path.read_bytes()[:4] for path in written] == [b"\x89PNG", b"<?xm", b"%PDF"]
