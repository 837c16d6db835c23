"""Plain tables of values: layers down, metrics or scores across, one table per pooling."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from layerscope.layers import as_layer_order
from layerscope.plots.digits import decimals_of, fixed
from layerscope.plots.scores import score_label
from layerscope.plots.style import label_of
from layerscope.report.words import MISSING, is_missing, number, values_of

if TYPE_CHECKING:
    import pandas as pd

_SCORE_READS = "How well the layer does on labelled data: the higher, the better."
_Record = Mapping[Any, Any]


@dataclass(frozen=True)
class Cell:
    """One value: text, interval, what it sorts by, tooltip, and the number of the note on its absence."""

    text: str
    interval: str = ""
    sort: str = ""
    title: str = ""
    note: int = 0


@dataclass(frozen=True)
class Table:
    """A caption, column heads, rows that begin with their layer, and numbered notes."""

    caption: str
    columns: list[str]
    rows: list[tuple[str, str, list[Cell]]]
    notes: list[str]


@dataclass(frozen=True)
class Recipe:
    """How a metric was computed and how to read it."""

    name: str
    label: str
    variants: list[str]
    reads: str
    source: str


@dataclass(frozen=True)
class _Layout:
    """Which columns of a frame make tables, which make a table's columns, and how values are shown.

    Attributes:
        tables: columns whose values each get a table.
        columns: columns whose values each get a column; the first holds the metric.
        value: column of the values.
        label: a metric's name to its label.
        decimals: of every value; None for as many as the largest value of a column needs.
    """

    tables: tuple[str, ...]
    columns: tuple[str, ...]
    value: str
    label: Callable[[str], str]
    decimals: int | None


def metric_tables(metrics: pd.DataFrame, labels: Mapping[str, str] | None) -> list[Table]:
    """The metrics by layer, one table per pooling."""
    layout = _Layout(
        tables=("model", "corpus", "pooling"),
        columns=("metric", "variant"),
        value="value",
        label=lambda name: label_of(name, labels),
        decimals=None,
    )
    return _tables(metrics, layout)


def score_tables(scores: pd.DataFrame, labels: Mapping[str, str] | None) -> list[Table]:
    """The scores by layer, one table per pooling."""
    layout = _Layout(
        tables=("model", "pooling"),
        columns=("metric", "task", "split", "subset", "variant"),
        value="score",
        label=lambda name: score_label(name, labels),
        decimals=3,
    )
    return _tables(scores, layout)


def list_recipes(
    metrics: pd.DataFrame,
    scores: pd.DataFrame | None,
    labels: Mapping[str, str] | None,
    descriptions: Mapping[str, str],
) -> list[Recipe]:
    """Every metric, then every score, with its recipes, how to read it, and what it was computed from."""
    found = [
        _recipe(rows, name, label_of(name, labels), descriptions.get(name, ""))
        for name, rows in _by_metric(metrics)
    ]
    for name, rows in () if scores is None else _by_metric(scores):
        found.append(_recipe(rows, name, score_label(name, labels), _SCORE_READS))
    return found


def _by_metric(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    return [(name, frame[frame["metric"] == name]) for name in values_of(frame, "metric")]


def _recipe(rows: pd.DataFrame, name: str, label: str, reads: str) -> Recipe:
    return Recipe(name, label, values_of(rows, "variant"), reads, _source(rows))


def _source(rows: pd.DataFrame) -> str:
    """Of which texts or tasks, from how many, of what width, and of which poolings."""
    parts = [", ".join(values_of(rows, key)) for key in ("corpus", "task", "split", "subset")]
    parts += [_range(rows, "n"), _range(rows, "d"), f"pooling {', '.join(values_of(rows, 'pooling'))}"]
    return "; ".join(part for part in parts if part)


def _range(rows: pd.DataFrame, column: str) -> str:
    """The numbers of a column as one phrase: how many texts (``n``), how wide (``d``)."""
    known = rows[column].dropna() if column in rows.columns else ()
    if not len(known):
        return ""
    low, high = int(min(known)), int(max(known))
    return f"{column} = {low:,}" if low == high else f"{column} = {low:,} to {high:,}"


def _tables(frame: pd.DataFrame, layout: _Layout) -> list[Table]:
    present = [key for key in layout.tables if key in frame.columns]
    several = [key for key in present if key == "pooling" or len(values_of(frame, key)) > 1]
    return [
        _table(group, ", ".join(f"{key} {group[key].iloc[0]}" for key in several), layout)
        for _, group in frame.groupby(present, sort=False, dropna=False)
    ]


def _table(group: pd.DataFrame, caption: str, layout: _Layout) -> Table:
    keys = [key for key in layout.columns if key in group.columns]
    records = group.to_dict("records")
    columns = list(dict.fromkeys(tuple(str(record[key]) for key in keys) for record in records))
    found = {(str(r["layer_name"]), tuple(str(r[key]) for key in keys)): r for r in records}
    decimals = {column: _decimals(records, keys, column, layout) for column in columns}
    notes: list[str] = []
    rows = []
    for place, layer in enumerate(as_layer_order(dict.fromkeys(group["layer_name"].astype(str)))):
        cells = [
            _cell(found.get((layer, column)), layout.value, decimals[column], notes) for column in columns
        ]
        rows.append((layer, str(place), cells))
    return Table(caption, [_head(column, columns, layout.label) for column in columns], rows, notes)


def _head(column: tuple[str, ...], columns: list[tuple[str, ...]], label: Callable[[str], str]) -> str:
    """The metric's label, and whatever else tells the column from the others of that metric."""
    peers = [other for other in columns if other[0] == column[0]]
    own = [part for part, *others in zip(column, *peers, strict=True) if len(set(others)) > 1]
    return ", ".join([label(column[0]), *own])


def _decimals(
    records: list[dict[Any, Any]], keys: list[str], column: tuple[str, ...], layout: _Layout
) -> int:
    if layout.decimals is not None:
        return layout.decimals
    own = (record for record in records if tuple(str(record[key]) for key in keys) == column)
    return decimals_of(number(record[layout.value]) for record in own)


def _cell(record: _Record | None, value: str, decimals: int, notes: list[str]) -> Cell:
    if record is None:
        return Cell(MISSING, title="not measured", note=_note("not measured", notes))
    x = number(record[value])
    if not math.isfinite(x):
        reason = record.get("reason")
        text = "no reason given" if is_missing(reason) else str(reason)
        return Cell(MISSING, title=text, note=_note(text, notes))
    low, high = number(record.get("ci_low")), number(record.get("ci_high"))
    known = math.isfinite(low) and math.isfinite(high)
    span = f"{fixed(low, decimals)} to {fixed(high, decimals)}" if known else ""
    details = [f"95% interval {span}"] if known else []
    details += [f"{key} = {number(record[key]):.0f}" for key in ("n", "d") if not is_missing(record.get(key))]
    return Cell(fixed(x, decimals), span, repr(x), "; ".join(details))


def _note(text: str, notes: list[str]) -> int:
    """The number of a note, which is added where it is new."""
    if text not in notes:
        notes.append(text)
    return notes.index(text) + 1
