"""Correlation of metrics with scores, task by task, as a heat map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from layerscope.errors import FrameError, nearest
from layerscope.frames import ALL_TASKS
from layerscope.plots.cells import cell_starts, cell_width, draw_cells, print_cells
from layerscope.plots.curves import figure_of
from layerscope.plots.digits import fixed
from layerscope.plots.series import check_columns, names_of
from layerscope.plots.style import PAGE_WIDTH, SMALL, house_style, label_of, new_figure, wrapped

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

_NAMES = {
    "spearman": "Spearman's ρ", "kendall": "Kendall's τ", "pearson": "Pearson's r",
    "distance": "Distance correlation",
}  # fmt: skip
_SURE = 0.05
_WIDE_CELL = 26.0  # points that a printed value needs across


def plot_correlations(
    frame: pd.DataFrame,
    statistic: str = "spearman",
    ax: Axes | None = None,
    *,
    labels: Mapping[str, str] | None = None,
) -> Axes:
    """Every metric's correlation with the score over layers: a row a metric, a column a task.

    The mean over tasks stands apart at the right, with a star where its permutation p is below 0.05. The
    values are printed where cells are wide enough, else a minus in negative ones. A missing value is hatched.

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
        values, starts = wide.to_numpy(dtype=np.float64), cell_starts(len(tasks) + 1, apart=True)
        _draw(panel, values, starts, statistic)
        panel.set_yticks(np.arange(len(wide)) + 0.5, [wrapped(str(name), 34) for name in wide.index])
        upright = 90 if len(tasks) > 4 else 0
        panel.set_xticks(starts + 0.5, [*tasks, "mean"], rotation=upright, fontsize=SMALL)
        _print(panel, values, starts, p_mean.to_numpy(dtype=np.float64), signed=statistic != "distance")
        panel.set_title(str(rows["model"].iloc[0]), loc="left")
    return panel


def _new_axes(rows: int, longest: int) -> Axes:
    return new_figure(PAGE_WIDTH, 0.24 * rows + 1.1 + 0.06 * longest).add_subplot()


def _draw(ax: Axes, values: NDArray[np.float64], starts: NDArray[np.float64], statistic: str) -> None:
    low, colours = (0.0, "cividis") if statistic == "distance" else (-1.0, "RdBu")
    mesh = draw_cells(ax, values, starts, colours=colours, limits=(low, 1.0))
    bar = figure_of(ax).colorbar(mesh, ax=ax, location="bottom", aspect=40, fraction=0.06, pad=0.02)
    name = _NAMES.get(statistic, statistic)
    bar.set_label(f"{name} of metric and score over layers; ★ p < {_SURE}", fontsize=SMALL)
    bar.ax.grid(False)


def _print(
    ax: Axes,
    values: NDArray[np.float64],
    starts: NDArray[np.float64],
    p_mean: NDArray[np.float64],
    signed: bool,
) -> None:
    """The values, or where cells are too narrow the sign of negative ones, and the star of the mean."""
    fits = cell_width(ax, values.shape[1]) >= _WIDE_CELL
    last = values.shape[1] - 1

    def text(row: int, column: int) -> str:
        value = values[row, column]
        number = fixed(value, 2) if fits else "−" if value < 0 else ""
        return number + ("★" if column == last and p_mean[row] < _SURE else "")

    is_dark = np.abs(values) > 0.6 if signed else values < 0.55
    print_cells(ax, values, starts, text, is_dark, room=0)
