"""How much each layer counts in a learned mix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.errors import FrameError
from layerscope.plots.curves import figure_of
from layerscope.plots.layer_axis import LayerAxis
from layerscope.plots.style import (
    COLUMN_WIDTH,
    PAGE_WIDTH,
    add_legend,
    house_style,
    new_figure,
    series_style,
    tag,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_NEEDED = ("layer", "layer_name", "depth", "weight")
_NARROW = 40  # bars that a column holds side by side


def plot_layer_weights(weights: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """The share of every layer in a learned mix as bars, with the equal share as a dashed line.

    Args:
        weights: ``layer_weights_`` of a fitted pooling; with a column ``kind``, the bars of several mixes
            stand side by side.
        ax: where to draw; a new figure of column width if None, of page width where there are many bars.

    Raises:
        FrameError: the frame lacks a column.
    """
    missing = [name for name in _NEEDED if name not in weights]
    if missing:
        raise FrameError(f"this is no frame of layer weights: it lacks the column(s) {', '.join(missing)}")
    kinds = list(dict.fromkeys(weights["kind"])) if "kind" in weights else [""]
    axis = LayerAxis.of(weights)
    with house_style():
        bars = len(kinds) * weights["layer_name"].nunique()
        across = COLUMN_WIDTH if bars <= _NARROW else PAGE_WIDTH
        panel = ax if ax is not None else new_figure(across, 2.6).add_subplot()
        axis.apply(panel)
        width = 0.8 / len(kinds)
        for nth, kind in enumerate(kinds):
            rows = weights[weights["kind"] == kind] if kind else weights
            shift = (nth - (len(kinds) - 1) / 2) * width
            drawn = panel.bar(
                [place + shift for place in axis.positions(rows)],
                rows["weight"],
                width=width,
                color=series_style(nth, 0).colour,
            )
            for bar in drawn:
                bar.set_gid(tag(panel, "weights"))
            if kind:
                drawn[0].set_label(kind)
        equal = 1 / weights["layer_name"].nunique()
        panel.axhline(equal, color="0.4", linewidth=0.8, linestyle="--", label="equal shares")
        panel.set_ylabel("share in the mix")
        panel.set_ylim(bottom=0)
        add_legend(figure_of(panel), [panel], own=ax is None)
    return panel
