"""Folders that are either whole or not there, and libraries that keep quiet while they are written."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from layerscope.errors import CacheError, UsageError
from layerscope.files import explained, make_folder
from layerscope.models import quiet_transformers
from layerscope.quieting import quiet_loggers


def free_folder(path: Any) -> Path:
    """The folder to write, which must be new or empty.

    Raises:
        UsageError: not a path.
        CacheError: something is there.
    """
    if not isinstance(path, str | Path) or not str(path).strip():
        raise UsageError(f"path must be the folder to write, not {path!r}")
    target = Path(path)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CacheError(f"{target} is there already and not an empty folder: choose another with -o")
    return target


def put_in_place(folder: Path, target: Path) -> None:
    """Rename a finished folder, its files readable as other files of this user are."""
    mask = os.umask(0)
    os.umask(mask)
    for file in folder.rglob("*"):
        file.chmod((0o777 if file.is_dir() else 0o666) & ~mask)  # libraries write some for their user only
    with explained(target):
        if target.exists():
            target.rmdir()
        folder.rename(target)


@contextlib.contextmanager
def scratch_folder(target: Path) -> Iterator[Path]:
    """A folder beside the target, so that the finished one can be renamed; gone afterwards."""
    make_folder(target.parent)
    with explained(target):
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the libraries' progress bars and advice off the terminal."""
    with quiet_transformers(), quiet_loggers("sentence_transformers"), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield
