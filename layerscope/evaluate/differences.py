"""Is a layer better than the last one? Paired over the same resampled items."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from layerscope.errors import FrameError
from layerscope.frames import SCORE_COLUMNS, draws_by_layer
from layerscope.layers import as_layer_order
from layerscope.resampling import interval

_KEYS = ["model", "task", "split", "subset", "pooling", "metric", "variant"]
_FEWEST_DRAWS = 50


def with_differences(scores: pd.DataFrame) -> pd.DataFrame:
    """Add to every layer's score by how much it is above that of the last layer.

    The difference is paired: both layers are scored on the same bootstrap samples of the items (``draws``).
    Its p-value is that of the largest difference among all layers (the bootstrap distribution of the maximum
    of the centred differences, in units of their spread, two-sided), so it holds for the best layer too,
    which was chosen because it scored best.

    Args:
        scores: scores frame, with ``draws``.

    Returns:
        The frame with ``vs_last``, ``vs_last_low``, ``vs_last_high`` (95 %) and ``vs_last_p``; interval and
        p are missing where a layer has no draws, and for the last layer itself.

    Source: White 2000 (reality check); Westfall & Young 1993 (the maximum over comparisons).
    """
    added = pd.DataFrame(
        np.nan, index=scores.index, columns=["vs_last", "vs_last_low", "vs_last_high", "vs_last_p"]
    )
    for _, group in scores.groupby(_KEYS, sort=False, dropna=False):
        scored = group[group["score"].notna()]
        last = as_layer_order(group["layer_name"])[-1]
        base = scored[scored["layer_name"] == last]
        if base.empty:
            continue
        added.loc[scored.index, "vs_last"] = scored["score"] - float(base["score"].iloc[0])
        drawn = draws_by_layer(scored)
        if drawn is not None and len(drawn) >= _FEWEST_DRAWS:
            others = (scored["layer_name"] != last).to_numpy()
            gains = drawn[:, others] - drawn[:, ~others]
            values = added.loc[scored.index[others], "vs_last"].to_numpy(dtype=np.float64)
            added.loc[scored.index[others], ["vs_last_low", "vs_last_high", "vs_last_p"]] = _tested(
                values, gains
            )
    frame = scores.drop(columns=list(added.columns), errors="ignore").join(added)
    return frame[[*SCORE_COLUMNS, *(name for name in frame.columns if name not in SCORE_COLUMNS)]]


def _tested(differences: NDArray[np.float64], gains: NDArray[np.float64]) -> NDArray[np.float64]:
    """Low, high and p of each of the (l,) differences, from their values in each draw, (b, l)."""
    found = np.full((len(differences), 3), np.nan)
    gains = gains[np.isfinite(gains).all(axis=1)]
    if len(gains) < _FEWEST_DRAWS or not len(differences):
        return found
    spread = gains.std(axis=0)
    usable = spread > 0
    for place in np.flatnonzero(usable):
        found[place, :2] = interval(float(differences[place]), gains[:, place])
    if usable.any():
        centred = np.abs(gains - gains.mean(axis=0))[:, usable] / spread[usable]
        observed = np.abs(differences[usable]) / spread[usable]
        reached = (centred.max(axis=1)[:, None] >= observed[None, :]).sum(axis=0)
        found[usable, 2] = (reached + 1) / (len(gains) + 1)
    return found


def best_against_last(scores: pd.DataFrame) -> pd.DataFrame:
    """The best layer of every task, pooling and score, with what it gains on the last layer.

    Args:
        scores: from ``with_differences``.

    Returns:
        One row a group, those of ``scores``.
    """
    scored = scores[scores["score"].notna()]
    keys = [key for key in _KEYS if key in scored]
    best = scored.groupby(keys, sort=False, dropna=False)["score"].idxmax()
    return scored.loc[best].reset_index(drop=True)


def paired_difference(one: pd.Series[Any], other: pd.Series[Any]) -> dict[str, float]:
    """By how much one row of a scores frame is above another, on the same resamples of the items.

    Args:
        one: a row with ``score`` and ``draws``.
        other: another, of the same items.

    Returns:
        ``difference``, its 95 % interval ``low`` and ``high``, and the two-sided bootstrap ``p``; these are
        missing where there are fewer than 50 draws.

    Raises:
        FrameError: they are not scores of the same items.
    """
    if (one["task"], one["subset"], one["n"]) != (other["task"], other["subset"], other["n"]):
        raise FrameError(
            f"scores of other items ({one['task']}, {one['subset']}, {one['n']} and {other['task']}, "
            f"{other['subset']}, {other['n']}) cannot be compared: score both on the same"
        )
    difference = float(one["score"]) - float(other["score"])
    drawn = draws_by_layer(pd.DataFrame([one, other]))
    low = high = p = float("nan")
    if drawn is not None:
        low, high, p = _tested(np.array([difference]), drawn[:, :1] - drawn[:, 1:])[0]
    return {"difference": difference, "low": float(low), "high": float(high), "p": float(p)}
