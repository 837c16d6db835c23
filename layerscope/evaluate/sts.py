"""Semantic textual similarity: does a layer's cosine order pairs as people do?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from layerscope.cache import LayerCache, as_cache
from layerscope.errors import CorpusError, UsageError, nearest
from layerscope.frames import SCORE_COLUMNS, as_frame, not_finite
from layerscope.resampling import check_draws, interval

Resample = Literal["auto", "pairs", "texts"]
VARIANTS = ("raw", "center")
_REUSED = 4.0
_OWN_COLUMNS = frozenset(
    ("row", "text_sha256", "tokens", "kept_tokens", "sink_tokens", "truncated", "empty", "duplicate_of",
     "undefined", "nonfinite", "pair", "side")
)  # fmt: skip


def evaluate_sts(
    cache: LayerCache | str | Path,
    scores: ArrayLike | None = None,
    *,
    score_column: str = "score",
    pooling: str | Sequence[str] | None = None,
    task: str | None = None,
    draws: int = 500,
    seed: int = 0,
    resample: Resample = "auto",
) -> pd.DataFrame:
    """Spearman and Pearson correlation of cosine similarity with human scores, for every layer.

    Pairs without a score, and with a text without a vector, are left out. A layer with a row that is not
    finite has no value; the reason names the row.

    Args:
        cache: of a corpus of pairs, or its path.
        scores: (pairs,) human scores; read from the cache's rows where not given.
        score_column: the column of the cache's rows that holds them.
        pooling: which of the cache's poolings, one or several; all of them where not given.
        task: what to call it; the corpus' name where not given.
        draws: bootstrap samples for intervals; 0 for none.
        seed: of the bootstrap.
        resample: what is drawn: ``pairs``, or ``texts`` with all their pairs where few texts make many
            pairs, which are then not independent. ``auto`` takes ``texts`` where a text is in four or
            more pairs on average.

    Returns:
        A frame with the columns ``SCORE_COLUMNS``: per layer, pooling, variant (``raw``; ``center``: the
        mean vector subtracted first) and metric (``cosine_spearman``, ``cosine_pearson``), in [-1, 1].

    Raises:
        CorpusError: the corpus has no pairs or no scores.
        UsageError: scores of another shape, or a pooling that is not known.

    Source: Agirre et al. 2012 to 2016 (SemEval STS); Spearman as in MTEB (Muennighoff et al. 2023).
    """
    cache = as_cache(cache)
    check_draws(draws, seed)
    poolings = cache.chosen_poolings(pooling)
    if not poolings:
        raise UsageError("pooling is empty: name one, or leave it out for all of them")
    if resample not in get_args(Resample):
        raise UsageError(f"resample is '{resample}': {nearest(str(resample), get_args(Resample))}")
    gold = _gold_scores(cache, scores, score_column)
    weights = _bootstrap_weights(cache, gold, draws, seed, resample)
    records: list[dict[str, Any]] = []
    for name in poolings:
        for layer_name in cache.layers:
            vectors = np.asarray(cache.layer(layer_name, name), dtype=np.float64)
            broken = _broken_rows(cache, layer_name, vectors)
            reason = not_finite(broken) if broken else ""
            for variant in VARIANTS:
                found = _correlations(vectors, gold, weights, variant, reason)
                records += [_record(cache, task, layer_name, name, variant) | part for part in found]
    return as_frame(records, SCORE_COLUMNS)


def _gold_scores(cache: LayerCache, scores: ArrayLike | None, column: str) -> NDArray[np.float64]:
    """One score a pair, NaN where there is none."""
    if not cache.manifest["corpus"]["pairs"]:
        raise CorpusError(
            f"the cache {cache.path} holds single texts, not pairs: extract with two --text-column options"
        )
    if scores is not None:
        gold = _as_numbers(scores)
        if gold.shape != (cache.n_rows // 2,):
            raise UsageError(f"scores: expected one per pair ({cache.n_rows // 2}), got shape {gold.shape}")
    elif column in cache.rows.columns:
        gold = _column_scores(cache, column)
    else:
        raise CorpusError(
            f"the cache {cache.path} has no column '{column}': extract with --score-column NAME "
            f"(columns: {', '.join(cache.rows.columns)})"
        )
    if np.sum(np.isfinite(gold)) < 2:
        raise CorpusError(f"the cache {cache.path} has fewer than two scored pairs")
    return gold


def _as_numbers(scores: ArrayLike) -> NDArray[np.float64]:
    try:
        gold = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"scores: expected numbers, one per pair ({error})") from error
    if np.isinf(gold).any():
        raise UsageError(f"scores: the score of pair {int(np.flatnonzero(np.isinf(gold))[0])} is infinite")
    return gold


def _column_scores(cache: LayerCache, column: str) -> NDArray[np.float64]:
    """The scores of the pairs in one of the corpus' own columns, which must hold numbers."""
    if column in _OWN_COLUMNS:
        others = [name for name in cache.rows.columns if name not in _OWN_COLUMNS]
        raise UsageError(
            f"the column '{column}' is layerscope's own and no human score: name one of the corpus "
            f"({', '.join(others) or 'it has none'})"
        )
    given = cache.rows[column].iloc[::2].reset_index(drop=True)
    numbers = pd.to_numeric(given, errors="coerce").astype("float64")
    bad = np.flatnonzero((numbers.isna() & given.notna()) | np.isinf(numbers))
    if bad.size:
        raise CorpusError(
            f"the column '{column}' of {cache.path} holds no scores: that of pair {bad[0]} is "
            f"'{given[int(bad[0])]}', not a number"
        )
    return np.asarray(numbers, dtype=np.float64)


