"""Values of frames and dictionaries in plain words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

MISSING = "–"


def values_of(frame: pd.DataFrame, column: str) -> list[str]:
    """The distinct, non-empty values of a column in order of appearance; none where it is absent."""
    if column not in frame.columns:
        return []
    return [text for text in map(str, frame[column].dropna().unique()) if text]


def is_missing(value: object) -> bool:
    """Whether a cell of a frame holds nothing.

    >>> [is_missing(value) for value in (None, float("nan"), "", 0, False)]
    [True, True, True, False, False]
    """
    import pandas as pd

    return value is None or value is pd.NA or value == "" or value != value  # noqa: PLR0124 - NaN


def number(value: Any) -> float:
    """A cell as a float, NaN where it holds nothing."""
    return float("nan") if is_missing(value) else float(value)


def count_draws(frame: pd.DataFrame) -> int:
    """How many resamples the intervals of a frame come from; 0 where there are none."""
    if "draws" not in frame:
        return 0
    return max((len(draws) for draws in frame["draws"].dropna() if hasattr(draws, "__len__")), default=0)


def plain(value: object) -> str:
    """A value of any kind on one line.

    >>> plain({"positions": [0, 1], "found": True, "note": None})
    'positions: 0, 1; found: yes; note: –'
    """
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {plain(part)}" for name, part in value.items()) or MISSING
    if isinstance(value, (list, tuple)):
        return ", ".join(plain(part) for part in value) or MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    return MISSING if is_missing(value) else str(value)


def without_unit(label: str) -> str:
    """An axis label as it is said in a sentence.

    >>> without_unit("Dataset entropy (nats)")
    'Dataset entropy'
    """
    return re.sub(r" \([^()]*\)$", "", label)
