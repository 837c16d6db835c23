"""How alike any two layers are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from layerscope.errors import FrameError, named
from layerscope.layers import as_layer_order
from layerscope.plots.cells import cell_starts, draw_cells, print_cells
from layerscope.plots.curves import figure_of, new_grid
from layerscope.plots.digits import fixed
from layerscope.plots.layer_axis import LAYER_LABEL, MANY, layer_ticks
from layerscope.plots.series import check_columns, floats, names_of, short_names
from layerscope.plots.style import COLUMN_WIDTH, SMALL, house_style, label_of, new_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

_NEEDED = ("pooling", "layer_name", "other_layer_name", "metric", "value")
_KEYS = ("model", "corpus", "pooling", "variant")
_LABELS = {"cka_linear": "CKA of two layers (1: alike up to rotation and scale)"}


def plot_layer_pairs(
    frame: pd.DataFrame, ax: Axes | None = None, *, labels: Mapping[str, str] | None = None
) -> Axes:
    """The similarity of every pair of layers as square cells, from ``embed`` at the top left.

    The scale runs from 0 to 1, or from the lowest value where that is below 0. The final norm stands apart.
    Values are printed where cells are wide enough; a missing one is hatched.

    Args:
        frame: from ``compare_layers``, of one model, corpus and pooling.
        ax: where to draw; a new figure of column width if None.
        labels: label of the metric.

    Raises:
        FrameError: not such a frame, several models or poolings, or two values for one pair.
    """
    metric = _one_metric(frame)
    several = [key for key in _KEYS if key in frame.columns and frame[key].nunique() > 1]
    if several:
        raise FrameError(
            f"this frame holds several values of {several[0]} ({named(frame[several[0]])}): "
            "select one first, or draw them side by side with plot_layer_pairs_grid"
        )
    with house_style():
        panel = ax if ax is not None else new_figure(COLUMN_WIDTH, 3.4).add_subplot()
        mesh, some_missing = _draw_pairs(panel, frame, _lowest(frame))
        panel.set_title(_titles([frame])[0], loc="left")
        _draw_bar([panel], mesh, label_of(metric, {**_LABELS, **(labels or {})}), some_missing)
        _print_values(panel, frame, _lowest(frame))
    return panel


def plot_layer_pairs_grid(frame: pd.DataFrame, *, labels: Mapping[str, str] | None = None) -> Figure:
    """The similarity of layers of several models, corpora or poolings side by side, on one scale.

    Args:
        frame: from ``compare_layers``, of any number of models, corpora and poolings.
        labels: label of the metric.

    Raises:
        FrameError: not such a frame, or two values for one pair.
    """
    metric = _one_metric(frame)
    keys = [key for key in _KEYS if key in frame.columns]
    groups = [group for _, group in frame.groupby(keys, sort=False, dropna=False)]
    if len(groups) == 1:
        return figure_of(plot_layer_pairs(frame, labels=labels))
    low = _lowest(frame)
    with house_style():
        panels = new_grid(len(groups), columns=2, height=3.1)
        drawn = [_draw_pairs(panel, group, low) for panel, group in zip(panels, groups, strict=True)]
        for panel, title in zip(panels, _titles(groups), strict=True):
            panel.set_title(title, loc="left")
        some_missing = any(missing for _, missing in drawn)
        _draw_bar(panels, drawn[0][0], label_of(metric, {**_LABELS, **(labels or {})}), some_missing)
        for panel, group in zip(panels, groups, strict=True):
            _print_values(panel, group, low)
    return figure_of(panels[0])


def _one_metric(frame: pd.DataFrame) -> str:
    check_columns(frame, _NEEDED, "layer pairs")
    names = names_of(frame)
    if len(names) > 1:
        raise FrameError(f"this frame holds several metrics ({named(names)}): select one first")
    return names[0]


def _lowest(frame: pd.DataFrame) -> float:
    """The foot of the scale: unbiased estimates may lie below 0."""
    values = floats(frame, "value")
    return float(min(0.0, np.fmin.reduce(values, initial=0.0)))


def _table(frame: pd.DataFrame) -> tuple[list[str], list[str], NDArray[np.float64]]:
    """Names of the rows and columns, and the values."""
    if frame.duplicated(["layer_name", "other_layer_name"]).any():
        twice = frame[frame.duplicated(["layer_name", "other_layer_name"])].iloc[0]
        raise FrameError(f"two values for layers {twice['layer_name']} and {twice['other_layer_name']}")
    wide = frame.assign(value=floats(frame, "value")).pivot(
        index="layer_name", columns="other_layer_name", values="value"
    )
    rows, columns = as_layer_order(wide.index), as_layer_order(wide.columns)
    return rows, columns, wide.loc[rows, columns].to_numpy(dtype=np.float64)


def _starts(names: list[str]) -> NDArray[np.float64]:
    return cell_starts(len(names), apart=names[-1] == "norm")


def _draw_pairs(ax: Axes, frame: pd.DataFrame, low: float) -> tuple[QuadMesh, bool]:
    """Draw the cells; and whether any has no value."""
    rows, columns, values = _table(frame)
    across, down = _starts(columns), _starts(rows)
    line = ("white", 0.6 if max(values.shape) <= MANY else 0.0)
    mesh = draw_cells(ax, values, across, down, limits=(low, 1.0), line=line)
    ax.set_aspect("equal")
    places, names = layer_ticks(columns)
    ax.set_xticks(across[places] + 0.5, names, rotation=90 if len(columns) > MANY else 0)
    places, names = layer_ticks(rows)
    ax.set_yticks(down[places] + 0.5, names)
    ax.set_xlabel(LAYER_LABEL)
    return mesh, bool(np.isnan(values).any())


def _titles(groups: list[pd.DataFrame]) -> list[str]:
    """What each panel is of: its model and pooling, and its corpus where they differ."""
    firsts = [group.iloc[0] for group in groups]
    models = short_names([str(first.get("model", "")) for first in firsts])
    corpora = [str(first.get("corpus", "")) for first in firsts]
    titles = []
    for first, model, corpus in zip(firsts, models, corpora, strict=True):
        parts = [model, str(first["pooling"]), corpus if len(set(corpora)) > 1 else ""]
        titles.append(", ".join(part for part in parts if part))
    return titles


def _draw_bar(panels: list[Axes], mesh: QuadMesh, label: str, some_missing: bool) -> None:
    bar = figure_of(panels[0]).colorbar(
        mesh, ax=panels, location="bottom", aspect=40, fraction=0.05, pad=0.03, shrink=0.8
    )
    bar.set_label(label + ("; hatched = no value" if some_missing else ""), fontsize=SMALL)
    bar.ax.grid(False)


def _print_values(ax: Axes, frame: pd.DataFrame, low: float) -> None:
    rows, columns, values = _table(frame)
    is_dark = (values - low) / (1 - low) < 0.55
    print_cells(
        ax, values, _starts(columns), lambda row, column: fixed(values[row, column], 2), is_dark,
        rows=_starts(rows),
    )  # fmt: skip
