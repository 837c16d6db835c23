"""Correlations of two columns under many weightings of their rows at once, as a bootstrap needs them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def pearson(
    x: NDArray[np.float64], y: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Pearson correlation under each row of ``weights`` (b, n); NaN where a side is constant.

    ``x`` and ``y`` are (n,), or (b, n) where they differ from row to row.
    """
    defined = _varies(x, weights) & _varies(y, weights)
    total = np.sum(weights, axis=1, keepdims=True)
    total = np.where(total > 0, total, np.nan)
    x = x - np.sum(weights * x, axis=1, keepdims=True) / total
    y = y - np.sum(weights * y, axis=1, keepdims=True) / total
    scale = np.sqrt(np.sum(weights * x * x, axis=1) * np.sum(weights * y * y, axis=1))
    out = np.full(len(weights), np.nan)
    np.divide(np.sum(weights * x * y, axis=1), scale, out=out, where=defined & (scale > 0))
    return np.asarray(np.clip(out, -1.0, 1.0))


def _varies(x: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether ``x`` has two values under each row of ``weights``; (b,). Exact, where a variance rounds."""
    drawn = weights > 0
    low = np.min(np.where(drawn, x, np.inf), axis=1)
    return np.asarray(low < np.max(np.where(drawn, x, -np.inf), axis=1))


def spearman(
    x: NDArray[np.float64], y: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Spearman correlation under each row of ``weights`` (b, n), ties averaged."""
    return pearson(weighted_ranks(x, weights), weighted_ranks(y, weights), weights)


def weighted_ranks(x: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Average rank of each of n values where value i occurs ``weights[:, i]`` times; (b, n)."""
    order = np.argsort(x, kind="stable")
    ordered = x[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    group_of = np.cumsum(np.isin(np.arange(len(x)), starts)) - 1
    size = np.add.reduceat(weights[:, order], starts, axis=1)
    rank = np.cumsum(size, axis=1) - (size - 1) / 2
    ranks = np.empty(weights.shape)
    ranks[:, order] = rank[:, group_of]
    return ranks
