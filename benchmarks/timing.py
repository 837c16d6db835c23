"""Timing of several ways in turn, for the benchmarks."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence


def seconds(run: Callable[[], object]) -> float:
    """Wall-clock seconds of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def in_turn(
    runs: Mapping[str, Callable[[], object]], rounds: int, rest: float = 0.0
) -> dict[str, list[float]]:
    """Seconds of every run, round by round, so that a slow moment hits all of them.

    Args:
        runs: by name.
        rounds: how often.
        rest: seconds before each, for the threads of the one before to stop spinning.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            time.sleep(rest)
            times[name].append(seconds(run))
    return times


def ratio(taken: Sequence[float], base: Sequence[float]) -> float:
    """Median over rounds of the ratio of two runs."""
    return statistics.median(one / other for one, other in zip(taken, base, strict=True))
