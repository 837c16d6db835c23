"""Are trained models different beyond chance? Paired over the items of one test set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from layerscope.compare.regret import holm
from layerscope.corpus import read_corpus
from layerscope.errors import UsageError, nearest
from layerscope.evaluate.correlation import spearman
from layerscope.evaluate.differences import paired_difference
from layerscope.models import quiet_transformers
from layerscope.resampling import check_draws, interval
from layerscope.training.scored_pairs import ScoredPairs


def compare_trained(
    folders: Mapping[str, str | Path],
    pairs: Any,
    *,
    baseline: str | None = None,
    draws: int = 2000,
    seed: int = 0,
    device: str = "cpu",
) -> pd.DataFrame:
    """Spearman of cosine of several trained folders, and their differences to one of them.

    Args:
        folders: by name, sentence-transformers folders.
        pairs: scored pairs, as ``read_corpus`` takes them.
        baseline: the name of the one that the others are compared with; the first where not given.
        draws: bootstrap samples of the pairs, the same for all.
        seed: of the draws.
        device: where texts are encoded.

    Returns:
        A frame with ``name``, ``score``, ``ci_low``, ``ci_high``, ``difference`` and its 95 % interval
        ``low``, ``high``, the two-sided ``p`` and ``p_holm``, corrected over all comparisons; the baseline's
        own are missing.

    Raises:
        UsageError: fewer than two folders, or a baseline that is none of them.

    Source: paired bootstrap, Holm 1979; asked for by Tang & Yang 2024, who test differences of poolings.
    """
    from sentence_transformers import SentenceTransformer

    check_draws(draws, seed)
    names = list(folders)
    if len(names) < 2:
        raise UsageError("a comparison needs two trained folders or more")
    reference = baseline if baseline is not None else names[0]
    if reference not in folders:
        raise UsageError(f"no folder is called '{reference}': {nearest(reference, names)}")
    corpus = read_corpus(pairs)
    items = ScoredPairs(corpus)
    rng = np.random.default_rng(seed)
    n = len(items.scores)
    weights = np.array([np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(draws)], dtype=float)
    records = []
    for name, folder in folders.items():
        with quiet_transformers():
            model = SentenceTransformer(
                str(folder), device=device, trust_remote_code=True, local_files_only=True
            )
        cosines = items.cosines(model)
        score = float(spearman(cosines, items.scores, np.ones((1, n)))[0])
        drawn = spearman(cosines, items.scores, weights)
        low, high = interval(score, drawn)
        records.append(
            {"name": name, "task": corpus.name, "subset": "all", "n": n, "score": score, "ci_low": low,
             "ci_high": high, "draws": drawn.tolist(), "layer_name": name}
        )  # fmt: skip
    rows = pd.DataFrame(records)
    base = rows[rows["name"] == reference].iloc[0]
    for at, row in rows.iterrows():
        if row["name"] != reference:
            for key, value in paired_difference(row, base).items():
                rows.loc[at, key] = value
    others = rows["name"] != reference
    rows.loc[others, "p_holm"] = holm([float(p) for p in rows.loc[others, "p"]])
    return rows.drop(columns=["draws", "layer_name"])
