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


def nearest(name: str, known: Iterable[str]) -> str:
    """The names of ``known`` as one phrase, the ones most like ``name`` first.

    >>> nearest("mena", ["last", "mean"])
    "did you mean 'mean'? (known: mean, last)"
    >>> nearest("zzz", ["last", "mean"])
    'known: last, mean'
    """
    names = list(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    ordered = close + [other for other in names if other not in close]
    listing = "known: " + ", ".join(ordered)
    return f"did you mean '{close[0]}'? ({listing})" if close else listing
