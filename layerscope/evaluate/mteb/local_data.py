"""``--task-data``: real mteb tasks fed from files.

::

    DIR/TASK/SPLIT.tsv                 (or .csv, .jsonl, .parquet, text also .gz) the task's own columns
    DIR/TASK/SUBSET/SPLIT.tsv          for a task with subsets (languages)
    DIR/TASK/corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv [, top_ranked/SPLIT.jsonl]   retrieval, reranking

Files hold the data set as the hub has it, or as the task scores it. A task that transforms its data set after
loading (renames columns, samples rows, joins lists of texts) does so here too, unless the files have all of
the columns that it scores and the transformation, which looks for others, finds nothing to do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from layerscope.errors import CorpusError, UsageError, first_line
from layerscope.files import file_sha256, json_sha256
from layerscope.sources.opening import Reading, raw_table
from layerscope.sources.roles import KnownNames
from layerscope.sources.table import RawTable, is_missing

_ENDINGS = (".tsv", ".csv", ".jsonl", ".parquet", ".tsv.gz", ".csv.gz", ".jsonl.gz")
_FEWEST = 2


@dataclass(frozen=True)
class _Columns:
    """Columns that a task needs in each file: of texts, of numbers, and of labels."""

    texts: tuple[str, ...]
    numbers: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        return self.texts + self.numbers + self.labels


def has_local_data(folder: Path, task: Any) -> bool:
    """Whether ``folder`` has a folder of this task."""
    return (folder / str(task.metadata.name)).is_dir()


def load_local_data(folder: Path, task: Any) -> str:
    """Give ``task`` the data in its folder of ``folder``, as its own loader would.

    Returns:
        The hash of the files that were read.

    Raises:
        CorpusError: a file, column or value that the task needs is missing or wrong; the line says which.
        UsageError: tasks of this type cannot be fed from files.
    """
    place = folder / task.metadata.name
    read: list[Path] = []
    subsets = list(task.hf_subsets) if task.metadata.is_multilingual else [None]
    loaded = {subset or "default": _load_subset(place / (subset or ""), task, read) for subset in subsets}
    if is_retrieval(task):
        task.dataset = loaded
    else:
        task.dataset = loaded if task.metadata.is_multilingual else loaded["default"]
    try:
        if not _is_joined(task):
            _transform(task)
    except (KeyError, ValueError, TypeError) as error:
        raise CorpusError(
            f"{place} does not hold what {task.metadata.name} expects of its dataset "
            f"({task.metadata.dataset['path']}): {first_line(error)}"
        ) from error
    task.data_loaded = True
    return json_sha256([[str(path.relative_to(place)), file_sha256(path)] for path in read])


def _transform(task: Any) -> None:
    """What the task does to its data set after loading, unless that was done before."""
    from datasets import DatasetDict

    given = task.dataset
    if isinstance(given, DatasetDict):
        task.dataset = DatasetDict(given)
    try:
        task.dataset_transform()
    except (KeyError, ValueError):
        columns = () if is_retrieval(task) else _columns(task).all
        splits = list(given.values()) if isinstance(given, DatasetDict) else []
        if not columns or not splits or any(set(columns) - set(rows.column_names) for rows in splits):
            raise
        task.dataset = given


def _is_joined(task: Any) -> bool:
    """Whether the data of a clustering task have one text a row already."""
    from mteb.abstasks import AbsTaskClustering

    if not isinstance(task, AbsTaskClustering) or task.metadata.is_multilingual:
        return False
    loaded: dict[str, Any] = task.dataset or {}
    return all(isinstance(rows[task.input_column_name][0], str) for rows in loaded.values())


def is_retrieval(task: Any) -> bool:
    """Whether a task has queries and a corpus."""
    from mteb.abstasks import AbsTaskRetrieval

    return isinstance(task, AbsTaskRetrieval)


def wanted_files(task: Any) -> str:
    """The files that a task would need, in words.

    Raises:
        UsageError: tasks of this type cannot be fed from files.
    """
    name = task.metadata.name
    inside = f"{name}/SUBSET" if task.metadata.is_multilingual else name
    if is_retrieval(task):
        qrels = ", ".join(f"qrels/{split}.tsv" for split in task.eval_splits)
        columns = "_id, text and _id, text and query-id, corpus-id, score"
        return f"{inside}/: corpus.jsonl, queries.jsonl, {qrels} (columns {columns})"
    columns = ", ".join(_columns(task).all)
    return f"{inside}/: {', '.join(f'{split}.tsv' for split in _splits(task))} (columns {columns})"


def _splits(task: Any) -> list[str]:
    train = [task.train_split] if hasattr(task, "train_split") else []
    return list(dict.fromkeys([*train, *task.eval_splits]))


def _columns(task: Any) -> _Columns:
    from mteb import abstasks

    kind = task.metadata.type
    if isinstance(task, abstasks.AbsTaskSTS):
        columns = _Columns(_names(task.column_names), numbers=("score",))
    elif isinstance(task, abstasks.AbsTaskPairClassification):
        pair = (task.input1_column_name, task.input2_column_name)
        columns = _Columns(_names(pair), labels=(task.label_column_name,))
    elif isinstance(task, abstasks.AbsTaskClassification | abstasks.AbsTaskClustering):
        columns = _Columns(_names([task.input_column_name]), labels=(task.label_column_name,))
    else:
        raise UsageError(
            f"{task.metadata.name} is of type {kind}: files can feed STS, classification, clustering, "
            "pair classification, reranking and retrieval tasks"
        )
    return columns


def _names(given: Iterable[Any]) -> tuple[str, ...]:
    names = tuple(given)
    if not all(isinstance(name, str) for name in names):
        raise UsageError(
            f"a task with inputs other than one text a column ({names}) cannot be fed from files"
        )
    return names


def _load_subset(place: Path, task: Any, read: list[Path]) -> Any:
    from datasets import Dataset, DatasetDict

    if is_retrieval(task):
        return {split: _retrieval_split(place, task, split, read) for split in task.eval_splits}
    columns = _columns(task)
    is_raw = type(task).dataset_transform is not _base_transform()
    splits = {}
    for split in _splits(task):
        path = _find(place, split, task)
        read.append(path)
        table = _table(path, columns.all)
        _check_columns(table, () if is_raw else columns.all, task)
        splits[split] = Dataset.from_dict({name: _values(table, name, columns) for name in table.columns})
    return DatasetDict(splits)


def _base_transform() -> Any:
    from mteb.abstasks.abstask import AbsTask

    return AbsTask.dataset_transform


def _find(place: Path, name: str, task: Any) -> Path:
    found = [place / (name + ending) for ending in _ENDINGS if (place / (name + ending)).is_file()]
    if not found:
        raise CorpusError(
            f"no {place / name}{_ENDINGS[0]} (or {', '.join(_ENDINGS[1:4])}): "
            f"{task.metadata.name} needs {wanted_files(task)}"
        )
    if len(found) > 1:
        raise CorpusError(f"several files for one split: {', '.join(map(str, found))}; leave one")
    return found[0]


def _table(path: Path, known: Sequence[str]) -> RawTable:
    table = raw_table(path, Reading(None, None, None, "utf-8", KnownNames(known)))
    if table.n_rows < _FEWEST:
        raise CorpusError(f"{path} has {table.n_rows} row: a score needs at least {_FEWEST}")
    return replace(table, place=str(path))


def _check_columns(table: RawTable, needed: Sequence[str], task: Any) -> None:
    missing = [name for name in needed if name not in table.columns]
    if missing:
        raise CorpusError(
            f"{table.place} lacks the column(s) {', '.join(missing)} that {task.metadata.name} needs "
            f"(found: {', '.join(table.columns)})"
        )


def _values(table: RawTable, name: str, columns: _Columns) -> list[Any]:
    values = list(table.columns[name])
    for row, value in enumerate(values):
        if name in columns.all and is_missing(value):
            raise CorpusError(f"{table.at(row)}: the {name} is missing")
    if name in columns.numbers:
        return [_number(value, table, row, name) for row, value in enumerate(values)]
    if name in columns.labels:
        return _labels(values)
    return [None if is_missing(value) else value for value in values]


def _number(value: Any, table: RawTable, row: int, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise CorpusError(f"{table.at(row)}: the {name} '{value}' is not a number")
    return number


def _labels(values: list[Any]) -> list[Any]:
    """Whole numbers as numbers, whatever else as it is: classifiers take both.

    >>> _labels(["0", "12"]), _labels(["cat", "0"])
    ([0, 12], ['cat', '0'])
    """
    try:
        return [value if isinstance(value, list) else int(value) for value in values]
    except (TypeError, ValueError):
        return values


def _retrieval_split(place: Path, task: Any, split: str, read: list[Path]) -> dict[str, Any]:
    from datasets import Dataset

    tables = {}
    for name, needed in {
        "corpus": ("text",), "queries": ("text",), f"qrels/{split}": ("query-id", "corpus-id", "score"),
    }.items():  # fmt: skip
        path = _find(place, name, task)
        read.append(path)
        tables[name] = _table(path, ("_id", "id", "title", *needed))
        _check_columns(tables[name], needed, task)
    qrels = tables.pop(f"qrels/{split}")
    relevant: dict[str, dict[str, int]] = {}
    triples = zip(*(qrels.columns[name] for name in ("query-id", "corpus-id", "score")), strict=True)
    for row, (query, document, score) in enumerate(triples):
        relevant.setdefault(str(query), {})[str(document)] = int(_number(score, qrels, row, "score"))
    corpus, queries = (_with_ids(tables[name]) for name in ("corpus", "queries"))
    unknown = [query for query in relevant if query not in set(queries["id"])]
    if unknown:
        raise CorpusError(
            f"{qrels.place} names the query '{unknown[0]}', which {tables['queries'].place} lacks"
        )
    judged = [row for row, name in enumerate(queries["id"]) if name in relevant]
    queries = {name: [values[row] for row in judged] for name, values in queries.items()}
    return {
        "corpus": Dataset.from_dict(corpus),
        "queries": Dataset.from_dict(queries),
        "relevant_docs": relevant,
        "top_ranked": _top_ranked(place, split, read),
    }


def _with_ids(table: RawTable) -> dict[str, list[Any]]:
    name = "_id" if "_id" in table.columns else "id"
    if name not in table.columns:
        raise CorpusError(f"{table.place} lacks the column _id (found: {', '.join(table.columns)})")
    kept = [column for column in ("title", "text", "instruction") if column in table.columns]
    texts = {column: ["" if is_missing(v) else str(v) for v in table.columns[column]] for column in kept}
    return {"id": [str(value) for value in table.columns[name]]} | texts


def _top_ranked(place: Path, split: str, read: list[Path]) -> dict[str, list[str]] | None:
    """Candidates of each query, of a reranking task."""
    path = place / "top_ranked" / f"{split}.jsonl"
    if not path.is_file():
        return None
    import json

    read.append(path)
    ranked: dict[str, list[str]] = {}
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        try:
            row = json.loads(line)
            ranked[str(row["query-id"])] = [str(name) for name in row["corpus-ids"]]
        except (ValueError, KeyError, TypeError) as error:
            raise CorpusError(
                f'{path}, line {number}: expected {{"query-id": ..., "corpus-ids": [...]}}'
            ) from error
    return ranked
