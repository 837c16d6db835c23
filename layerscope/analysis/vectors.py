"""The vectors of a layer as a sample: in memory where they fit, else as streams of blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerscope.analysis.measure import Sample
from layerscope.cache import LayerCache
from layerscope.metrics import MetricSpec
from layerscope.metrics.streams import BLOCK, Blocks

Source = tuple[str, str | None]
"""A layer name and a view; ``None`` for the text itself."""

_IN_MEMORY = 1 << 27  # numbers of one sample that are held at once: 1 GiB as float64


def sources_of(cache: LayerCache, spec: MetricSpec, layer_name: str) -> tuple[Source, ...]:
    """Where a metric's arguments come from; none where the cache has no views and the metric needs them."""
    if spec.kind == "layer_pair":
        return (layer_name, None), (cache.layers[-1], None)
    if spec.kind == "samples":
        return ((layer_name, None),)
    if not cache.views:
        return ()
    views: list[str | None] = list(cache.views)
    if len(views) == 1:
        views = [None, *views]
    return tuple((layer_name, view) for view in (views[:2] if spec.kind == "pair" else views))


def rows_not_finite(
    cache: LayerCache, sources: tuple[Source, ...], pooling: str, rows: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Those of ``rows`` that hold a NaN or an infinity in any source, ascending."""
    bad = np.zeros(cache.n_rows, dtype=bool)
    for layer_name, view in sources:
        start = 0
        for block in cache.blocks(layer_name, pooling, view):
            bad[start : start + len(block)] |= ~np.isfinite(block).all(axis=1)
            start += len(block)
    return rows[bad[rows]]


def layer_stream(
    cache: LayerCache, layer_name: str, pooling: str, view: str | None = None, *, block: int = BLOCK
) -> Blocks:
    """All rows of one layer as a stream."""
    return Blocks(
        lambda: cache.blocks(layer_name, pooling, view),
        cache.n_rows,
        cache.manifest["widths"][layer_name],
        block=block,
    )


def load_sample(
    cache: LayerCache, sources: tuple[Source, ...], pooling: str, rows: NDArray[np.int64]
) -> Sample:
    """The sample of ``rows`` (ascending) of every source, float64."""
    widths = cache.manifest["widths"]
    fits = len(rows) * sum(widths[layer_name] for layer_name, _ in sources) <= _IN_MEMORY
    parts: list[Any] = []
    for layer_name, view in sources:
        stream = layer_stream(cache, layer_name, pooling, view).take(rows)
        parts.append(stream.joined() if fits else stream)
    place = f"layer {sources[0][0]}, pooling {pooling}"
    return Sample(parts, len(rows), place)
