"""The cells of a heat map: coloured where there is a value, hatched where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from layerscope.plots.style import SMALL, tag

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from numpy.typing import NDArray

GAP = 0.35  # cells between what belongs together and a last column, or row, that stands apart
_TEXT = 23.0  # points that a printed value needs across


def cell_starts(count: int, apart: bool) -> NDArray[np.float64]:
    """Where each of ``count`` cells begins; the last one behind a gap if it stands apart.

    >>> cell_starts(3, apart=True).tolist(), cell_starts(1, apart=True).tolist()
    ([0.0, 1.0, 2.35], [0.0])
    """
    starts = np.arange(count, dtype=float)
    starts[-1] += GAP * (apart and count > 1)
    return starts


def draw_cells(
    ax: Axes,
    values: NDArray[np.float64],
    columns: NDArray[np.float64],
    rows: NDArray[np.float64] | None = None,
    *,
    colours: str = "cividis",
    limits: tuple[float, float] = (0.0, 1.0),
    line: tuple[str, float] = ("white", 0.6),
) -> QuadMesh:
    """Draw ``values`` as cells of side 1, the first row on top; NaN is hatched.

    Args:
        ax: where.
        values: ``(rows, columns)``.
        columns: where each column begins, from ``cell_starts``.
        rows: the same for the rows; none apart if None.
        colours: a colour map of matplotlib's.
        limits: the values at its two ends.
        line: colour and width, in points, of the lines between cells.
    """
    from matplotlib.patches import Rectangle

    tops = np.arange(len(values), dtype=float) if rows is None else rows
    across, cells = _with_gap(columns, values)
    down, cells = _with_gap(tops, cells.T)
    ax.grid(False)
    mesh = ax.pcolormesh(
        across, down, np.ma.masked_invalid(cells.T), cmap=colours, vmin=limits[0], vmax=limits[1],
        edgecolor=line[0], linewidth=line[1],
    )  # fmt: skip
    for row, column in np.argwhere(np.isnan(values)):
        ax.add_patch(
            Rectangle((columns[column], tops[row]), 1, 1, facecolor="white", edgecolor="0.6", hatch="/////",
                      linewidth=0.4, gid=tag(ax, "missing"))
        )  # fmt: skip
    ax.set_ylim(down[-1], 0)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    return mesh


def _with_gap(
    starts: NDArray[np.float64], cells: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The edges of all columns, and the cells with one more column, without colour, where there is a gap."""
    edges = np.append(starts, starts[-1] + 1)
    if len(starts) < 2 or starts[-1] - starts[-2] == 1:
        return edges, cells
    return np.insert(edges, -2, starts[-2] + 1), np.insert(cells, -1, np.nan, axis=1)


def print_cells(
    ax: Axes,
    values: NDArray[np.float64],
    columns: NDArray[np.float64],
    text: Callable[[int, int], str],
    is_dark: NDArray[np.bool_],
    *,
    rows: NDArray[np.float64] | None = None,
    room: float = _TEXT,
) -> bool:
    """Print a text into every cell that has a value, if cells are wide enough once the layout is settled.

    Args:
        ax: where the cells are.
        values: as for ``draw_cells``.
        columns: as for ``draw_cells``.
        text: of a row and column; nothing is written where it is empty.
        is_dark: ``(rows, columns)``, where the text has to be white.
        rows: as for ``draw_cells``.
        room: points that a text needs across.

    Returns:
        Whether they were printed.
    """
    if cell_width(ax, values.shape[1]) < room:
        return False
    tops = np.arange(len(values), dtype=float) if rows is None else rows
    for row, column in np.argwhere(~np.isnan(values)):
        if written := text(int(row), int(column)):
            ax.text(
                columns[column] + 0.5, tops[row] + 0.52, written, ha="center", va="center", fontsize=SMALL,
                color="white" if is_dark[row, column] else "black", gid=tag(ax, "cell"),
            )  # fmt: skip
    return True


def cell_width(ax: Axes, columns: int) -> float:
    """How many points across a cell has, once the layout of the figure is settled."""
    figure = ax.get_figure(root=True)
    assert figure is not None  # an axes without a figure cannot be drawn on
    figure.draw_without_rendering()
    return float(ax.get_window_extent().width * 72 / figure.dpi / columns)
