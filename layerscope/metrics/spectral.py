"""Matrix-based entropy: how evenly the variance of a set of rows is spread over directions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy.special import entr, logsumexp

from layerscope.errors import UsageError, nearest
from layerscope.metrics.checks import Array, check_positive, check_rows
from layerscope.metrics.eigen import eigvalsh
from layerscope.metrics.rows import EPS, RowRecipe, binary_scale, power_of_two, prepared_blocks
from layerscope.metrics.spec import MetricSpec, Undefined
from layerscope.metrics.streams import Blocks, FloatArray, check_blocks

Normalization = Literal["raw", "logn", "logd", "max"]
_SQUARE_ROOT_IS_SAFE = 1e-8


@dataclass(frozen=True)
class Spectrum:
    """One decomposition of a set of rows under one recipe, from which all spectral metrics are read.

    Attributes:
        p: ``(min(n, d),)`` eigenvalues of ``K = Z Zᵀ / tr(Z Zᵀ)``, descending, summing to 1; values below
            round-off are 0.
        n: rows.
        d: width.
        exact_q: the singular shares from the rows themselves, for spectra so steep that square roots of
            eigenvalues have lost digits.
    """

    p: FloatArray
    n: int
    d: int
    exact_q: Callable[[], FloatArray] = field(repr=False, compare=False)
    is_centred: bool = False

    @property
    def q(self) -> FloatArray:
        """Shares ``σ / Σσ`` of the singular values, ``(min(n, d),)``, descending.

        Square roots of the eigenvalues where those are far above round-off (one zero is what centring
        leaves where n ≤ d), otherwise a decomposition of the rows.
        """
        m = len(self.p) - (1 if self.is_centred and self.n <= self.d else 0)
        if m > 0 and self.p[m - 1] > _SQUARE_ROOT_IS_SAFE * self.p[0]:
            roots = np.sqrt(self.p)
            return np.asarray(roots / roots.sum())
        return self.exact_q()


def decompose(Z: npt.ArrayLike, rows: RowRecipe = "center-unit") -> Spectrum:
    """The spectrum of ``Z``, once for all metrics that are read from it.

    Args:
        Z: ``(n, d)`` rows.
        rows: what is done to the rows first.

    Raises:
        Undefined: as ``spectrum``.

    >>> decompose([[3.0, 4.0], [-4.0, 3.0]], rows="raw").q
    array([0.5, 0.5])
    """
    array = check_rows(Z)
    return _decompose(array, rows, binary_scale(array))


def spectrum_of_blocks(blocks: Blocks, rows: RowRecipe = "center-unit") -> Spectrum:
    """``decompose`` of a stream of rows, with memory for a block and a ``(d, d)`` matrix.

    Args:
        blocks: n rows of width d, read three times, or four where singular values are needed.
        rows: what is done to the rows first.

    Raises:
        Undefined: as ``spectrum``.

    >>> rows = np.array([[3.0, 4.0], [-4.0, 3.0]])
    >>> spectrum_of_blocks(Blocks.of(rows, block=1), rows="raw").p
    array([0.5, 0.5])
    """
    scale = power_of_two(check_blocks(blocks))
    if blocks.n <= blocks.d:
        return decompose(blocks.joined(), rows)
    return _decompose(blocks, rows, scale)


def _decompose(source: Array | Blocks, rows: RowRecipe, scale: float) -> Spectrum:
    n, d = _shape(source)
    return Spectrum(
        p=_eigenvalue_shares(source, rows, scale),
        n=n,
        d=d,
        exact_q=lambda: _singular_shares(source, rows, scale),
        is_centred=rows.startswith("center"),
    )


def matrix_entropy(
    Z: npt.ArrayLike,
    alpha: float = 1.0,
    rows: RowRecipe = "center-unit",
    normalization: Normalization = "raw",
) -> float:
    """Rényi entropy of the spectrum of ``K = Z Zᵀ / tr(Z Zᵀ)``.

    ``-Σ p ln p`` for α = 1, else ``ln(Σ p^α) / (1 - α)``; for α = 2 that is ``-ln ‖K‖_F²``, taken without
    eigenvalues. For α < 1, where small eigenvalues weigh most, they are squared singular values of ``Z``.

    Args:
        Z: ``(n, d)`` rows.
        alpha: order, above 0.
        rows: what is done to the rows first.
        normalization: ``raw``, or divided by ln n (``logn``), ln d (``logd``) or ln min(n, d) (``max``).

    Returns:
        Nats in [0, ln min(n, d)] if ``raw``.

    Raises:
        Undefined: fewer than 2 rows, not finite, constant, zero trace, no convergence.

    Source: Giraldo, Rao & Príncipe 2014; Skean et al. 2025.

    >>> round(matrix_entropy(np.eye(4), rows="raw"), 6), round(math.log(4), 6)
    (1.386294, 1.386294)
    """
    array = check_rows(Z)
    check_positive(alpha, "alpha")
    if alpha == 2:
        entropy = gram_entropy(_gram(array, rows, binary_scale(array)), alpha)
    elif alpha < 1:
        squares = singular_spectrum(array, rows) ** 2
        entropy = spectrum_entropy(squares / squares.sum(), alpha)
    else:
        entropy = spectrum_entropy(spectrum(array, rows), alpha)
    return normalize_entropy(entropy, array.shape[0], array.shape[1], normalization)


def dataset_entropy(
    Z: npt.ArrayLike,
    alpha: float = 1.0,
    rows: RowRecipe = "center-unit",
    normalization: Normalization = "raw",
) -> float:
    """``matrix_entropy`` of the pooled embeddings ``(n, d)`` of a data set.

    Args:
        Z: ``(n, d)``, one row a sample.
        alpha: order, above 0.
        rows: what is done to the rows first.
        normalization: see ``matrix_entropy``.

    Returns:
        Nats in [0, ln min(n, d)] if ``raw``.

    Raises:
        Undefined: as ``matrix_entropy``.

    Source: Skean et al. 2025.

    >>> two_opposite_pairs = [[1, 0], [-1, 0], [0, 1], [0, -1]]
    >>> round(dataset_entropy(two_opposite_pairs, normalization="logd"), 12)
    1.0
    """
    return matrix_entropy(Z, alpha, rows, normalization)


def spectrum(Z: npt.ArrayLike, rows: RowRecipe = "center-unit") -> FloatArray:
    """Eigenvalues ``p`` of ``K = Z Zᵀ / tr(Z Zᵀ)``, from the smaller of ``Z Zᵀ`` and ``Zᵀ Z``.

    Args:
        Z: ``(n, d)`` rows; for n > d they are read block by block.
        rows: what is done to the rows first.

    Returns:
        ``(min(n, d),)``, descending, summing to 1; values below round-off are 0.

    Raises:
        Undefined: fewer than 2 rows, not finite, constant, zero trace, no convergence.

    >>> spectrum([[3.0, 4.0], [-4.0, 3.0]], rows="raw")
    array([0.5, 0.5])
    """
    array = check_rows(Z)
    return _eigenvalue_shares(array, rows, binary_scale(array))


def singular_spectrum(Z: npt.ArrayLike, rows: RowRecipe = "center-unit") -> FloatArray:
    """Shares ``q = σ / Σσ`` of the singular values of ``Z``.

    From ``Z`` itself and not from its Gram matrix, whose round-off would leave no singular value below
    1e-8 of the largest one. For n > d the rows are folded block by block into one triangular factor.

    Args:
        Z: ``(n, d)`` rows.
        rows: what is done to the rows first.

    Returns:
        ``(min(n, d),)``, descending, summing to 1; values below round-off are 0.

    Raises:
        Undefined: fewer than 2 rows, not finite, constant, zero trace, no convergence.

    >>> singular_spectrum([[3.0, 0.0], [0.0, 1.0]], rows="raw")
    array([0.75, 0.25])
    """
    array = check_rows(Z)
    return _singular_shares(array, rows, binary_scale(array))


def spectrum_entropy(p: npt.ArrayLike, alpha: float = 1.0) -> float:
    """Rényi entropy of shares ``p`` that sum to 1.

    Args:
        p: ``(m,)`` shares, as from ``spectrum``.
        alpha: order, above 0; 1 is Shannon's entropy.

    Returns:
        Nats in [0, ln m].

    >>> round(spectrum_entropy([0.5, 0.5, 0.0], alpha=3), 6)
    0.693147
    """
    check_positive(alpha, "alpha")
    shares = np.asarray(p, dtype=np.float64)
    if alpha == 1:
        return max(0.0, float(entr(shares).sum()))
    positive = shares[shares > 0]
    if abs(alpha - 1) < 0.5:
        # ln Σ p^α is near 0 here, and ln(1 + Σ p (p^(α-1) - 1)) keeps its digits.
        log_sum = float(np.log1p((positive * np.expm1((alpha - 1) * np.log(positive))).sum()))
    else:
        log_sum = float(logsumexp(alpha * np.log(positive)))
    return max(0.0, log_sum / (1 - alpha))


def gram_entropy(K: FloatArray, alpha: float = 1.0) -> float:
    """Rényi entropy of the spectrum of ``K / tr K``.

    Args:
        K: ``(m, m)``, symmetric and positive semidefinite.
        alpha: order, above 0; 2 needs no eigenvalues.

    Returns:
        Nats in [0, ln m].

    Raises:
        Undefined: zero trace, no convergence.

    >>> round(gram_entropy(np.diag([1.0, 1.0, 2.0]), alpha=2), 6), round(-math.log(6 / 16), 6)
    (0.980829, 0.980829)
    """
    check_positive(alpha, "alpha")
    trace = float(np.trace(K))
    if not trace > 0:
        raise Undefined("zero trace")
    if alpha == 2:
        return max(0.0, -math.log(float(np.square(K / trace).sum())))
    try:
        eigenvalues = eigvalsh(K)
    except np.linalg.LinAlgError as error:
        raise Undefined("no convergence") from error
    return spectrum_entropy(_shares(eigenvalues, len(K)), alpha)


def normalize_entropy(entropy: float, n: int, d: int, normalization: Normalization) -> float:
    """Divide an entropy of ``n`` rows of width ``d`` by what it could be at most.

    Raises:
        UsageError: no such normalisation.
        Undefined: the divisor is ln 1.

    >>> normalize_entropy(math.log(2), n=4, d=9, normalization="logn")
    0.5
    """
    if normalization not in get_args(Normalization):
        known = nearest(normalization, get_args(Normalization))
        raise UsageError(f"no entropy normalization {normalization!r}: {known}")
    if normalization == "raw":
        return entropy
    size = {"logn": n, "logd": d, "max": min(n, d)}[normalization]
    if size < 2:
        raise Undefined("fewer than 2 dimensions")
    return entropy / math.log(size)


def _shape(source: Array | Blocks) -> tuple[int, int]:
    return (source.n, source.d) if isinstance(source, Blocks) else (source.shape[0], source.shape[1])


def _eigenvalue_shares(source: Array | Blocks, rows: RowRecipe, scale: float) -> FloatArray:
    """Shares of the eigenvalues; from singular values where the eigenvalues do not converge."""
    try:
        eigenvalues = eigvalsh(_gram(source, rows, scale))
    except np.linalg.LinAlgError:
        squares = _singular_shares(source, rows, scale) ** 2
        return np.asarray(squares / squares.sum())
    return _shares(eigenvalues, max(_shape(source)))


def _singular_shares(source: Array | Blocks, rows: RowRecipe, scale: float) -> FloatArray:
    try:
        singular_values = np.linalg.svd(_factor(source, rows, scale), compute_uv=False)
    except np.linalg.LinAlgError as error:
        raise Undefined("no convergence") from error
    return _shares(singular_values, max(_shape(source)))


def _gram(source: Array | Blocks, rows: RowRecipe, scale: float) -> FloatArray:
    """The smaller of ``Z Zᵀ`` and ``Zᵀ Z``, up to a factor that keeps its squares within range."""
    n, d = _shape(source)
    if n <= d:
        (part,) = prepared_blocks(source, rows, scale=scale, block=n)
        return np.asarray(part @ part.T)
    total = np.zeros((d, d))
    for part in prepared_blocks(source, rows, scale=scale):
        total += part.T @ part
    return total


def _factor(source: Array | Blocks, rows: RowRecipe, scale: float) -> FloatArray:
    """A matrix of at most ``d`` rows with the singular values of ``Z``, up to a factor."""
    n, d = _shape(source)
    if n <= d:
        (part,) = prepared_blocks(source, rows, scale=scale, block=n)
        return part
    factor = np.empty((0, d))
    for part in prepared_blocks(source, rows, scale=scale):
        factor = np.asarray(np.linalg.qr(np.vstack([factor, part]), mode="r"))
    return factor


def _shares(values: Array, size: int) -> FloatArray:
    """Values of a spectrum, in any order, divided by their sum; those below round-off become 0."""
    largest = float(values.max())
    if not largest > 0:
        raise Undefined("zero trace")
    kept = np.where(values > size * EPS * largest, values, 0.0)
    return np.asarray(np.sort(kept)[::-1] / kept.sum())


def _bounds(n: int, d: int) -> tuple[float, float]:
    return 0.0, math.log(min(n, d))


def _of_spectrum(spectrum: Spectrum) -> float:
    return spectrum_entropy(spectrum.p)


SPEC = MetricSpec(
    name="dataset_entropy",
    label="Dataset entropy (nats)",
    function=dataset_entropy,
    kind="samples",
    direction="higher",
    variant="rows=center-unit;alpha=1;log=e",
    invariances=frozenset({"orthogonal", "scale", "translation", "permutation", "reversal"}),
    bounds=_bounds,
    minimum_n=2,
    formula="-Σ p ln p, p = eigenvalues of Z Zᵀ / tr(Z Zᵀ) of the pooled embeddings",
    reads="High when the texts spread over many directions, 0 when all lie on one line.",
    source="Giraldo et al. 2014; Skean et al. 2025",
    of_spectrum=_of_spectrum,
    rows="center-unit",
)
