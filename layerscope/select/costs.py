"""What a pick costs: its score against the best layer's, where human scores are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from layerscope.errors import FrameError
from layerscope.frames import MEAN_OF_TOKENS, draws_by_layer, labels, residual_rows
from layerscope.resampling import interval
from layerscope.select.selector import SCORES


def with_costs(
    picks: pd.DataFrame, scores: pd.DataFrame, *, metric: str | None = None, variant: str | None = None
) -> pd.DataFrame:
    """Add to every pick what its layer scores, and what the best layer of the same pooling would.

    A pick by a metric of token states is scored with the pooling that averages the same tokens.

    Args:
        picks: from ``pick_layers``.
        scores: from an evaluation; of one task. Of several subsets, that of the whole task counts.
        metric: which score; ``cosine_spearman`` or ``main_score`` where not given.
        variant: which variant of it; ``raw``, or the only one, where not given.

    Returns:
        ``picks`` with ``score``, ``best_layer_name``, ``best_score``, ``cost`` (best less score, never
        negative) and the 95 % interval ``cost_low``, ``cost_high``; missing where the layer has no score.

    Raises:
        FrameError: ``scores`` holds no such score, or several tasks.
    """
    metric = metric or next((name for name in SCORES if (scores["metric"] == name).any()), SCORES[0])
    rows = residual_rows(scores[scores["metric"] == metric])
    if "variant" in rows:
        known = list(dict.fromkeys(labels(rows, "variant")))
        variant = variant or (known[0] if len(known) == 1 else "raw")
        rows = rows[labels(rows, "variant") == variant]
    if rows.empty:
        raise FrameError(f"the scores frame holds no {metric} ({variant or 'raw'})")
    if "subset" in rows and (rows["subset"] == "all").any():
        rows = rows[rows["subset"] == "all"]
    if "task" in rows and rows["task"].nunique() > 1:
        raise FrameError(
            f"the scores frame holds several tasks ({', '.join(rows['task'].unique())}): choose one"
        )
    for column in ("split", "subset"):
        if column in rows and rows[column].nunique() > 1:
            names = ", ".join(map(str, rows[column].unique()))
            raise FrameError(f"the scores frame holds several values of {column} ({names}): choose one")
    costs = [_cost(pick, rows) for pick in picks.to_dict("records")]
    return picks.assign(**pd.DataFrame(costs, index=picks.index))


def _cost(pick: Mapping[Any, Any], scores: pd.DataFrame) -> dict[str, Any]:
    pooling = MEAN_OF_TOKENS.get(str(pick["pooling"]), str(pick["pooling"]))
    within = scores[(scores["pooling"] == pooling) & scores["score"].notna()]
    if "model" in within and isinstance(pick.get("model"), str):
        within = within[within["model"] == pick["model"]]
    mine = within[within["layer_name"] == pick["layer_name"]]
    missing = float("nan")
    if mine.empty:
        names = ("score", "best_score", "cost", "cost_low", "cost_high")
        return dict.fromkeys(names, missing) | {"best_layer_name": None}
    best = within.iloc[int(within["score"].argmax())]
    score = float(mine["score"].iloc[0])
    cost = float(best["score"]) - score
    low, high = _cost_interval(cost, mine, best)
    return {
        "score": score,
        "best_layer_name": str(best["layer_name"]),
        "best_score": float(best["score"]),
        "cost": cost,
        "cost_low": low,
        "cost_high": high,
    }


def _cost_interval(cost: float, mine: pd.DataFrame, best: pd.Series[Any]) -> tuple[float, float]:
    """Paired: both layers are scored on the same resamples."""
    if str(best["layer_name"]) == str(mine["layer_name"].iloc[0]):
        return 0.0, 0.0
    draws = draws_by_layer(pd.concat([mine.iloc[:1], best.to_frame().T]))
    if draws is None:
        return float("nan"), float("nan")
    return interval(cost, np.asarray(draws[:, 1] - draws[:, 0]))
