"""Means over prompts of the metrics of token states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from layerscope.analysis.records import Found, as_record
from layerscope.analysis.rows import MeasuredRows
from layerscope.analysis.task import Options
from layerscope.cache import LayerCache
from layerscope.frames import not_finite
from layerscope.metrics import METRICS, MetricSpec
from layerscope.resampling import bootstrap_means


def token_records(
    cache: LayerCache, rows: MeasuredRows, spec: MetricSpec, options: Options
) -> Iterator[dict[str, Any]]:
    """Means over prompts of a metric that was computed during extraction."""
    table = cache.token_metrics
    if spec.name not in table.columns or spec not in METRICS:  # the table holds those of our own recipes
        for layer_name in cache.layers:
            found = Found(float("nan"), reason="not computed during extraction")
            yield as_record(cache, layer_name, "tokens", spec, found) | {"n": 0}
        return
    usable = rows.usable()
    for token_set, group in table.groupby("tokens", sort=False):
        wide = group.pivot(index="row", columns="layer_name", values=spec.name)[cache.layers]
        values = wide.to_numpy(dtype=np.float64)[usable]
        resampled = (
            bootstrap_means(values, options.draws, options.seed)
            if len(usable)
            else np.empty((0, values.shape[1]))
        )
        for column, layer_name in enumerate(cache.layers):
            missing = np.isnan(values[:, column])
            present = values[~missing, column]
            broken = usable[missing & rows.broken(usable, layer_name)]
            if broken.size:
                found = Found(float("nan"), reason=not_finite(broken.tolist()))
            elif present.size:
                found = Found(float(present.mean()), resampled[:, column])
            else:
                found = Found(float("nan"), reason="undefined for every text")
            yield as_record(cache, layer_name, str(token_set), spec, found) | {"n": int(present.size)}
