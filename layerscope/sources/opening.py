"""What kind of source this is, and which reader it needs."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from layerscope.errors import CorpusError, UsageError, nearest
from layerscope.sources.arrow import (
    choose_split,
    hub_dataset_table,
    is_saved_dataset,
    parquet_table,
    saved_dataset_table,
)
from layerscope.sources.decoding import decoded_lines, opened
from layerscope.sources.roles import KnownNames
from layerscope.sources.table import ABSENT, RawTable, refuse_repeated
from layerscope.sources.text_formats import delimited_table, json_lines_table, plain_table

_TEXT_FORMATS = (".txt", ".csv", ".tsv", ".jsonl")
_FORMATS = (*_TEXT_FORMATS, ".parquet")
_OTHER_SUFFIXES = (
    ".json", ".md", ".xml", ".html", ".htm", ".pdf", ".doc", ".docx", ".xls", ".xlsx", ".zip", ".gz", ".bz2",
    ".xz", ".zst", ".tar", ".arrow", ".feather", ".pkl", ".npy", ".npz", ".dat", ".log",
)  # fmt: skip
_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?(:[\w.-]+)?")
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
_LONGEST_SHOWN = 100
_SPLITS = {"train", "validation", "test"}
_SPLIT_NAMES = {"dev": "validation", "valid": "validation", "val": "validation"}


@dataclass(frozen=True)
class Reading:
    """How a source is to be read.

    Attributes:
        split: of a dataset, or None for the usual one.
        limit: the most rows, or None for all.
        quoting: of fields, or None for the format's own way.
        encoding: of text files.
        known: column names that tell a header from data.
    """

    split: str | None
    limit: int | None
    quoting: bool | None
    encoding: str
    known: KnownNames


def raw_table(source: str | Path | pd.DataFrame | Iterable[str], how: Reading) -> RawTable:
    """Find out what ``source`` is and read it, columns as found.

    Args:
        source: a path, ``-``, a dataset id, a DataFrame or strings.
        how: the options; those that the source does not know are refused.

    Raises:
        CorpusError: the source is missing, empty, damaged, or not a table of texts.
        UsageError: an option that does not go with the source.
    """
    if isinstance(source, pd.DataFrame):
        _refuse_options(how, "a DataFrame")
        return _frame_table(source, how.limit)
    if isinstance(source, str) and source == "-":
        _refuse_options(how, "standard input")
        if sys.stdin is None:
            raise CorpusError("standard input is closed: give a file, or pipe the texts in")
        lines = decoded_lines(sys.stdin.buffer, "standard input", how.encoding)
        return plain_table(lines, "stdin", "standard input", how.limit)
    if isinstance(source, str | Path):
        return _path_table(source, how)
    _refuse_options(how, "a list of texts")
    texts = list(source)[: how.limit]
    if not texts:
        raise CorpusError("no texts: the list is empty")
    return RawTable("texts", "the list of texts", {"text": texts})


def _refuse_options(how: Reading, what: str) -> None:
    if how.split is not None:
        raise UsageError(f"{what} has no splits: leave --split away")
    if how.quoting is not None:
        raise UsageError(f"{what} has no quoting: --quoting goes with .csv and .tsv")


def _frame_table(frame: pd.DataFrame, limit: int | None) -> RawTable:
    place = "the DataFrame"
    names = [str(column) for column in frame.columns]
    refuse_repeated(names, place)
    if frame.empty:
        raise CorpusError(f"{place} has no rows: give it at least one text")
    first = frame if limit is None else frame.head(limit)
    return RawTable("texts", place, {name: first.iloc[:, k].tolist() for k, name in enumerate(names)})


def _path_table(source: str | Path, how: Reading) -> RawTable:
    path = Path(source)
    if _is_there(path) and path.is_dir():
        return _folder_table(path, how)
    if _is_there(path):
        if how.split is not None:
            raise UsageError(f"{path.name} is one file and has no splits: leave --split away")
        return _file_table(path, how)
    if isinstance(source, Path) or not _may_be_hub_id(source):
        raise CorpusError(f"no such file or folder: {_short(str(source))}{_nearest_file(path)}")
    if how.quoting is not None:
        raise UsageError("a dataset of the hub has no quoting: --quoting goes with .csv and .tsv")
    return hub_dataset_table(source, how.split, how.limit)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long for the file system, as a text given for a path is
        return False


def _may_be_hub_id(source: str) -> bool:
    suffix = Path(source).suffix.lower()
    is_short = len(source) <= _LONGEST_SHOWN
    return is_short and _HUB_ID.fullmatch(source) is not None and suffix not in (*_FORMATS, *_OTHER_SUFFIXES)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + " ..."


def _nearest_file(path: Path) -> str:
    """What was perhaps meant, as the end of a sentence."""
    folder = path.parent
    if not _is_there(folder):
        return ": give a path, or a list of strings for texts in memory"
    try:
        phrase = nearest(path.name, sorted(entry.name for entry in folder.iterdir()))
    except OSError:
        return f" (and the folder {folder} cannot be read)"
    return f": {phrase.split(' (')[0]}" if phrase.startswith("did you mean") else f" (in {folder.resolve()})"


def _format(path: Path) -> str:
    """The suffix that says how to read ``path`` (``.csv`` for ``x.csv.gz``), or an empty string."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    if suffixes[-1:] == [".gz"]:
        return suffixes[0] if suffixes[0] in _TEXT_FORMATS else ""
    return suffixes[-1] if suffixes and suffixes[-1] in _FORMATS else ""


