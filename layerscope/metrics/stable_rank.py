"""Stable rank: the whole variance of a set of rows over that of its strongest direction."""

from __future__ import annotations

import numpy.typing as npt

from layerscope.metrics.rows import RowRecipe
from layerscope.metrics.spec import MetricSpec
from layerscope.metrics.spectral import Spectrum, spectrum


def stable_rank(Z: npt.ArrayLike, rows: RowRecipe = "center-unit") -> float:
    """``‖Z‖_F² / ‖Z‖_2²``, the sum of the eigenvalues over the largest one.

    ``nesum`` of the same rows is the same number; the two differ in what is done to the rows first.

    Args:
        Z: ``(n, d)`` rows.
        rows: what is done to the rows first.

    Returns:
        A number of directions in [1, min(n, d)].

    Raises:
        Undefined: fewer than 2 rows, not finite, constant, zero trace, no convergence.

    Source: Rudelson & Vershynin 2007.

    >>> round(stable_rank([[2.0, 0.0], [0.0, 1.0]], rows="raw"), 12)
    1.25
    """
    return 1.0 / float(spectrum(Z, rows)[0])


def _of_spectrum(spectrum: Spectrum) -> float:
    return 1.0 / float(spectrum.p[0])


def _bounds(n: int, d: int) -> tuple[float, float]:
    return 1.0, float(min(n, d))


SPEC = MetricSpec(
    name="stable_rank",
    label="Stable rank (directions)",
    function=stable_rank,
    kind="samples",
    direction="higher",
    variant="rows=center-unit",
    invariances=frozenset({"orthogonal", "scale", "translation", "permutation", "reversal"}),
    bounds=_bounds,
    minimum_n=2,
    formula="‖Z‖_F² / ‖Z‖_2² of the pooled embeddings",
    reads="1 when the strongest direction holds all variance; the weak directions hardly count.",
    source="Rudelson & Vershynin 2007",
    of_spectrum=_of_spectrum,
    rows="center-unit",
)
