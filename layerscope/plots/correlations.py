"""Correlation of metrics with scores, task by task, as a heat map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from layerscope.errors import FrameError, nearest
from layerscope.frames import ALL_TASKS
from layerscope.plots.curves import figure_of
from layerscope.plots.series import check_columns, names_of
from layerscope.plots.style import PAGE_WIDTH, SMALL, house_style, label_of, new_figure, tag, wrapped

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

_NAMES = {
    "spearman": "Spearman's ρ", "kendall": "Kendall's τ", "pearson": "Pearson's r",
    "distance": "Distance correlation",
}  # fmt: skip
_SURE = 0.05
_GAP = 0.3  # cells between the tasks and their mean
_WIDE_CELL = 26.0  # points that a printed value needs across


def plot_correlations(
    frame: pd.DataFrame,
    statistic: str = "spearman",
    ax: Axes | None = None,
    *,
    labels: Mapping[str, str] | None = None,
) -> Axes:
    """Every metric's correlation with the score over layers: a row a metric, a column a task.

    The mean over tasks stands apart at the right, with a star where its permutation p is below 0.05. A
    missing value is hatched.

    Args:
        frame: from ``correlate_layers``, of one model.
        statistic: ``spearman``, ``kendall``, ``pearson`` or ``distance``.
        ax: where to draw; a new figure if None.
        labels: label of each metric.

    Raises:
        FrameError: no such statistic, or several models.
    """
    check_columns(frame, ("metric", "statistic", "task", "value", "p"), "correlations")
    known = names_of(frame, "statistic")
    if statistic not in known:
        raise FrameError(f"no statistic '{statistic}' in this frame: {nearest(statistic, known)}")
    if frame["model"].nunique() > 1:
        raise FrameError("several models in one figure: select the rows of one first")
    rows = frame[frame["statistic"] == statistic]
    rows = rows.assign(
        name=[
            label_of(str(metric), labels) + (f" ({variant})" if isinstance(variant, str) and variant else "")
            for metric, variant in zip(rows["metric"], rows["variant"], strict=True)
        ]
    )
    tasks = [name for name in names_of(rows, "task") if name != ALL_TASKS]
    wide = rows.pivot_table(index="name", columns="task", values="value", sort=False, dropna=False)
    wide = wide.reindex(columns=[*tasks, ALL_TASKS], index=list(dict.fromkeys(rows["name"])))
    p_mean = rows[rows["task"] == ALL_TASKS].set_index("name")["p"].reindex(wide.index)
    with house_style():
        panel = ax if ax is not None else _new_axes(len(wide), max(map(len, tasks), default=1))
        _draw(panel, wide.to_numpy(dtype=np.float64), statistic)
        panel.set_yticks(np.arange(len(wide)) + 0.5, [wrapped(str(name), 34) for name in wide.index])
        places = [*(np.arange(len(tasks)) + 0.5), len(tasks) + _GAP + 0.5]
        panel.set_xticks(places, [*tasks, "mean"], rotation=90 if len(tasks) > 4 else 0, fontsize=SMALL)
        panel.tick_params(length=0)
        _print(panel, wide.to_numpy(dtype=np.float64), p_mean.to_numpy(dtype=np.float64), places)
        panel.set_title(str(rows["model"].iloc[0]), loc="left")
    return panel


def _new_axes(rows: int, longest: int) -> Axes:
    return new_figure(PAGE_WIDTH, 0.24 * rows + 1.1 + 0.06 * longest).add_subplot()


def _draw(ax: Axes, values: NDArray[np.float64], statistic: str) -> None:
    from matplotlib.patches import Rectangle

    low, colours = (0.0, "cividis") if statistic == "distance" else (-1.0, "RdBu")
    width = values.shape[1]
    edges = np.array([*np.arange(width, dtype=float), width - 1 + _GAP, width + _GAP])
    cells = np.insert(values, width - 1, np.nan, axis=1)
    ax.grid(False)
    mesh = ax.pcolormesh(
        edges, np.arange(len(values) + 1), np.ma.masked_invalid(cells), cmap=colours, vmin=low, vmax=1,
        edgecolor="white", linewidth=0.6,
    )  # fmt: skip
    for row, column in np.argwhere(np.isnan(values)):
        left = column if column < width - 1 else width - 1 + _GAP
        ax.add_patch(
            Rectangle((left, row), 1, 1, facecolor="white", edgecolor="0.6", hatch="/////", linewidth=0.4,
                      gid=tag(ax, "missing"))
        )  # fmt: skip
    ax.set_ylim(len(values), 0)
    ax.spines[:].set_visible(False)
    bar = figure_of(ax).colorbar(mesh, ax=ax, location="bottom", aspect=40, fraction=0.06, pad=0.02)
    name = _NAMES.get(statistic, statistic)
    bar.set_label(f"{name} of metric and score over layers; ★ p < {_SURE}", fontsize=SMALL)
    bar.ax.grid(False)


def _print(ax: Axes, values: NDArray[np.float64], p_mean: NDArray[np.float64], places: list[float]) -> None:
    """The values, where cells are wide enough, and the star of the mean."""
    figure = figure_of(ax)
    figure.draw_without_rendering()
    fits = ax.get_window_extent().width * 72 / figure.dpi / len(places) >= _WIDE_CELL
    last = len(places) - 1
    for row, column in np.argwhere(~np.isnan(values)):
        star = "★" if column == last and p_mean[row] < _SURE else ""
        if not (fits or star):
            continue
        ax.text(
            places[column], row + 0.52, (f"{values[row, column]:.2f}" if fits else "") + star, ha="center",
            va="center", fontsize=SMALL, color="white" if abs(values[row, column]) > 0.6 else "black",
            gid=tag(ax, "cell"),
        )  # fmt: skip
