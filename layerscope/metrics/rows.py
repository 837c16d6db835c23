"""The recipes for rows that come before every Gram matrix.

Arguments are never written into, and never copied whole where a block at a time will do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from layerscope.errors import UsageError, nearest
from layerscope.metrics.checks import Array, largest_entry
from layerscope.metrics.streams import BLOCK, Blocks, FloatArray

RowRecipe = Literal["raw", "center", "unit", "center-unit"]

EPS = float(np.finfo(np.float64).eps)
_SAFE = 1e-140  # a norm above it has squares of full precision, one below its inverse has finite squares


def check_recipe(rows: str) -> None:
    """Refuse a name that is not that of a recipe.

    Raises:
        UsageError: no such recipe.

    >>> check_recipe("centre-unit")
    Traceback (most recent call last):
    layerscope.errors.UsageError: no rows recipe 'centre-unit': did you mean 'center-unit'? ...
    """
    known = get_args(RowRecipe)
    if rows not in known:
        raise UsageError(f"no rows recipe {rows!r}: {nearest(rows, known)}")


def binary_scale(Z: Array) -> float:
    """The power of two just below the largest magnitude, so that dividing by it is exact.

    >>> binary_scale(np.array([[0.75, -5.0]]))
    4.0
    """
    return power_of_two(largest_entry(Z))


def power_of_two(peak: float) -> float:
    """The largest power of two that is not above ``peak``, 1 for 0.

    >>> power_of_two(5.0)
    4.0
    """
    return math.ldexp(1.0, math.frexp(peak)[1] - 1) if peak > 0 else 1.0


def unit_rows(Z: FloatArray, roundoff: float = 0.0, *, out: FloatArray | None = None) -> FloatArray:
    """Each row divided by its L2 norm; a row of zero norm stays zero.

    Args:
        Z: ``(n, d)``, of any magnitude: squares that would leave the range of float64 are scaled first.
        roundoff: the norm up to which a row is nothing but round-off, and so zero.
        out: where to write; may be ``Z`` itself.

    Returns:
        ``(n, d)``, a new array unless ``out`` is given.

    >>> unit_rows(np.array([[3e-200, 4e-200], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    with np.errstate(over="ignore"):
        norms = np.sqrt(np.einsum("ij,ij->i", Z, Z))[:, None]
    if bool(((norms > _SAFE) & (norms < 1 / _SAFE)).all()):
        return np.divide(Z, np.where(norms > roundoff, norms, np.inf), out=out)
    peaks = np.abs(Z).max(axis=1, keepdims=True)
    scaled = np.divide(Z, np.where(peaks > 0, peaks, 1.0), out=out)
    norms = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, None]
    return np.divide(scaled, np.where(norms * peaks > roundoff, norms, np.inf), out=scaled)


def prepare(Z: Array, rows: RowRecipe) -> FloatArray:
    """The rows of ``Z`` after ``rows``, all at once.

    Args:
        Z: ``(n, d)``, checked.
        rows: the recipe.

    Returns:
        A new ``(n, d)`` float64 array.

    >>> prepare(np.array([[1.0, 0.0], [3.0, 0.0]]), "center-unit")
    array([[-1.,  0.],
           [ 1.,  0.]])
    """
    scale = binary_scale(Z) if rows.endswith("unit") else 1.0
    return next(prepared_blocks(Z, rows, scale=scale, block=len(Z)))


def prepared_blocks(
    Z: Array | Blocks, rows: RowRecipe, *, scale: float = 1.0, block: int | None = None
) -> Iterator[FloatArray]:
    """The rows of ``Z`` after ``rows``, block by block.

    Args:
        Z: ``(n, d)`` rows, checked: an array, or a stream that is read once more where a recipe centres.
        rows: the recipe.
        scale: all entries are divided by it first, so that their squares stay within range.
        block: rows at a time; the stream's own where not given.

    Yields:
        New float64 arrays of at most ``block`` rows, in order.

    >>> [part.shape for part in prepared_blocks(np.eye(3), "raw", block=2)]
    [(2, 3), (1, 3)]
    """
    check_recipe(rows)
    stream = Z.resized(block or Z.block) if isinstance(Z, Blocks) else Blocks.of(Z, block or BLOCK)
    centre = _find_centre(stream, scale) if rows.startswith("center") else None
    for part in stream:
        if scale != 1:
            np.divide(part, scale, out=part)
        if centre is not None:
            np.subtract(part, centre.first, out=part)
            np.subtract(part, centre.mean, out=part)
        if rows.endswith("unit"):
            unit_rows(part, centre.roundoff if centre is not None else 0.0, out=part)
        yield part


@dataclass(frozen=True)
class _Centre:
    """The mean row as ``first + mean``: identical rows then cancel exactly.

    ``roundoff`` bounds the norm that rounding can leave of a row that equals the mean.
    """

    first: FloatArray
    mean: FloatArray
    roundoff: float


def _find_centre(stream: Blocks, scale: float) -> _Centre:
    first: FloatArray | None = None
    total = np.zeros(stream.d)
    longest = 0.0
    for part in stream:
        np.divide(part, scale, out=part)
        first = part[0].copy() if first is None else first
        np.subtract(part, first, out=part)
        total += part.sum(axis=0)
        longest = max(longest, float(np.einsum("ij,ij->i", part, part).max()))
    assert first is not None  # checked: there are rows
    return _Centre(first, total / stream.n, stream.n * EPS * math.sqrt(longest))
