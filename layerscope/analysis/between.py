"""CKA between all layers of a cache, in mini-batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from layerscope.analysis.rows import MeasuredRows
from layerscope.analysis.vectors import layer_stream, rows_not_finite
from layerscope.cache import LayerCache, as_cache
from layerscope.errors import UsageError
from layerscope.frames import LAYER_PAIR_COLUMNS, as_frame, not_finite
from layerscope.metrics import Undefined
from layerscope.metrics.cka import SPEC, cka_matrix

_BATCH = 256


def compare_layers(
    cache: LayerCache | str | Path, *, pooling: str | None = None, batch: int = _BATCH
) -> pd.DataFrame:
    """Unbiased linear CKA of every pair of layers, streamed: all layers of one batch of texts at a time.

    Args:
        cache: from ``extract``, ``LayerCache(path)``, or the path alone.
        pooling: which of the cache's poolings; the first where not given.
        batch: texts at a time; HSIC is averaged over batches.

    Returns:
        A frame with the columns ``LAYER_PAIR_COLUMNS``, one row per ordered pair of layers. ``value`` is NaN
        with a ``reason`` where one of the two has a row that is not finite, or no variance.

    Raises:
        UsageError: a pooling that is not known, or batches of fewer than 4 texts.

    Source: Kornblith et al. 2019; Nguyen et al. 2021.
    """
    cache = as_cache(cache)
    (name,) = cache.chosen_poolings(pooling or cache.poolings[0])
    if batch < SPEC.minimum_n:
        raise UsageError(f"batch is {batch}: it must be {SPEC.minimum_n} or more")
    rows = MeasuredRows(cache, drop_duplicates=False).usable(name)
    reasons = {layer: _reason(cache, layer, name, rows) for layer in cache.layers}
    try:
        values = cka_matrix(_batches(cache, name, rows, batch))
    except Undefined as undefined:
        values = np.full((len(cache.layers),) * 2, np.nan)
        reasons = dict.fromkeys(cache.layers, undefined.reason)
    records: list[dict[str, Any]] = [
        {
            "model": cache.model,
            "corpus": cache.corpus,
            "pooling": name,
            "layer_name": layer,
            "other_layer_name": other,
            "metric": SPEC.name,
            "variant": f"{SPEC.variant};batch={batch}",
            "value": values[i, j],
            "n": len(rows),
            "reason": (reasons[layer] or reasons[other] or "constant") if np.isnan(values[i, j]) else "",
        }
        for i, layer in enumerate(cache.layers)
        for j, other in enumerate(cache.layers)
    ]
    return as_frame(records, LAYER_PAIR_COLUMNS)


def _reason(cache: LayerCache, layer: str, pooling: str, rows: NDArray[np.int64]) -> str:
    broken = rows_not_finite(cache, ((layer, None),), pooling, rows)
    return not_finite(broken.tolist()) if broken.size else ""


def _batches(
    cache: LayerCache, pooling: str, rows: NDArray[np.int64], batch: int
) -> Iterator[list[NDArray[np.float64]]]:
    """Every layer of the same texts, batch by batch."""
    streams = [layer_stream(cache, layer, pooling, block=batch).take(rows) for layer in cache.layers]
    for parts in zip(*streams, strict=True):
        yield list(parts)
