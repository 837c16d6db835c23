"""LiDAR as released: scatter in float32, the entropy and not its exponential."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from layerscope.metrics.checks import check_positive, check_views
from layerscope.metrics.published.entropy import Normalization, divisor, itl_entropy
from layerscope.metrics.spec import MetricSpec

Array32 = npt.NDArray[np.float32]
_DELTA = np.float32(1e-4)


def lidar(V: npt.ArrayLike, alpha: float = 1.0, normalization: Normalization = "maxEntropy") -> float:
    """Entropy of ``Σ_w^{-1/2} Σ_b Σ_w^{-1/2}`` in float32, ``Σ_w`` with 1e-4 on its diagonal.

    Args:
        V: ``(n, a, d)``: a views of each of n samples, as they are.
        alpha: order, above 0.
        normalization: see ``layerscope.metrics.published.entropy.entropy``.

    Raises:
        UsageError: not a ``(n, a, d)`` array of real numbers.
        Undefined: fewer than 2 samples or views, not finite, constant, zero trace, no convergence.

    >>> corners = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    >>> round(lidar(np.stack([corners, corners], axis=1), normalization="raw"), 3)
    0.693
    """
    array = check_views(V).astype(np.float64)
    check_positive(alpha, "alpha")
    between, within = scatter(array)
    values, vectors = np.linalg.eigh(within)
    root = (vectors / np.sqrt(values)) @ vectors.T
    n, _, d = array.shape
    return itl_entropy((root @ between @ root).astype(np.float64), alpha) / divisor(normalization, n, d)


def scatter(V: npt.NDArray[np.floating]) -> tuple[Array32, Array32]:
    """Covariance between and within samples, ``(d, d)`` float32, the latter with 1e-4 on its diagonal.

    Args:
        V: ``(n, a, d)``.
    """
    n, a, d = V.shape
    means = V.mean(axis=1)
    centred = (means - means.mean(axis=0)).astype(np.float32)
    inner = (V - means[:, None]).reshape(n * a, d).astype(np.float32)
    return centred.T @ centred / n, inner.T @ inner / (n * a) + _DELTA * np.eye(d, dtype=np.float32)


def _bounds(n: int, d: int) -> tuple[float, float]:
    return 0.0, math.inf


SPEC = MetricSpec(
    name="lidar",
    label="LiDAR as published (share of the maximum)",
    function=lidar,
    kind="views",
    direction="higher",
    variant="recipe=published;alpha=1;normalization=maxEntropy",
    invariances=frozenset({"orthogonal", "translation", "permutation", "reversal", "view_permutation"}),
    bounds=_bounds,
    minimum_n=2,
    max_n=4096,
    formula="entropy of Σ_w^{-1/2} Σ_b Σ_w^{-1/2} in float32, over min(ln n, ln d)",
    reads="Comparable with published numbers only.",
    source="Skean et al. 2025, released code",
)
