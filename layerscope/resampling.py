"""Intervals from resamples, the same resamples for every layer.

Metrics of a set of rows are resampled by subsampling *without* replacement: a bootstrap repeats
rows, which lowers the rank and biases every spectral metric downwards. A half-sample drawn without
replacement varies around its own mean as much as the full sample's value does around the truth
(Politis and Romano 1994, with the finite-population factor), so its spread needs no rescaling; for
another size m of n it is multiplied by √(m / (n − m)). Means over prompts use the ordinary bootstrap.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from layerscope.errors import UsageError

LEVEL = 0.95
MOST_DRAWS = 100_000
_MIN_DEFINED = 0.5


def check_draws(draws: object, seed: object) -> None:
    """Refuse a number of resamples, or a seed, that is no whole number from 0 on, and too many resamples.

    Raises:
        UsageError: naming which.
    """
    for name, value in (("draws", draws), ("seed", seed)):
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 0:
            raise UsageError(f"--{name} is {value}: it must be a whole number, 0 or more")
    if int(draws) > MOST_DRAWS:  # type: ignore[call-overload]
        raise UsageError(f"--draws is {draws}: {MOST_DRAWS:,} are more than any interval needs")


def half_samples(units: NDArray[np.int64], draws: int, seed: int) -> list[NDArray[np.int64]]:
    """Positions of the rows in each of ``draws`` half-samples of the units.

    Args:
        units: (n,) which unit each row belongs to; the rows of a pair are one unit.
        draws: how many.
        seed: of the draws.

    Returns:
        ``draws`` sorted arrays of positions into ``units``.

    >>> [part.tolist() for part in half_samples(np.array([0, 0, 1, 1]), draws=2, seed=2)]
    [[0, 1], [2, 3]]
    """
    rng = np.random.default_rng(seed)
    names, unit_of = np.unique(units, return_inverse=True)
    half = len(names) // 2
    chosen = []
    for _ in range(draws):
        inside = np.zeros(len(names), dtype=bool)
        inside[rng.permutation(len(names))[:half]] = True
        chosen.append(np.flatnonzero(inside[unit_of]))
    return chosen


def bootstrap_means(values: NDArray[np.float64], draws: int, seed: int) -> NDArray[np.float64]:
    """Means of ``values`` (n, k) over ``draws`` bootstrap samples of its rows, (draws, k).

    A missing value is left out of the mean of its column.
    """
    rng = np.random.default_rng(seed)
    present = ~np.isnan(values)
    filled = np.where(present, values, 0.0)
    means = np.full((draws, values.shape[1]), np.nan)
    for draw in range(draws):
        weight = np.bincount(rng.integers(len(values), size=len(values)), minlength=len(values)).astype(
            np.float64
        )
        total = weight @ present
        np.divide(weight @ filled, total, out=means[draw], where=total > 0)
    return means


def interval(
    value: float, draws: NDArray[np.float64], spread: float = 1.0, level: float = LEVEL
) -> tuple[float, float]:
    """A basic (reflected) interval around ``value`` from its resampled values.

    Args:
        value: on the full sample.
        draws: (b,) resampled values, NaN where undefined.
        spread: factor on the deviations of the draws from their mean.
        level: coverage, in (0, 1).

    Returns:
        Low and high; NaN where fewer than half of the draws are defined.

    >>> interval(1.0, np.array([0.0, 2.0]), level=0.5)
    (0.5, 1.5)
    """
    defined = draws[~np.isnan(draws)]
    if len(defined) < max(2.0, _MIN_DEFINED * len(draws)) or np.isnan(value):
        return float("nan"), float("nan")
    deviations = spread * (defined - defined.mean())
    low, high = np.quantile(deviations, [(1 - level) / 2, (1 + level) / 2])
    return float(value - high), float(value - low)


def subsample_spread(n: int, m: int) -> float:
    """Factor that turns the spread of m of n rows, drawn without replacement, into that of n rows.

    >>> subsample_spread(100, 50)
    1.0
    """
    return float(np.sqrt(m / (n - m)))
