"""Semantic textual similarity: does a layer's cosine order pairs as people do?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from layerscope.cache import LayerCache, as_cache
from layerscope.errors import CorpusError, UsageError, first_line, named, nearest
from layerscope.evaluate.correlation import pearson, spearman
from layerscope.evaluate.differences import with_differences
from layerscope.frames import SCORE_COLUMNS, as_frame, not_finite
from layerscope.resampling import check_draws, interval

if TYPE_CHECKING:
    from layerscope.learn import LearnedPooling

Resample = Literal["auto", "pairs", "texts"]
VARIANTS = ("raw", "center")
_REUSED = 4.0
_WHOLE = "all"
_OWN_COLUMNS = frozenset(
    ("row", "text_sha256", "tokens", "kept_tokens", "sink_tokens", "truncated", "empty", "duplicate_of",
     "undefined", "nonfinite", "pair", "triplet", "side")
)  # fmt: skip


def evaluate_sts(
    cache: LayerCache | str | Path,
    scores: ArrayLike | None = None,
    *,
    score_column: str = "score",
    pooling: str | Sequence[str] | None = None,
    task: str | None = None,
    subsets: str | Sequence[str] | None = None,
    draws: int = 500,
    seed: int = 0,
    resample: Resample = "auto",
    learned: Mapping[str, LearnedPooling] | None = None,
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
        subsets: which subset each pair belongs to, (pairs,), or the column of the cache's rows that says so.
            Then every subset is scored too, and ``mean`` is the plain mean of their scores, as in older
            papers; ``all`` is one correlation over all pairs.
        draws: bootstrap samples for intervals; 0 for none.
        seed: of the bootstrap.
        resample: what is drawn: ``pairs``, or ``texts`` with all their pairs where few texts make many
            pairs, which are then not independent. ``auto`` takes ``texts`` where a text is in four or
            more pairs on average.
        learned: fitted mixes of layers to score too, by name; the name stands as their pooling, and the last
            layer that they mix as their layer.

    Returns:
        A frame with the columns ``SCORE_COLUMNS``: per layer, pooling, subset, variant (``raw``; ``center``:
        the mean vector subtracted first) and metric (``cosine_spearman``, ``cosine_pearson``), in [-1, 1].
        ``frame.attrs["evaluate_sts"]`` holds these options where ``layerscope evaluate sts`` takes them too.

    Raises:
        CorpusError: the corpus has no pairs or no scores.
        UsageError: scores of another shape, or a pooling that is not known.

    Source: Agirre et al. 2012 to 2016 (SemEval STS); Spearman as in MTEB (Muennighoff et al. 2023); ``all``
    and ``mean`` as in SentEval (Conneau & Kiela 2018).
    """
    cache = as_cache(cache)
    check_draws(draws, seed)
    poolings = cache.chosen_poolings(pooling)
    if not poolings:
        raise UsageError("pooling is empty: name one, or leave it out for all of them")
    if resample not in get_args(Resample):
        raise UsageError(f"resample is '{resample}': {nearest(str(resample), get_args(Resample))}")
    gold = gold_scores(cache, scores, score_column)
    groups = _groups(cache, len(gold), subsets)
    weights = _bootstrap_weights(cache, gold, draws, seed, resample)
    records: list[dict[str, Any]] = []
    for name, layer_name, vectors in _all_vectors(cache, poolings, learned or {}):
        broken = _broken_rows(cache, layer_name, vectors)
        reason = not_finite(broken) if broken else ""
        for variant in VARIANTS:
            place = _record(cache, task, layer_name, name, variant)
            cosine, why_none = _cosines(vectors, variant)
            found = {
                subset: _correlations(cosine[rows], gold[rows], weights[:, rows], reason or why_none)
                for subset, rows in groups.items()
            }
            if len(found) > 1:
                found["mean"] = _means([part for subset, part in found.items() if subset != _WHOLE])
            records += [
                place | {"subset": subset} | part for subset, parts in found.items() for part in parts
            ]
    frame = with_differences(as_frame(records, SCORE_COLUMNS))
    if scores is None and subsets is None and not learned:
        frame.attrs["evaluate_sts"] = {
            "corpus": cache.corpus,
            "score_column": score_column,
            "task": task,
            "pooling": poolings if pooling is not None else None,
            "draws": int(draws),
            "seed": int(seed),
        }
    return frame


def _all_vectors(
    cache: LayerCache, poolings: list[str], learned: Mapping[str, LearnedPooling]
) -> Iterator[tuple[str, str, NDArray[np.float64]]]:
    """Pooling, layer and vectors of every layer, then of every learned mix."""
    for name in poolings:
        for layer_name in cache.layers:
            yield name, layer_name, np.asarray(cache.layer(layer_name, name), dtype=np.float64)
    for name, fitted in learned.items():
        if name in cache.poolings:
            raise UsageError(f"a learned pooling is called '{name}', as one of the cache is: rename it")
        yield name, fitted.layers_[-1], np.asarray(fitted.transform(cache), dtype=np.float64)


