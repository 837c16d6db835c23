"""IsoScore: how evenly the variance of a set of rows is spread over all dimensions of its space."""

from __future__ import annotations

import numpy.typing as npt

from layerscope.metrics.checks import check_rows
from layerscope.metrics.rows import RowRecipe
from layerscope.metrics.spec import MetricSpec, Undefined
from layerscope.metrics.spectral import Spectrum, decompose


def isoscore(Z: npt.ArrayLike, rows: RowRecipe = "center") -> float:
    """IsoScore of the eigenvalues ``Λ (d,)`` of the covariance.

    As published: ``Λ̂ = √d Λ / ‖Λ‖``, ``δ = ‖Λ̂ - 1‖ / √(2 (d - √d))``, ``φ = (d - δ² (d - √d))² / d²`` and
    ``(d φ - 1) / (d - 1)``. As ``d - δ² (d - √d) = √d ΣΛ / ‖Λ‖``, that is ``(r - 1) / (d - 1)`` with ``r``
    the ``participation_ratio`` of the same rows. With n ≤ d at most n - 1 dimensions can be used, so that
    only values from as many samples may be compared.

    Args:
        Z: ``(n, d)`` rows.
        rows: what is done to the rows first.

    Returns:
        In [0, 1]; 0 when all variance is in one direction, 1 when it is the same in all d.

    Raises:
        Undefined: fewer than 2 rows or dimensions, not finite, constant, zero trace, no convergence.

    Source: Rudman et al. 2022.

    >>> round(isoscore([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), 12)
    1.0
    """
    return _of_spectrum(decompose(check_rows(Z), rows))


def _of_spectrum(spectrum: Spectrum) -> float:
    if spectrum.d < 2:
        raise Undefined("fewer than 2 dimensions")
    used = 1.0 / float(spectrum.p @ spectrum.p)
    return max(0.0, (used - 1.0) / (spectrum.d - 1))


def _bounds(n: int, d: int) -> tuple[float, float]:
    return 0.0, min(1.0, (n - 2) / max(1, d - 1))


SPEC = MetricSpec(
    name="isoscore",
    label="IsoScore (share of dimensions)",
    function=isoscore,
    kind="samples",
    direction="higher",
    variant="rows=center",
    invariances=frozenset({"orthogonal", "scale", "translation", "permutation", "reversal"}),
    bounds=_bounds,
    minimum_n=2,
    formula="((Σλ)² / Σλ² - 1) / (d - 1), λ = eigenvalues of the covariance of the pooled embeddings",
    reads="1 when all dimensions of the space are used alike, 0 when one direction holds all variance.",
    source="Rudman et al. 2022",
    of_spectrum=_of_spectrum,
    rows="center",
)
