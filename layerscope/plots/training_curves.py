"""Metrics by layer over the steps of a training run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.errors import FrameError, named
from layerscope.frames import check_one
from layerscope.layers import as_layer_order
from layerscope.plots.curves import figure_of, marked_points, new_grid, say_if_empty
from layerscope.plots.layer_axis import LayerAxis
from layerscope.plots.series import check_columns, floats, in_common, names_of, of_pooling, rows_of
from layerscope.plots.style import INK, SMALL, add_legend, house_style, label_of, tag, wrapped

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

_COLOURS = "viridis_r"  # early steps pale, late ones dark, in grey too
_PALEST = 0.06  # share of the scale that is left out: too pale for a line
_DECADES = 100.0  # from this ratio of the last to the first step on, colours go by the logarithm
_BAR, _BAR_ROOM = 0.09, 0.5  # inches, height of the scale, and of the scale with its numbers
_CHARACTER = 4.5  # points, the width of a digit of the smallest text
_MARKERS = {"first": "o", "last": "s"}
_NEEDED = ("step", "layer", "layer_name", "depth", "pooling", "metric", "value")


def plot_training(
    frame: pd.DataFrame,
    metrics: Sequence[str] | None = None,
    *,
    pooling: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> Figure:
    """Every metric by layer, a line a step of the training run, as small multiples of page width.

    Pale lines are early steps, dark ones late; the scale is logarithmic where steps span two decades or more
    (step 0 stands at its foot). The first step has round open markers, the last one filled squares and its
    interval as a band. The final norm stands apart from the last block; a missing value is a gap.

    Args:
        frame: metrics frames of one model's revisions, with the column ``step``.
        metrics: which, in this order; all of the frame if None.
        pooling: which pooling, where the frame has several; a token metric goes with the pooling that
            averages the same tokens.
        labels: axis label of each metric.

    Raises:
        FrameError: no column ``step``, fewer than two steps, several models, corpora or poolings, or two
            values for one layer of a step.
    """
    import pandas as pd

    check_columns(frame, _NEEDED, "training")
    check_one(frame.drop(columns="revision", errors="ignore"), "the training frame")
    names = list(metrics) if metrics else names_of(frame)
    parts = {name: _rows(frame, name, pooling) for name in names}
    steps = _steps(frame)
    axis = LayerAxis.of_grid(frame[frame["metric"].isin(names)])
    with house_style():
        colours = _step_colours(steps)
        panels = new_grid(len(names), columns=3, height=1.95)
        figure = figure_of(panels[0])
        for panel, name in zip(panels, names, strict=True):
            _draw_steps(panel, parts[name], axis, steps, colours)
            panel.set_ylabel(wrapped(label_of(name, labels), 22))
        figure.suptitle(in_common(pd.concat(parts.values())), x=0.01, ha="left", fontsize=SMALL, color=INK)
        _draw_bar(figure, panels, colours, steps)
        add_legend(figure, panels, own=True)
    return figure


def _rows(frame: pd.DataFrame, metric: str, pooling: str | None) -> pd.DataFrame:
    """The rows of one metric in one pooling, one value a layer and step."""
    rows = rows_of(frame, metric)
    rows = rows if pooling is None else of_pooling(rows, pooling)
    if rows["pooling"].nunique() > 1:
        raise FrameError(f"'{metric}' has several poolings ({named(rows['pooling'])}): choose one")
    again = rows[rows.duplicated(["step", "layer_name"])]
    if len(again):
        first = again.iloc[0]
        raise FrameError(
            f"two values of '{metric}' for layer {first['layer_name']} at step {first['step']}: "
            "select one recipe first"
        )
    return rows


def _steps(frame: pd.DataFrame) -> list[float]:
    steps = floats(frame, "step")
    if np.isnan(steps).any() or (steps < 0).any():
        raise FrameError("a step is missing or below 0: every row must say at which step its model was")
    found = sorted({*steps.tolist()})
    if len(found) < 2:
        raise FrameError(
            f"this frame has one step ({found[0]:.0f}): a training run needs two revisions or more"
        )
    return found


def _step_colours(steps: list[float]) -> ScalarMappable:
    """From a step to its colour."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap

    shades = colormaps[_COLOURS](np.linspace(_PALEST, 1, 256))
    return ScalarMappable(_scale(steps), ListedColormap(shades))


