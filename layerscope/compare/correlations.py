"""Does a metric go up and down with the score, over the layers?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from layerscope.compare.aligned import FEWEST_TASKS, Aligned
from layerscope.frames import ALL_TASKS, as_frame
from layerscope.resampling import bootstrap_means, check_draws, interval

CORRELATION_COLUMNS = (
    "model", "pooling", "metric", "variant", "statistic", "task", "value", "ci_low", "ci_high", "p", "n",
    "reason",
)  # fmt: skip
_FEWEST_LAYERS = 4


def _pearson(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each row of ``x`` (b, l) with ``y`` (l,); NaN where one is constant."""
    a, b = x - x.mean(axis=1, keepdims=True), y - y.mean()
    scale = np.sqrt((a * a).sum(axis=1) * (b @ b))
    found = np.full(len(x), np.nan)
    np.divide(a @ b, scale, out=found, where=(np.ptp(x, axis=1) > 0) & (np.ptp(y) > 0))
    return found


def _spearman(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    return _pearson(rankdata(x, axis=1), rankdata(y))


def _kendall(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Tau-b: concordant less discordant pairs, over the pairs that are tied in neither."""
    upper = np.triu_indices(len(y), 1)
    b = np.sign(y[upper[0]] - y[upper[1]])
    a = np.sign(x[:, upper[0]] - x[:, upper[1]])
    scale = np.sqrt(np.abs(a).sum(axis=1) * np.abs(b).sum())
    found = np.full(len(x), np.nan)
    np.divide(a @ b, scale, out=found, where=scale > 0)
    return found


def _distance(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    import dcor

    defined = (np.ptp(x, axis=1) > 0) & (np.ptp(y) > 0)
    found = np.full(len(x), np.nan)
    if defined.any():
        repeated = np.broadcast_to(y, (int(defined.sum()), len(y))).copy()
        found[defined] = dcor.rowwise(dcor.distance_correlation, np.ascontiguousarray(x[defined]), repeated)
    return found


STATISTICS: dict[str, Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]] = {
    "spearman": _spearman,
    "kendall": _kendall,
    "pearson": _pearson,
    "distance": _distance,
}
"""Each takes x (b, l) and y (l,), and gives (b,): in [-1, 1], the distance correlation in [0, 1]."""


def correlate_layers(
    aligned: Aligned, *, permutations: int = 999, draws: int = 1000, seed: int = 0
) -> pd.DataFrame:
    """Correlation of every criterion with the score over the layers, by task and averaged over tasks.

    The p-value is that of a permutation test: in each permutation a criterion's layers are shuffled, all
    tasks alike, since tasks share their layers. Neighbouring layers are alike, which shuffled ones are not,
    so p errs on the small side; it is two-sided. The interval is a bootstrap over tasks.

    Args:
        aligned: one model.
        permutations: how many.
        draws: bootstrap samples of the tasks.
        seed: of both.

    Returns:
        A frame with the columns ``CORRELATION_COLUMNS``; ``statistic`` is ``spearman``, ``kendall`` (tau-b),
        ``pearson`` or ``distance``, ``n`` counts layers, or tasks where ``task`` is ``mean over tasks``.

    Source: distance correlation: Székely, Rizzo & Bakirov 2007, as in dcor.
    """
    check_draws(draws, seed)
    rng = np.random.default_rng(seed)
    orders = np.stack([rng.permutation(len(aligned.layers)) for _ in range(permutations)])
    records: list[dict[str, Any]] = []
    for criterion, values in aligned.values.items():
        place = {
            "model": aligned.model, "pooling": aligned.pooling, "metric": criterion.metric,
            "variant": criterion.variant,
        }  # fmt: skip
        present = np.logical_not(np.isnan(values).any(axis=0))
        count = int(present.sum())
        for name, statistic in STATISTICS.items():
            if count < _FEWEST_LAYERS:
                reason = f"values at {count} layers, fewer than {_FEWEST_LAYERS}"
                records.append(place | {"statistic": name, "task": ALL_TASKS, "reason": reason})
                continue
            by_task = _by_task(
                statistic, values[:, present], aligned.scores[:, present], _within(orders, present)
            )
            found = _records(aligned.tasks, by_task, draws, seed, count)
            records += [place | {"statistic": name} | record for record in found]
    return as_frame(records, CORRELATION_COLUMNS)


def _within(orders: NDArray[np.int64], present: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The same orders of the layers that are present only."""
    number = np.cumsum(present) - 1
    return np.stack([number[order[present[order]]] for order in orders]) if len(orders) else orders


def _by_task(
    statistic: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]],
    values: NDArray[np.float64],
    scores: NDArray[np.float64],
    orders: NDArray[np.int64],
) -> NDArray[np.float64]:
    """(1 + permutations, T): the correlation itself first."""
    columns = []
    for mine, score in zip(values, scores, strict=True):
        shuffled = np.concatenate([mine[None], mine[orders]]) if len(orders) else mine[None]
        columns.append(statistic(shuffled, score))
    return np.stack(columns, axis=1)


def _records(
    tasks: list[str], by_task: NDArray[np.float64], draws: int, seed: int, layers: int
) -> list[dict[str, Any]]:
    records = []
    for at, task in enumerate(tasks):
        value = float(by_task[0, at])
        reason = "constant over the layers" if np.isnan(value) else ""
        records.append({"task": task, "value": value, "p": _p(by_task[:, at]), "n": layers, "reason": reason})
    defined = ~np.isnan(by_task[0])
    if not defined.any():
        return [*records, {"task": ALL_TASKS, "n": 0, "reason": "constant over the layers"}]
    means = by_task[:, defined].mean(axis=1)
    count = int(defined.sum())
    low = high = float("nan")
    reason = f"fewer than {FEWEST_TASKS} tasks: no interval"
    if count >= FEWEST_TASKS and draws:
        low, high = interval(float(means[0]), bootstrap_means(by_task[:1, defined].T, draws, seed)[:, 0])
        low, high = max(low, -1.0), min(high, 1.0)
        reason = ""
    records.append(
        {"task": ALL_TASKS, "value": float(means[0]), "ci_low": low, "ci_high": high, "p": _p(means),
         "n": count, "reason": reason}
    )  # fmt: skip
    return records


def _p(values: NDArray[np.float64]) -> float:
    """Share of the permutations, the given order among them, that reach the first value."""
    if np.isnan(values[0]) or len(values) == 1:
        return float("nan")
    reached = np.abs(values[1:]) >= np.abs(values[0]) - 1e-12
    return float((reached.sum() + 1) / len(values))
