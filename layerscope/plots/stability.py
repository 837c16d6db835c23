"""How certain each criterion is of its pick."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from layerscope.errors import FrameError
from layerscope.frames import check_one
from layerscope.layers import as_layer_order
from layerscope.plots.cells import cell_starts, cell_width, draw_cells, print_cells
from layerscope.plots.curves import figure_of
from layerscope.plots.layer_axis import LAYER_LABEL, layer_ticks
from layerscope.plots.series import check_columns, floats, in_common
from layerscope.plots.style import (
    INK,
    PAGE_WIDTH,
    SMALL,
    add_legend,
    house_style,
    label_of,
    new_figure,
    pooling_family,
    tag,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

_NEEDED = ("pooling", "layer", "layer_name", "criterion", "share", "picked")
_SCALE_LABEL = "share of subsamples of the texts in which the layer is best"
_NUMBER = 14.0  # points that a share in percent needs across


def plot_selection_stability(
    shares: pd.DataFrame, ax: Axes | None = None, *, labels: Mapping[str, str] | None = None
) -> Axes:
    """The share of subsamples that pick each layer: a row a criterion, a column a layer; the surest on top.

    A frame marks the layer that all texts together pick: a criterion that is sure of it has one dark cell,
    framed, and nothing else. Shares are printed in percent where cells are wide enough. A layer without a
    value is hatched.

    Args:
        shares: from ``pick_shares``, of one model and corpus.
        ax: where to draw; a new figure of page width if None.
        labels: label of each metric.

    Raises:
        FrameError: not such a frame, or of several models or corpora.
    """
    check_columns(shares, _NEEDED, "pick shares")
    check_one(shares, "this frame")
    names = _row_names(shares, labels)
    layers = as_layer_order(shares["layer_name"].unique())
    values, picked = _tables(shares.assign(name=names), layers)
    order = np.argsort(-np.nansum(np.where(picked, values, 0.0), axis=1), kind="stable")
    rows = [list(dict.fromkeys(names))[nth] for nth in order]
    values, picked = values[order], picked[order]
    with house_style():
        panel = ax if ax is not None else new_figure(PAGE_WIDTH, 0.2 * len(rows) + 1.0).add_subplot()
        starts = cell_starts(len(layers), apart=layers[-1] == "norm")
        mesh = draw_cells(panel, values, starts, colours="Blues", line=("0.85", 0.6))
        places, ticks = layer_ticks(layers)
        panel.set_xticks(starts[places] + 0.5, ticks)
        panel.set_xlabel(LAYER_LABEL)
        panel.set_yticks(np.arange(len(rows)) + 0.5, rows)
        panel.set_title(in_common(shares), loc="left", fontsize=SMALL, color=INK)
        _frame_picks(panel, picked, starts)
        hatched = "; hatched = no value" if np.isnan(values).any() else ""
        bar = figure_of(panel).colorbar(mesh, ax=panel, location="bottom", aspect=60, fraction=0.04, pad=0.02)
        bar.set_label(_SCALE_LABEL + hatched, fontsize=SMALL)
        bar.ax.grid(False)
        add_legend(figure_of(panel), [panel], own=ax is None)
        _print_shares(panel, values, starts)
    return panel


def _row_names(shares: pd.DataFrame, labels: Mapping[str, str] | None) -> list[str]:
    """Criterion, with its pooling where there are several, and its recipe where that is not enough."""
    import pandas as pd

    poolings = shares["pooling"].astype(str).map(pooling_family).nunique() > 1
    plain = [
        label_of(str(criterion), labels) + (f", {pooling}" if poolings else "")
        for criterion, pooling in zip(shares["criterion"], shares["pooling"], strict=True)
    ]
    named = pd.Series(plain, index=shares.index)
    if "variant" not in shares.columns:
        return plain
    recipes = shares["variant"].astype(object).where(shares["variant"].notna(), "").astype(str)
    several = recipes.groupby(named).transform("nunique") > 1
    return list(named.where(~several, named + " (" + recipes + ")"))


def _tables(rows: pd.DataFrame, layers: list[str]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Share and pick by name and layer."""
    names = list(dict.fromkeys(rows["name"]))
    if rows.duplicated(["name", "layer_name"]).any():
        twice = rows[rows.duplicated(["name", "layer_name"])].iloc[0]
        raise FrameError(f"two shares of layer {twice['layer_name']} for '{twice['name']}'")
    values, picked = (
        np.full((len(names), len(layers)), np.nan),
        np.zeros((len(names), len(layers)), dtype=bool),
    )
    places = [
        (names.index(name), layers.index(layer))
        for name, layer in zip(rows["name"], rows["layer_name"], strict=True)
    ]
    across, down = zip(*places, strict=True)
    values[across, down], picked[across, down] = floats(rows, "share"), rows["picked"].to_numpy(dtype=bool)
    return values, picked


def _frame_picks(ax: Axes, picked: NDArray[np.bool_], starts: NDArray[np.float64]) -> None:
    """A black frame with a white rim, to be seen on dark cells and on pale ones."""
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import Normal, Stroke

    for row, column in np.argwhere(picked):
        ax.add_patch(
            Rectangle(
                (starts[column], row), 1, 1, facecolor="none", edgecolor="black", linewidth=1.3,
                gid=tag(ax, "pick"), zorder=3, clip_on=False,
                path_effects=[Stroke(linewidth=3.0, foreground="white"), Normal()],
            )
        )  # fmt: skip
    ax.plot(
        [], [], linestyle="none", marker="s", markersize=7, color="white", markeredgecolor="black",
        label="framed: picked on all texts", gid=tag(ax, "pick.key"),
    )  # fmt: skip


def _print_shares(ax: Axes, values: NDArray[np.float64], starts: NDArray[np.float64]) -> None:
    """Shares in percent, if cells have room."""

    def text(row: int, column: int) -> str:
        percent = 100 * values[row, column]
        return "" if percent == 0 else "<1" if percent < 0.5 else f"{percent:.0f}"

    if cell_width(ax, len(starts)) >= _NUMBER:
        print_cells(ax, values, starts, text, values > 0.65, room=0)
