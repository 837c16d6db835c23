"""The three frames that stages hand to each other: metrics, scores and picks.

Tidy pandas frames, parquet on disk with a CSV beside it. ``draws`` holds one list per row: the
value under each resample, the same resamples for every layer, so that layers can be compared
draw by draw. The CSV leaves it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from layerscope.errors import FrameError, UsageError
from layerscope.files import make_folder, write_atomic
from layerscope.layers import as_layer_order

METRIC_COLUMNS = (
    "model", "corpus", "layer", "layer_name", "depth", "pooling", "metric", "variant",
    "value", "ci_low", "ci_high", "n", "d", "reason", "draws",
)  # fmt: skip
SCORE_COLUMNS = (
    "model", "task", "split", "subset", "layer", "layer_name", "depth", "pooling", "metric", "variant",
    "score", "ci_low", "ci_high", "n", "reason", "draws",
)  # fmt: skip
PICK_COLUMNS = (
    "model", "corpus", "pooling", "kind", "criterion", "metric", "variant", "direction",
    "layer", "layer_name", "depth", "value", "runner_up", "runner_up_value", "support", "most_picked",
    "most_picked_support", "clear", "n", "reason",
)  # fmt: skip
_NUMBERS = {"layer", "depth", "value", "score", "ci_low", "ci_high", "n"}
_REQUIRED = {
    "metrics": ("layer", "layer_name", "depth", "pooling", "metric", "value"),
    "scores": ("layer", "layer_name", "depth", "pooling", "metric", "score"),
    "picks": ("criterion", "layer_name", "pooling"),
}


def write_frame(frame: pd.DataFrame, path: str | Path) -> list[Path]:
    """Write ``frame`` to ``path`` (parquet) and to a CSV of the same name beside it.

    Returns:
        The two paths, parquet first.
    """
    target = Path(path).with_suffix(".parquet")
    make_folder(target.parent)
    table = target.with_suffix(".csv")
    write_atomic(target, lambda temporary: frame.to_parquet(temporary, index=False))
    flat = frame.drop(columns="draws", errors="ignore")
    write_atomic(table, lambda temporary: flat.to_csv(temporary, index=False))
    return [target, table]


def read_frame(path: str | Path, kind: str) -> pd.DataFrame:
    """Read a frame from parquet or CSV and check that it is one.

    Args:
        path: the file.
        kind: ``metrics``, ``scores`` or ``picks``.

    Raises:
        FrameError: no such file, not a table, or columns that are needed are missing.
    """
    source = Path(path)
    if not source.is_file():
        raise FrameError(f"no {kind} frame at {source}: {_HOW[kind]}")
    try:
        frame = pd.read_csv(source) if source.suffix == ".csv" else pd.read_parquet(source)
    except (ValueError, OSError) as error:
        raise FrameError(f"{source} is not a readable table: {_first_line(error)}") from error
    missing = [column for column in _REQUIRED[kind] if column not in frame.columns]
    if missing:
        raise FrameError(
            f"{source} is not a {kind} frame: it lacks the column(s) {', '.join(missing)} "
            f"(found: {', '.join(map(str, frame.columns))})"
        )
    if frame.empty:
        raise FrameError(f"{source} has no rows: {_HOW[kind]}")
    _check_values(frame, source)
    return frame


def _check_values(frame: pd.DataFrame, source: Path) -> None:
    """Numbers are numbers and layers are layers; else the row is named."""
    for column in _NUMBERS & set(frame.columns):
        numbers = pd.to_numeric(frame[column], errors="coerce")
        bad = frame.index[numbers.isna() & frame[column].notna()]
        if len(bad):
            raise FrameError(
                f"{source}, row {bad[0] + 1}: the {column} '{frame.loc[bad[0], column]}' is not a number"
            )
    for row, name in enumerate(frame["layer_name"], start=1):
        if isinstance(name, str):
            try:
                as_layer_order([name])
            except UsageError as error:
                raise FrameError(f"{source}, row {row}: {error}") from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


_HOW = {
    "metrics": "make one with 'layerscope analyze CACHE'",
    "scores": "make one with 'layerscope evaluate sts CACHE'",
    "picks": "make one with 'layerscope select METRICS.parquet'",
}


def not_finite(rows: Sequence[int]) -> str:
    """The reason where a layer has rows that are not finite.

    >>> not_finite([3, 8])
    'not finite: row 3 and 1 more'
    """
    return f"not finite: row {rows[0]}" + (f" and {len(rows) - 1} more" if len(rows) > 1 else "")


def as_frame(records: list[dict[str, Any]], columns: tuple[str, ...]) -> pd.DataFrame:
    """A frame with exactly ``columns``, in that order; what a record lacks is missing."""
    return pd.DataFrame.from_records(records, columns=list(columns))
