"""Hubness: how unevenly samples turn up among the nearest neighbours of others."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from layerscope.errors import UsageError
from layerscope.metrics.checks import check_rows
from layerscope.metrics.rows import prepare
from layerscope.metrics.spec import MetricSpec, Undefined

_NEIGHBOURS = 10
_ENTRIES = 1 << 22


def hubness(Z: npt.ArrayLike, k: int = _NEIGHBOURS) -> float:
    """Skewness of the k-occurrence, ``mean (N_i - k)³ / (mean (N_i - k)²)^(3/2)``.

    ``N_i`` is how many samples have sample i among their k nearest by cosine, themselves left out; its mean
    is k. A row of zeros has the cosine 0 with every other.

    Args:
        Z: ``(n, d)``.
        k: neighbours of each sample.

    Returns:
        In [-√n, √n]; 0 when no sample is a neighbour more often than another is less often.

    Raises:
        UsageError: no neighbours asked for.
        Undefined: fewer than k + 2 samples, not finite, constant, or all samples equally often a neighbour.

    Source: Radovanović, Nanopoulos & Ivanović 2010.

    >>> spokes = [[9.0, 1.0, 0.0, 0.0], [9.0, 0.0, 2.0, 0.0], [9.0, 0.0, 0.0, 3.0], [9.0, 0.0, 0.0, 0.0]]
    >>> k_occurrence(spokes, k=1)
    array([1, 0, 0, 3])
    >>> round(hubness(spokes, k=1), 6)
    0.816497
    """
    apart = k_occurrence(Z, k) - k
    variance = float(np.square(apart).mean())
    if variance == 0:
        raise Undefined("all samples are equally often a neighbour")
    return float((apart**3).mean()) / (variance * math.sqrt(variance))


def k_occurrence(Z: npt.ArrayLike, k: int = _NEIGHBOURS) -> npt.NDArray[np.int64]:
    """How often each sample is among the k nearest of others by cosine; in blocks of similarities.

    Args:
        Z: ``(n, d)``.
        k: neighbours of each sample.

    Returns:
        ``(n,)`` counts that sum to n k.

    Raises:
        UsageError: no neighbours asked for.
        Undefined: fewer than k + 2 samples, not finite, constant.
    """
    if k < 1:
        raise UsageError(f"k: expected at least 1 neighbour, got {k}")
    unit = prepare(check_rows(Z, minimum=k + 2), "unit")
    n = len(unit)
    block = max(1, _ENTRIES // n)
    counts = np.zeros(n, dtype=np.int64)
    for start in range(0, n, block):
        similar = unit[start : start + block] @ unit.T
        own = np.arange(len(similar))
        similar[own, own + start] = -np.inf
        nearest = np.argpartition(similar, n - k, axis=1)[:, n - k :]
        counts += np.bincount(nearest.ravel(), minlength=n)
    return counts


def _bounds(n: int, d: int) -> tuple[float, float]:
    return -math.sqrt(n), math.sqrt(n)


SPEC = MetricSpec(
    name="hubness",
    label="Hubness (skewness of 10-occurrence)",
    function=hubness,
    kind="samples",
    direction="lower",
    variant="rows=unit;k=10",
    invariances=frozenset({"orthogonal", "scale", "row_scale", "permutation", "reversal"}),
    bounds=_bounds,
    minimum_n=_NEIGHBOURS + 2,
    max_n=1024,
    formula="skewness of N_i, how many texts have text i among their 10 nearest by cosine",
    reads="High when a few texts are near neighbours of very many others, and so crowd any search.",
    source="Radovanović et al. 2010",
)
