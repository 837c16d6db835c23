"""Arrow tables: parquet files, and ``datasets`` on disk and on the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from layerscope.errors import CorpusError, UsageError, nearest
from layerscope.sources.table import RawTable, refuse_repeated

SPLITS = ("test", "validation", "train")
"""Which split is taken where none is asked for: the first of these that there is."""
_BATCH = 8192
_LONGEST_REASON = 300


def parquet_table(path: Path, name: str, limit: int | None = None) -> RawTable:
    """Read a parquet file, no further than ``limit`` rows.

    Raises:
        CorpusError: not a parquet file, or one without rows.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            batches = _first_batches(file.iter_batches(batch_size=min(_BATCH, limit or _BATCH)), limit)
            table = pa.Table.from_batches(batches, schema=file.schema_arrow)
    except (pa.ArrowException, OSError) as error:
        raise CorpusError(f"{path} is not a readable parquet file: {_one_line(error)}") from error
    return _raw(table.slice(0, limit), name, path.name)


def _first_batches(batches: Iterable[Any], limit: int | None) -> list[Any]:
    kept: list[Any] = []
    n_rows = 0
    for batch in batches:
        kept.append(batch)
        n_rows += batch.num_rows
        if limit is not None and n_rows >= limit:
            break
    return kept


def _raw(table: Any, name: str, place: str, classes: Mapping[str, Sequence[str]] | None = None) -> RawTable:
    """An arrow table as a RawTable; numbers of classes become their names."""
    refuse_repeated(table.column_names, place)
    if not table.num_rows:
        raise CorpusError(f"{place} has no rows")
    nested = {column.name: str(column.type) for column in table.schema if column.type.num_fields}
    columns = {column: table[column].to_pylist() for column in table.column_names if column not in nested}
    for column, names in (classes or {}).items():
        columns[column] = [_class_name(value, names) for value in columns[column]]
    return RawTable(name, place, columns, unreadable=nested)


def _class_name(value: int | None, names: Sequence[str]) -> str | None:
    """The name of a class; -1 is how published sets say "not given"."""
    return None if value is None or value < 0 else names[value]


def is_saved_dataset(folder: Path) -> bool:
    """Whether ``datasets.save_to_disk`` wrote this folder."""
    return (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()


def saved_dataset_table(folder: Path, name: str, split: str | None, limit: int | None) -> RawTable:
    """Read a folder that ``save_to_disk`` wrote.

    Raises:
        CorpusError: damaged, or without rows.
        UsageError: no such split, or a split asked of a dataset that has none.
    """
    import datasets

    try:
        loaded = datasets.load_from_disk(str(folder))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorpusError(
            f"{folder} is a damaged dataset folder ({_one_line(error)}): save it again"
        ) from error
    if not isinstance(loaded, datasets.DatasetDict):
        if split is not None:
            raise UsageError(f"{folder} has no splits: leave --split away")
        return _dataset_table(loaded, name, folder.name, limit)
    chosen, notes = choose_split(list(loaded), split, folder.name)
    return _with_notes(_dataset_table(loaded[chosen], name, folder.name, limit), notes)


def hub_dataset_table(source: str, split: str | None, limit: int | None) -> RawTable:
    """Read ``name``, ``owner/name`` or ``owner/name:config`` from the hub or its local cache.

    Raises:
        CorpusError: not there, not reachable, or without rows.
        UsageError: no such split.
    """
    import datasets

    dataset_id, _, config = source.partition(":")
    try:
        splits = datasets.get_dataset_split_names(dataset_id, config or None)
        chosen, notes = choose_split(splits, split, source)
        loaded = datasets.load_dataset(dataset_id, config or None, split=chosen)
    except UsageError:
        raise
    except Exception as error:  # the hub's clients raise errors of a dozen unrelated classes
        raise CorpusError(
            f"no file or folder '{source}' here, and trying it as a dataset of the Hugging Face hub failed "
            f"({_one_line(error)}): give a local file (.txt, .csv, .tsv, .jsonl, .parquet) or dataset folder"
        ) from error
    return _with_notes(_dataset_table(loaded, source, source, limit), notes)


def choose_split(names: Sequence[str], wanted: str | None, place: str) -> tuple[str, tuple[str, ...]]:
    """The split to read, and a note where that was not asked for.

    Raises:
        UsageError: no split of that name; none asked for, and none of the usual ones there.

    >>> choose_split(["train", "test"], None, "banking77")
    ('test', ('split: test (of train, test; none was asked for)',))
    """
    if wanted is not None:
        if wanted not in names:
            raise UsageError(f"{place} has no split '{wanted}': {nearest(wanted, names)}")
        return wanted, ()
    if len(names) == 1:
        return names[0], ()
    chosen = next((split for split in SPLITS if split in names), None)
    if chosen is None:
        raise UsageError(f"{place} has the splits {', '.join(names)}: choose one with --split")
    return chosen, (f"split: {chosen} (of {', '.join(names)}; none was asked for)",)


def _dataset_table(dataset: Any, name: str, place: str, limit: int | None) -> RawTable:
    n_rows = len(dataset) if limit is None else min(limit, len(dataset))
    table = dataset.select(range(n_rows)).with_format("arrow")[:] if n_rows else dataset.data.table
    classes = {
        column: feature.names for column, feature in dataset.features.items() if hasattr(feature, "int2str")
    }
    return _raw(table, name, place, classes)


def _with_notes(table: RawTable, notes: tuple[str, ...]) -> RawTable:
    return RawTable(
        table.name, table.place, table.columns, table.lines, notes + table.notes, table.unreadable
    )


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _LONGEST_REASON else text[:_LONGEST_REASON] + " ..."
