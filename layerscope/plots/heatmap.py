"""All metrics of all layers at a glance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from layerscope.plots.cells import cell_starts, draw_cells, print_cells
from layerscope.plots.curves import figure_of
from layerscope.plots.digits import significant
from layerscope.plots.layer_axis import LAYER_LABEL, block_label, tick_step
from layerscope.plots.series import check_columns, floats, names_of, rows_of, split_series
from layerscope.plots.style import (
    COLUMN_WIDTH,
    PAGE_WIDTH,
    SMALL,
    house_style,
    label_of,
    new_figure,
    wrapped,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from numpy.typing import NDArray

_NORM = -1  # column key of the final norm; the others are counts of blocks
_NAME_WIDTH = 30  # characters of a metric's label before it is broken
_CHARACTER = 4.1  # points, the width of a character of the smallest text
_SCALE_LABEL = "each row scaled over its layers:\n0 = its lowest value, 1 = its highest"


@dataclass(frozen=True, eq=False)
class _Table:
    """What is drawn, top to bottom.

    Attributes:
        metrics: label of the metric of each row.
        labels: what else each row is of.
        columns: key of each column.
        values: ``(rows, columns)``, NaN where missing.
    """

    metrics: list[str]
    labels: list[str]
    columns: list[int]
    values: NDArray[np.float64]

    @property
    def groups(self) -> list[tuple[str, int, int]]:
        """Each metric with its first row and the row after its last."""
        starts = [row for row, name in enumerate(self.metrics) if row == 0 or name != self.metrics[row - 1]]
        return [
            (self.metrics[start], start, stop)
            for start, stop in zip(starts, [*starts[1:], len(self.metrics)], strict=True)
        ]


def plot_heatmap(
    frame: pd.DataFrame, ax: Axes | None = None, *, labels: Mapping[str, str] | None = None
) -> Axes:
    """Every metric and pooling by layer, each row scaled to [0, 1] over its layers.

    The values themselves are printed where cells are wide enough. A missing value is hatched. A
    row whose values are all equal has no scale: it is drawn in the middle colour and says so.

    Args:
        frame: metrics frame.
        ax: where to draw; a new figure, as wide as it needs to be, if None.
        labels: label of each metric.

    Raises:
        FrameError: the frame has no rows.
    """
    check_columns(frame, ("layer", "layer_name", "depth", "pooling", "metric", "value"), "metrics")
    table = _tabulate(frame, labels)
    with house_style():
        panel = ax if ax is not None else _new_axes(table)
        mesh = draw_cells(panel, _scaled(table.values), _starts(table))
        _name_cells(panel, table)
        _draw_scale(panel, mesh, bool(np.isnan(table.values).any()))
        _print_values(panel, table)
    return panel


def _tabulate(frame: pd.DataFrame, labels: Mapping[str, str] | None) -> _Table:
    columns = sorted({int(k) for k in frame.loc[frame["layer_name"] != "norm", "layer"]})
    columns += [_NORM] if (frame["layer_name"] == "norm").any() else []
    metrics, names, values = [], [], []
    for metric in names_of(frame):
        for series in split_series(rows_of(frame, metric)):
            normed = series.rows["layer_name"].str.startswith("normed.")
            for part, note in ((series.rows[~normed], ""), (series.rows[normed], ", final norm applied")):
                if len(part):
                    line = _row(part, columns)
                    metrics.append(label_of(metric, labels))
                    names.append(series.label + note + (" (all equal)" if _is_flat(line) else ""))
                    values.append(line)
    return _Table(metrics, names, columns, np.array(values))


def _is_flat(line: NDArray[np.float64]) -> bool:
    finite = line[~np.isnan(line)]
    return len(finite) > 1 and bool((finite == finite[0]).all())


def _row(rows: pd.DataFrame, columns: list[int]) -> NDArray[np.float64]:
    line = np.full(len(columns), np.nan)
    places = zip(rows["layer_name"], rows["layer"], floats(rows, "value"), strict=True)
    for name, blocks, value in places:
        line[columns.index(_NORM if name == "norm" else int(blocks))] = value
    return line


def _scaled(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each row to [0, 1] over its finite values; 0.5 where they are all equal.

    >>> _scaled(np.array([[1.0, 3.0, np.nan, 2.0], [7.0, 7.0, 7.0, 7.0]])).tolist()
    [[0.0, 1.0, nan, 0.5], [0.5, 0.5, 0.5, 0.5]]
    """
    low = np.fmin.reduce(values, axis=1, keepdims=True)
    span = np.fmax.reduce(values, axis=1, keepdims=True) - low
    scaled = np.where(np.isnan(values), np.nan, 0.5)
    np.divide(values - low, span, out=scaled, where=(span > 0) & ~np.isnan(values))
    return scaled


