"""How often subsamples pick each layer: counted as LayerSelector counts, drawn as counted."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import QuadMesh

from layerscope.errors import FrameError, UsageError
from layerscope.plots import plot_selection_stability, save_figure
from layerscope.select import LayerSelector, pick_shares
from tests.drawn import legend_texts, marks, tick_texts

LAYERS = ["embed", "block.1", "block.2", "norm"]


def measured(metric, draws, direction="higher", **more):
    """A metrics frame of four layers; draws are (layers, draws)."""
    draws = np.asarray(draws, dtype=float)
    return pd.DataFrame(
        {"model": "m", "corpus": "c", "layer": [0, 1, 2, 2], "layer_name": LAYERS, "depth": [0, 0.5, 1, 1],
         "pooling": "mean", "metric": metric, "variant": "", "value": draws.mean(axis=1), "n": 100,
         "draws": list(draws), "direction": direction} | more
    )  # fmt: skip


SURE = measured("sure", [[1, 1, 1, 1], [5, 5, 5, 5], [2, 2, 2, 2], [3, 3, 3, 3]])
TORN = measured("torn", [[4, 4, 1, 9], [0, 9, 2, 1], [3, 3, 3, 2], [9, 8, 7, 3]], "lower")


def test_shares_are_counted_by_layer_and_sum_to_one():
    shares = pick_shares(pd.concat([SURE, TORN])).set_index(["criterion", "layer_name"])
    # the lowest of each draw: block.1, norm? no: 0 (block.1), 3 (block.2), 1 (embed), 1 (block.1)
    assert shares.loc["torn", "share"].to_dict() == {
        "embed": 0.25,
        "block.1": 0.5,
        "block.2": 0.25,
        "norm": 0.0,
    }
    assert shares.loc["sure", "share"].to_dict() == {
        "embed": 0.0,
        "block.1": 1.0,
        "block.2": 0.0,
        "norm": 0.0,
    }
    assert shares.index[shares["picked"]].tolist() == [("sure", "block.1"), ("torn", "block.2")]


def test_the_share_of_the_pick_is_the_selectors_support():
    fitted = LayerSelector("torn").fit(TORN)
    shares = pick_shares(TORN)
    assert shares.loc[shares["picked"], "share"].tolist() == [fitted.support_]
    assert fitted.shares_.sum() == 1
    assert fitted.shares_.max() == fitted.most_picked_support_


def test_without_draws_there_is_nothing_to_count():
    assert LayerSelector("sure").fit(SURE.drop(columns="draws")).shares_ is None
    with pytest.raises(FrameError, match=r"--draws 100.*\.parquet"):
        pick_shares(SURE.drop(columns="draws"))
    assert set(pick_shares(pd.concat([SURE.assign(draws=None), TORN]))["criterion"]) == {"torn"}


def test_unknown_criteria_and_several_corpora_are_refused():
    with pytest.raises(UsageError, match="did you mean 'sure'"):
        pick_shares(SURE, ["sur"])
    with pytest.raises(UsageError, match="no pooling 'last'"):
        pick_shares(SURE, pooling="last")
    with pytest.raises(FrameError, match="several values of corpus"):
        pick_shares(pd.concat([SURE, SURE.assign(corpus="d")]))


def test_poolings_and_recipes_are_counted_apart():
    frame = pd.concat([TORN, TORN.assign(pooling="last"), SURE, SURE.assign(variant="alpha=2")])
    shares = pick_shares(frame)
    assert shares.groupby(["criterion", "pooling", "variant"])["share"].sum().tolist() == [1.0] * 4
    ax = plot_selection_stability(shares)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == [
        "sure, mean ()", "sure, mean (alpha=2)", "torn, mean", "torn, last",
    ]  # fmt: skip


def drawn_cells(ax):
    return next(part for part in ax.collections if isinstance(part, QuadMesh)).get_array().filled(np.nan)


def test_cells_are_the_shares_with_the_surest_criterion_on_top():
    ax = plot_selection_stability(pick_shares(pd.concat([TORN, SURE])))
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["sure", "torn"]
    assert tick_texts(ax) == ["embed", "1", "2", "norm"]
    cells = np.delete(drawn_cells(ax), 3, axis=1)  # without the gap before the norm
    np.testing.assert_array_equal(cells, [[0, 1, 0, 0], [0.25, 0.5, 0.25, 0]])
    assert [text.get_text() for text in marks(ax, "cell")] == ["100", "25", "50", "25"]
    frames = [frame.get_xy() for frame in marks(ax, "pick")]
    assert frames == [(1.0, 0), (2.0, 1)]
    assert legend_texts(ax) == ["framed: picked on all texts"]
    assert ax.get_title("left") == "model: m; texts: c; pooling: mean"


def test_a_layer_without_a_value_is_hatched():
    holed = TORN.assign(value=TORN["value"].where(TORN["layer_name"] != "embed"))
    ax = plot_selection_stability(pick_shares(pd.concat([SURE, holed])))
    assert [patch.get_xy() for patch in marks(ax, "missing")] == [(0.0, 1)]


def test_wrong_frames_are_refused_in_one_line():
    shares = pick_shares(SURE)
    for wrong, says in [
        (shares.drop(columns="share"), "lacks the column(s) share"),
        (shares.iloc[:0], "has no rows"),
        (pd.concat([shares, shares]), "two shares of layer block.1 for 'sure'"),
        (pd.concat([shares, shares.assign(model="n")]), "several values of model"),
    ]:
        with pytest.raises(FrameError) as raised:
            plot_selection_stability(wrong)
        assert says in str(raised.value)
        assert "\n" not in str(raised.value)


def test_saves_in_three_formats(tmp_path):
    figure = plot_selection_stability(pick_shares(SURE)).figure
    written = save_figure(figure, tmp_path / "stability", ("png", "svg", "pdf"))
    assert [path.read_bytes()[:4] for path in written] == [b"\x89PNG", b"<?xm", b"%PDF"]
