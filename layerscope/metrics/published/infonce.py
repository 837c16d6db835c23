"""InfoNCE as released: rows of any length, exponentials taken as they are."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from layerscope.metrics.checks import check_pair, check_positive
from layerscope.metrics.spec import MetricSpec, Undefined


def infonce(X: npt.ArrayLike, Y: npt.ArrayLike, temperature: float = 0.1) -> float:
    """NT-Xent loss over the 2n rows, without unit norms and without log-sum-exp.

    Args:
        X: ``(n, d)`` first views, as they are.
        Y: ``(n, d)`` second views.
        temperature: τ, above 0.

    Returns:
        Nats.

    Raises:
        Undefined: fewer than 2 samples, not finite, constant, or exponentials that overflow (NaN in the
            released code).

    >>> two = np.eye(2)
    >>> round(infonce(two, two, temperature=1.0), 6) == round(math.log(math.e + 2) - 1, 6)
    True
    """
    first, second = (np.asarray(views, dtype=np.float64) for views in check_pair(X, Y))
    check_positive(temperature, "temperature")
    n = len(first)
    both = np.vstack([first, second])
    with np.errstate(over="ignore"):
        scores = np.exp(both @ both.T / temperature)
    own, partner = np.arange(2 * n), np.roll(np.arange(2 * n), n)
    positive = scores[own, partner].copy()
    scores[own, own] = scores[own, partner] = 0.0
    everything = positive + scores.sum(axis=1)
    if not (np.isfinite(everything).all() and (positive > 0).all()):
        raise Undefined("the exponentials overflow")
    return float(-np.log(positive / everything).mean())


def _bounds(n: int, d: int) -> tuple[float, float]:
    return 0.0, math.inf


SPEC = MetricSpec(
    name="infonce",
    label="InfoNCE loss as published (nats)",
    function=infonce,
    kind="pair",
    direction="lower",
    variant="recipe=published;temperature=0.1",
    invariances=frozenset({"orthogonal", "permutation", "reversal", "swap"}),
    bounds=_bounds,
    minimum_n=2,
    max_n=4096,
    formula="-mean_i ln(exp(s_ip) / Σ_{j≠i} exp(s_ij)), s = z_i·z_j / τ, rows as they are",
    reads="Comparable with published numbers only.",
    source="Skean et al. 2025, released code",
)
