"""Similarity of layers: square cells that hold the frame's values, models side by side."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import QuadMesh

from layerscope.errors import FrameError
from layerscope.frames import LAYER_PAIR_COLUMNS, as_frame, read_frame
from layerscope.layers import standard_layers
from layerscope.plots import plot_layer_pairs, plot_layer_pairs_grid, save_figure
from tests.drawn import marks, tick_texts, tight_box


def similarity(i, j):
    return np.exp(-abs(i - j) / 5) - 0.01 * (i > j)


def pairs(model, n_blocks, has_norm, missing=()):
    names = standard_layers(n_blocks, has_norm)
    common = {"model": model, "corpus": "news", "pooling": "mean", "metric": "cka_linear", "n": 100}
    rows = [
        common
        | {
            "layer_name": one,
            "other_layer_name": other,
            "value": np.nan if {one, other} & {*missing} else similarity(i, j),
        }
        for i, one in enumerate(names)
        for j, other in enumerate(names)
    ]
    return as_frame(rows, LAYER_PAIR_COLUMNS)


def mesh_of(ax):
    return next(part for part in ax.collections if isinstance(part, QuadMesh))


def test_cells_are_the_frames_values_row_by_row():
    frame = pairs("small", 4, has_norm=False)
    ax = plot_layer_pairs(frame.sample(frac=1, random_state=0))
    drawn = mesh_of(ax).get_array()
    np.testing.assert_array_equal(drawn, frame["value"].to_numpy().reshape(5, 5))
    assert tick_texts(ax) == ["embed", "1", "2", "3", "4"]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == tick_texts(ax)
    printed = [text.get_text() for text in marks(ax, "cell")]
    assert printed[:2] == ["1.00", "0.82"]
    assert printed[5] == "0.81"  # layer 1 with embed, below the diagonal


def test_cells_are_square_and_embed_is_at_the_top():
    ax = plot_layer_pairs(pairs("deep", 30, has_norm=True))
    ax.figure.canvas.draw()
    box = ax.transData.transform([(0, 0), (1, 1)])
    assert abs(box[1, 0] - box[0, 0]) == pytest.approx(abs(box[1, 1] - box[0, 1]))
    assert box[0, 1] > box[1, 1]


def test_norm_stands_apart_on_both_sides():
    ax = plot_layer_pairs(pairs("small", 4, has_norm=True))
    assert ax.get_xticks()[-1] - ax.get_xticks()[-2] > 1
    assert ax.get_yticks()[-1] - ax.get_yticks()[-2] > 1
    edges = mesh_of(ax).get_coordinates()
    assert edges[0, -2, 0] - edges[0, -3, 0] < 1  # the gap
    text = next(text for text in reversed(marks(ax, "cell")))
    assert (text.get_text(), text.get_position()[0]) == ("1.00", ax.get_xticks()[-1])


@pytest.mark.parametrize("n_blocks", [3, 6, 12, 24, 30, 48, 80])
def test_names_of_layers_never_touch(n_blocks):
    ax = plot_layer_pairs(pairs("m", n_blocks, has_norm=True))
    ax.figure.canvas.draw()
    for ticks in (ax.get_xticklabels(), ax.get_yticklabels()):
        boxes = [tight_box(tick, ax.figure) for tick in ticks]
        assert not any(one.overlaps(other) for one, other in itertools.pairwise(boxes))
    assert tick_texts(ax)[-1] == "norm"


def test_missing_pairs_are_hatched_and_said():
    figure = plot_layer_pairs_grid(pairs("small", 4, has_norm=False, missing=["block.2"]))
    assert len(marks(figure.axes[0], "missing")) == 9
    assert figure.axes[1].get_xlabel().endswith("hatched = no value")


def test_two_models_stand_side_by_side_on_one_scale():
    both = pd.concat(
        [pairs("x/small", 4, False), pairs("x/deep", 12, True).assign(value=lambda f: f["value"] - 0.2)]
    )
    figure = plot_layer_pairs_grid(both)
    left, right, bar = figure.axes
    assert [ax.get_title("left") for ax in (left, right)] == ["small, mean", "deep, mean"]
    assert mesh_of(left).get_clim() == mesh_of(right).get_clim() == (both["value"].min(), 1.0)
    assert "CKA" in bar.get_xlabel()
    figure.canvas.draw()
    assert not left.get_tightbbox().overlaps(right.get_tightbbox())


def test_wrong_frames_are_refused_in_one_line(tmp_path):
    frame = pairs("small", 2, False)
    cases = [
        (frame.drop(columns="other_layer_name"), "lacks the column(s) other_layer_name"),
        (frame.iloc[:0], "has no rows"),
        (pd.concat([frame, frame.assign(model="other")]), "several values of model (small, other)"),
        (pd.concat([frame, frame.assign(metric="other")]), "several metrics"),
        (pd.concat([frame, frame]), "two values for layers embed and embed"),
    ]  # fmt: skip
    for wrong, says in cases:
        with pytest.raises(FrameError) as raised:
            plot_layer_pairs(wrong)
        assert says in str(raised.value)
        assert "\n" not in str(raised.value)
    frame.assign(other_layer_name="blok.1").to_parquet(tmp_path / "odd.parquet")
    with pytest.raises(FrameError, match=r"row 1: no layer is called 'blok.1'"):
        read_frame(tmp_path / "odd.parquet", "layer pairs")


def test_saves_in_three_formats(tmp_path):
    written = save_figure(
        plot_layer_pairs(pairs("m", 2, False)).figure, tmp_path / "cka", ("png", "svg", "pdf")
    )
    assert [path.read_bytes()[:4] for path in written] == [b"\x89PNG", b"<?xm", b"%PDF"]