def _scale(steps: list[float]) -> Normalize:
    """Logarithmic where steps span decades; below the first step that is not 0 it is linear."""
    from matplotlib.colors import LogNorm, Normalize, SymLogNorm

    first = next(step for step in steps if step > 0)
    if steps[-1] / first < _DECADES:
        return Normalize(steps[0], steps[-1])
    if steps[0] > 0:
        return LogNorm(steps[0], steps[-1])
    return SymLogNorm(first, vmin=0, vmax=steps[-1], base=10)


def _draw_steps(
    ax: Axes, rows: pd.DataFrame, axis: LayerAxis, steps: list[float], colours: ScalarMappable
) -> None:
    axis.apply(ax)
    for step in steps:
        part = rows[rows["step"] == step]
        if len(part):
            which = {steps[0]: "first", steps[-1]: "last"}.get(step, "")
            _draw_step(ax, part, axis, step, which, colours.to_rgba(step))  # type: ignore[arg-type]
    say_if_empty(ax, rows, "value")


def _draw_step(
    ax: Axes, rows: pd.DataFrame, axis: LayerAxis, step: float, which: str, colour: tuple[float, ...]
) -> None:
    rows = rows.set_index("layer_name", drop=False).loc[as_layer_order(rows["layer_name"])]
    is_norm = (rows["layer_name"] == "norm").to_numpy()
    x, y = np.asarray(axis.positions(rows)), floats(rows, "value")
    looks: dict[str, Any] = {
        "color": colour, "marker": _MARKERS.get(which), "markersize": 3.2,
        "markerfacecolor": "white" if which == "first" else colour, "zorder": 3 if which else 2,
    }  # fmt: skip
    ax.plot(
        x[~is_norm], y[~is_norm], label=f"{which} step ({step:,.0f})" if which else None,
        markevery=marked_points(y[~is_norm], first=0), linewidth=1.3 if which else 0.9,
        gid=tag(ax, f"line.{step:.0f}"), **looks,
    )  # fmt: skip
    looks["marker"] = looks["marker"] or "_"
    ax.plot(x[is_norm], y[is_norm], linestyle="none", gid=tag(ax, "norm"), **looks)
    if which == "last":
        low, high = floats(rows, "ci_low"), floats(rows, "ci_high")
        ax.fill_between(x[~is_norm], low[~is_norm], high[~is_norm], color=colour, alpha=0.18, linewidth=0)


def _draw_bar(figure: Figure, panels: list[Axes], colours: ScalarMappable, steps: list[float]) -> None:
    """The scale of steps below the panels, for which the figure grows."""
    from matplotlib.colors import Normalize

    width, height = (float(side) for side in figure.get_size_inches())
    figure.set_size_inches(width, height + _BAR_ROOM)
    bar = figure.colorbar(
        colours, ax=panels, location="bottom", fraction=_BAR / height, aspect=0.6 * width / _BAR, pad=0.02
    )
    is_even = type(_scale(steps)) is Normalize
    bar.set_label("training step" + ("" if is_even else ", logarithmic"), fontsize=SMALL)
    bar.minorticks_off()
    bar.ax.grid(False)
    figure.draw_without_rendering()  # settles the layout, and with it how long the scale is
    length = float(bar.ax.get_window_extent().width) * 72 / figure.dpi
    ticks = _bar_ticks(steps, _scale(steps), length)
    bar.set_ticks(ticks, labels=[f"{tick:,.0f}" for tick in ticks])


def _bar_ticks(steps: list[float], scale: Normalize, length: float) -> list[float]:
    """Steps with room for their number on a scale of ``length`` points, the first and last among them."""
    places = [length * float(scale(step)) for step in steps]
    widths = [_CHARACTER * (len(f"{step:,.0f}") + 1) for step in steps]

    def is_free(one: int, other: int) -> bool:
        return places[other] - places[one] > (widths[one] + widths[other]) / 2

    last = len(steps) - 1
    shown = [0]
    for nth in range(1, last):
        if is_free(shown[-1], nth) and is_free(nth, last):
            shown.append(nth)
    return [steps[nth] for nth in (*shown, last)]
