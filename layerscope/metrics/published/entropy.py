"""Matrix entropy as released: clamped entries, a switch of sides at n = d, normalisations of its own."""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from layerscope.errors import UsageError, nearest
from layerscope.metrics.checks import check_positive, check_rows
from layerscope.metrics.spec import Invariance, MetricSpec, Undefined
from layerscope.metrics.streams import FloatArray
from layerscope.metrics.token_batch import prompt_by_prompt

Normalization = Literal["maxEntropy", "raw", "logN", "logD", "logNlogD"]
_INVARIANCES: frozenset[Invariance] = frozenset({"scale", "permutation", "reversal"})


def entropy(Z: npt.ArrayLike, alpha: float = 1.0, normalization: Normalization = "maxEntropy") -> float:
    """Entropy of ``Z Zᵀ`` where n ≤ d, else of ``Zᵀ Z``, with negative entries set to 0.

    Args:
        Z: ``(n, d)`` rows as they are: the released code centres and scales tokens before.
        alpha: order, above 0.
        normalization: ``raw``, or divided by ln n (``logN``), ln d (``logD``), both (``logNlogD``), or the
            smaller of the two (``maxEntropy``).

    Returns:
        Nats if ``raw``.

    Raises:
        Undefined: fewer than 2 rows, not finite, constant, zero trace, no convergence.

    >>> round(entropy(np.eye(3)), 12)
    1.0
    """
    array = np.asarray(check_rows(Z), dtype=np.float64)
    check_positive(alpha, "alpha")
    return itl_entropy(np.maximum(smaller_side(array), 0.0), alpha) / divisor(normalization, *array.shape)


def smaller_side(Z: FloatArray) -> FloatArray:
    """``Z Zᵀ`` where n ≤ d, else ``Zᵀ Z``; the entries of the two are not the same once clamped."""
    n, d = Z.shape
    return np.asarray(Z.T @ Z if n > d else Z @ Z.T)


def itl_entropy(K: FloatArray, alpha: float) -> float:
    """Entropy of the positive eigenvalues, each over their sum; every one counts, however small.

    For α = 2, ``-ln(Σ K² / m²)``, which is right only where the trace is m.

    Args:
        K: ``(m, m)`` symmetric.
        alpha: order.

    Raises:
        Undefined: no positive eigenvalue, or no convergence.

    >>> itl_entropy(np.diag([1.0, 3.0]), alpha=2) == -math.log(10 / 4)
    True
    """
    if alpha == 2:
        return -math.log(float(np.square(K).sum()) / len(K) ** 2)
    try:
        eigenvalues = np.linalg.eigvalsh(K)
    except np.linalg.LinAlgError as error:
        raise Undefined("no convergence") from error
    positive = eigenvalues[eigenvalues > 0]
    if not positive.size:
        raise Undefined("zero trace")
    p = positive / positive.sum()
    return float(-(p * np.log(p)).sum()) if alpha == 1 else float(np.log((p**alpha).sum()) / (1 - alpha))


def divisor(normalization: Normalization, n: int, d: int) -> float:
    """What an entropy of ``n`` rows of width ``d`` is divided by.

    Raises:
        UsageError: no such normalisation.

    >>> divisor("maxEntropy", n=5, d=3) == math.log(3)
    True
    """
    if normalization not in get_args(Normalization):
        known = nearest(normalization, get_args(Normalization))
        raise UsageError(f"no published normalization {normalization!r}: {known}")
    log_n, log_d = math.log(n), math.log(d)
    return {
        "maxEntropy": min(log_n, log_d), "raw": 1.0, "logN": log_n, "logD": log_d, "logNlogD": log_n * log_d,
    }[normalization]  # fmt: skip


def prompt_entropy(
    states: npt.ArrayLike, alpha: float = 1.0, normalization: Normalization = "maxEntropy"
) -> float:
    """``entropy`` of the centred, unit-norm token states of one prompt.

    Args:
        states: ``(T, d)``, one row a token, as the model gives them.
        alpha: order, above 0.
        normalization: see ``entropy``.

    Raises:
        Undefined: as ``entropy``.

    >>> round(prompt_entropy([[0.0, 0.0], [2.0, 0.0]], normalization="raw"), 6)  # 0, without the clamp
    0.693147
    """
    return entropy(centred_unit(states), alpha, normalization)


def centred_unit(states: npt.ArrayLike) -> FloatArray:
    """Rows less their mean, each over its norm.

    Args:
        states: ``(T, d)``.

    Raises:
        Undefined: as ``check_rows``, and where a row equals the mean.

    >>> centred_unit([[0.0, 1.0], [0.0, 5.0]])
    array([[ 0., -1.],
           [ 0.,  1.]])
    """
    array = np.asarray(check_rows(states, "states", unit="tokens"), dtype=np.float64)
    centred = array - array.mean(axis=0)
    norms = np.linalg.norm(centred, axis=1, keepdims=True)
    if not norms.all():
        raise Undefined("a token equals the mean")
    return np.asarray(centred / norms)


def _bounds(n: int, d: int) -> tuple[float, float]:
    return 0.0, math.inf


PROMPT_SPEC = MetricSpec(
    name="prompt_entropy",
    label="Prompt entropy as published (share of the maximum)",
    function=prompt_entropy,
    batch=prompt_by_prompt(prompt_entropy),
    kind="tokens",
    direction="higher",
    variant="recipe=published;alpha=1;normalization=maxEntropy",
    invariances=_INVARIANCES | {"translation"},
    bounds=_bounds,
    minimum_n=2,
    formula="entropy of Z Zᵀ (of Zᵀ Z where T > d) with negative entries set to 0, over min(ln T, ln d)",
    reads="Comparable with published numbers only.",
    source="Skean et al. 2025, released code",
)
DATASET_SPEC = MetricSpec(
    name="dataset_entropy",
    label="Dataset entropy as published (share of the maximum)",
    function=entropy,
    kind="samples",
    direction="higher",
    variant="recipe=published;alpha=1;normalization=maxEntropy",
    invariances=_INVARIANCES,
    bounds=_bounds,
    minimum_n=2,
    formula="entropy of Z Zᵀ (of Zᵀ Z where n > d) with negative entries set to 0, over min(ln n, ln d)",
    reads="Comparable with published numbers only.",
    source="Skean et al. 2025, released code",
)
