"""NESum: the eigenvalues of the covariance, each as a share of the largest one, added up."""

from __future__ import annotations

import numpy.typing as npt

from layerscope.metrics.rows import RowRecipe
from layerscope.metrics.spec import MetricSpec
from layerscope.metrics.spectral import Spectrum, spectrum


def nesum(Z: npt.ArrayLike, rows: RowRecipe = "center") -> float:
    """``Σ λ_i / λ_1``, λ the eigenvalues of the covariance in descending order.

    The rows are centred and keep their lengths, as published. ``stable_rank`` of the same rows is the same
    number.

    Args:
        Z: ``(n, d)`` rows.
        rows: what is done to the rows first.

    Returns:
        A number of directions in [1, min(n, d)].

    Raises:
        Undefined: fewer than 2 rows, not finite, constant, zero trace, no convergence.

    Source: He & Ozay 2022.

    >>> round(nesum([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), 12)
    1.25
    """
    return 1.0 / float(spectrum(Z, rows)[0])


def _of_spectrum(spectrum: Spectrum) -> float:
    return 1.0 / float(spectrum.p[0])


def _bounds(n: int, d: int) -> tuple[float, float]:
    return 1.0, float(min(n, d))


SPEC = MetricSpec(
    name="nesum",
    label="NESum (directions)",
    function=nesum,
    kind="samples",
    direction="higher",
    variant="rows=center",
    invariances=frozenset({"orthogonal", "scale", "translation", "permutation", "reversal"}),
    bounds=_bounds,
    minimum_n=2,
    formula="Σ λ_i / λ_1, λ = eigenvalues of the covariance of the pooled embeddings",
    reads="Stable rank of centred rows that keep their lengths; 1 when one direction holds all variance.",
    source="He & Ozay 2022",
    of_spectrum=_of_spectrum,
    rows="center",
)
