"""Checks at the public edge of every metric: refuse nonsense, and say why a value is undefined."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from layerscope.errors import UsageError
from layerscope.metrics.spec import Undefined

Array = npt.NDArray[Any]

_BLOCK = 8192


def check_rows(Z: npt.ArrayLike, name: str = "Z", *, minimum: int = 2, unit: str = "samples") -> Array:
    """Check a matrix of row vectors at the public edge; its numbers are left as they are.

    Args:
        Z: ``(n, d)`` real numbers of any width.
        name: what to call it in a message.
        minimum: the fewest rows that make sense.
        unit: what a row is, for the reason.

    Returns:
        ``Z`` as an array of its own dtype, not a copy.

    Raises:
        UsageError: not a matrix of real numbers.
        Undefined: too few rows, a NaN or infinity, or all rows identical.

    >>> check_rows([[1.0, 2.0], [1.0, 2.0]])
    Traceback (most recent call last):
    layerscope.metrics.spec.Undefined: constant
    """
    array = np.asarray(Z)
    if array.ndim != 2 or array.shape[1] == 0:
        raise UsageError(f"{name}: expected a matrix of shape (n, d), got shape {array.shape}")
    check_numbers(array, name)
    if len(array) < minimum:
        raise Undefined(f"fewer than {minimum} {unit}")
    if not math.isfinite(largest_entry(array)):
        raise Undefined("not finite")
    if is_constant(array):
        raise Undefined("constant")
    return array


def check_pair(X: npt.ArrayLike, Y: npt.ArrayLike) -> tuple[Array, Array]:
    """Check two views of the same samples, row i with row i.

    Raises:
        UsageError: not two matrices of one shape.
        Undefined: as in ``check_rows``, for either of them.

    >>> check_pair([[1.0], [2.0]], [[1.0]])
    Traceback (most recent call last):
    layerscope.errors.UsageError: X and Y: expected one shape, got (2, 1) and (1, 1)
    """
    first, second = np.asarray(X), np.asarray(Y)
    if first.shape != second.shape:
        raise UsageError(f"X and Y: expected one shape, got {first.shape} and {second.shape}")
    return check_rows(first, "X"), check_rows(second, "Y")


def check_layers(X: npt.ArrayLike, Y: npt.ArrayLike, *, minimum: int) -> tuple[Array, Array]:
    """Check the same samples at two layers, row i with row i; their widths may differ.

    Raises:
        UsageError: not two matrices of as many rows.
        Undefined: as in ``check_rows``, for either of them.

    >>> check_layers([[1.0], [2.0]], [[1.0, 0.0]], minimum=4)
    Traceback (most recent call last):
    layerscope.errors.UsageError: X and Y: expected as many rows, got (2, 1) and (1, 2)
    """
    first, second = np.asarray(X), np.asarray(Y)
    if first.shape[:1] != second.shape[:1]:
        raise UsageError(f"X and Y: expected as many rows, got {first.shape} and {second.shape}")
    return check_rows(first, "X", minimum=minimum), check_rows(second, "Y", minimum=minimum)


def check_views(V: npt.ArrayLike) -> Array:
    """Check views of samples; their numbers are left as they are.

    Args:
        V: ``(n, a, d)``: a views of each of n samples.

    Raises:
        UsageError: not such an array of real numbers.
        Undefined: fewer than 2 samples or views, a NaN or infinity, or all vectors identical.

    >>> check_views(np.ones((3, 1, 2)))
    Traceback (most recent call last):
    layerscope.metrics.spec.Undefined: fewer than 2 views
    """
    array = np.asarray(V)
    if array.ndim != 3 or array.shape[2] == 0:
        raise UsageError(f"V: expected views of shape (n, a, d), got shape {array.shape}")
    check_numbers(array, "V")
    check_view_counts(*array.shape[:2])
    check_rows(array.reshape(-1, array.shape[2]), "V")
    return array


def check_view_counts(n: int, a: int) -> None:
    """Ask for 2 samples with 2 views each.

    Raises:
        Undefined: fewer.

    >>> check_view_counts(2, 2)
    """
    if n < 2:
        raise Undefined("fewer than 2 samples")
    if a < 2:
        raise Undefined("fewer than 2 views")


def check_numbers(array: Array, name: str) -> None:
    """Refuse an array of anything but integers or floats.

    Raises:
        UsageError: of another kind.

    >>> check_numbers(np.array([1, 2]), "Z")
    """
    if array.dtype.kind not in "fiu":
        raise UsageError(f"{name}: expected real numbers, got dtype {array.dtype}")


def check_positive(value: float, name: str) -> None:
    """Refuse an option that is not a positive number.

    Raises:
        UsageError: zero, negative, infinite or NaN.

    >>> check_positive(-1, "alpha")
    Traceback (most recent call last):
    layerscope.errors.UsageError: alpha: expected a number above 0, got -1
    """
    if not (math.isfinite(value) and value > 0):
        raise UsageError(f"{name}: expected a number above 0, got {value}")


def largest_entry(array: Array) -> float:
    """The largest magnitude in ``array``: NaN if there is a NaN, infinite if there is an infinity.

    >>> largest_entry(np.array([[1.0, -3.0]]))
    3.0
    """
    with np.errstate(invalid="ignore"):
        low, high = float(array.min()), float(array.max())
    return high + low if math.isnan(low + high) else max(high, -low)


def is_constant(Z: Array) -> bool:
    """Whether all rows are identical; stops at the first block that shows they are not.

    >>> is_constant(np.ones((3, 2)))
    True
    """
    blocks = (Z[start : start + _BLOCK] for start in range(0, len(Z), _BLOCK))
    return all(bool((block == Z[0]).all()) for block in blocks)
