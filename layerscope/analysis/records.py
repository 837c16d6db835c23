"""Rows of the metrics frame."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerscope.cache import LayerCache
from layerscope.metrics import MetricSpec
from layerscope.resampling import interval


def _no_draws() -> NDArray[np.float64]:
    return np.empty(0)


@dataclass(frozen=True)
class Found:
    """A value with its resampled values, or the reason why there is none.

    ``spread`` turns the spread of the resamples into that of the value; ``note`` says what it rests on.
    """

    value: float
    draws: NDArray[np.float64] = field(default_factory=_no_draws)
    spread: float = 1.0
    reason: str = ""
    note: str = ""


def as_record(
    cache: LayerCache, layer_name: str, pooling: str, spec: MetricSpec, found: Found, n: int
) -> dict[str, Any]:
    """One row of the frame; ``n`` is how many texts the value is of."""
    layer = cache.layer_info(layer_name)
    low, high = interval(found.value, found.draws, found.spread)
    if not np.isnan(low):
        low, high = _within_bounds(
            low, found.value, high, _bounds_of(spec, n, cache.manifest["widths"][layer_name])
        )
    return {
        "model": cache.model,
        "corpus": cache.corpus,
        "layer": layer.blocks,
        "layer_name": layer.name,
        "depth": layer.depth,
        "pooling": pooling,
        "metric": spec.name,
        "variant": spec.variant,
        "value": found.value,
        "ci_low": low,
        "ci_high": high,
        "n": n,
        "d": cache.manifest["widths"][layer_name],
        "reason": found.reason,
        "note": found.note,
        "direction": spec.direction,
        "draws": found.draws.tolist() if found.draws.size else None,
    }


def _bounds_of(spec: MetricSpec, n: int, d: int) -> tuple[float, float]:
    """What a value can be at least and at most; a text may have any number of tokens."""
    return spec.bounds(sys.maxsize if spec.kind == "tokens" else n, d)


def _within_bounds(low: float, value: float, high: float, bounds: tuple[float, float]) -> tuple[float, float]:
    """An interval without what cannot be, where a reflected one may reach; if bounds are right, that is.

    >>> _within_bounds(-4.0, 2.1, 3.0, (1.0, 9.0))
    (1.0, 3.0)
    """
    if not bounds[0] <= value <= bounds[1]:
        return low, high
    return max(low, bounds[0]), min(high, bounds[1])


def variant_of(spec: MetricSpec, seed: int) -> str:
    """The recipe with the seed that was used."""
    return re.sub(r"seed=\d+", f"seed={seed}", spec.variant) if spec.seeded else spec.variant
