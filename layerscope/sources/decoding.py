r"""Bytes to lines: compression, encodings, and files that are no text at all.

Lines end at ``\n`` or ``\r\n`` only. The other characters that Python's ``splitlines`` breaks at
(U+2028, U+0085, vertical tab, form feed ...) are part of a text.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from layerscope.errors import CorpusError, UsageError

_HEAD = 8192
_BINARY_SHARE, _BINARY_LEAST = 0.1, 4
_NOT_IN_TEXT = bytes(set(range(32)) - set(b"\t\n\r\f\v\b\x1b"))
_MAGIC = {
    b"\x1f\x8b": "gzip-compressed: let its name end in .gz",
    b"PK\x03\x04": "a zip archive: unpack it",
    b"PAR1": "a parquet file: let its name end in .parquet",
    b"%PDF": "a PDF: extract its text first",
    b"\x89PNG": "an image",
}
_WIDE_BOMS = {
    b"\xff\xfe\x00\x00": "utf-32",
    b"\x00\x00\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open ``path`` for reading, unpacking ``.gz``; read errors become one clear line.

    Raises:
        CorpusError: the file cannot be read, or is not the gzip file that its name says.
    """
    try:
        with _open(path) as stream:
            yield stream
    except gzip.BadGzipFile as error:
        raise CorpusError(f"{path} is not a gzip file, though its name ends in .gz: rename it") from error
    except (EOFError, zlib.error) as error:
        raise CorpusError(f"{path} is damaged or cut short ({error}): fetch it again") from error
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror or error}") from error


def _open(path: Path) -> BinaryIO:
    return cast("BinaryIO", gzip.open(path)) if path.suffix.lower() == ".gz" else path.open("rb")


def decoded_lines(stream: BinaryIO, place: str, encoding: str = "utf-8") -> Iterator[str]:
    r"""The lines of ``stream`` with their line ends, without a byte order mark.

    Args:
        stream: bytes.
        place: what to call the source in messages.
        encoding: any text encoding Python knows.

    Raises:
        CorpusError: no bytes at all, bytes that are not in ``encoding`` (the message names the line
            and the byte), or a binary file: one that starts as gzip, zip, parquet, PDF or PNG does, or
            of whose first 8192 bytes a tenth, and at least four, are control bytes.
        UsageError: no such encoding.

    >>> list(decoded_lines(io.BytesIO(b"\xef\xbb\xbfone\ntwo\x0cthree\r\n"), "x.txt"))
    ['one\n', 'two\x0cthree\r\n']
    """
    wide = _is_wide(encoding)
    head = stream.read(_HEAD) + stream.readline()
    if not head:
        raise CorpusError(f"{place} is empty: give it at least one text")
    if wide:
        lines = _wide_lines(head + stream.read(), place, encoding)
    else:
        _refuse_binary(head[:_HEAD], place)
        raw_lines = itertools.chain(io.BytesIO(head), stream)
        lines = (_decode(raw, place, encoding, number) for number, raw in enumerate(raw_lines, 1))
    first = next(lines, "").removeprefix("\ufeff")
    if not first:
        raise CorpusError(f"{place} is empty: give it at least one text")
    yield first
    yield from lines


def _is_wide(encoding: str) -> bool:
    """Whether a line end takes more than one byte, so that bytes cannot be split into lines."""
    try:
        return len("\n".encode(encoding)) > 1
    except LookupError as error:
        raise UsageError(f"no text encoding is called '{encoding}': try utf-8, latin-1 or cp1252") from error


def _decode(raw: bytes, place: str, encoding: str, number: int) -> str:
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{place}, line {number}: byte 0x{raw[error.start]:02x} (byte {error.start + 1} of the line) "
            f"is not valid {encoding}: name the encoding, for example --encoding latin-1"
        ) from error


def _wide_lines(data: bytes, place: str, encoding: str) -> Iterator[str]:
    try:
        text = data.decode(encoding)
    except UnicodeError as error:
        raise CorpusError(f"{place} is not valid {encoding} ({error}): try another --encoding") from error
    return iter(io.StringIO(text, newline="\n"))


def _refuse_binary(head: bytes, place: str) -> None:
    wide = next((name for bom, name in _WIDE_BOMS.items() if head.startswith(bom)), None) or _bare_utf16(head)
    if wide:
        raise CorpusError(f"{place} looks like {wide.upper()}, not UTF-8: read it with --encoding {wide}")
    what = next((what for magic, what in _MAGIC.items() if head.startswith(magic)), None)
    if what:
        raise CorpusError(f"{place} is not a text file but {what}")
    n_controls = len(head) - len(head.translate(None, _NOT_IN_TEXT))
    if n_controls >= max(_BINARY_LEAST, _BINARY_SHARE * len(head)):
        raise CorpusError(
            f"{place} looks like a binary file ({n_controls} of its first {len(head)} bytes are control "
            "characters): give a text file"
        )


def _bare_utf16(head: bytes) -> str | None:
    """UTF-16 without its mark: Latin letters have a NUL in every second byte."""
    half = len(head) // 2
    nul_first, nul_second = head[0 : 2 * half : 2].count(0), head[1 : 2 * half : 2].count(0)
    if nul_second > 0.3 * half and nul_first == 0:
        return "utf-16-le"
    if nul_first > 0.3 * half and nul_second == 0:
        return "utf-16-be"
    return None
