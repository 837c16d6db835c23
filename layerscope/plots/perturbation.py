"""A metric against the layers, one line for each level of a perturbation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.errors import FrameError, UsageError, nearest
from layerscope.frames import residual_rows
from layerscope.layers import as_layer_order
from layerscope.plots.curves import draw_series, figure_of, say_if_empty
from layerscope.plots.layer_axis import LayerAxis
from layerscope.plots.series import Series, check_columns, names_of, rows_of
from layerscope.plots.style import (
    COLUMN_WIDTH,
    add_legend,
    house_style,
    label_of,
    new_figure,
    sequential_style,
    wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    from matplotlib.axes import Axes

_PREFERRED = ("tokens-nosink", "mean-nosink")
_LEVEL_NAMES = {
    "repeat": "share of tokens repeated",
    "random-token": "share of tokens random",
    "random-prompt": "random tokens",
}


def plot_perturbation(
    frame: pd.DataFrame,
    metric: str,
    ax: Axes | None = None,
    *,
    pooling: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> Axes:
    """One metric against the layers, one line for each level: light to dark, with markers and dashes.

    Args:
        frame: what ``layerscope.perturb`` returns: a metrics frame with ``perturbation`` and ``level``.
        metric: name of the metric.
        ax: where to draw; a new figure of column width if None.
        pooling: which pooling or token set; the one without attention sinks where every level has it, else
            the first.
        labels: axis label of each metric.

    Raises:
        FrameError: the frame lacks a column, has no rows of this metric, or holds several models, corpora or
            kinds of perturbation.
        UsageError: the metric has no such pooling.

    Source: Skean et al. 2025, figure 6.
    """
    check_columns(frame, ("perturbation", "level"), "perturbation")
    rows = rows_of(residual_rows(frame), metric)
    for column in ("model", "corpus", "perturbation"):
        if column in rows and rows[column].nunique() > 1:
            raise FrameError(f"several values of {column} ({', '.join(names_of(rows, column))}): select one")
    rows = rows[rows["pooling"] == _pooling_of(rows, pooling)]
    levels = sorted(rows["level"].unique())
    axis = LayerAxis.of(rows)
    with house_style():
        panel = ax if ax is not None else new_figure(COLUMN_WIDTH, 2.7).add_subplot()
        axis.apply(panel)
        for nth, level in enumerate(levels):
            own = rows[rows["level"] == level].set_index("layer_name", drop=False)
            own = own.loc[as_layer_order(own.index)]
            series = Series(f"{level:g}", own, sequential_style(nth, len(levels)))
            draw_series(panel, series, axis, "value", nth)
        say_if_empty(panel, rows, "value")
        panel.set_ylabel(wrapped(label_of(metric, labels), 30))
        kind = str(rows["perturbation"].iloc[0])
        add_legend(figure_of(panel), [panel], own=ax is None, title=_LEVEL_NAMES.get(kind, kind))
    return panel


def _pooling_of(rows: pd.DataFrame, wanted: str | None) -> str:
    """The pooling asked for, else one without sinks that all levels have, else the first."""
    known = names_of(rows, "pooling")
    if wanted is not None:
        if wanted not in known:
            raise UsageError(f"no rows of pooling '{wanted}' in this frame: {nearest(wanted, known)}")
        return wanted
    everywhere = [
        name
        for name in _PREFERRED
        if rows.loc[rows["pooling"] == name, "level"].nunique() == rows["level"].nunique()
    ]
    return (everywhere or known)[0]
