"""The errors that layerscope raises, all with a message that says what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LayerscopeError(Exception):
    """Something failed. The message is one line: what, where, and how to mend it."""

    exit_code = 1


class UsageError(LayerscopeError, ValueError):
    """What was asked for makes no sense (an unknown name, options that contradict)."""

    exit_code = 2


class CorpusError(LayerscopeError):
    """The texts cannot be read."""


class ModelError(LayerscopeError):
    """The model cannot be loaded, or its layers cannot be found."""


class CacheError(LayerscopeError):
    """The cache folder is missing, damaged, in use, or holds something else."""


class FrameError(LayerscopeError):
    """A metrics, scores or picks frame cannot be read or lacks what is needed."""


class MetricError(LayerscopeError):
    """A metric's function failed on something else than an input without a value."""


def named(names: Iterable[object], most: int = 5) -> str:
    """Different names as one phrase.

    >>> named(["b", "a", "b"]), named("abc", most=2)
    ('b, a', 'a, b and 1 more')
    """
    different = list(dict.fromkeys(map(str, names)))
    more = f" and {len(different) - most} more" if len(different) > most else ""
    return ", ".join(different[:most]) + more


def check_whole(name: str, value: object, least: int) -> None:
    """Refuse what is no whole number from ``least`` on.

    Raises:
        UsageError: says what it is and must be.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UsageError(f"{name} is {value!r}: it must be a whole number, {least} or more")


def first_line(error: BaseException) -> str:
    r"""The first line of what an error says, or its type where it says nothing.

    >>> first_line(ValueError("bad shape\nmore")), first_line(KeyError())
    ('bad shape', 'KeyError')
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def nearest(name: str, known: Iterable[str]) -> str:
    """The names of ``known`` as one phrase, with the one most like ``name`` before it.

    >>> nearest("mena", ["last", "mean"])
    "did you mean 'mean'? (known: last, mean)"
    >>> nearest("zzz", ["last", "mean"])
    'known: last, mean'
    >>> nearest("nope", ["infonce"])
    'known: infonce'
    """
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    listing = "known: " + ", ".join(names)
    return f"did you mean '{close[0]}'? ({listing})" if close else listing


def count_of(count: int, one: str, many: str | None = None) -> str:
    """A number with its noun.

    >>> count_of(1, "text"), count_of(1200, "text")
    ('1 text', '1,200 texts')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"
