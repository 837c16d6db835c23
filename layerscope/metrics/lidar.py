"""LiDAR: how many directions separate samples from one another better than they separate views."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from layerscope.errors import UsageError
from layerscope.metrics.checks import check_numbers, check_rows
from layerscope.metrics.rows import EPS, FloatArray, RowRecipe, prepare
from layerscope.metrics.spec import MetricSpec, Undefined
from layerscope.metrics.spectral import gram_entropy


def lidar(V: npt.ArrayLike, delta: float = 1e-4, rows: RowRecipe = "unit") -> float:
    """Effective number of directions of linear discriminant analysis, samples being the classes.

    ``exp(-Σ p ln p)``, ``p = λ / Σλ``, ``λ`` the solutions of ``Σ_b u = λ (Σ_w + δI) u``. ``Σ_b`` is the
    covariance of class means about their mean, ``Σ_w`` the mean covariance within classes.

    Args:
        V: ``(n, a, d)``: a views of each of n samples.
        delta: δ, at least 0, in squared units of the prepared rows.
        rows: what is done to all n·a vectors first.

    Returns:
        A number of directions in [1, min(n - 1, d)].

    Raises:
        UsageError: not a ``(n, a, d)`` array of real numbers, or a negative delta.
        Undefined: fewer than 2 samples or views, not finite, constant, zero trace, singular within-class
            covariance.

    Source: Thilak et al. 2024.

    >>> corners = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    >>> round(lidar(np.stack([corners, corners], axis=1)), 9)
    2.0
    """
    return math.exp(lidar_log(V, delta, rows))


def lidar_log(V: npt.ArrayLike, delta: float = 1e-4, rows: RowRecipe = "unit") -> float:
    """Natural log of ``lidar``.

    Args:
        V: ``(n, a, d)``: a views of each of n samples.
        delta: δ, at least 0, in squared units of the prepared rows.
        rows: what is done to all n·a vectors first.

    Returns:
        Nats in [0, ln min(n - 1, d)].

    Raises:
        UsageError: not a ``(n, a, d)`` array of real numbers, or a negative delta.
        Undefined: as ``lidar``.

    Source: Thilak et al. 2024.

    >>> corners = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    >>> round(lidar_log(np.stack([corners, corners], axis=1)), 6), round(math.log(2), 6)
    (0.693147, 0.693147)
    """
    if not delta >= 0:
        raise UsageError(f"delta: expected a number of at least 0, got {delta}")
    between, within = _scatter(_check_views(V, rows))
    try:
        root = cholesky(within.T @ within + delta * np.eye(within.shape[1]), lower=True)
    except LinAlgError as error:
        raise Undefined("singular within-class covariance") from error
    discriminant = solve_triangular(root, between.T, lower=True)
    n, d = between.shape
    return gram_entropy(discriminant.T @ discriminant if n <= d else discriminant @ discriminant.T)


def _check_views(V: npt.ArrayLike, rows: RowRecipe) -> FloatArray:
    """Prepared views ``(n, a, d)``."""
    array = np.asarray(V)
    if array.ndim != 3 or array.shape[2] == 0:
        raise UsageError(f"V: expected views of shape (n, a, d), got shape {array.shape}")
    check_numbers(array, "V")
    n, a, d = array.shape
    if n < 2:
        raise Undefined("fewer than 2 samples")
    if a < 2:
        raise Undefined("fewer than 2 views")
    return prepare(check_rows(array.reshape(n * a, d), "V"), rows).reshape(n, a, d)


def _scatter(V: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Factors ``(n, d)`` and ``(n·a, d)`` whose squares are the covariances between and within classes."""
    n, a, d = V.shape
    shifted = V - V[0, 0]
    means = shifted.mean(axis=1)
    between = means - means.mean(axis=0)
    within = (shifted - means[:, None]).reshape(n * a, d)
    if np.abs(between).max() <= n * a * EPS * np.abs(shifted).max():
        raise Undefined("zero trace")
    return between / math.sqrt(n), within / math.sqrt(n * a)


def _bounds(n: int, d: int) -> tuple[float, float]:
    return 1.0, float(min(n - 1, d))


SPEC = MetricSpec(
    name="lidar",
    label="LiDAR (directions)",
    function=lidar,
    kind="views",
    direction="higher",
    variant="rows=unit;delta=1e-4;log=e",
    invariances=frozenset(
        {"orthogonal", "scale", "row_scale", "permutation", "reversal", "view_permutation"}
    ),
    bounds=_bounds,
    minimum_n=2,
    formula="exp(-Σ p ln p), p = λ / Σλ, Σ_b u = λ (Σ_w + δI) u, classes = samples, members = views",
    reads="About how many directions tell texts apart beyond what views of one text differ by.",
    source="Thilak et al. 2024",
)
