"""DiME as released: for n > d of covariances, whose features and not samples are permuted."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from layerscope.metrics.checks import check_pair, check_positive
from layerscope.metrics.published.entropy import Normalization, divisor, itl_entropy, smaller_side
from layerscope.metrics.spec import MetricSpec

_PERMUTATIONS = 10


def dime(
    X: npt.ArrayLike,
    Y: npt.ArrayLike,
    *,
    alpha: float = 1.0,
    normalization: Normalization = "maxEntropy",
    seed: int = 0,
) -> float:
    """Difference of entropies over ten random permutations.

    Args:
        X: ``(n, d)`` first views, as they are.
        Y: ``(n, d)`` second views.
        alpha: order, above 0.
        normalization: see ``layerscope.metrics.published.entropy.entropy``.
        seed: of the permutations, which the released code leaves to chance.

    Raises:
        Undefined: fewer than 2 samples, not finite, constant, zero trace, no convergence.

    >>> clusters = np.repeat(np.eye(6)[:3], 2, axis=0)
    >>> dime(clusters, clusters) > 0
    True
    """
    first, second = check_pair(X, Y)
    check_positive(alpha, "alpha")
    rng = np.random.default_rng(seed)
    orders = np.stack([rng.permutation(min(first.shape)) for _ in range(_PERMUTATIONS)])
    difference, _, _ = dime_parts(first, second, orders, alpha)
    return difference / divisor(normalization, *first.shape)


def dime_parts(
    X: npt.ArrayLike, Y: npt.ArrayLike, orders: npt.NDArray[np.integer], alpha: float = 1.0
) -> tuple[float, float, float]:
    """The difference, the entropy of the right pairing, and the mean of the wrong ones, in nats.

    Args:
        X: ``(n, d)`` first views, as they are.
        Y: ``(n, d)`` second views.
        orders: ``(k, min(n, d))`` permutations.
        alpha: order, above 0.

    Raises:
        Undefined: as ``dime``.
    """
    first, second = (np.asarray(views, dtype=np.float64) for views in check_pair(X, Y))
    K_X, K_Y = smaller_side(first), smaller_side(second)
    paired = itl_entropy(K_X * K_Y, alpha)
    mixed = float(np.mean([itl_entropy(K_X * K_Y[np.ix_(order, order)], alpha) for order in orders]))
    return mixed - paired, paired, mixed


def _bounds(n: int, d: int) -> tuple[float, float]:
    return -math.inf, math.inf


SPEC = MetricSpec(
    name="dime",
    label="DiME as published (share of the maximum)",
    function=dime,
    kind="pair",
    direction="higher",
    variant="recipe=published;alpha=1;normalization=maxEntropy;seed=0",
    invariances=frozenset({"scale"}),
    bounds=_bounds,
    minimum_n=2,
    max_n=512,
    formula="mean_Π H(K_X ∘ Π K_Y Πᵀ) - H(K_X ∘ K_Y), K = Z Zᵀ (Zᵀ Z where n > d), over min(ln n, ln d)",
    reads="Comparable with published numbers only.",
    source="Skean et al. 2025, released code",
    seeded=True,
)
