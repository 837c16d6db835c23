"""α-ReQ: how fast the variance of a set of rows falls from one direction to the next."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from layerscope.errors import UsageError
from layerscope.metrics.checks import check_rows
from layerscope.metrics.rows import EPS, RowRecipe
from layerscope.metrics.spec import MetricSpec, Undefined
from layerscope.metrics.spectral import Spectrum, decompose

_FIRST, _LAST = 11, 100


@dataclass(frozen=True)
class PowerLaw:
    """A least-squares line through ``(ln i, ln λ_i)``.

    Attributes:
        alpha: its slope with the sign flipped.
        r_squared: share of the variance of ``ln λ_i`` that the line explains; NaN where all λ are equal.
        first: index of the first eigenvalue, counted from 1.
        last: index of the last eigenvalue.
    """

    alpha: float
    r_squared: float
    first: int
    last: int


def alpha_req(
    Z: npt.ArrayLike, rows: RowRecipe = "center-unit", first: int = _FIRST, last: int = _LAST
) -> float:
    """Exponent α of the power law ``λ_i ∝ i^-α`` of the eigenvalues in a range of indices.

    The slope of ``ln λ_i`` against ``ln i``, all indices weighted alike, sign flipped. The default range is
    that of the authors' code, which leaves out the first ten directions because they seldom follow the law;
    ``power_law`` says how well the others do.

    Args:
        Z: ``(n, d)`` rows.
        rows: what is done to the rows first.
        first: index of the first eigenvalue of the range, counted from 1.
        last: index of the last one; where fewer are above round-off, the range ends with them.

    Returns:
        At least 0; 0 for a flat spectrum.

    Raises:
        UsageError: a range of fewer than 2 indices.
        Undefined: fewer than ``first + 1`` rows (``first + 2`` if centred), not finite, constant, fewer
            than 2 eigenvalues in the range, no convergence.

    Source: Agrawal et al. 2022; Stringer et al. 2019.

    >>> halving = np.diag([1.0, 2**-0.5, 3**-0.5, 0.5])
    >>> round(alpha_req(halving, rows="raw", first=1, last=4), 12)
    1.0
    """
    return power_law(Z, rows, first, last).alpha


def power_law(
    Z: npt.ArrayLike, rows: RowRecipe = "center-unit", first: int = _FIRST, last: int = _LAST
) -> PowerLaw:
    """The fit behind ``alpha_req``, with its R² and the range that was there to fit.

    Args:
        Z: ``(n, d)`` rows.
        rows: what is done to the rows first.
        first: index of the first eigenvalue of the range, counted from 1.
        last: index of the last one.

    Raises:
        UsageError: a range of fewer than 2 indices.
        Undefined: as ``alpha_req``.

    >>> power_law(np.diag([4.0, 2.0, 1.0]), rows="raw", first=1, last=2).r_squared
    1.0
    """
    if not 1 <= first < last:
        raise UsageError(f"first and last: expected 1 <= first < last, got {first} and {last}")
    needed = first + (2 if rows.startswith("center") else 1)
    array = check_rows(Z, minimum=needed)
    return _fit(decompose(array, rows), first, last)


def _fit(spectrum: Spectrum, first: int, last: int) -> PowerLaw:
    """The line, through singular values: the ends of steep spectra drown in round-off once squared."""
    q = spectrum.q
    last = min(last, int(np.count_nonzero(q)))
    if last <= first:
        raise Undefined(f"fewer than 2 eigenvalues from number {first} on")
    x = np.log(np.arange(first, last + 1))
    y = 2 * np.log(q[first - 1 : last])
    x -= x.mean()
    slope = float(x @ y) / float(x @ x)
    y -= y.mean()
    is_flat = float(np.ptp(y)) <= max(spectrum.n, spectrum.d) * EPS
    r_squared = math.nan if is_flat else 1 - float(np.square(y - slope * x).sum() / (y @ y))
    return PowerLaw(max(0.0, -slope), r_squared, first, last)


def _of_spectrum(spectrum: Spectrum) -> float:
    return _fit(spectrum, _FIRST, _LAST).alpha


def _note(spectrum: Spectrum) -> str:
    fit = _fit(spectrum, _FIRST, _LAST)
    return f"R²={fit.r_squared:.3f}, indices {fit.first} to {fit.last}"


def _bounds(n: int, d: int) -> tuple[float, float]:
    return 0.0, math.inf


SPEC = MetricSpec(
    name="alpha_req",
    label="α-ReQ (exponent of the spectrum)",
    function=alpha_req,
    kind="samples",
    direction="lower",
    variant="rows=center-unit;first=11;last=100",
    invariances=frozenset({"orthogonal", "scale", "translation", "permutation", "reversal"}),
    bounds=_bounds,
    minimum_n=_FIRST + 2,
    formula="-slope of ln λ_i against ln i, i = 11 … 100, λ = eigenvalues of Z Zᵀ of the pooled embeddings",
    reads="0 for a flat spectrum; above 1 the weak directions add up to little.",
    source="Agrawal et al. 2022",
    of_spectrum=_of_spectrum,
    rows="center-unit",
    note=_note,
)
