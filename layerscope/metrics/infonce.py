"""InfoNCE: how well one view of a sample picks out the other among all views of all samples."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from layerscope.metrics.checks import check_pair, check_positive
from layerscope.metrics.rows import RowRecipe, check_recipe, prepare
from layerscope.metrics.spec import Invariance, MetricSpec

_ENTRIES = 1 << 22
_INVARIANCES: frozenset[Invariance] = frozenset(
    {"orthogonal", "scale", "row_scale", "permutation", "reversal", "swap"}
)


def infonce(X: npt.ArrayLike, Y: npt.ArrayLike, temperature: float = 0.1, rows: RowRecipe = "unit") -> float:
    """Symmetric NT-Xent loss over the 2n rows of both views.

    ``mean_i ln Σ_{j≠i} exp(s_ij) - s_ip`` with ``s = z_i·z_j / τ`` and ``p`` the other view of i: one
    positive and 2n - 2 negatives a row. In blocks, by log-sum-exp.

    Args:
        X: ``(n, d)`` first views.
        Y: ``(n, d)`` second views, row i of the same sample as row i of ``X``.
        temperature: τ, above 0.
        rows: what is done to the rows of each view first.

    Returns:
        Nats in [0, ln(2n - 1) + 2/τ]; ln(2n - 1) is chance.

    Raises:
        Undefined: fewer than 2 samples, not finite, constant.

    Source: van den Oord et al. 2018; Chen et al. 2020.

    >>> two = np.eye(2)
    >>> loss = math.log(math.exp(10) + 2) - 10
    >>> math.isclose(infonce(two, two), loss, rel_tol=1e-9)
    True
    """
    X, Y = check_pair(X, Y)
    check_positive(temperature, "temperature")
    check_recipe(rows)
    both = np.vstack([prepare(X, rows), prepare(Y, rows)])
    total = len(both)
    positives = np.roll(np.arange(total), len(X))
    block = max(1, _ENTRIES // total)
    loss = 0.0
    for start in range(0, total, block):
        index = np.arange(start, min(start + block, total))
        scores = both[index] @ both.T / temperature
        positive = scores[index - start, positives[index]].copy()
        scores[index - start, index] = -np.inf
        loss += float((_log_sum_exp(scores) - positive).sum())
    return max(0.0, loss / total)


def _log_sum_exp(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """``ln Σ_j exp(scores_ij)``, (b,); overwrites ``scores``, which scipy's general one copies."""
    largest = scores.max(axis=1, keepdims=True)
    scores -= largest
    np.exp(scores, out=scores)
    return np.asarray(np.log(scores.sum(axis=1)) + largest[:, 0])


def infonce_bound(
    X: npt.ArrayLike, Y: npt.ArrayLike, temperature: float = 0.1, rows: RowRecipe = "unit"
) -> float:
    """The lower bound on the mutual information of the views, ``ln(2n - 1) - infonce``.

    Args:
        X: ``(n, d)`` first views.
        Y: ``(n, d)`` second views, row i of the same sample as row i of ``X``.
        temperature: τ, above 0.
        rows: what is done to the rows of each view first.

    Returns:
        Nats in [-2/τ, ln(2n - 1)].

    Raises:
        Undefined: as ``infonce``.

    Source: van den Oord et al. 2018.

    >>> round(infonce_bound(np.eye(2), np.eye(2)), 3), round(math.log(3), 3)
    (1.099, 1.099)
    """
    loss = infonce(X, Y, temperature, rows)
    return math.log(2 * len(np.asarray(X)) - 1) - loss


def _loss_bounds(n: int, d: int) -> tuple[float, float]:
    return 0.0, math.log(2 * n - 1) + 20.0


def _bound_bounds(n: int, d: int) -> tuple[float, float]:
    return -20.0, math.log(2 * n - 1)


SPEC = MetricSpec(
    name="infonce",
    label="InfoNCE loss (nats)",
    function=infonce,
    kind="pair",
    direction="lower",
    variant="rows=unit;temperature=0.1;log=e",
    invariances=_INVARIANCES,
    bounds=_loss_bounds,
    minimum_n=2,
    formula="mean_i ln Σ_{j≠i} exp(s_ij) - s_ip, s = z_i·z_j / τ over the 2n unit rows",
    reads="0 when each view finds its partner without doubt, ln(2n - 1) when it only guesses.",
    source="van den Oord et al. 2018; Chen et al. 2020",
)
BOUND_SPEC = MetricSpec(
    name="infonce_bound",
    label="InfoNCE bound on mutual information (nats)",
    function=infonce_bound,
    kind="pair",
    direction="higher",
    variant="rows=unit;temperature=0.1;log=e",
    invariances=_INVARIANCES,
    bounds=_bound_bounds,
    minimum_n=2,
    formula="ln(2n - 1) - InfoNCE loss",
    reads="How much two views are known to share: 0 for chance, at most ln(2n - 1), so it grows with n.",
    source="van den Oord et al. 2018",
)
