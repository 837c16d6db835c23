"""Distances to the nearest other rows, exact to the last digits however near they are."""

from __future__ import annotations

import numpy as np

from layerscope.metrics.checks import Array
from layerscope.metrics.rows import binary_scale, prepared_blocks
from layerscope.metrics.streams import FloatArray

_ENTRIES = 1 << 22


def distinct_rows(Z: Array) -> Array:
    """``Z`` without the rows that repeat an earlier one exactly, in order.

    Args:
        Z: ``(n, d)``, checked.

    >>> distinct_rows(np.array([[1.0, 0.0], [2.0, 0.0], [1.0, -0.0]]))
    array([[1., 0.],
           [2., 0.]])
    """
    firsts: dict[bytes, int] = {}
    for number, row in enumerate(Z):
        firsts.setdefault((row + 0).tobytes(), number)  # adding 0 turns -0 into 0
    return Z if len(firsts) == len(Z) else Z[list(firsts.values())]


def nearest_distances(Z: Array, k: int) -> FloatArray:
    """Euclidean distances from each row to its k nearest others, all divided by one power of two.

    Which rows are nearest is found through one product of matrices a block; their distances are then taken
    from differences, which do not lose the digits that squares of long rows do.

    Args:
        Z: ``(n, d)``, checked; n > k.
        k: neighbours of each row.

    Returns:
        ``(n, k)``, ascending in each row.

    >>> found = nearest_distances(np.array([[0.0], [1.0], [4.0]]), 2)
    >>> found / found.min()
    array([[1., 4.],
           [1., 3.],
           [3., 4.]])
    """
    n, d = Z.shape
    (rows,) = prepared_blocks(Z, "center", scale=binary_scale(Z), block=n)
    rows /= binary_scale(rows)
    squares = np.einsum("ij,ij->i", rows, rows)
    block = max(1, _ENTRIES // max(n, k * d))
    found = np.empty((n, k))
    for start in range(0, n, block):
        part = rows[start : start + block]
        apart = squares - 2 * (part @ rows.T)
        own = np.arange(len(part))
        apart[own, own + start] = np.inf
        nearest = np.argpartition(apart, k - 1, axis=1)[:, :k]
        found[start : start + block] = np.sort(_lengths(rows[nearest] - part[:, None]), axis=1)
    return found


def _lengths(differences: FloatArray) -> FloatArray:
    """Norms along the last axis, of vectors of any magnitude."""
    peaks = np.abs(differences).max(axis=-1, keepdims=True)
    scaled = differences / np.where(peaks > 0, peaks, 1.0)
    return np.asarray(peaks[..., 0] * np.sqrt(np.einsum("ijk,ijk->ij", scaled, scaled)))
