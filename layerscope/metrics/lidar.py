"""LiDAR: how many directions separate samples from one another better than they separate views."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from layerscope.errors import UsageError
from layerscope.metrics.checks import check_view_counts, check_views, largest_entry
from layerscope.metrics.rows import (
    EPS,
    RowRecipe,
    binary_scale,
    check_recipe,
    power_of_two,
    prepared_blocks,
)
from layerscope.metrics.spec import MetricSpec, Undefined
from layerscope.metrics.spectral import gram_entropy
from layerscope.metrics.streams import Blocks, FloatArray, check_blocks

_ROWS = 2048  # rows of a block: what the caches of a processor hold


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
    check_recipe(rows)
    array = check_views(V)
    a = array.shape[1]
    blocks = Blocks.of(array, max(1, _ROWS // a))
    scale = binary_scale(array) if rows.endswith("unit") else 1.0  # delta is in the units of the rows
    return _log_directions(blocks, a, delta, rows, scale)


def lidar_of_blocks(views: Blocks) -> float:
    """``lidar`` (delta = 1e-4, unit rows) of a stream of samples.

    Args:
        views: n samples in blocks ``(b, a, d)``, read four times.

    Raises:
        Undefined: as ``lidar``.
    """
    first = next(iter(views), None)
    a = 0 if first is None else first.shape[1]
    check_view_counts(views.n, a)
    scale = power_of_two(check_blocks(_as_rows(views, a)))
    return math.exp(_log_directions(views, a, 1e-4, "unit", scale))


def _as_rows(views: Blocks, a: int) -> Blocks:
    """Every view of every sample as a row of its own."""
    return Blocks(
        lambda: (part.reshape(-1, views.d) for part in views), views.n * a, views.d, block=views.block * a
    )


def _log_directions(views: Blocks, a: int, delta: float, rows: RowRecipe, scale: float) -> float:
    flat = _as_rows(views, a)

    def prepared() -> Iterator[FloatArray]:
        return (part.reshape(-1, a, views.d) for part in prepared_blocks(flat, rows, scale=scale))

    between, within = _scatter(prepared, views.n, a, views.d)
    try:
        root = cholesky(within + delta * np.eye(views.d), lower=True)
    except LinAlgError as error:
        raise Undefined("singular within-class covariance") from error
    discriminant = solve_triangular(root, between.T, lower=True)
    if views.n <= views.d:
        return gram_entropy(discriminant.T @ discriminant)
    whitened = solve_triangular(root, discriminant.T, lower=True)
    return gram_entropy((whitened + whitened.T) / 2)


def _scatter(
    prepared: Callable[[], Iterator[FloatArray]], n: int, a: int, d: int
) -> tuple[FloatArray, FloatArray]:
    """Covariances between and within classes, ``(d, d)``; where n ≤ d a factor ``(n, d)`` of the first."""
    within, total = np.zeros((d, d)), np.zeros(d)
    origin: FloatArray | None = None
    largest = 0.0
    for part in prepared():
        origin = part[0, 0].copy() if origin is None else origin
        np.subtract(part, origin, out=part)
        largest = max(largest, largest_entry(part))
        means = part.mean(axis=1)
        total += means.sum(axis=0)
        np.subtract(part, means[:, None], out=part)
        flat = part.reshape(-1, d)
        within += flat.T @ flat
    assert origin is not None  # checked: there are samples
    grand, spread = total / n, 0.0
    factors, between = [], np.zeros((d, d))
    for part in prepared():
        centred = part.mean(axis=1) - origin - grand
        spread = max(spread, largest_entry(centred))
        if n <= d:
            factors.append(centred)
        else:
            between += centred.T @ centred
    if spread <= n * a * EPS * largest:
        raise Undefined("zero trace")
    return (np.concatenate(factors) / math.sqrt(n) if factors else between / n), within / (n * a)


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
    of_blocks=lidar_of_blocks,
)
