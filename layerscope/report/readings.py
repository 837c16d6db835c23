"""What a reader sees on pointing at a layer of a figure: the frame's values there, in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from layerscope.plots.digits import significant
from layerscope.plots.layer_axis import LayerAxis
from layerscope.plots.series import split_series
from layerscope.report.words import is_missing, number

if TYPE_CHECKING:
    import pandas as pd

_DIGITS = 5


@dataclass(frozen=True)
class Reading:
    """One thing to point at.

    Attributes:
        points: where its values are, in the units of the axes; ``y`` is NaN where there is none.
        text: a line that names the layer, and a line a value.
        upright: whether the whole height of the axes belongs to it, else the nearness of its point.
    """

    points: list[tuple[float, float]]
    text: str
    upright: bool = True


def read_layers(rows: pd.DataFrame, value: str) -> list[Reading]:
    """What the curves of one metric or score hold at each place of the layer axis, left to right.

    Args:
        rows: those of the figure.
        value: column of the values.
    """
    axis = LayerAxis.of(rows)
    found: dict[float, list[tuple[str, str, dict[Any, Any]]]] = {}
    for series in split_series(rows):
        for place, record in zip(axis.positions(series.rows), series.rows.to_dict("records"), strict=True):
            found.setdefault(place, []).append((str(record["layer_name"]), series.label, record))
    return [_reading(place, found[place], value) for place in sorted(found)]


def _reading(place: float, entries: list[tuple[str, str, dict[Any, Any]]], value: str) -> Reading:
    layers = list(dict.fromkeys(layer for layer, _, _ in entries))
    lines = [", ".join(layers)]
    for layer, label, record in entries:
        name = f"{label} ({layer})" if len(layers) > 1 else label
        lines.append(f"{name}: {value_text(record, value)}")
    heights = [number(record[value]) for _, _, record in entries]
    points = [(place, height if math.isfinite(height) else math.nan) for height in heights]
    return Reading(points, "\n".join(lines))


def value_text(record: Mapping[Any, Any], value: str) -> str:
    """A value with its interval, or why there is none.

    >>> value_text({"value": 0.25, "ci_low": 0.2, "ci_high": 0.31}, "value")
    '0.25000, 95% interval 0.20000 to 0.31000'
    >>> value_text({"value": float("nan"), "reason": "constant"}, "value")
    'no value: constant'
    """
    found = number(record[value])
    if not math.isfinite(found):
        reason = record.get("reason")
        return "no value" + ("" if is_missing(reason) else f": {reason}")
    low, high = number(record.get("ci_low")), number(record.get("ci_high"))
    text = significant(found, _DIGITS)
    if not (math.isfinite(low) and math.isfinite(high)):
        return text
    return f"{text}, 95% interval {significant(low, _DIGITS)} to {significant(high, _DIGITS)}"


def read_points(both: pd.DataFrame, label: Callable[[str], str]) -> list[Reading]:
    """What the points of a metric against a score are of: metric across, score upwards.

    Args:
        both: the rows of the figure, with ``value`` and ``score``.
        label: a metric's name to what it is called.
    """
    readings = []
    for series in split_series(both):
        for record in series.rows.to_dict("records"):
            x, y = number(record["value"]), number(record["score"])
            lines = [
                f"{record['layer_name']} ({series.label})",
                f"{label(str(record['metric']))}: {significant(x, _DIGITS)}",
                f"score: {significant(y, _DIGITS)}",
            ]
            readings.append(Reading([(x, y)], "\n".join(lines), upright=False))
    return readings