def _new_axes(table: _Table) -> Axes:
    names = (_NAME_WIDTH + max(map(len, table.labels))) * _CHARACTER / 72
    width = min(max(COLUMN_WIDTH, names + 0.4 * len(table.columns)), PAGE_WIDTH)
    lines = [wrapped(name, _NAME_WIDTH).count("\n") + 1 for name, _, _ in table.groups]
    spans = [stop - start for _, start, stop in table.groups]
    row = max(0.22, max(0.13 * line / span for line, span in zip(lines, spans, strict=True)) + 0.03)
    return new_figure(width, row * len(table.labels) + 1.1).add_subplot()


def _starts(table: _Table) -> NDArray[np.float64]:
    return cell_starts(len(table.columns), apart=table.columns[-1] == _NORM)


def _name_cells(ax: Axes, table: _Table) -> None:
    step = tick_step(max(table.columns))
    every = len(table.columns) <= 10
    shown = [place for place, key in enumerate(table.columns) if key == _NORM or every or key % step == 0]
    centres = _starts(table) + 0.5
    names = [
        "norm" if table.columns[place] == _NORM else block_label(table.columns[place]) for place in shown
    ]
    ax.set_xticks(centres[shown], names)
    ax.set_yticks(np.arange(len(table.labels)) + 0.5, table.labels)
    ax.set_xlabel(LAYER_LABEL)
    _name_groups(ax, table)


def _name_groups(ax: Axes, table: _Table) -> None:
    """The metrics' labels, left of the poolings', each once."""
    outer = ax.secondary_yaxis("left")
    outer.set_yticks(
        [(start + stop) / 2 for _, start, stop in table.groups],
        [wrapped(name, _NAME_WIDTH) for name, _, _ in table.groups],
        linespacing=1.0,
    )
    outer.tick_params(length=0, pad=max(map(len, table.labels)) * _CHARACTER + 9)
    outer.spines[:].set_visible(False)
    for _, start, _ in table.groups[1:]:
        ax.axhline(start, color="white", linewidth=2.5)


def _draw_scale(ax: Axes, mesh: QuadMesh, some_missing: bool) -> None:
    bar = figure_of(ax).colorbar(mesh, ax=ax, location="bottom", aspect=40, fraction=0.05, pad=0.02)
    bar.set_ticks([0, 0.5, 1], labels=["0", "0.5", "1"])
    bar.set_label(_SCALE_LABEL + ("; hatched = no value" if some_missing else ""), fontsize=SMALL)
    bar.ax.grid(False)


def _print_values(ax: Axes, table: _Table) -> None:
    """Print the values themselves into the scaled cells."""
    scaled = _scaled(table.values)
    print_cells(
        ax, scaled, _starts(table), lambda row, column: _cell_text(table.values[row, column]), scaled < 0.55
    )


def _cell_text(value: float) -> str:
    """Two digits below one and three above, so that a cell holds it.

    >>> _cell_text(0.1876), _cell_text(4.4712), _cell_text(123456.0)
    ('0.19', '4.47', '1.2e5')
    """
    if abs(value) >= 1e4:
        return f"{value:.1e}".replace("e+0", "e").replace("e+", "e")
    return significant(value, 3 if abs(value) >= 1 else 2)
