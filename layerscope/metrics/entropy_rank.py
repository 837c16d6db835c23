"""Entropy rank: how many directions the variance of a set of rows is spread over."""

from __future__ import annotations

import math

import numpy.typing as npt

from layerscope.metrics.rows import RowRecipe
from layerscope.metrics.spec import MetricSpec
from layerscope.metrics.spectral import Spectrum, matrix_entropy, spectrum_entropy


def entropy_rank(Z: npt.ArrayLike, rows: RowRecipe = "center-unit") -> float:
    """Exponential of the matrix entropy, ``exp(-Σ p ln p)`` over eigenvalues.

    Over eigenvalues, where ``effective_rank`` is over singular values: papers mix the two.

    Args:
        Z: ``(n, d)`` rows.
        rows: what is done to the rows first.

    Returns:
        A number of directions in [1, min(n, d)].

    Raises:
        Undefined: fewer than 2 rows, not finite, constant, zero trace, no convergence.

    Source: Giraldo, Rao & Príncipe 2014.

    >>> round(entropy_rank([[2.0, 0.0], [0.0, 2.0]], rows="raw"), 12)
    2.0
    """
    return math.exp(matrix_entropy(Z, 1.0, rows))


def _of_spectrum(spectrum: Spectrum) -> float:
    return math.exp(spectrum_entropy(spectrum.p))


def _bounds(n: int, d: int) -> tuple[float, float]:
    return 1.0, float(min(n, d))


SPEC = MetricSpec(
    name="entropy_rank",
    label="Entropy rank (directions)",
    function=entropy_rank,
    kind="samples",
    direction="higher",
    variant="rows=center-unit;log=e",
    invariances=frozenset({"orthogonal", "scale", "translation", "permutation", "reversal"}),
    bounds=_bounds,
    minimum_n=2,
    formula="exp(-Σ p ln p), p = eigenvalues of Z Zᵀ / tr(Z Zᵀ) of the pooled embeddings",
    reads="Dataset entropy as a number of directions; 1 when all texts lie on one line.",
    source="Giraldo et al. 2014",
    of_spectrum=_of_spectrum,
    rows="center-unit",
)
