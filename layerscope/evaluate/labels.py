"""How many labelled pairs are enough to choose a layer by?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from layerscope.cache import LayerCache, as_cache
from layerscope.errors import UsageError
from layerscope.evaluate.sts import cosine_of_pairs, gold_scores

SIZES = (5, 10, 20, 50, 100, 200, 500)


def label_curve(
    cache: LayerCache | str | Path,
    scores: ArrayLike | None = None,
    *,
    score_column: str = "score",
    pooling: str | None = None,
    sizes: Sequence[int] = SIZES,
    repeats: int = 200,
    seed: int = 0,
) -> pd.DataFrame:
    """What the layer that is best on a few labelled pairs costs on the others.

    For each size, pairs are drawn without replacement; the layer with the highest Spearman of cosine on them
    is scored on the pairs that were not drawn, against the layer that is best there.

    Args:
        cache: of scored pairs.
        scores: (pairs,) human scores; read from the cache's rows where not given.
        score_column: the column of the cache's rows that holds them.
        pooling: one of the cache's; the first where not given.
        sizes: numbers of pairs; those above half of the pairs are left out.
        repeats: draws a size.
        seed: of the draws.

    Returns:
        A frame with ``pairs``, ``regret`` (the mean, in Spearman), ``regret_low``, ``regret_high`` (the 5 %
        and 95 % quantiles over draws) and ``best`` (share of draws that find the best layer).

    Raises:
        UsageError: no size fits, or fewer than two layers.
        CorpusError: as for ``evaluate_sts``.
    """
    cache = as_cache(cache)
    gold = gold_scores(cache, scores, score_column)
    [name] = cache.chosen_poolings(pooling or cache.poolings[0])
    if repeats < 1:
        raise UsageError(f"repeats is {repeats}: it must be 1 or more")
    cosines = np.array([cosine_of_pairs(cache.layer(layer, name)) for layer in cache.layers])
    usable = np.isfinite(gold) & np.isfinite(cosines).any(axis=0)
    layers = np.isfinite(cosines[:, usable]).all(axis=1)
    cosines, gold = cosines[layers][:, usable], gold[usable]
    fitting = [int(size) for size in sizes if 3 <= size <= len(gold) // 2]
    if not fitting or len(cosines) < 2:
        raise UsageError(f"{len(gold)} pairs and {len(cosines)} layers with a cosine: too few for a curve")
    rng = np.random.default_rng(seed)
    records = []
    for size in fitting:
        regrets, hits = [], 0
        for _ in range(repeats):
            order = rng.permutation(len(gold))
            few, rest = order[:size], order[size:]
            if np.ptp(gold[few]) == 0:
                continue  # such a handful says nothing of any layer
            chosen = int(np.argmax(_spearman(cosines[:, few], gold[few])))
            truth = _spearman(cosines[:, rest], gold[rest])
            regrets.append(float(truth.max() - truth[chosen]))
            hits += int(chosen == int(np.argmax(truth)))
        if not regrets:
            continue
        low, high = np.quantile(regrets, [0.05, 0.95])
        records.append(
            {"pairs": size, "regret": float(np.mean(regrets)), "regret_low": float(low),
             "regret_high": float(high), "best": hits / len(regrets)}
        )  # fmt: skip
    return pd.DataFrame(records)


def _spearman(cosines: NDArray[np.float64], gold: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of every layer, (l,); -1 where all its cosines are equal."""
    x, y = rankdata(cosines, axis=1), rankdata(gold)
    x, y = x - x.mean(axis=1, keepdims=True), y - y.mean()
    norms = np.linalg.norm(x, axis=1) * np.linalg.norm(y)
    return np.where(norms > 0, (x @ y) / np.where(norms > 0, norms, 1.0), -1.0)
