"""Participation ratio: how many directions take part in the variance of a set of rows."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from layerscope.metrics.rows import RowRecipe
from layerscope.metrics.spec import MetricSpec
from layerscope.metrics.spectral import Spectrum, matrix_entropy


def participation_ratio(Z: npt.ArrayLike, rows: RowRecipe = "center-unit") -> float:
    """``(Σλ)² / Σλ²``, the exponential of the matrix entropy of order 2; needs no eigenvalues.

    Args:
        Z: ``(n, d)`` rows.
        rows: what is done to the rows first.

    Returns:
        A number of directions in [1, min(n, d)].

    Raises:
        Undefined: fewer than 2 rows, not finite, constant, zero trace.

    Source: Gao et al. 2017.

    >>> round(participation_ratio([[1.0, 0.0], [0.0, 2.0]], rows="raw"), 12), (1 + 4) ** 2 / (1 + 16)
    (1.470588235294, 1.4705882352941178)
    """
    return math.exp(matrix_entropy(Z, 2.0, rows))


def _of_spectrum(spectrum: Spectrum) -> float:
    return 1.0 / float(np.square(spectrum.p).sum())


def _bounds(n: int, d: int) -> tuple[float, float]:
    return 1.0, float(min(n, d))


SPEC = MetricSpec(
    name="participation_ratio",
    label="Participation ratio (directions)",
    function=participation_ratio,
    kind="samples",
    direction="higher",
    variant="rows=center-unit",
    invariances=frozenset({"orthogonal", "scale", "translation", "permutation", "reversal"}),
    bounds=_bounds,
    minimum_n=2,
    formula="(Σλ)² / Σλ², λ = eigenvalues of Z Zᵀ of the pooled embeddings",
    reads="About how many directions carry most of the variance; 1 when all texts lie on one line.",
    source="Gao et al. 2017",
    of_spectrum=_of_spectrum,
    rows="center-unit",
)
