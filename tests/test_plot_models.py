"""Several models over relative depth: what is drawn is what the frame says."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from layerscope.errors import FrameError
from layerscope.plots import plot_models, save_figure
from tests.drawn import legend_texts, lines, marks, tight_box
from tests.plot_frames import LABELS, decoder, encoder

METRIC = "uniformity"


@pytest.fixture(scope="module")
def models():
    return pd.concat([encoder()[0], decoder()[0]], ignore_index=True)


def blocks(frame, model, pooling, metric=METRIC):
    rows = frame[(frame["model"].str.contains(model)) & (frame["pooling"] == pooling)]
    rows = rows[(rows["metric"] == metric) & (rows["layer_name"] != "norm")]
    return rows[["depth", "value"]].to_numpy(float)


def test_each_model_and_pooling_is_a_line_of_the_frames_values_over_depth(models):
    ax = plot_models(models, METRIC, labels=LABELS)
    drawn = {line.get_label(): line.get_xydata() for line in lines(ax)}
    assert list(drawn) == [
        "all-MiniLM-L6-v2, mean", "all-MiniLM-L6-v2, last", "decoder-1B, mean", "decoder-1B, mean-nosink",
    ]  # fmt: skip
    for label, values in drawn.items():
        model, pooling = label.split(", ")
        np.testing.assert_array_equal(values, blocks(models, model, pooling))
    assert ax.get_ylabel().replace("\n", " ") == LABELS[METRIC]


def test_intervals_are_bands(models):
    ax = plot_models(models, METRIC, pooling="last")
    rows = models[(models["metric"] == METRIC) & (models["pooling"] == "last")]
    band = ax.collections[0].get_paths()[0].get_extents()
    assert (band.y0, band.y1) == (rows["ci_low"].min(), rows["ci_high"].max())


def test_a_pooling_that_all_lines_share_stands_above_them_once(models):
    ax = plot_models(models, METRIC, pooling="mean")
    assert ax.get_title("left") == "texts: sts-b; pooling: mean"
    assert legend_texts(ax) == ["all-MiniLM-L6-v2", "decoder-1B", "open: embedding output"]


def test_a_token_metric_is_found_by_the_mean_of_its_tokens(models):
    ax = plot_models(models, "curvature", pooling="mean-nosink")
    assert (
        ax.get_title("left").replace("\n", " ")
        == "model: meta/decoder-1B; texts: sts-b; pooling: tokens-nosink"
    )
    assert [line.get_label() for line in lines(ax)] == ["decoder-1B"]


def test_embedding_is_open_and_the_norm_beyond_the_last_block(models):
    ax = plot_models(models, METRIC, pooling="mean")
    opened = [mark for mark in marks(ax, "embed") if len(mark.get_xdata())]
    assert [list(mark.get_xdata()) for mark in opened] == [[0.0], [0.0]]
    assert {mark.get_markerfacecolor() for mark in opened} == {"white"}
    norms = marks(ax, "norm")
    row = models[(models["layer_name"] == "norm") & (models["metric"] == METRIC)]
    value = row.loc[row["pooling"] == "mean", "value"].iloc[0]
    assert [(float(mark.get_xdata()[0]), float(mark.get_ydata()[0])) for mark in norms] == [(1.2, value)]


def test_no_two_lines_look_alike_in_grey(models):
    many = pd.concat([encoder()[0].assign(model=f"step {k}") for k in range(6)])
    looks = [
        (line.get_marker(), str(line._unscaled_dash_pattern)) for line in lines(plot_models(many, METRIC))
    ]
    assert len(looks) == len(set(looks)) == 12
    of_one = [line.get_color() for line in lines(plot_models(models, METRIC))]
    assert of_one[0] == of_one[1] != of_one[2] == of_one[3]


def test_models_of_one_last_name_keep_their_whole_names(models):
    both = models[models["pooling"] == "mean"].replace({"model": {"meta/decoder-1B": "x/all-MiniLM-L6-v2"}})
    names = [line.get_label() for line in lines(plot_models(both, METRIC))]
    assert names == ["sentence-transformers/all-MiniLM-L6-v2", "x/all-MiniLM-L6-v2"]


def test_scores_of_models_are_drawn_too():
    scores = pd.concat([encoder()[1], decoder()[1]])
    ax = plot_models(scores[scores["variant"] == "raw"], "cosine_spearman", pooling="mean")
    assert ax.get_title("left") == "pooling: mean; task: STS-B"
    assert ax.get_ylabel().startswith("Spearman")
    drawn = lines(ax)[0].get_ydata()
    np.testing.assert_array_equal(drawn, encoder()[1].query("pooling == 'mean'")["score"].to_numpy(float))


def test_legend_touches_neither_axes_nor_itself(models):
    ax = plot_models(models.assign(model="a-rather-long-organisation-name/" + models["model"]), METRIC)
    ax.figure.canvas.draw()
    legend = ax.figure.legends[0]
    box = tight_box(legend, ax.figure)
    assert not box.overlaps(ax.get_tightbbox())
    assert box.x0 >= 0
    assert box.x1 <= ax.figure.bbox.x1
    entries = [tight_box(text, ax.figure) for text in legend.get_texts()]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(entries, 2))


def test_wrong_frames_are_refused_in_one_line(models):
    cases = [
        (models.drop(columns="model"), METRIC, None, "lacks the column(s) model"),
        (models, "uniformty", None, "did you mean 'uniformity'"),
        (models, METRIC, "lsat", "did you mean 'last'"),
        (pd.concat([models, models]), METRIC, "mean", "two values for layer embed of 'all-MiniLM-L6-v2'"),
        (pd.concat([models.assign(corpus=f"c{k}") for k in range(4)]), METRIC, None,
         "16 lines are too many for one figure (at most 12): select rows by pooling, model, corpus first"),
    ]  # fmt: skip
    for frame, metric, pooling, says in cases:
        with pytest.raises(FrameError) as raised:
            plot_models(frame, metric, pooling=pooling)
        assert says in str(raised.value)
        assert "\n" not in str(raised.value)


def test_draws_into_given_axes_and_saves_in_three_formats(models, tmp_path):
    figure = plot_models(models, METRIC).figure
    ax = figure.axes[0]
    assert plot_models(models, "dime", ax) is ax
    written = save_figure(figure, tmp_path / "models", ("png", "svg", "pdf"))
    assert [path.read_bytes()[:4] for path in written] == [b"\x89PNG", b"<?xm", b"%PDF"]
