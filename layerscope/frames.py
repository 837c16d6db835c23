"""The three frames that stages hand to each other: metrics, scores and picks.

Tidy pandas frames, parquet on disk with a CSV beside it. ``draws`` holds one list per row: the
value under each resample, the same resamples for every layer, so that layers can be compared
draw by draw. The CSV leaves it out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from layerscope.errors import FrameError, UsageError, first_line, named
from layerscope.files import make_folder, write_atomic
from layerscope.layers import as_layer_order, is_sublayer

METRIC_COLUMNS = (
    "model", "corpus", "layer", "layer_name", "depth", "pooling", "metric", "variant",
    "value", "ci_low", "ci_high", "n", "d", "reason", "note", "draws", "direction",
)  # fmt: skip
SCORE_COLUMNS = (
    "model", "task", "split", "subset", "layer", "layer_name", "depth", "pooling", "metric", "variant",
    "score", "ci_low", "ci_high", "n", "vs_last", "vs_last_low", "vs_last_high", "vs_last_p", "reason",
    "note", "draws",
)  # fmt: skip
PICK_COLUMNS = (
    "model", "corpus", "pooling", "kind", "criterion", "metric", "variant", "direction",
    "layer", "layer_name", "depth", "value", "runner_up", "runner_up_value", "support", "most_picked",
    "most_picked_support", "clear", "n", "reason",
)  # fmt: skip
LAYER_PAIR_COLUMNS = (
    "model", "corpus", "pooling", "layer_name", "other_layer_name", "metric", "variant", "value", "n",
    "reason",
)  # fmt: skip
SHARE_COLUMNS = (
    "model", "corpus", "pooling", "variant", "layer", "layer_name", "depth", "criterion", "share", "picked",
)  # fmt: skip
PROJECTION_COLUMNS = (
    "model", "corpus", "pooling", "method", "layer", "layer_name", "depth", "row", "x", "y", "label",
    "explained", "reason",
)  # fmt: skip
RUN_COLUMNS = ("perturbation", "level", "revision")
"""What tells the runs of an experiment apart, in a metrics frame that holds several."""
MEAN_OF_TOKENS = {"tokens": "mean", "tokens-nosink": "mean-nosink"}
"""The pooling that averages the same tokens as a token set has."""
RANK_AGGREGATE = "rank_aggregate"
"""The criterion of a picks frame that is the mean rank by several metrics, which its ``variant`` names."""
ALL_TASKS = "mean over tasks"
"""The task of a correlation that is averaged over all of them."""
_NUMBERS = {"layer", "depth", "value", "score", "ci_low", "ci_high", "n", "vs_last", "vs_last_p"}
_KEYS = (
    "model", *RUN_COLUMNS, "step", "corpus", "task", "split", "subset", "layer_name", "other_layer_name",
    "pooling", "metric", "variant", "statistic",
)  # fmt: skip
_REQUIRED = {
    "metrics": ("layer", "layer_name", "depth", "pooling", "metric", "value"),
    "scores": ("layer", "layer_name", "depth", "pooling", "metric", "score"),
    "picks": ("criterion", "layer_name", "pooling"),
    "layer pairs": ("layer_name", "other_layer_name", "pooling", "metric", "value"),
    "correlations": ("model", "metric", "variant", "statistic", "task", "p", "value"),
}


def frame_files(path: str | Path, kind: str | None) -> tuple[Path, Path]:
    """The two files that a frame written to ``path`` takes, parquet and CSV.

    Args:
        path: with the ending .parquet, .csv or none.
        kind: ``metrics``, ``scores`` or ``picks``; a file that holds anything else is not replaced.

    Raises:
        UsageError: another ending, a folder, or a file of another kind stands there.
    """
    wanted = Path(path)
    if wanted.is_dir():
        inside = wanted / f"{kind or 'frame'}.parquet"
        raise UsageError(f"{wanted} is a folder: name a file in it, as {inside}")
    if wanted.suffix not in ("", ".parquet", ".csv"):
        raise UsageError(
            f"{wanted} ends in {wanted.suffix}: a frame is a .parquet file with a .csv beside it; "
            f"name it {wanted.name}.parquet"
        )
    files = wanted.with_suffix(".parquet"), wanted.with_suffix(".csv")
    for file in files:
        if file.is_dir():
            raise UsageError(f"{file} is a folder: choose another name with -o")
        if kind is not None and file.exists() and (found := _kind_of(_columns_in(file))) != kind:
            what = f"a {found} frame" if found else "something else"
            raise UsageError(
                f"{file} holds {what}, which {kind} must not replace: choose another name with -o"
            )
    return files


def _kind_of(columns: Sequence[str]) -> str | None:
    """Which frame has these columns, ``None`` where it is no frame."""
    for kind in ("picks", "scores", "metrics"):  # picks may also have scores and values
        if set(_REQUIRED[kind]) <= set(columns):
            return kind
    return None


def _columns_in(file: Path) -> list[str]:
    """Column names of a parquet or CSV file; none where it is neither."""
    import pyarrow.parquet

    try:
        if file.suffix == ".csv":
            return list(map(str, pd.read_csv(file, nrows=0).columns))
        return list(pyarrow.parquet.read_schema(file).names)
    except (OSError, ValueError):
        return []


def write_frame(frame: pd.DataFrame, path: str | Path) -> list[Path]:
    """Write ``frame`` to ``path`` (parquet) and to a CSV of the same name beside it.

    A CSV holds no lists, so ``draws`` are in the parquet file only: hand that one on.

    Args:
        frame: metrics, scores or picks.
        path: ending in .parquet, .csv or neither; both files are written.

    Returns:
        The two paths, parquet first.

    Raises:
        UsageError: another ending, a folder, or a file that holds something else than such a frame.
    """
    target, table = frame_files(path, _kind_of(list(map(str, frame.columns))))
    make_folder(target.parent)
    write_atomic(target, lambda temporary: frame.to_parquet(temporary, index=False))
    flat = frame.drop(columns="draws", errors="ignore")
    write_atomic(table, lambda temporary: flat.to_csv(temporary, index=False))
    return [target, table]


def frame_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame for JSON, without ``draws``; what is missing is None, never NaN.

    >>> frame_rows(pd.DataFrame({"metric": ["dime"], "value": [float("nan")], "reason": ["constant"]}))
    [{'metric': 'dime', 'value': None, 'reason': 'constant'}]
    """
    flat = frame.drop(columns="draws", errors="ignore")
    return [{str(name): _plain(value) for name, value in row.items()} for row in flat.to_dict("records")]


