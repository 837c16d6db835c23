"""Files that are either whole or not there: atomic writes, checksums, strict JSON."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from layerscope.errors import CacheError

_CHUNK = 1 << 20


@contextlib.contextmanager
def explained(target: Path) -> Iterator[None]:
    """Turn the operating system's write errors on ``target`` into one clear line."""
    try:
        yield
    except OSError as error:
        raise CacheError(_explain(error, target)) from error


def _explain(error: OSError, target: Path) -> str:
    if error.errno == errno.ENOSPC:
        return f"the disk is full: could not write {target}; free some space and run the same command again"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"no permission to write {target}: choose another output with -o"
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return f"cannot write {target}: a file stands where a folder is needed; choose another output with -o"
    return f"could not write {target}: {error.strerror or error}; choose another output with -o"


def make_folder(path: Path) -> None:
    """Create ``path`` and its parents, or say in one line why that cannot be."""
    with explained(path):
        path.mkdir(parents=True, exist_ok=True)


def check_writable(folder: Path) -> None:
    """Say in one line why nothing could be written in ``folder``, which need not be there; leaves no trace.

    Tried rather than asked for, since permissions do not tell of read-only and special file systems.
    """
    with explained(folder):
        existing = next((place for place in (folder, *folder.parents) if place.exists()), Path())
        with tempfile.TemporaryFile(dir=existing):
            pass


def write_atomic(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, flush it to disk, then rename it.

    Whatever goes wrong, ``path`` is untouched and the temporary file is removed.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with explained(path):
            write(temporary)
            with temporary.open("rb+") as stream:
                os.fsync(stream.fileno())
            temporary.replace(path)
            _flush_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):  # so that this never hides what went wrong
            temporary.unlink()


def _flush_folder(folder: Path) -> None:
    """Make a rename durable (a folder can be opened for that on POSIX only)."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_json(path: Path, value: Any) -> None:
    """Write strict JSON (no NaN), sorted and indented, atomically."""
    text = json.dumps(value, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False)
    write_text(path, text + "\n")


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes atomically."""
    write_atomic(path, lambda temporary: _write_bytes(temporary, content))


def _write_bytes(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically."""
    write_atomic(path, lambda temporary: _write_text(temporary, text))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def text_sha256(text: str) -> str:
    """SHA-256 of a text in UTF-8, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def json_sha256(value: Any) -> str:
    """SHA-256 of a value's canonical JSON, in hex."""
    return text_sha256(json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":")))


def human_bytes(size: float) -> str:
    """A size in bytes as people read it.

    >>> human_bytes(1536)
    '1.5 KiB'
    """
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
