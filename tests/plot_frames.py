"""Synthetic frames that look like those of real models, for the tests of figures and report."""

from __future__ import annotations

import numpy as np
import pandas as pd

from layerscope.frames import METRIC_COLUMNS, PICK_COLUMNS, SCORE_COLUMNS, as_frame
from layerscope.layers import make_layer, standard_layers

LABELS = {
    "dataset_entropy": "Dataset entropy (nats)",
    "effective_rank": "Effective rank (directions)",
    "curvature": "Curvature of the path of token states (radians)",
    "dime": "DiME (nats)",
    "uniformity": "Uniformity (log mean potential)",
    "anisotropy": "Mean cosine of distinct pairs",
}
DESCRIPTIONS = {
    "dataset_entropy": "How many directions the texts spread over: higher means more diverse vectors.",
    "curvature": "How sharply the path from token to token bends.",
}
_SCALE = {
    "dataset_entropy": (4.0, 0.9), "effective_rank": (210.0, 90.0), "curvature": (1.7, 0.4),
    "dime": (1.1, 0.5), "uniformity": (-2.2, 0.8), "anisotropy": (0.3, 0.2),
}  # fmt: skip
_RECIPE = "rows=center-unit;alpha=1"


_LEVEL = {"last": -0.35, "mean-nosink": 0.12, "tokens-nosink": 0.12}


def _curve(metric: str, depth: float, pooling: str, sunk: bool) -> float:
    level, swing = _SCALE[metric]
    dip = 0.9 if sunk and 0.35 < depth < 0.95 else 0.0
    noise = 0.12 * np.sin(997 * depth + 31 * len(metric) + len(pooling))
    return level + swing * (np.sin(2.6 * depth + len(metric)) + _LEVEL.get(pooling, 0.0) - 1.8 * dip + noise)


def _metric_row(model, name, n_blocks, pooling, metric, missing):
    layer = make_layer(name, n_blocks)
    value = _curve(metric, layer.depth, pooling, pooling in ("mean", "tokens") and n_blocks > 12)
    half = 0.1 * _SCALE[metric][1]
    reason = missing.get((name, metric))
    return {
        "model": model, "corpus": "sts-b", "layer": layer.blocks, "layer_name": name, "depth": layer.depth,
        "pooling": pooling, "metric": metric, "variant": _RECIPE, "n": 500, "d": 576, "reason": reason,
        "value": np.nan if reason else value, "ci_low": np.nan if reason else value - half,
        "ci_high": np.nan if reason else value + 1.4 * half,
    }  # fmt: skip


def metric_frame(model, n_blocks, has_norm, poolings, token_poolings, missing):
    names = standard_layers(n_blocks, has_norm)
    rows = [
        _metric_row(model, name, n_blocks, pooling, metric, missing)
        for metric in _SCALE
        for pooling in (token_poolings if metric == "curvature" else poolings)
        for name in names
    ]
    return as_frame(rows, METRIC_COLUMNS)


def score_frame(model, n_blocks, has_norm, poolings, variants=("raw",)):
    rows = []
    for variant in variants:
        for pooling in poolings:
            for name in standard_layers(n_blocks, has_norm):
                layer = make_layer(name, n_blocks)
                sunk = pooling == "mean" and n_blocks > 12 and 0.35 < layer.depth < 0.95
                score = (
                    0.75
                    - 0.5 * (layer.depth - 0.3) ** 2
                    - 0.35 * sunk
                    + 0.06 * (variant == "center")
                    + 0.3 * _LEVEL.get(pooling, 0.0)
                )
                rows.append({
                    "model": model, "task": "STS-B", "split": "test", "subset": "all", "layer": layer.blocks,
                    "layer_name": name, "depth": layer.depth, "pooling": pooling, "metric": "cosine_spearman",
                    "variant": variant, "score": score, "ci_low": score - 0.03, "ci_high": score + 0.02,
                    "n": 500,
                })  # fmt: skip
    return as_frame(rows, SCORE_COLUMNS)


def pick(model, n_blocks, pooling, criterion, name, **more):
    layer = make_layer(name, n_blocks)
    row = {
        "model": model, "corpus": "sts-b", "pooling": pooling, "kind": "criterion", "criterion": criterion,
        "metric": criterion, "variant": _RECIPE, "direction": "higher", "layer": layer.blocks,
        "layer_name": name, "depth": layer.depth, "value": 4.52,
    }  # fmt: skip
    return row | more


def baselines(model, n_blocks, has_norm, pooling, **more):
    places = {
        "last layer": "norm" if has_norm else f"block.{n_blocks}",
        "middle layer": f"block.{n_blocks // 2}",
        "2/3 depth": f"block.{round(n_blocks * 2 / 3)}",
    }
    empty = {"metric": None, "variant": None, "direction": None, "value": np.nan}
    return [
        pick(model, n_blocks, pooling, name, place, kind="baseline", **empty, **more)
        for name, place in places.items()
    ]


def encoder():
    """Embedding and six blocks, one pooling: metrics, scores, picks."""
    model = "sentence-transformers/all-MiniLM-L6-v2"
    known = {"best_layer_name": "block.5", "best_score": 0.75}
    picks = [
        pick(model, 6, "mean", "dataset_entropy", "block.4", runner_up="block.5", runner_up_value=4.41,
             support=0.93, clear=True, score=0.732, cost=0.018, **known),
        pick(model, 6, "mean", "uniformity", "block.2", direction="lower", runner_up="block.3", value=-2.9,
             support=0.41, clear=False, score=0.701, cost=0.049, **known),
        *baselines(model, 6, False, "mean", score=0.68, cost=0.07, **known),
    ]  # fmt: skip
    return (
        metric_frame(model, 6, False, ["mean", "last"], ["tokens"], {("embed", "dime"): "constant"}),
        score_frame(model, 6, False, ["mean", "last"]),
        pd.DataFrame(picks),
    )


def decoder():
    """32 blocks and a final norm, with and without sink tokens, some values missing."""
    model = "meta/decoder-1B"
    missing = {
        ("embed", "curvature"): "too few tokens",
        **{(f"block.{k}", "dime"): "non-finite input" for k in (13, 14, 15)},
        **{(name, "anisotropy"): "zero trace" for name in standard_layers(32, True)},
    }
    poolings = ["mean", "mean-nosink"]
    picks = []
    for pooling, name in (("mean", "block.3"), ("mean-nosink", "block.12")):
        picks += [
            pick(model, 32, pooling, "dataset_entropy", name, runner_up="block.4", support=0.6, clear=False),
            pick(model, 32, pooling, "dime", "norm", runner_up="block.7", support=0.98, clear=True),
            *baselines(model, 32, True, pooling),
        ]
    return (
        metric_frame(model, 32, True, poolings, ["tokens", "tokens-nosink"], missing),
        score_frame(model, 32, True, poolings, ("raw", "center")),
        as_frame(picks, PICK_COLUMNS),
    )


def rows_frame():
    """Eight texts of which one is truncated, one empty, two duplicates and one not finite."""
    return pd.DataFrame(
        {
            "tokens": [12, 30, 512, 0, 12, 12, 9, 14],
            "truncated": [False, False, True, False, False, False, False, False],
            "empty": [False, False, False, True, False, False, False, False],
            "duplicate_of": pd.array([None, None, None, None, 0, 0, None, None], dtype="Int64"),
            "nonfinite": ["", "", "", "", "", "", "block.13,block.14", ""],
        }
    )