def _plain(value: Any) -> Any:
    """A cell as JSON knows it."""
    if value is None or value is pd.NA or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value.item() if isinstance(value, np.generic) else value


def read_frame(path: str | Path, kind: str) -> pd.DataFrame:
    """Read a frame from parquet or CSV and check that it is one.

    Args:
        path: the file.
        kind: ``metrics``, ``scores``, ``picks``, ``layer pairs`` or ``correlations``.

    Raises:
        FrameError: no such file, not a table, or columns that are needed are missing.
    """
    source = Path(path)
    if not source.is_file():
        raise FrameError(f"no {kind} frame at {source}: {_HOW[kind]}")
    try:
        frame = pd.read_csv(source) if source.suffix == ".csv" else pd.read_parquet(source)
    except (ValueError, OSError) as error:
        raise FrameError(f"{source} is not a readable table: {first_line(error)}") from error
    missing = [column for column in _REQUIRED[kind] if column not in frame.columns]
    if missing:
        raise FrameError(
            f"{source} is not a {kind} frame: it lacks the column(s) {', '.join(missing)} "
            f"(found: {', '.join(map(str, frame.columns))})"
        )
    if frame.empty:
        raise FrameError(f"{source} has no rows: {_HOW[kind]}")
    _check_values(frame, source)
    _check_keys(frame, source, kind)
    return frame


def _check_values(frame: pd.DataFrame, source: Path) -> None:
    """Numbers are numbers and layers are layers; else the row is named."""
    for column in _NUMBERS & set(frame.columns):
        numbers = numbers_in(frame, column, source)
        endless = frame.index[np.isinf(numbers.to_numpy(dtype=float, na_value=np.nan))]
        if len(endless):
            raise FrameError(f"{source}, row {endless[0] + 1}: the {column} is infinite")
    for column in ("layer_name", "other_layer_name"):
        for row, name in enumerate(frame.get(column, ()), start=1):
            if isinstance(name, str):
                try:
                    as_layer_order([name])
                except UsageError as error:
                    raise FrameError(f"{source}, row {row}: {error}") from error


