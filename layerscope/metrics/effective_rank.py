"""Effective rank: how many directions a set of rows makes use of."""

from __future__ import annotations

import math

import numpy.typing as npt

from layerscope.metrics.rows import RowRecipe
from layerscope.metrics.spec import MetricSpec
from layerscope.metrics.spectral import Spectrum, singular_spectrum, spectrum_entropy


def effective_rank(Z: npt.ArrayLike, rows: RowRecipe = "center-unit") -> float:
    """Exponential of the entropy of the singular values, ``exp(-Σ q ln q)``, ``q = σ / Σσ``.

    With ``rows="raw"`` this is RankMe.

    Args:
        Z: ``(n, d)`` rows.
        rows: what is done to the rows first.

    Returns:
        A number of directions in [1, min(n, d)].

    Raises:
        Undefined: fewer than 2 rows, not finite, constant, zero trace, no convergence.

    Source: Roy & Vetterli 2007; Garrido et al. 2023 (RankMe).

    >>> round(effective_rank([[2.0, 0.0], [0.0, 2.0]], rows="raw"), 12)
    2.0
    """
    return math.exp(spectrum_entropy(singular_spectrum(Z, rows)))


def _of_spectrum(spectrum: Spectrum) -> float:
    return math.exp(spectrum_entropy(spectrum.q))


def _bounds(n: int, d: int) -> tuple[float, float]:
    return 1.0, float(min(n, d))


SPEC = MetricSpec(
    name="effective_rank",
    label="Effective rank (directions)",
    function=effective_rank,
    kind="samples",
    direction="higher",
    variant="rows=center-unit;log=e",
    invariances=frozenset({"orthogonal", "scale", "translation", "permutation", "reversal"}),
    bounds=_bounds,
    minimum_n=2,
    formula="exp(-Σ q ln q), q = σ / Σσ, σ = singular values of the pooled embeddings",
    reads="About how many independent directions the texts use; 1 when all lie on one line.",
    source="Roy & Vetterli 2007; Garrido et al. 2023",
    of_spectrum=_of_spectrum,
    rows="center-unit",
)
