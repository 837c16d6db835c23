"""Uniformity: how evenly the samples cover the unit sphere."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from layerscope.metrics.checks import check_positive, check_rows
from layerscope.metrics.rows import FloatArray, prepare
from layerscope.metrics.spec import MetricSpec

_BLOCK = 512


def uniformity(Z: npt.ArrayLike, t: float = 2.0) -> float:
    """Log of the mean Gaussian potential of all pairs, ``ln mean_{i<j} exp(-t ‖x_i - x_j‖²)``.

    Exact, in blocks: never an ``(n, n)`` matrix.

    Args:
        Z: ``(n, d)``; rows are L2-normalised.
        t: sharpness, above 0.

    Returns:
        In [-2tn / (n - 1), 0]; the lower the more even.

    Raises:
        Undefined: fewer than 2 samples, not finite, constant.

    Source: Wang & Isola 2020.

    >>> uniformity([[1.0, 0.0], [0.0, 3.0]])
    -4.0
    """
    Z = check_rows(Z)
    check_positive(t, "t")
    n = len(Z)
    sums = [logsumexp(-t * squares) for squares in _squared_distances(prepare(Z, "unit"))]
    return float(logsumexp(sums)) - math.log(n * (n - 1) / 2)


def _squared_distances(Z: FloatArray) -> Iterator[FloatArray]:
    """Squared distances of all pairs i < j, block by block."""
    squares = np.einsum("ij,ij->i", Z, Z)
    for i in range(0, len(Z), _BLOCK):
        for j in range(i, len(Z), _BLOCK):
            rows, columns = slice(i, i + _BLOCK), slice(j, j + _BLOCK)
            apart = squares[rows, None] + squares[columns] - 2 * (Z[rows] @ Z[columns].T)
            pairs = apart[np.triu_indices(len(apart), 1)] if i == j else apart.ravel()
            if pairs.size:
                yield pairs


def _bounds(n: int, d: int) -> tuple[float, float]:
    return -4.0 * n / (n - 1), 0.0


SPEC = MetricSpec(
    name="uniformity",
    label="Uniformity (log mean potential)",
    function=uniformity,
    kind="samples",
    direction="lower",
    variant="rows=unit;t=2",
    invariances=frozenset({"orthogonal", "scale", "row_scale", "permutation", "reversal"}),
    bounds=_bounds,
    minimum_n=2,
    formula="ln mean_{i<j} exp(-2 ‖x_i - x_j‖²), rows of unit norm",
    reads="About -4 when the texts cover the sphere evenly, 0 when all point one way.",
    source="Wang & Isola 2020",
)
