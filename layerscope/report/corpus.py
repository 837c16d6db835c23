"""The data report: how many texts there were, what is wrong with some, and which these are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from layerscope.errors import count_of
from layerscope.layers import as_layer_order

if TYPE_CHECKING:
    import pandas as pd

_MOST = 20  # rows that are listed one by one


@dataclass(frozen=True)
class RowCount:
    """How many texts something is true of.

    Attributes:
        name: what.
        count: how many.
        meaning: what follows from it.
        rows: the first of them, each with what is known of it.
        more: how many others there are.
        query: what finds them all, for ``DataFrame.query`` on the rows of the cache.
    """

    name: str
    count: str
    meaning: str
    rows: tuple[str, ...] = ()
    more: int = 0
    query: str = ""


def count_rows(rows: pd.DataFrame) -> list[RowCount]:
    """Counts of the texts, and which these are; what the rows do not say is left out.

    Args:
        rows: one row a text; rows are named by the column ``row``, or counted from 0 where it is absent.
    """
    named = rows if "row" in rows.columns else rows.assign(row=range(len(rows)))
    return [RowCount("texts", f"{len(rows):,}", ""), *_tokens(rows), *_flagged(named)]


def _tokens(rows: pd.DataFrame) -> Iterator[RowCount]:
    if "tokens" in rows.columns and len(rows):
        tokens = rows["tokens"]
        spread = f"{tokens.min():,} to {tokens.max():,} in a text"
        yield RowCount("tokens", f"{tokens.sum():,}", spread)


def _flagged(rows: pd.DataFrame) -> Iterator[RowCount]:
    if "truncated" in rows.columns:
        cut = rows[rows["truncated"].astype(bool)]
        meaning = "the end of these texts was never seen"
        yield _count("cut at the maximum length", cut, _plain_names(cut), meaning, "truncated")
    if "empty" in rows.columns:
        empty = rows[rows["empty"].astype(bool)]
        meaning = "they have no tokens and no vectors"
        yield _count("empty", empty, _plain_names(empty), meaning, "empty")
    if "duplicate_of" in rows.columns:
        twice = rows[rows["duplicate_of"].notna()]
        names = [
            f"{row} (= {int(first)})" for row, first in zip(twice["row"], twice["duplicate_of"], strict=True)
        ]
        meaning = "they count twice in every metric, unless analyzed with --drop-duplicates"
        yield _count("duplicates of an earlier text", twice, names, meaning, "duplicate_of.notna()")
    if "undefined" in rows.columns:
        lost = rows[_texts(rows["undefined"]) != ""]
        meaning = "no token is left for the pooling in brackets, so it has no vector there"
        yield _count("without a token to pool", lost, _names(lost, "undefined"), meaning, "undefined != ''")
    if "nonfinite" in rows.columns:
        broken = rows[_texts(rows["nonfinite"]) != ""]
        name = "not finite (NaN or infinite) somewhere"
        yield _count(name, broken, _names(broken, "nonfinite"), _where(broken), "nonfinite != ''")


def _count(name: str, found: pd.DataFrame, names: list[str], meaning: str, query: str) -> RowCount:
    return RowCount(name, f"{len(found):,}", meaning, tuple(names[:_MOST]), max(0, len(names) - _MOST), query)


def _texts(column: pd.Series[str]) -> pd.Series[str]:
    return column.fillna("").astype(str)


def _plain_names(rows: pd.DataFrame) -> list[str]:
    return [str(row) for row in rows["row"]]


def _names(rows: pd.DataFrame, column: str) -> list[str]:
    """Rows with what the column says of each; of many layers, the first and how many more."""
    return [
        f"{row} ({_shortened(str(text).split(','))})"
        for row, text in zip(rows["row"], rows[column], strict=True)
    ]


def _shortened(parts: list[str]) -> str:
    """The first three of several names.

    >>> _shortened(["embed", "block.1"]), _shortened(["a", "b", "c", "d", "e"])
    ('embed, block.1', 'a, b, c and 2 more')
    """
    more = f" and {len(parts) - 3} more" if len(parts) > 3 else ""
    return ", ".join(part.strip() for part in parts[:3]) + more


def _where(broken: pd.DataFrame) -> str:
    texts = broken["nonfinite"].astype(str)
    layers = as_layer_order({name.strip() for text in texts for name in text.split(",")})
    return f"in {count_of(len(layers), 'layer')}: {', '.join(layers)}" if layers else ""
