"""A metric against the layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from layerscope.plots.layer_axis import LayerAxis, tick_step
from layerscope.plots.series import (
    Series,
    check_columns,
    floats,
    names_of,
    picks_for,
    rows_of,
    split_series,
)
from layerscope.plots.style import (
    COLUMN_WIDTH,
    INK,
    PAGE_WIDTH,
    SMALL,
    add_legend,
    house_style,
    label_of,
    new_figure,
    tag,
    wrapped,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from layerscope.plots.style import SeriesStyle


def plot_metric(
    frame: pd.DataFrame,
    metric: str,
    ax: Axes | None = None,
    picks: pd.DataFrame | None = None,
    *,
    labels: Mapping[str, str] | None = None,
) -> Axes:
    """One metric against the layers, with its interval as a band: one line per pooling.

    The final norm stands apart from the last block. A missing value is a gap in the line and a
    cross at the foot. The layers that this metric picks are ringed.

    Args:
        frame: metrics frame.
        metric: name of the metric.
        ax: where to draw; a new figure of column width if None.
        picks: picks frame, of which those made by this metric are marked.
        labels: axis label of each metric.

    Returns:
        The axes (``ax.figure`` is the figure).

    Raises:
        FrameError: the frame has no rows of this metric.
    """
    rows = rows_of(frame, metric)
    with house_style():
        panel = ax if ax is not None else new_figure(COLUMN_WIDTH, 2.7).add_subplot()
        _draw_metric(panel, rows, LayerAxis.of(rows), picks)
        panel.set_ylabel(wrapped(label_of(metric, labels), 30))
        add_legend(figure_of(panel), [panel], own=ax is None)
    return panel


def plot_metrics(
    frame: pd.DataFrame,
    picks: pd.DataFrame | None = None,
    *,
    labels: Mapping[str, str] | None = None,
) -> Figure:
    """Every metric against the layers, as small multiples of page width; against depth where they are many.

    Args:
        frame: metrics frame.
        picks: picks frame; each panel rings the layers that its metric picks.
        labels: axis label of each metric.

    Raises:
        FrameError: the frame has no rows.
    """
    check_columns(frame, ("layer", "layer_name", "depth", "pooling", "metric", "value"), "metrics")
    names = names_of(frame)
    axis = LayerAxis.of_grid(frame)
    with house_style():
        panels = new_grid(len(names), columns=3, height=1.95)
        for panel, name in zip(panels, names, strict=True):
            _draw_metric(panel, rows_of(frame, name), axis, picks, name_layers=False)
            panel.set_ylabel(wrapped(label_of(name, labels), 22))
        figure = figure_of(panels[0])
        add_legend(figure, panels, own=True)
    return figure


def new_grid(count: int, columns: int, height: float) -> list[Axes]:
    """``count`` axes of ``height`` inches in a new figure, at most ``columns`` beside each other."""
    across = min(columns, count)
    down = -(-count // across)
    figure = new_figure(PAGE_WIDTH * max(across, 2) / max(columns, 2), height * down)
    return [figure.add_subplot(down, across, index + 1) for index in range(count)]


def figure_of(ax: Axes) -> Figure:
    """The figure that ``ax`` belongs to, also where that is a part of a larger one."""
    figure = ax.get_figure(root=True)
    assert figure is not None  # an axes without a figure cannot be drawn on
    return figure


def _draw_metric(
    ax: Axes, rows: pd.DataFrame, axis: LayerAxis, picks: pd.DataFrame | None, name_layers: bool = True
) -> None:
    own = (
        None
        if picks is None or "metric" not in picks.columns
        else picks[picks["metric"] == rows["metric"].iloc[0]]
    )
    drawn = split_series(rows)
    axis.apply(ax)
    for nth, series in enumerate(drawn):
        draw_series(ax, series, axis, "value", nth)
    for series in drawn:
        _ring_picks(ax, series, axis, own, name_layers)
    say_if_empty(ax, rows, "value")


def draw_series(ax: Axes, series: Series, axis: LayerAxis, value: str, nth: int) -> None:
    """Draw one line with its band: blocks, final norm of inner blocks, and the final norm itself.

    Args:
        ax: where.
        series: what.
        axis: positions of the layers.
        value: column of the values.
        nth: how many series were drawn before; the crosses of missing values are stacked by it.
    """
    names = series.rows["layer_name"].astype(str)
    x = np.asarray(axis.positions(series.rows))
    y, low, high = (floats(series.rows, column) for column in (value, "ci_low", "ci_high"))
    is_norm, is_inner_norm = (names == "norm").to_numpy(), names.str.startswith("normed.").to_numpy()
    blocks = ~is_norm & ~is_inner_norm
    style, inner = series.style, replace(series.style, hollow=True, role=f"{series.style.role}.normed")
    _draw_line(ax, x[blocks], y[blocks], style, series.label, first=nth)
    name = f"{series.label}, final norm applied"
    _draw_line(ax, x[is_inner_norm], y[is_inner_norm], inner, name, first=nth)
    for part in (blocks, is_inner_norm):
        ax.fill_between(x[part], low[part], high[part], color=style.colour, alpha=0.18, linewidth=0)
    label = None if blocks.any() else series.label
    _draw_norm(ax, x[is_norm], y[is_norm], (low[is_norm], high[is_norm]), style, label=label)
    _draw_missing(ax, x[np.isnan(y)], nth, style)


def _draw_line(
    ax: Axes, x: NDArray[np.float64], y: NDArray[np.float64], style: SeriesStyle, label: str, *, first: int
) -> None:
    if len(x) == 0:
        return
    ax.plot(
        x, y, color=style.colour, linestyle=style.line, marker=style.marker, label=label,
        markerfacecolor=style.face, markevery=marked_points(y, first),
        gid=tag(ax, style.role),
    )  # fmt: skip


def marked_points(y: NDArray[np.float64], first: int) -> list[int]:
    """Which points get a marker: all of a few; of many, every some, and those without neighbours.

    Lines start at different points, so that one that hides another does not hide its markers.

    >>> marked_points(np.array([1.0] * 20 + [np.nan, 1.0, np.nan]), first=1)
    [1, 6, 11, 16, 21]
    """
    step = tick_step(len(y)) if len(y) > 14 else 1
    missing = np.isnan(np.concatenate([[np.nan], y, [np.nan]]))
    alone = missing[:-2] & missing[2:]
    return [place for place in range(len(y)) if place % step == first % step or alone[place]]


def _draw_norm(
    ax: Axes,
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    interval: tuple[NDArray[np.float64], NDArray[np.float64]],
    style: SeriesStyle,
    *,
    label: str | None,
) -> None:
    """The final norm: a point with a bar, not joined to the last block."""
    if len(x) == 0:
        return
    ax.vlines(x, *interval, color=style.colour, linewidth=2.2, alpha=0.45)
    ax.plot(
        x, y, linestyle="none", marker=style.marker, color=style.colour, label=label,
        markerfacecolor=style.face, gid=tag(ax, "norm"),
    )  # fmt: skip


def _draw_missing(ax: Axes, x: NDArray[np.float64], nth: int, style: SeriesStyle) -> None:
    if len(x) == 0:
        return
    ax.plot(
        x, np.full(len(x), 0.03 + 0.05 * nth), transform=ax.get_xaxis_transform(), linestyle="none",
        marker="x", markersize=3.5, color=style.colour, label="no value", gid=tag(ax, "missing"),
    )  # fmt: skip


def _ring_picks(
    ax: Axes, series: Series, axis: LayerAxis, picks: pd.DataFrame | None, name_layers: bool
) -> None:
    import pandas as pd

    found = picks_for(series, picks)
    if found is None:
        return
    if "variant" in found.columns and "variant" in series.rows.columns:
        found = found[found["variant"].isna() | (found["variant"] == series.rows["variant"].iloc[0])]
    for pick in found.drop_duplicates("layer_name").to_dict("records"):
        unclear = pick.get("clear") is False and not pd.isna(pick.get("support"))  # known by subsamples
        doubt = ", no clear winner" if unclear else ""
        label = f"picked ({series.pooling}): {pick['layer_name']}{doubt}" if name_layers else "picked layer"
        draw_ring(ax, series.at(str(pick["layer_name"])), axis, "value", label)


def draw_ring(ax: Axes, row: pd.DataFrame, axis: LayerAxis, value: str, label: str) -> None:
    """Ring the point of a layer; nothing where it has no value."""
    y = floats(row, value)
    if len(y) == 0 or np.isnan(y).all():
        return
    ax.plot(
        axis.positions(row), y, linestyle="none", marker="o", markersize=9.5, markerfacecolor="none",
        markeredgecolor="black", markeredgewidth=1.2, label=label, gid=tag(ax, "pick"), zorder=5,
    )  # fmt: skip


def say_if_empty(ax: Axes, rows: pd.DataFrame, value: str) -> None:
    """Where no layer has a value, say so and why in the middle of the axes."""
    if not np.isnan(floats(rows, value)).all():
        return
    reasons = [name for name in names_of(rows, "reason") if name] if "reason" in rows.columns else []
    text = wrapped("no layer has a value" + (f": {reasons[0]}" if reasons else ""), 30)
    ax.text(
        0.5,
        0.5,
        text,
        transform=ax.transAxes,
        ha="center",
        va="center",
        fontsize=SMALL,
        color=INK,
        backgroundcolor="white",
    )
    ax.set_yticks([])
