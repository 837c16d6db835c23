"""Rules that pick a layer from the texts of a task alone, for the report in reports/pooling."""

import itertools
from collections.abc import Sequence

import numpy as np
import pandas as pd

import layerscope as ls
from layerscope.depth_rules import DEPTH_RULES, rule_layer
from layerscope.select.picks import AGGREGATED

CRITERIA = (
    "dataset_entropy", "effective_rank", "participation_ratio", "stable_rank", "isoscore", "uniformity",
    "anisotropy", "outlier_variance_top1", "intrinsic_dimension_twonn", "hubness",
)  # fmt: skip
AGGREGATE = f"rank aggregate of {', '.join(AGGREGATED)}"


def metrics_of(cache: ls.LayerCache, pooling: str) -> pd.DataFrame:
    """The criteria at every layer, on the texts of a task without their scores."""
    file = cache.path.parent / f"{cache.path.name}.parquet"
    if not file.is_file():
        ls.analyze(cache, list(CRITERIA), pooling=[pooling], draws=0).to_parquet(file, index=False)
    return pd.read_parquet(file)


def neighbour_agreement(cache: ls.LayerCache, pooling: str, texts: int = 500, k: int = 10) -> pd.Series:
    """Share of the k nearest texts (by cosine) that a layer has in common with the layers beside it."""
    rows = np.flatnonzero(~cache.rows["empty"].to_numpy(dtype=bool))
    rows = rows[cache.rows["duplicate_of"].isna().to_numpy()[rows]][:texts]
    nearest = []
    for layer in cache.layers:
        unit = np.asarray(cache.layer(layer, pooling), dtype=np.float64)[rows]
        unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
        cosine = unit @ unit.T
        np.fill_diagonal(cosine, -np.inf)
        nearest.append(np.argsort(-cosine, axis=1)[:, :k])
    shared = [
        np.mean([len(set(a) & set(b)) / k for a, b in zip(one, other, strict=True)])
        for one, other in itertools.pairwise(nearest)
    ]
    both = [np.mean(shared[max(0, at - 1) : at + 1]) for at in range(len(cache.layers))]
    return pd.Series(both, index=cache.layers)


def lexical_share(cache: ls.LayerCache, pooling: str, texts: Sequence[str], pairs: int = 4000) -> pd.Series:
    """Spearman of cosine with the overlap of words (Jaccard) over random pairs of texts, of every layer."""
    words = [frozenset(text.lower().split()) for text in texts]
    rng = np.random.default_rng(0)
    one, other = rng.integers(cache.n_rows, size=(2, pairs))
    keep = one != other
    one, other = one[keep], other[keep]
    overlap = [
        len(words[a] & words[b]) / max(1, len(words[a] | words[b])) for a, b in zip(one, other, strict=True)
    ]
    found = {}
    for layer in cache.layers:
        x = np.asarray(cache.layer(layer, pooling), dtype=np.float64)
        unit = x / np.linalg.norm(x, axis=1, keepdims=True)
        found[layer] = pd.Series(np.sum(unit[one] * unit[other], axis=1)).corr(pd.Series(overlap), "spearman")
    return pd.Series(found)


def picks(cache: ls.LayerCache, pooling: str, texts: Sequence[str]) -> dict[str, str]:
    """The layer that each rule takes, without labels.

    Args:
        cache: of the texts of a task.
        pooling: of its vectors.
        texts: the texts themselves, in the order of the cache.
    """
    frame = metrics_of(cache, pooling)
    depth = dict(zip(frame["layer_name"], frame["depth"], strict=True))
    picked = {rule: rule_layer(rule, list(depth), depth) for rule in DEPTH_RULES}
    for criterion in CRITERIA:
        for direction, word in (("higher", "highest"), ("lower", "lowest")):
            chosen = ls.LayerSelector(criterion, direction).fit(frame)
            picked[f"{word} {criterion}"] = chosen.layer_
    picked[AGGREGATE] = ls.RankAggregateSelector(AGGREGATED).fit(frame).layer_
    entropy = frame[frame["metric"] == "dataset_entropy"].set_index("layer_name")["value"]
    line = np.polyval(np.polyfit(np.arange(len(entropy)), entropy, 1), np.arange(len(entropy)))
    picked["highest dataset_entropy above its trend over depth"] = str((entropy - line).idxmax())
    picked["highest agreement of neighbours with the layers beside"] = str(
        neighbour_agreement(cache, pooling).idxmax()
    )
    lexical = lexical_share(cache, pooling, texts)
    picked["least explained by overlap of words"] = str(lexical.abs().idxmin())
    return picked