def numbers_in(frame: pd.DataFrame, column: str, source: Path) -> pd.Series[float]:
    """A column as numbers, NaN where it is missing.

    Raises:
        FrameError: something else stands there; the row is named.
    """
    numbers = pd.to_numeric(frame[column], errors="coerce")
    bad = frame.index[numbers.isna() & frame[column].notna()]
    if len(bad):
        raise FrameError(
            f"{source}, row {bad[0] + 1}: the {column} '{frame.loc[bad[0], column]}' is not a number"
        )
    return numbers


def _check_keys(frame: pd.DataFrame, source: Path, kind: str) -> None:
    """Every row says what its number is of, and no two say the same; else the row is named."""
    if kind == "picks":
        return
    for column in (name for name in _REQUIRED[kind][:-1] if name not in ("variant", "p")):
        missing = frame.index[frame[column].isna()]
        if len(missing):
            raise FrameError(f"{source}, row {missing[0] + 1}: the {column} is missing")
    keys = [key for key in _KEYS if key in frame.columns]
    again = frame.index[frame.duplicated(keys)]
    if len(again):
        row = again[0]
        first = frame.index[(frame[keys].astype(str) == frame.loc[row, keys].astype(str)).all(axis=1)][0]
        raise FrameError(
            f"{source}, row {row + 1}: the same {', '.join(keys)} as in row {first + 1}; leave one out"
        )


def check_one(frame: pd.DataFrame, what: str) -> None:
    """Refuse a frame of several models or corpora, which are not to be compared.

    Raises:
        FrameError: it holds several; the message names them.
    """
    for column in ("model", "corpus", *RUN_COLUMNS):
        if column in frame and frame[column].nunique() > 1:
            raise FrameError(
                f"{what} holds several values of {column} ({named(frame[column])}): "
                "write those of one to a file of their own"
            )


def check_same_model(metrics: pd.DataFrame, scores: pd.DataFrame) -> None:
    """Refuse scores of other models than the metrics are of.

    Raises:
        FrameError: no model is in both; the message names them.
    """
    if "model" in metrics and "model" in scores:
        ours, theirs = set(metrics["model"].dropna()), set(scores["model"].dropna())
        if ours and theirs and not ours & theirs:
            raise FrameError(
                f"the scores are of the model {named(sorted(theirs))}, the metrics of {named(sorted(ours))}: "
                "give scores of the same model"
            )


_HOW = {
    "metrics": "make one with 'layerscope analyze CACHE'",
    "scores": "make one with 'layerscope evaluate sts CACHE'",
    "picks": "make one with 'layerscope select METRICS.parquet'",
    "layer pairs": "make one with 'layerscope analyze CACHE --cka'",
    "correlations": "make one with 'layerscope compare METRICS SCORES'",
}


def draws_by_layer(rows: pd.DataFrame) -> NDArray[np.float64] | None:
    """The resampled values of the layers in ``rows``, (draws, layers); ``None`` where any are missing."""
    if "draws" not in rows or rows["draws"].isna().any():
        return None
    columns = [np.asarray(draws, dtype=np.float64) for draws in rows["draws"]]
    if not columns or len({len(column) for column in columns}) != 1 or not len(columns[0]):
        return None
    return np.stack(columns, axis=1)


def residual_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the residual stream, those of ``attn.k`` and ``mlp.k`` left out.

    Raises:
        FrameError: nothing is left of a frame that has rows.
    """
    kept = frame[[not is_sublayer(str(name)) for name in frame["layer_name"]]]
    if kept.empty and len(frame):
        raise FrameError(
            "the frame holds only outputs of attention and MLPs (attn.k, mlp.k), "
            "at which no model can be cut: extract with --sites block,attn,mlp"
        )
    return kept


def labels(rows: pd.DataFrame, column: str) -> pd.Series[str]:
    """A column as text, empty where it is missing, as it is in tables from elsewhere."""
    return rows[column].astype(object).where(rows[column].notna(), "").astype(str)


def not_finite(rows: Sequence[int]) -> str:
    """The reason where a layer has rows that are not finite.

    >>> not_finite([3, 8])
    'not finite: row 3 and 1 more'
    """
    return f"not finite: row {rows[0]}" + (f" and {len(rows) - 1} more" if len(rows) > 1 else "")


def as_frame(records: list[dict[str, Any]], columns: tuple[str, ...]) -> pd.DataFrame:
    """A frame with exactly ``columns``, in that order; what a record lacks is missing."""
    return pd.DataFrame.from_records(records, columns=list(columns))
