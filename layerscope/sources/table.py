"""A table as it was found: columns of Python values, and where each row stands in its file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pandas as pd

from layerscope.errors import CorpusError

ABSENT: Final = object()
"""What a row holds in a column that it does not have (a JSON line without the key)."""


@dataclass(frozen=True)
class RawTable:
    """Columns of n values each, nothing cleaned or converted yet.

    Attributes:
        name: a short name for the corpus (``stsb``).
        place: what messages call the source (``stsb.tsv``).
        columns: column name to its n values.
        lines: the 1-based line of the file on which each row starts, where there are lines.
        notes: what was guessed or left out while reading.
        unreadable: columns that hold neither strings nor numbers, and their type.
    """

    name: str
    place: str
    columns: Mapping[str, Sequence[Any]]
    lines: Sequence[int] | None = None
    notes: tuple[str, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(next(iter(self.columns.values()), ()))

    def at(self, row: int) -> str:
        """Where the 0-based ``row`` is, in words that help to find it.

        >>> RawTable("stsb", "stsb.tsv", {"score": ["1", "x"]}, lines=[2, 3]).at(1)
        'stsb.tsv, row 2 (line 3)'
        """
        if self.lines is None:
            return f"{self.place}, row {row + 1}"
        line = self.lines[row]
        return (
            f"{self.place}, line {line}" if line == row + 1 else f"{self.place}, row {row + 1} (line {line})"
        )


def is_missing(value: object) -> bool:
    """Whether ``value`` stands for nothing: None, NaN, pandas' NA or NaT, or an absent key."""
    if value is None or value is ABSENT or value is pd.NA or value is pd.NaT:
        return True
    return isinstance(value, float) and math.isnan(value)


def refuse_repeated(names: Sequence[str], place: str) -> None:
    """Refuse a table that gives two columns one name.

    Raises:
        CorpusError: a name stands twice.
    """
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        listing = ", ".join(f"'{name}'" for name in repeated)
        raise CorpusError(f"{place} has more than one column named {listing}: rename or remove one")
