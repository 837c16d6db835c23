"""The texts as points, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from layerscope.errors import FrameError, count_of, named
from layerscope.frames import check_one
from layerscope.layers import as_layer_order
from layerscope.plots.curves import figure_of, new_grid
from layerscope.plots.series import check_columns, in_common
from layerscope.plots.style import INK, LOOKS, SMALL, add_legend, house_style, series_style, tag, wrapped

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from layerscope.plots.style import SeriesStyle

CLASSES = 10
"""Labels that have a look of their own; the rest are ``other``."""
_NEEDED = ("layer_name", "row", "x", "y", "label", "explained")
_METHODS = {"pca": "first two principal components", "umap": "UMAP"}
_HEAD_WIDTH = 115  # characters of a line above the panels
_OTHER, _NONE = "other", "no label"


def plot_embeddings(frame: pd.DataFrame) -> Figure:
    """A point a text, coloured and marked by its label: a panel a layer, of page width.

    The ten most frequent labels have a colour and marker of their own, in this order in the legend; the
    rest, and texts without a label, are small grey dots. Each panel says how much of the layer's variance its
    plane holds. Panels have scales of their own, the same for both axes. Texts without coordinates are left
    out, and a line above them says how many and why.

    Args:
        frame: from ``project_layers``, of one model, corpus, pooling and method.

    Raises:
        FrameError: not such a frame, several models or poolings, or no text with coordinates.
    """
    check_columns(frame, _NEEDED, "projection")
    check_one(frame, "this frame")
    for key in ("pooling", "method"):
        if key in frame.columns and frame[key].nunique() > 1:
            raise FrameError(
                f"this frame holds several values of {key} ({named(frame[key])}): select one first"
            )
    drawn = frame[np.isfinite(frame[["x", "y"]].to_numpy(dtype=np.float64)).all(axis=1)]
    if drawn.empty:
        raise FrameError("no text of this frame has coordinates: there is nothing to draw")
    looks = _looks(frame)
    layers = as_layer_order(drawn["layer_name"].unique())
    with house_style():
        panels = new_grid(len(layers), columns=3, height=2.3)
        figure = figure_of(panels[0])
        for panel, layer in zip(panels, layers, strict=True):
            _draw_points(panel, drawn[drawn["layer_name"] == layer], looks)
        head = "\n".join(
            wrapped(line, _HEAD_WIDTH) for line in (_title(frame), _left_out(frame, drawn)) if line
        )
        figure.suptitle(head, x=0.01, ha="left", fontsize=SMALL, color=INK)
        if len(looks) > 1:
            add_legend(figure, panels, own=True)
    return figure


def _looks(frame: pd.DataFrame) -> dict[str, SeriesStyle]:
    """How each class is drawn, the most frequent first, the rest last.

    Classes that share a colour differ in their marker's fill.
    """
    counts = frame.drop_duplicates("row")["label"].dropna().astype(str).value_counts(sort=False)
    names = list(counts.sort_values(ascending=False, kind="stable").index)
    looks = {
        name: replace(series_style(nth % LOOKS, nth // LOOKS), role=f"points.{nth}")
        for nth, name in enumerate(names[:CLASSES])
    }
    rest = [_OTHER] * (len(names) > CLASSES) + [_NONE] * bool(frame["label"].isna().any())
    if rest:
        looks[" or ".join(rest)] = replace(series_style(0, 0), colour="0.6", marker=".", role="points.other")
    return looks


def _draw_points(ax: Axes, rows: pd.DataFrame, looks: Mapping[str, SeriesStyle]) -> None:
    of_row = rows["label"].astype(object).where(rows["label"].notna(), "").astype(str)
    size = 3.4 if len(rows) <= 300 else 2.4
    for name, style in looks.items():
        is_rest = style.role == "points.other"
        part = rows[~of_row.isin(list(looks))] if is_rest else rows[of_row == name]
        ax.plot(
            part["x"], part["y"], linestyle="none", marker=style.marker, color=style.colour, label=name,
            markersize=size, markerfacecolor=style.face, markeredgewidth=0.5, alpha=0.8,
            zorder=1.5 if is_rest else 2, gid=tag(ax, style.role),
        )  # fmt: skip
    ax.set_aspect("equal", adjustable="datalim")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.grid(False)
    ax.spines[:].set_visible(True)
    explained = float(rows["explained"].iloc[0])
    held = "" if np.isnan(explained) else f": {100 * explained:.0f} % of variance"
    ax.set_title(f"{rows['layer_name'].iloc[0]}{held}", loc="left")


def _title(frame: pd.DataFrame) -> str:
    """What all panels are of."""
    method = str(frame["method"].iloc[0]) if "method" in frame.columns else ""
    parts = [_METHODS.get(method, method), count_of(frame["row"].nunique(), "text"), in_common(frame)]
    return "; ".join(part for part in parts if part)


def _left_out(frame: pd.DataFrame, drawn: pd.DataFrame) -> str:
    """Which texts have no point, and why."""
    missing = frame.loc[frame.index.difference(drawn.index)]
    if missing.empty:
        return ""
    if "reason" not in frame.columns:
        return f"left out: {count_of(missing['row'].nunique(), 'text')} without coordinates"
    counts = missing.groupby("reason", sort=False)["row"].nunique()
    return "left out: " + ", ".join(f"{count_of(n, 'text')} ({reason})" for reason, n in counts.items())
