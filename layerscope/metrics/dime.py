"""DiME: how much two views of the same samples share, beyond chance pairing."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from layerscope.errors import UsageError
from layerscope.metrics.checks import check_pair, check_positive
from layerscope.metrics.rows import RowRecipe, check_recipe, prepare
from layerscope.metrics.spec import MetricSpec
from layerscope.metrics.spectral import gram_entropy
from layerscope.metrics.streams import FloatArray


def dime(
    X: npt.ArrayLike,
    Y: npt.ArrayLike,
    *,
    alpha: float = 1.0,
    permutations: int = 10,
    seed: int = 0,
    rows: RowRecipe = "unit",
) -> float:
    """Difference of matrix-based entropies of wrongly and rightly paired views.

    ``mean_Π H_α(K_X ∘ Π K_Y Πᵀ) - H_α(K_X ∘ K_Y)`` with ``K`` the ``(n, n)`` Gram matrices of unit rows.

    Args:
        X: ``(n, d)`` first views.
        Y: ``(n, d)`` second views, row i of the same sample as row i of ``X``.
        alpha: order of the entropy, above 0; 2 needs no eigenvalues.
        permutations: how many random orders Π to average over.
        seed: of the random orders.
        rows: what is done to the rows of each view first.

    Returns:
        Nats in [-ln n, ln n]; about 0 for views that share nothing.

    Raises:
        UsageError: shapes that differ, or no permutations.
        Undefined: fewer than 2 samples, not finite, constant, zero trace, no convergence.

    Source: Skean et al. 2023.

    >>> clusters = np.repeat(np.eye(4), 4, axis=0)
    >>> dime(clusters, clusters) > 0.5
    True
    """
    X, Y = check_pair(X, Y)
    check_positive(alpha, "alpha")
    check_recipe(rows)
    if permutations < 1:
        raise UsageError(f"permutations: expected at least 1, got {permutations}")
    generator = np.random.default_rng(seed)
    orders = np.stack([generator.permutation(len(X)) for _ in range(permutations)])
    return difference_of_entropies(_gram(X, rows), _gram(Y, rows), orders, alpha)


def difference_of_entropies(
    K_X: FloatArray, K_Y: FloatArray, orders: npt.NDArray[np.integer], alpha: float = 1.0
) -> float:
    """``mean_Π H_α(K_X ∘ Π K_Y Πᵀ) - H_α(K_X ∘ K_Y)`` for the orders given.

    Args:
        K_X: ``(n, n)`` Gram matrix; its trace does not matter.
        K_Y: ``(n, n)`` Gram matrix.
        orders: ``(k, n)``, each row a permutation of 0 … n - 1.
        alpha: order of the entropy, above 0.

    Returns:
        Nats in [-ln n, ln n].

    Raises:
        Undefined: zero trace, no convergence.

    Source: Skean et al. 2023.

    >>> K = np.kron(np.eye(2), np.ones((2, 2)))
    >>> round(difference_of_entropies(K, K, np.array([[0, 2, 1, 3]])), 6), round(math.log(2), 6)
    (0.693147, 0.693147)
    """
    shuffled = [gram_entropy(K_X * K_Y[np.ix_(order, order)], alpha) for order in orders]
    return float(np.mean(shuffled)) - gram_entropy(K_X * K_Y, alpha)


def _gram(Z: npt.NDArray[np.generic], rows: RowRecipe) -> FloatArray:
    prepared = prepare(Z, rows)
    return np.asarray(prepared @ prepared.T / len(prepared))


def _bounds(n: int, d: int) -> tuple[float, float]:
    return -math.log(n), math.log(n)


SPEC = MetricSpec(
    name="dime",
    label="DiME (nats)",
    function=dime,
    kind="pair",
    direction="higher",
    variant="rows=unit;alpha=1;permutations=10;seed=0;log=e",
    invariances=frozenset({"orthogonal", "separate_orthogonal", "scale", "row_scale"}),
    bounds=_bounds,
    minimum_n=2,
    max_n=512,
    seeded=True,
    formula="mean_Π H(K_X ∘ Π K_Y Πᵀ) - H(K_X ∘ K_Y), K = Gram matrices of unit rows / n",
    reads="How much more the right pairing of views tells than a random one; 0 when they share nothing.",
    source="Skean et al. 2023",
)
