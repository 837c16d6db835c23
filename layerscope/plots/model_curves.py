"""A metric of several models over relative depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from layerscope.plots.curves import draw_series, figure_of, say_if_empty
from layerscope.plots.layer_axis import LayerAxis
from layerscope.plots.scores import score_label
from layerscope.plots.series import Series, check_columns, floats, of_pooling, rows_of, split_models
from layerscope.plots.style import (
    COLUMN_WIDTH,
    INK,
    SMALL,
    add_legend,
    house_style,
    new_figure,
    tag,
    wrapped,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_SHARED = {"pooling": "pooling", "corpus": "texts", "task": "task"}


def plot_models(
    frame: pd.DataFrame,
    metric: str,
    ax: Axes | None = None,
    *,
    pooling: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> Axes:
    """One metric of several models, or checkpoints, over relative depth, with intervals as bands.

    A line a model and pooling, in the model's colour. What all lines have in common (pooling, texts) stands
    above the axes, what tells them apart in the legend. The embedding output is an open marker at depth 0;
    the final norm stands apart, beyond the last block. A missing value is a gap in the line and a cross at
    the foot.

    Args:
        frame: metrics frame, or scores frame, with the column ``model``.
        metric: name of the metric or score.
        ax: where to draw; a new figure of column width if None.
        pooling: the only pooling to draw (of a token metric: the one that averages the same tokens); all of
            them if None.
        labels: axis label of each metric.

    Returns:
        The axes (``ax.figure`` is the figure).

    Raises:
        FrameError: no rows of this metric or pooling, no column ``model``, or more than 12 lines.
    """
    column = "score" if "score" in frame.columns and "value" not in frame.columns else "value"
    rows = rows_of(frame, metric, "metrics" if column == "value" else "scores")
    check_columns(rows, ("model",), "metrics")
    if pooling is not None:
        rows = of_pooling(rows, pooling)
    drawn = split_models(rows)
    axis = LayerAxis.of(rows, "depth")
    with house_style():
        panel = ax if ax is not None else new_figure(COLUMN_WIDTH, 2.9).add_subplot()
        axis.apply(panel)
        for nth, series in enumerate(drawn):
            draw_series(panel, series, axis, column, nth)
            _open_embedding(panel, series, axis, column)
        _explain_embedding(panel, rows)
        say_if_empty(panel, rows, column)
        panel.set_ylabel(wrapped(score_label(metric, labels), 30))
        panel.set_title(wrapped(_in_common(rows), 50), loc="left", fontsize=SMALL, color=INK)
        add_legend(figure_of(panel), [panel], own=ax is None)
    return panel


def _open_embedding(ax: Axes, series: Series, axis: LayerAxis, column: str) -> None:
    """The embedding output as an open marker, so that it is not taken for a block."""
    row = series.at("embed")
    ax.plot(
        axis.positions(row), floats(row, column), linestyle="none", marker=series.style.marker,
        color=series.style.colour, markerfacecolor="white", gid=tag(ax, "embed"), zorder=3,
    )  # fmt: skip


def _explain_embedding(ax: Axes, rows: pd.DataFrame) -> None:
    if (rows["layer_name"] == "embed").any():
        ax.plot(
            [], [], linestyle="none", marker="o", color=INK, markerfacecolor="white",
            label="open: embedding output", gid=tag(ax, "embed"),
        )  # fmt: skip


def _in_common(rows: pd.DataFrame) -> str:
    """What all lines are of."""
    parts = []
    for key, word in _SHARED.items():
        if key in rows.columns and rows[key].nunique(dropna=False) == 1 and rows[key].notna().all():
            parts.append(f"{word}: {rows[key].iloc[0]}")
    return "; ".join(parts)
