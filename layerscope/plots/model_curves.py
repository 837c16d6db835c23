"""A metric of several models over relative depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from layerscope.plots.curves import draw_series, figure_of, new_grid, say_if_empty
from layerscope.plots.layer_axis import LayerAxis
from layerscope.plots.scores import score_label
from layerscope.plots.series import (
    Series,
    check_columns,
    floats,
    in_common,
    names_of,
    of_pooling,
    rows_of,
    split_models,
)
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
    from matplotlib.figure import Figure


def plot_models(
    frame: pd.DataFrame,
    metric: str,
    ax: Axes | None = None,
    *,
    pooling: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> Axes:
    """One metric of several models, or checkpoints, over relative depth, with intervals as bands.

    A line a model and pooling: colour and marker say which model, dashes which of its poolings. What all
    lines have in common (pooling, texts) stands above the axes, what they differ in in the legend. The
    embedding output is an open marker at depth 0; the final norm stands apart, beyond the last block. A
    missing value is a gap in the line and a cross at the foot.

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
    rows = _rows(frame, metric, pooling)
    with house_style():
        panel = ax if ax is not None else new_figure(COLUMN_WIDTH, 2.9).add_subplot()
        _draw_models(panel, rows, LayerAxis.of(rows, "depth"))
        panel.set_ylabel(wrapped(score_label(metric, labels), 30))
        panel.set_title(wrapped(in_common(rows), 50), loc="left", fontsize=SMALL, color=INK)
        add_legend(figure_of(panel), [panel], own=ax is None)
    return panel


def plot_models_grid(
    frame: pd.DataFrame,
    metrics: Sequence[str] | None = None,
    *,
    pooling: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> Figure:
    """Several metrics of several models over relative depth, as small multiples of page width.

    Args:
        frame: as for ``plot_models``.
        metrics: which, in this order; all of the frame if None.
        pooling: as for ``plot_models``.
        labels: axis label of each metric.

    Raises:
        FrameError: as for ``plot_models``, of any of the metrics.
    """
    check_columns(frame, ("metric", "model"), "metrics")
    names = list(metrics) if metrics else names_of(frame)
    parts = [_rows(frame, name, pooling) for name in names]
    every = frame[frame["metric"].isin(names)] if pooling is None else of_pooling(frame, pooling)
    axis = replace(LayerAxis.of(every, "depth"), narrow=True)
    with house_style():
        panels = new_grid(len(names), columns=3, height=1.95)
        for panel, name, rows in zip(panels, names, parts, strict=True):
            _draw_models(panel, rows, axis)
            panel.set_ylabel(wrapped(score_label(name, labels), 22))
        figure = figure_of(panels[0])
        figure.suptitle(in_common(every), x=0.01, ha="left", fontsize=SMALL, color=INK)
        add_legend(figure, panels, own=True)
    return figure


def _rows(frame: pd.DataFrame, metric: str, pooling: str | None) -> pd.DataFrame:
    rows = rows_of(frame, metric, "metrics" if _column(frame) == "value" else "scores")
    check_columns(rows, ("model",), "metrics")
    return rows if pooling is None else of_pooling(rows, pooling)


def _column(frame: pd.DataFrame) -> str:
    """The column of the values, of metrics or of scores."""
    return "score" if "score" in frame.columns and "value" not in frame.columns else "value"


def _draw_models(ax: Axes, rows: pd.DataFrame, axis: LayerAxis) -> None:
    column = _column(rows)
    axis.apply(ax)
    for nth, series in enumerate(split_models(rows)):
        draw_series(ax, series, axis, column, nth)
        _open_embedding(ax, series, axis, column)
    _explain_embedding(ax, rows)
    say_if_empty(ax, rows, column)


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
