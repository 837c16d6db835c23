"""Uniformity: how evenly the samples cover the unit sphere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from layerscope.metrics.checks import check_positive, check_rows
from layerscope.metrics.rows import power_of_two, prepare, prepared_blocks
from layerscope.metrics.spec import MetricSpec
from layerscope.metrics.streams import Blocks, FloatArray, check_blocks

_BLOCK = 1024


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
    array = check_rows(Z)
    check_positive(t, "t")
    unit = Blocks.of(prepare(array, "unit"), _BLOCK)
    return _log_mean_potential(lambda: iter(unit), len(array), t)


def uniformity_of_blocks(blocks: Blocks) -> float:
    """``uniformity`` (t = 2) of a stream of rows, which is read once for each of its blocks.

    Args:
        blocks: n rows of width d.

    Raises:
        Undefined: as ``uniformity``.
    """
    scale = power_of_two(check_blocks(blocks))
    return _log_mean_potential(lambda: prepared_blocks(blocks, "unit", scale=scale), blocks.n, 2.0)


def _log_mean_potential(start: Callable[[], Iterator[FloatArray]], n: int, t: float) -> float:
    """From unit rows, which ``start`` yields anew in the same blocks each time."""
    sums = []
    for i, first in enumerate(start()):
        for j, second in enumerate(start()):
            if j >= i:
                sums.append(_log_sum_of_potentials(first, second, t, same=i == j))
    return float(logsumexp(sums)) - math.log(n * (n - 1) / 2)


def _log_sum_of_potentials(first: FloatArray, second: FloatArray, t: float, *, same: bool) -> float:
    """``ln Σ exp(-t ‖x - y‖²)`` over the pairs of two blocks, each pair of a block with itself once."""
    exponents = first @ second.T
    exponents *= 2 * t
    exponents -= t * np.einsum("ij,ij->i", first, first)[:, None]
    exponents -= t * np.einsum("ij,ij->i", second, second)
    if same:
        exponents[np.tril_indices(len(first))] = -np.inf
    largest = float(exponents.max())
    if largest == -math.inf:  # a block of one row has no pair
        return largest
    exponents -= largest
    return largest + math.log(float(np.exp(exponents, out=exponents).sum()))


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
    of_blocks=uniformity_of_blocks,
)
