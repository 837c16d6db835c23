"""What a layer gets of the metrics of the token states of its texts."""

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
from layerscope.metrics.published import TOKEN_COLUMNS
from layerscope.resampling import bootstrap_means


def token_records(
    cache: LayerCache, rows: MeasuredRows, spec: MetricSpec, options: Options
) -> Iterator[dict[str, Any]]:
    """The mean over texts, or the largest, of a metric that was computed during extraction."""
    table = cache.token_metrics
    column = _column(spec)
    if column not in table.columns:
        for layer_name in cache.layers:
            found = Found(float("nan"), reason="not computed during extraction")
            yield as_record(cache, layer_name, "tokens", spec, found, n=0)
        return
    usable = rows.usable()
    for token_set, group in table.groupby("tokens", sort=False):
        wide = group.pivot(index="row", columns="layer_name", values=column)[cache.layers]
        values = wide.to_numpy(dtype=np.float64)[usable]
        draws = options.draws if len(usable) and spec.over_texts == "mean" else 0
        resampled = bootstrap_means(values, draws, options.seed)
        for number, layer_name in enumerate(cache.layers):
            missing = np.isnan(values[:, number])
            present = values[~missing, number]
            broken = usable[missing & rows.broken(usable, layer_name)]
            if broken.size:
                found = Found(float("nan"), reason=not_finite(broken.tolist()))
            elif present.size:
                value = present.max() if spec.over_texts == "largest" else present.mean()
                without = int(missing.sum())
                note = f"no value for {without} of {missing.size} texts" if without else ""
                found = Found(float(value), resampled[:, number], note=note)
            else:
                found = Found(float("nan"), reason="undefined for every text")
            yield as_record(cache, layer_name, str(token_set), spec, found, int(present.size))


def _column(spec: MetricSpec) -> str | None:
    """What the cache calls the metric; None for one of the user's own, which no cache holds."""
    if spec in METRICS:
        return spec.name
    return next((name for name, known in TOKEN_COLUMNS.items() if known == spec), None)