def _bootstrap_weights(
    cache: LayerCache, gold: NDArray[np.float64], draws: int, seed: int, resample: Resample
) -> NDArray[np.int64]:
    """How often each pair is in each bootstrap sample, (draws, pairs)."""
    rng = np.random.default_rng(seed)
    pairs = len(gold)
    texts, text_of = np.unique(cache.rows["text_sha256"].to_numpy(dtype=str), return_inverse=True)
    if resample == "auto":
        resample = "texts" if 2 * pairs / len(texts) >= _REUSED else "pairs"
    weights = np.empty((draws, pairs), dtype=np.int64)
    for draw in range(draws):
        if resample == "pairs":
            weights[draw] = np.bincount(rng.integers(pairs, size=pairs), minlength=pairs)
        else:
            times = np.bincount(rng.integers(len(texts), size=len(texts)), minlength=len(texts))
            weights[draw] = times[text_of[::2]] * times[text_of[1::2]]
    return weights


def _broken_rows(cache: LayerCache, layer_name: str, vectors: NDArray[np.float64]) -> list[int]:
    """Rows that are not finite though the text has tokens, as rows of empty texts have not."""
    flagged = np.array([layer_name in names.split(",") for names in cache.rows["nonfinite"]], dtype=bool)
    return np.flatnonzero(flagged & ~np.isfinite(vectors).all(axis=1)).tolist()


def _correlations(
    vectors: NDArray[np.float64],
    gold: NDArray[np.float64],
    weights: NDArray[np.int64],
    variant: str,
    reason: str,
) -> list[dict[str, Any]]:
    """Records of both correlations of one layer, each with its interval, or with the reason for none."""
    cosine, why_none = _cosines(vectors, variant)
    reason = reason or why_none
    usable = np.isfinite(gold) & np.isfinite(cosine)
    x, y, counts = cosine[usable], gold[usable], weights[:, usable]
    if not reason and len(x) < 2:
        reason = "fewer than two pairs with a score and two vectors"
    elif not reason and np.ptp(y) == 0:
        reason = "all human scores are equal"
    elif not reason and np.ptp(x) <= 1e-12:
        reason = "constant: all pairs have the same cosine"
    return [
        {"metric": name, "n": len(x), **_with_interval(correlate, x, y, counts, reason)}
        for name, correlate in (("cosine_spearman", _spearman), ("cosine_pearson", _pearson))
    ]


def _cosines(vectors: NDArray[np.float64], variant: str) -> tuple[NDArray[np.float64], str]:
    """Cosine of each pair (2i, 2i + 1); NaN where a row has no vector. And why there is none at all."""
    present = np.isfinite(vectors).all(axis=1)
    if variant == "center" and present.any():
        vectors = vectors - vectors[present].mean(axis=0)
    norms = np.linalg.norm(vectors, axis=1)
    scale = np.max(norms[present], initial=0.0)
    if scale == 0.0:
        return np.full(
            len(vectors) // 2, np.nan
        ), "constant: every vector is zero" if present.any() else "no vectors"
    norms = np.where(present & (norms > 1e-12 * scale), norms, np.nan)
    unit = vectors / norms[:, None]
    return np.asarray(np.sum(unit[::2] * unit[1::2], axis=1)), ""


def _with_interval(
    correlate: Any, x: NDArray[np.float64], y: NDArray[np.float64], weights: NDArray[np.int64], reason: str
) -> dict[str, Any]:
    if reason:
        return {"score": float("nan"), "ci_low": float("nan"), "ci_high": float("nan"), "reason": reason}
    score = float(correlate(x, y, np.ones((1, len(x))))[0])
    drawn = correlate(x, y, weights.astype(np.float64))
    low, high = np.clip(interval(score, drawn), -1.0, 1.0)
    return {
        "score": score,
        "ci_low": float(low),
        "ci_high": float(high),
        "reason": "",
        "draws": drawn.tolist() if drawn.size else None,
    }


def _pearson(
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


def _spearman(
    x: NDArray[np.float64], y: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Spearman correlation under each row of ``weights`` (b, n), ties averaged."""
    return _pearson(_weighted_ranks(x, weights), _weighted_ranks(y, weights), weights)


def _weighted_ranks(x: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
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


def _record(
    cache: LayerCache, task: str | None, layer_name: str, pooling: str, variant: str
) -> dict[str, Any]:
    layer = cache.layer_info(layer_name)
    return {
        "model": cache.model,
        "task": task or cache.corpus,
        "split": "",
        "subset": "all",
        "layer": layer.blocks,
        "layer_name": layer.name,
        "depth": layer.depth,
        "pooling": pooling,
        "variant": variant,
    }