def _stem(path: Path) -> str:
    return Path(path.stem).stem if path.suffix.lower() == ".gz" else path.stem


def _file_table(path: Path, how: Reading) -> RawTable:
    form, stem = _format(path), _stem(path)
    if not form:
        raise CorpusError(
            f"{path} is of a kind that is not read here: give {', '.join(_FORMATS)} (texts also .gz)"
        )
    if how.quoting is not None and form not in (".csv", ".tsv"):
        raise UsageError(f"{path.name} has no quoting: --quoting goes with .csv and .tsv")
    if form == ".parquet":
        return parquet_table(path, stem, how.limit)
    with opened(path) as stream:
        lines = decoded_lines(stream, path.name, how.encoding)
        if form == ".txt":
            return plain_table(lines, stem, path.name, how.limit)
        if form == ".jsonl":
            return json_lines_table(lines, stem, path.name, how.limit)
        return delimited_table(
            lines,
            stem,
            path.name,
            how.limit,
            delimiter="," if form == ".csv" else "\t",
            quoted=form == ".csv" if how.quoting is None else how.quoting,
            known=how.known,
        )


def _folder_table(folder: Path, how: Reading) -> RawTable:
    name = folder.resolve().name
    if is_saved_dataset(folder):
        return saved_dataset_table(folder, name, how.split, how.limit)
    groups = _data_files(folder)
    if not groups:
        raise CorpusError(
            f"{folder} is a folder without data: give a file, a folder written by datasets' save_to_disk, "
            "or a folder with files such as train.csv and test.csv"
        )
    splits = [group for group in groups if group in _SPLITS]
    if not splits and len(groups) > 1:
        raise CorpusError(f"{folder} holds several data files ({', '.join(groups)}): give one of them")
    chosen, notes = choose_split(splits or list(groups), how.split, name)
    paths = groups[chosen]
    if len(paths) > 1 and not all(_SHARD.search(_stem(path)) for path in paths):
        raise CorpusError(
            f"{folder} holds more than one file for '{chosen}' ({', '.join(path.name for path in paths)}): "
            "give one of them"
        )
    table = _joined([_file_table(path, how) for path in paths], how.limit)
    return replace(table, name=name, notes=notes + table.notes)


def _data_files(folder: Path) -> dict[str, list[Path]]:
    """Data files of ``folder`` and of its ``data`` folder by split; numbered shards are one split."""
    groups: dict[str, list[Path]] = {}
    for path in sorted([*folder.iterdir(), *(folder / "data").glob("*")]):
        if path.is_file() and _format(path) and not path.name.startswith("."):
            group = _SHARD.sub("", _stem(path))
            groups.setdefault(_SPLIT_NAMES.get(group, group), []).append(path)
    return groups


def _joined(tables: list[RawTable], limit: int | None) -> RawTable:
    """Shards one under another (an error in a row then names no line)."""
    if len(tables) == 1:
        return tables[0]
    names = dict.fromkeys(column for table in tables for column in table.columns)
    columns = {
        column: [value for table in tables for value in table.columns.get(column, [ABSENT] * table.n_rows)][
            :limit
        ]
        for column in names
    }
    return RawTable(
        tables[0].name, f"{len(tables)} shards of {tables[0].place}", columns, notes=tables[0].notes
    )
