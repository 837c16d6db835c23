"""LiDAR: how many directions separate samples from one another better than they separate views."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from layerscope.errors import UsageError
from layerscope.metrics.checks import check_view_counts, check_views, largest_entry
from layerscope.metrics.rows import (
    EPS,
    RowRecipe,
    binary_scale,
    check_recipe,
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
    scale = binary_scale(array) if rows == "center-unit" else 1.0  # delta is in the units of the rows
    return _log_directions(blocks, a, delta, rows, scale)


def lidar_of_blocks(views: Blocks) -> float:
    """``lidar`` (delta = 1e-4, unit rows) of a stream of samples.

    Args:
        views: n samples in blocks ``(b, a, d)``, read twice.

    Raises:
        Undefined: as ``lidar``.
    """
    first = next(iter(views), None)
    a = 0 if first is None else first.shape[1]
    check_view_counts(views.n, a)
    check_blocks(_as_rows(views, a))
    return math.exp(_log_directions(views, a, 1e-4, "unit", scale=1.0))


def _as_rows(views: Blocks, a: int) -> Blocks:
    """Every view of every sample as a row of its own."""
    return Blocks(
        lambda: (part.reshape(-1, views.d) for part in views), views.n * a, views.d, block=views.block * a
    )


def _log_directions(views: Blocks, a: int, delta: float, rows: RowRecipe, scale: float) -> float:
    flat = prepared_blocks(_as_rows(views, a), rows, scale=scale)
    between, within = _scatter((part.reshape(-1, a, views.d) for part in flat), views.n, a, views.d)
    try:
        root: FloatArray = np.asarray(np.linalg.cholesky(within + delta * np.eye(views.d)))
    except np.linalg.LinAlgError as error:
        raise Undefined("singular within-class covariance") from error
    return gram_entropy(between.whitened(root))


def _scatter(parts: Iterator[FloatArray], n: int, a: int, d: int) -> tuple[_Means, FloatArray]:
    """The class means, and the covariance ``(d, d)`` within classes.

    One reading: each class is taken about its own first view, and all classes about the first one, so that
    what is equal cancels exactly.
    """
    within, means = np.zeros((d, d)), _Means(d)
    origin: FloatArray | None = None
    for part in parts:
        first = part[:, 0].copy()
        origin = first[0] if origin is None else origin
        np.subtract(part, first[:, None], out=part)
        shift = np.einsum("iaj->ij", part) / a
        np.subtract(part, shift[:, None], out=part)
        inner = part.reshape(-1, d)
        within += inner.T @ inner
        means.add(first - origin + shift)
    means.finish()
    # No mean is further off than this by rounding: no view is longer than all of them together.
    if means.spread <= EPS * (n * means.largest + a * math.sqrt(float(np.trace(within)))):
        raise Undefined("zero trace")
    return means, within / (n * a)


class _Means:
    """Class means as they come, in O(d²): more than 2d are merged (Chan, Golub & LeVeque 1983)."""

    def __init__(self, d: int) -> None:
        self.spread = 0.0
        self.largest = 0.0
        self._waiting: list[FloatArray] = []
        self._mean = np.zeros(d)
        self._products = np.zeros((d, d))
        self._merged = 0
        self._factor: FloatArray | None = None

    def add(self, means: FloatArray) -> None:
        """Take in ``(b, d)``."""
        self._waiting.append(means)
        if sum(map(len, self._waiting)) > 2 * len(self._mean):
            self._merge()

    def finish(self) -> None:
        """No more will come."""
        if not self._merged:
            self._factor = self._centre_waiting()
        elif self._waiting:
            self._merge()

    def whitened(self, root: FloatArray) -> FloatArray:
        """A matrix with the non-zero eigenvalues of ``R⁻¹ Σ_b R⁻ᵀ``.

        Args:
            root: R, ``(d, d)``, the Cholesky factor of the covariance within classes.
        """
        if self._factor is not None:
            half = np.linalg.solve(root, self._factor.T) / math.sqrt(self._merged)
            return np.asarray(half.T @ half if half.shape[1] <= half.shape[0] else half @ half.T)
        whole = np.linalg.solve(root, np.linalg.solve(root, self._products / self._merged).T)
        return np.asarray((whole + whole.T) / 2)

    def _merge(self) -> None:
        centred = self._centre_waiting()
        self._products += centred.T @ centred

    def _centre_waiting(self) -> FloatArray:
        """The rows that wait, about their own mean; the distance to the others is in the products."""
        rows = np.concatenate(self._waiting)
        self._waiting = []
        here = rows.mean(axis=0)
        self.largest = max(self.largest, largest_entry(rows))
        np.subtract(rows, here, out=rows)
        step, seen = here - self._mean, self._merged + len(rows)
        self.spread = max(self.spread, largest_entry(rows))
        if self._merged:
            self.spread = max(self.spread, largest_entry(step))
            self._products += np.outer(step, step * (self._merged * len(rows) / seen))
        self._mean += step * (len(rows) / seen)
        self._merged = seen
        return rows


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
