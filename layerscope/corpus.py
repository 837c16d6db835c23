"""Texts, pairs, scores and labels in; rows with ids, columns and flags out.

What a text may hold: anything but control characters. The C0 and C1 controls and DEL (tab and line
ends excepted) become a space each, half surrogates become U+FFFD, and the notes count both. Nothing
else is changed: spaces at the edges stay, and so do texts such as ``NA``, ``null`` and ``1e5``.
"""

from __future__ import annotations

import contextlib
import math
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from layerscope.errors import CorpusError, LayerscopeError, UsageError
from layerscope.files import json_sha256
from layerscope.sources.opening import Reading, raw_table
from layerscope.sources.roles import KnownNames, Roles, assign_roles
from layerscope.sources.table import ABSENT, RawTable, is_missing
from layerscope.sources.text_formats import is_number

_SURROGATE = re.compile(r"[\ud800-\udfff]")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_CLEANING = (
    ("control characters replaced by a space", re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"), " "),
    ("half surrogates replaced by U+FFFD", _SURROGATE, "\ufffd"),
)
_KINDS = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object"}


@dataclass(frozen=True, eq=False)
class Corpus:
    """Texts in order, a row a text.

    Attributes:
        name: short: a file's stem, a dataset's id, ``stdin`` or ``texts``.
        rows: n rows for n texts, 2n for n pairs (row 2i is the first text of pair i, row 2i + 1 the
            second), 3n for n triplets (anchor, positive and negative in turn). Columns: ``text`` (str,
            ``""`` where missing) and ``empty`` (bool: missing, blank, or only white space, control and
            format characters); for pairs ``pair`` (int), for triplets ``triplet`` (int), and ``side``
            (0, 1 or 2); where given ``label`` (str, or missing), ``score`` (float, NaN where missing; a
            pair's stands on each of its rows), ``view_text`` (str) and ``view_empty`` (bool).
        notes: lines for people: what was guessed, cleaned or left out.
    """

    name: str
    rows: pd.DataFrame
    notes: tuple[str, ...] = ()

    @property
    def texts(self) -> list[str]:
        """The n texts in order."""
        return [str(text) for text in self.rows["text"]]

    @property
    def n_texts(self) -> int:
        """The number of texts (for pairs, twice the number of pairs; for triplets, three times)."""
        return len(self.rows)

    @property
    def is_pairs(self) -> bool:
        """Whether the rows are pairs."""
        return "pair" in self.rows.columns

    @cached_property
    def sha256(self) -> str:
        """SHA-256 (hex) of the rows, their order and their columns; the name does not count."""
        return json_sha256({str(column): _plain_values(self.rows[column]) for column in self.rows.columns})


def _plain_values(column: pd.Series) -> list[Any]:
    return [None if is_missing(value) else value for value in column.tolist()]


def read_corpus(
    source: str | Path | pd.DataFrame | Iterable[str],
    *,
    text_columns: str | Sequence[str] = (),
    view_column: str | None = None,
    score_column: str | None = None,
    label_column: str | None = None,
    split: str | None = None,
    limit: int | None = None,
    quoting: bool | None = None,
    encoding: str = "utf-8",
    name: str | None = None,
) -> Corpus:
    """Read texts, or pairs or triplets of them.

    Args:
        source: a file (``.txt``: a line a text; ``.csv``, ``.tsv``, ``.jsonl``, all of them also
            ``.gz``; ``.parquet``), ``-`` for standard input (a line a text), a folder (written by
            ``datasets.save_to_disk``, or with a data file a split), a Hugging Face dataset id
            (``owner/name`` or ``owner/name:config``), strings, or a DataFrame.
        text_columns: the column of texts, the two columns of pairs, or the three of triplets (anchor,
            positive, negative); guessed where not given.
        view_column: a column with a second wording of each text (neither for pairs nor triplets).
        score_column: a column of numbers; guessed where not given.
        label_column: a column of classes; guessed where not given.
        split: which split of a dataset; else ``test``, ``validation`` or ``train``, in that order.
        limit: the first so many rows of the source (texts, pairs or triplets).
        quoting: whether fields may stand in double quotes; else yes for ``.csv``, no for ``.tsv``.
        encoding: of text files.
        name: a name for the corpus instead of the source's own.

    Raises:
        CorpusError: the source is missing, empty, damaged or not text, or a row of it is wrong (the
            message names file, row and line).
        UsageError: options that the source does not fit, or columns that have to be named.

    >>> read_corpus(["A cat.", " ", None]).rows
         text  empty
    0  A cat.  False
    1           True
    2           True
    """
    if not _may_hold_texts(source):
        raise UsageError(
            f"the corpus is {_described(source)}: give a file, a dataset, a list of texts or a DataFrame"
        )
    columns = _names("text_columns", text_columns)
    single = {"view_column": view_column, "score_column": score_column, "label_column": label_column}
    others = [_name(option, given) for option, given in single.items() if given is not None]
    if limit is not None and (not isinstance(limit, Integral) or isinstance(limit, bool) or limit < 1):
        raise UsageError(f"limit is {limit!r}: ask for at least one row, or leave it away to read all")
    if not isinstance(encoding, str):
        raise UsageError(f"encoding is {encoding!r}: give its name as text, such as utf-8")
    at_most = None if limit is None else min(int(limit), sys.maxsize)
    with _printable_errors():
        table = raw_table(source, Reading(split, at_most, quoting, encoding, KnownNames([*columns, *others])))
        roles = assign_roles(
            table,
            text_columns=columns,
            view_column=view_column,
            score_column=score_column,
            label_column=label_column,
        )
        return _assemble(table, roles, name or table.name)


def _may_hold_texts(source: object) -> bool:
    """Whether ``source`` has an order and may hold texts; the items themselves are checked later."""
    if isinstance(source, str | Path):
        return bool(str(source).strip())
    return isinstance(source, Iterable) and not isinstance(source, Mapping | Set | bytes)


def _described(source: object) -> str:
    return repr(source) if source is None or isinstance(source, str) else f"of type {type(source).__name__}"


def _names(option: str, given: Any) -> tuple[str, ...]:
    """Column names given as one, several or none."""
    if given is None:
        return ()
    several = given if isinstance(given, Iterable) and not isinstance(given, str | bytes) else [given]
    return tuple(_name(option, name) for name in several)


def _name(option: str, given: Any) -> str:
    if not isinstance(given, str):
        raise UsageError(f"{option} is {given!r}: give the column's name as text")
    return given


@contextlib.contextmanager
def _printable_errors() -> Iterator[None]:
    """Keep messages to one line, whatever the file's own names and values hold."""
    try:
        yield
    except LayerscopeError as error:
        error.args = (_printable(str(error)),)
        raise


def _printable(line: str) -> str:
    return _UNPRINTABLE.sub(" ", line)


class _Part(NamedTuple):
    """Some columns of the rows, and what to tell about them."""

    columns: dict[str, list[Any]]
    notes: list[str]


def _assemble(table: RawTable, roles: Roles, name: str) -> Corpus:
    parts = [part(table, roles) for part in (_text_part, _pair_part, _label_part, _score_part, _view_part)]
    columns = {column: values for part in parts for column, values in part.columns.items()}
    notes = [*table.notes, *roles.notes, *(note for part in parts for note in part.notes)]
    return Corpus(name, pd.DataFrame(columns), tuple(_printable(note) for note in notes))


def _text_part(table: RawTable, roles: Roles) -> _Part:
    cleaned = [_cleaned(table, column) for column in roles.texts]
    texts = _interleaved([values for values, _ in cleaned])
    empty = [is_blank(text) for text in texts]
    if all(empty):
        raise CorpusError(f"{table.place}: every text is blank: give it at least one that is not")
    notes = [note for _, found in cleaned for note in found]
    notes += [f"empty texts, kept in place and flagged: {sum(empty)} of {len(empty)}"] if any(empty) else []
    return _Part({"text": texts, "empty": empty}, notes)


def _pair_part(table: RawTable, roles: Roles) -> _Part:
    if len(roles.texts) == 1:
        return _Part({}, [])
    size = len(roles.texts)
    numbers = _interleaved([list(range(table.n_rows))] * size)
    return _Part({"pair" if size == 2 else "triplet": numbers, "side": [*range(size)] * table.n_rows}, [])


def _label_part(table: RawTable, roles: Roles) -> _Part:
    if roles.label is None:
        return _Part({}, [])
    labels = [_label(value) for value in table.columns[roles.label]]
    notes = [f"missing labels: {labels.count(None)} of {len(labels)}"] if None in labels else []
    return _Part({"label": _interleaved([labels] * len(roles.texts))}, notes)


def _score_part(table: RawTable, roles: Roles) -> _Part:
    if roles.score is None:
        return _Part({}, [])
    scores = [_score(value, table, row) for row, value in enumerate(table.columns[roles.score])]
    n_missing = sum(map(math.isnan, scores))
    notes = [f"missing scores: {n_missing} of {len(scores)}"] if n_missing else []
    return _Part({"score": _interleaved([scores] * len(roles.texts))}, notes)


def _view_part(table: RawTable, roles: Roles) -> _Part:
    if roles.view is None:
        return _Part({}, [])
    texts, notes = _cleaned(table, roles.view)
    empty = [is_blank(text) for text in texts]
    notes += [f"empty views: {sum(empty)} of {len(empty)}"] if any(empty) else []
    return _Part({"view_text": texts, "view_empty": empty}, notes)


def _interleaved(columns: list[list[Any]]) -> list[Any]:
    return [value for row in zip(*columns, strict=True) for value in row]


def is_blank(text: str) -> bool:
    r"""Whether nothing in ``text`` can be seen: white space, control and format characters only.

    >>> [is_blank(text) for text in ("", " \t\u200b", "a", "\U0001f600")]
    [True, True, False, False]
    """
    return all(letter.isspace() or unicodedata.category(letter) in ("Cc", "Cf") for letter in text)


def _cleaned(table: RawTable, column: str) -> tuple[list[str], list[str]]:
    """A column of texts made fit for a tokenizer, and notes on what that changed."""
    texts = [_text(value, table, row, column) for row, value in enumerate(table.columns[column])]
    notes: list[str] = []
    for what, pattern, by in _CLEANING:
        results = [pattern.subn(by, text) for text in texts]
        texts = [text for text, _ in results]
        counts = [count for _, count in results if count]
        if counts:
            notes.append(f"{what} in '{column}': {sum(counts)} in {len(counts)} of {len(texts)} rows")
    return texts, notes


def _text(value: object, table: RawTable, row: int, column: str) -> str:
    if value is ABSENT:
        raise CorpusError(f"{table.at(row)} has no '{column}': add it, or write null for a missing text")
    if is_missing(value):
        return ""
    if not isinstance(value, str):
        kind = _KINDS.get(type(value), f"a {type(value).__name__}")
        shown = repr(value)[:40]
        raise CorpusError(
            f"{table.at(row)}: '{column}' is {kind} ({shown}), not a text: write it as a string"
        )
    return value


def _label(value: object) -> str | None:
    if is_missing(value) or value == "":
        return None
    return _SURROGATE.sub("\ufffd", str(value))


def _score(value: object, table: RawTable, row: int) -> float:
    if is_missing(value) or (isinstance(value, str) and not value.strip()):
        return math.nan
    number = _number(value)
    if number is None:
        raise CorpusError(f"{table.at(row)}: the score {value!r} is not a number: mend it, or leave it empty")
    return number


def _number(value: Any) -> float | None:
    """``value`` as a finite float, or None."""
    if isinstance(value, bool) or (isinstance(value, str) and not is_number(value)):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
