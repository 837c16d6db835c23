"""Code of the documents' pages: found, and run as a reader would run it."""

from __future__ import annotations

import importlib
import linecache
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]*)\")?\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
_IN_TABLE = re.compile(r"(?P<file>.+), in (?P<table>\w+)")


@dataclass(frozen=True)
class Block:
    """One block of code of a page.

    Attributes:
        page: its path.
        line: of its first line of code, from 1.
        title: a file of the reader's, or of layerscope; empty for what is run as it stands.
        code: its text.
    """

    page: Path
    line: int
    title: str
    code: str


def blocks_of(page: str, language: str) -> list[Block]:
    """The blocks of one language in a page, in order."""
    path = ROOT / page
    text = path.read_text(encoding="utf-8")
    return [
        Block(path, text[: found.start()].count("\n") + 2, found[2] or "", found[3])
        for found in _BLOCK.finditer(text)
        if found[1] == language
    ]


def commands_of(page: str) -> Iterator[list[str]]:
    """The words after ``layerscope`` of every command in a page's shell blocks."""
    for block in blocks_of(page, "bash"):
        for line in block.code.replace("\\\n", " ").splitlines():
            for words in _split_at_and(shlex.split(line, comments=True)):
                if words[:1] == ["layerscope"]:
                    yield words[1:]


def _split_at_and(words: list[str]) -> Iterator[list[str]]:
    while "&&" in words:
        at = words.index("&&")
        yield words[:at]
        words = words[at + 1 :]
    yield words


def run_page(page: str, folder: Path, monkeypatch: Any) -> dict[str, Any]:
    """Run the Python of a page from top to bottom in ``folder``, and give what it has defined at the end.

    A block with a title is put where the title says: into a file in ``folder``, or, where the title is a file
    of this repository, into that module (for "FILE, in NAME" into a table of it) until the test ends.
    """
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks_of(page, "python"):
        if (row := _IN_TABLE.fullmatch(block.title)) is not None:
            _add_to_table(_module_of(row["file"]), row["table"], block, monkeypatch)
        elif not block.title:
            exec(_compiled(block), names)
        elif (ROOT / block.title).is_file():
            _add_to_module(_module_of(block.title), block, monkeypatch)
        else:
            target = folder / block.title
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.code, encoding="utf-8")
            monkeypatch.delitem(sys.modules, target.stem, raising=False)
    return names


def _compiled(block: Block) -> Any:
    """The code, with a file name and lines that a traceback can show."""
    name = f"<{block.page.name}:{block.line}>"
    linecache.cache[name] = (len(block.code), None, block.code.splitlines(keepends=True), name)
    return compile(block.code, name, "exec")


def _module_of(file: str) -> Any:
    return importlib.import_module(file.removesuffix(".py").replace("/", "."))


def _add_to_module(module: Any, block: Block, monkeypatch: Any) -> None:
    """Define what a block defines, as if it stood in the module."""
    scope = dict(vars(module))
    exec(_compiled(block), scope)
    for name in scope.keys() - vars(module).keys():
        monkeypatch.setattr(module, name, scope[name], raising=False)


def _add_to_table(module: Any, table: str, block: Block, monkeypatch: Any) -> None:
    """Add what a block holds to a dictionary or a tuple of a module."""
    old = getattr(module, table)
    opening, closing = "{}" if isinstance(old, dict) else "()"
    new = eval(f"{opening}{block.code}{closing}", dict(vars(module)))
    if isinstance(old, dict):
        for key, value in new.items():
            assert key not in old, f"{table} has {key!r} already"
            monkeypatch.setitem(old, key, value)
    else:
        monkeypatch.setattr(module, table, old + new)
