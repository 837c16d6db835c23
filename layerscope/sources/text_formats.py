"""Lines to tables: plain text, CSV and TSV, JSON lines."""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import math
from collections.abc import Container, Iterable, Iterator
from typing import Any

from layerscope.errors import CorpusError
from layerscope.sources.table import ABSENT, RawTable, refuse_repeated

_LONGEST_FIELD = 2**31 - 1


def plain_table(lines: Iterable[str], name: str, place: str, limit: int | None = None) -> RawTable:
    r"""A line a text, in the column ``text``. Blank lines are rows; spaces at the edges stay.

    >>> plain_table(["one \r\n", "\n", "two"], "x", "x.txt").columns
    {'text': ['one ', '', 'two']}
    """
    texts = [_chopped(line) for line in itertools.islice(lines, limit)]
    return RawTable(name, place, {"text": texts}, lines=range(1, len(texts) + 1))


def _chopped(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


def delimited_table(
    lines: Iterable[str],
    name: str,
    place: str,
    limit: int | None = None,
    *,
    delimiter: str,
    quoted: bool,
    known: Container[str] = (),
) -> RawTable:
    r"""CSV or TSV: a header line, then rows of as many fields; every field stays a string.

    A blank line is a row (an empty text) where there is one column, and no row where there are more.
    A first line in which a number stands, and no name of ``known``, is data: the columns are then
    ``column1``, ``column2`` ...

    Args:
        lines: lines with their ends.
        name: short name of the corpus.
        place: what to call the source in messages.
        limit: the most rows to read.
        delimiter: what stands between fields.
        quoted: whether a field may stand in double quotes, and then hold delimiters and line ends.
        known: column names that tell a header from data.

    Raises:
        CorpusError: no header, no rows, a row of another length (the message names the line), a
            quote that is not closed, or a repeated column name.

    >>> delimited_table(["a\tb\n", '"x\t1\n'], "x", "x.tsv", delimiter="\t", quoted=False).columns
    {'a': ['"x'], 'b': ['1']}
    """
    split = _quoted_rows if quoted else _unquoted_rows
    with _long_fields():
        numbered = split(lines, delimiter, place)
        header, first_rows, notes = _header(numbered, place, known)
        rows = itertools.chain(first_rows, _data_rows(numbered, header, place, quoted))
        kept = list(itertools.islice(rows, limit))
    if not kept:
        raise CorpusError(f"{place} has a header ({', '.join(header)}) but no rows under it")
    columns = {column: [row[k] for _, row in kept] for k, column in enumerate(header)}
    return RawTable(name, place, columns, lines=[number for number, _ in kept], notes=notes)


_Row = tuple[int, list[str]]


def _unquoted_rows(lines: Iterable[str], delimiter: str, place: str) -> Iterator[_Row]:
    del place  # splitting cannot fail
    for number, line in enumerate(lines, 1):
        yield number, _chopped(line).split(delimiter)


def _quoted_rows(lines: Iterable[str], delimiter: str, place: str) -> Iterator[_Row]:
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        number = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise CorpusError(
                f"{place}, line {number}: the quoting is broken ({error}): double the quotes inside quoted "
                "fields, or read the file with --no-quoting"
            ) from error
        if row is None:
            return
        yield number, row or [""]


@contextlib.contextmanager
def _long_fields() -> Iterator[None]:
    """Lift the csv module's limit of 128 KiB a field, and put it back."""
    before = csv.field_size_limit(_LONGEST_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _header(
    rows: Iterator[_Row], place: str, known: Container[str]
) -> tuple[list[str], list[_Row], tuple[str, ...]]:
    """Column names, the rows already taken, and what to tell about them."""
    first = next((row for row in rows if row[1] != [""]), None)
    if first is None:
        raise CorpusError(f"{place} holds only blank lines: give it a header line and rows")
    names = first[1]
    if _is_data(names, known):
        numbered = [f"column{k}" for k in range(1, len(names) + 1)]
        note = f"no header (a number stands in line {first[0]}): the columns are called {', '.join(numbered)}"
        return numbered, [first], (note,)
    refuse_repeated(names, place)
    return names, [], ()


def _is_data(names: list[str], known: Container[str]) -> bool:
    if any(name in known for name in names) or names == [str(k) for k in range(len(names))]:
        return False
    return any(is_number(name) for name in names)


def is_number(text: str) -> bool:
    """Whether ``text`` is written as a finite number.

    >>> [is_number(text) for text in ("2.5", "1e5", "five", "nan", "")]
    [True, True, False, False, False]
    """
    try:
        return math.isfinite(float(text)) and "_" not in text
    except ValueError:
        return False


def _data_rows(rows: Iterator[_Row], header: list[str], place: str, quoted: bool) -> Iterator[_Row]:
    for number, row in rows:
        if len(row) == len(header):
            yield number, row
        elif row != [""]:
            raise CorpusError(_wrong_length(f"{place}, line {number}", row, header, quoted))


def _wrong_length(where: str, row: list[str], header: list[str], quoted: bool) -> str:
    mend = (
        "put double quotes around fields that hold the delimiter"
        if quoted
        else "remove the delimiter from its texts, or use --quoting if its fields stand in quotes"
    )
    return (
        f"{where} has {len(row)} column(s) where the header has {len(header)} ({', '.join(header)}): {mend}"
    )


def json_lines_table(lines: Iterable[str], name: str, place: str, limit: int | None = None) -> RawTable:
    r"""A JSON object a line. Blank lines are no rows; a key that a line lacks is ``ABSENT``.

    Raises:
        CorpusError: a line is no JSON, or no object (the message names it); no rows.

    >>> json_lines_table(['{"a": "x"}\n', '\n', '{"a": null}'], "x", "x.jsonl").columns
    {'a': ['x', None]}
    """
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    kept = [
        (number, _object(line, f"{place}, line {number}"))
        for number, line in itertools.islice(numbered, limit)
    ]
    if not kept:
        raise CorpusError(f"{place} holds only blank lines: give it one JSON object a line")
    names = dict.fromkeys(key for _, record in kept for key in record)
    columns = {column: [record.get(column, ABSENT) for _, record in kept] for column in names}
    return RawTable(name, place, columns, lines=[number for number, _ in kept])


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{where} is not JSON ({error}): write one JSON object a line") from error
    if not isinstance(value, dict):
        raise CorpusError(
            f'{where} is JSON but no object: write one object a line, such as {{"text": "..."}}'
        )
    return value