def read_subsets(path: str | Path, corpus: str, pairs: int) -> list[str]:
    """Which subset each pair belongs to, from a table of runs of rows.

    Args:
        path: .csv or .tsv with the columns ``subset``, ``first_row`` (from 0) and ``rows``, and perhaps
            ``file``, of which only the rows of ``corpus`` count (with or without an ending).
        corpus: the cache's corpus.
        pairs: how many pairs it has.

    Raises:
        CorpusError: no such table, or its runs are not exactly those pairs.
    """
    source = Path(path)
    try:
        table = pd.read_csv(source, sep="," if source.suffix == ".csv" else "\t")
    except (OSError, ValueError) as error:
        raise CorpusError(f"cannot read the subsets in {source}: {first_line(error)}") from error
    missing = [name for name in ("subset", "first_row", "rows") if name not in table]
    if missing:
        raise CorpusError(
            f"{source} lacks the column(s) {', '.join(missing)} (found: {named(table.columns)})"
        )
    if "file" in table:
        own = table["file"].astype(str).map(lambda name: Path(name).name.split(".")[0]) == corpus
        table = table[own].drop_duplicates(["subset", "first_row", "rows"])
        if table.empty:
            raise CorpusError(f"{source} names no file '{corpus}'")
    names = [""] * pairs
    for subset, first, rows in table[["subset", "first_row", "rows"]].to_numpy().tolist():
        names[int(first) : int(first) + int(rows)] = [str(subset)] * int(rows)
    if len(names) != pairs or "" in names:
        raise CorpusError(f"the runs in {source} do not cover the {pairs} pairs of '{corpus}' exactly")
    return names


def _groups(
    cache: LayerCache, pairs: int, subsets: str | Sequence[str] | None
) -> dict[str, NDArray[np.bool_]]:
    """Which pairs each subset has, that of all pairs first."""
    groups = {_WHOLE: np.ones(pairs, dtype=bool)}
    if subsets is None:
        return groups
    if isinstance(subsets, str):
        if subsets not in cache.rows.columns:
            raise UsageError(f"no column '{subsets}' of subsets: {nearest(subsets, cache.rows.columns)}")
        names = cache.rows[subsets].iloc[::2].astype(str).to_numpy()
    else:
        names = np.array([str(name) for name in subsets])
    if names.shape != (pairs,):
        raise UsageError(f"subsets: expected one per pair ({pairs}), got {len(names)}")
    for name in dict.fromkeys(names):
        if name in (_WHOLE, "mean"):
            raise UsageError(f"a subset is called '{name}', as the aggregate is: rename it")
        groups[str(name)] = names == name
    return groups


def _means(parts: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The plain mean over subsets, of each correlation; missing where one subset is."""
    means = []
    for same in zip(*parts, strict=True):
        record = {"metric": same[0]["metric"], "n": sum(part["n"] for part in same)}
        reason = next((part["reason"] for part in same if part["reason"]), "")
        score = float(np.mean([part["score"] for part in same]))
        draws = [part.get("draws") for part in same]
        drawn = np.mean(draws, axis=0) if all(draws) else np.empty(0)
        low, high = np.clip(interval(score, drawn), -1.0, 1.0)
        means.append(
            record | {"score": score, "ci_low": float(low), "ci_high": float(high), "reason": reason,
                      "draws": drawn.tolist() if drawn.size else None}
        )  # fmt: skip
    return means


def gold_scores(cache: LayerCache, scores: ArrayLike | None, column: str) -> NDArray[np.float64]:
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
    cosine: NDArray[np.float64], gold: NDArray[np.float64], weights: NDArray[np.int64], reason: str
) -> list[dict[str, Any]]:
    """Records of both correlations of one layer, each with its interval, or with the reason for none."""
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
        for name, correlate in (("cosine_spearman", spearman), ("cosine_pearson", pearson))
    ]


def cosine_of_pairs(vectors: NDArray[Any]) -> NDArray[np.float64]:
    """Cosine of rows 2i and 2i + 1, (n / 2,); NaN where a row has no vector."""
    return _cosines(np.asarray(vectors, dtype=np.float64), "raw")[0]


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


def _record(
    cache: LayerCache, task: str | None, layer_name: str, pooling: str, variant: str
) -> dict[str, Any]:
    layer = cache.layer_info(layer_name)
    return {
        "model": cache.model,
        "task": task or cache.corpus,
        "split": "",
        "layer": layer.blocks,
        "layer_name": layer.name,
        "depth": layer.depth,
        "pooling": pooling,
        "variant": variant,
    }
