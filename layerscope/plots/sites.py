"""A metric of the residual stream beside that of what attention and MLP add to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from layerscope.errors import FrameError, nearest
from layerscope.layers import site_of
from layerscope.plots.curves import draw_series, figure_of, say_if_empty
from layerscope.plots.layer_axis import LayerAxis
from layerscope.plots.series import SITE_LABELS, names_of, rows_of, split_series
from layerscope.plots.style import (
    COLUMN_WIDTH,
    add_legend,
    house_style,
    label_of,
    new_figure,
    series_style,
    wrapped,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def plot_sites(
    frame: pd.DataFrame,
    metric: str,
    ax: Axes | None = None,
    *,
    pooling: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> Axes:
    """One metric against the blocks, one line a site: residual stream, attention output, MLP output.

    Args:
        frame: metrics frame of one model and corpus, extracted with ``sites=("block", "attn", "mlp")``.
        metric: name of the metric.
        ax: where to draw; a new figure of column width if None.
        pooling: which pooling; the first in the frame if None.
        labels: axis label of each metric.

    Raises:
        FrameError: the frame has no rows of this metric or pooling, no site but the residual stream, or
            several models, corpora or recipes.
    """
    rows = rows_of(frame, metric)
    known = names_of(rows, "pooling")
    pooling = known[0] if pooling is None else pooling
    if pooling not in known:
        raise FrameError(f"no rows of pooling '{pooling}' in this frame: {nearest(pooling, known)}")
    rows = rows[rows["pooling"] == pooling]
    if all(site_of(str(name)) == "block" for name in rows["layer_name"]):
        raise FrameError("this frame holds the residual stream only: extract it with --sites block,attn,mlp")
    drawn = {str(series.rows["site"].iloc[0]): series for series in split_series(rows)}
    if sum(len(series.rows) for series in drawn.values()) < len(rows):
        raise FrameError("this frame holds several models, corpora or recipes: select one first")
    axis = LayerAxis.of(rows)
    with house_style():
        panel = ax if ax is not None else new_figure(COLUMN_WIDTH, 2.7).add_subplot()
        axis.apply(panel)
        for nth, label in enumerate(SITE_LABELS.values()):
            if label in drawn:
                series = replace(drawn[label], label=label, style=series_style(nth, 0))
                draw_series(panel, series, axis, "value", nth)
        say_if_empty(panel, rows, "value")
        panel.set_xlabel("block k")
        panel.set_ylabel(wrapped(label_of(metric, labels), 30))
        add_legend(figure_of(panel), [panel], own=ax is None, title=f"pooling: {pooling}")
    return panel
