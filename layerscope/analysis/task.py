"""All metrics of one layer under one pooling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from layerscope.analysis.measure import Sample
from layerscope.analysis.records import Found, as_record, variant_of
from layerscope.analysis.rows import MeasuredRows
from layerscope.analysis.vectors import Source, load_sample, rows_not_finite, sources_of
from layerscope.cache import LayerCache
from layerscope.frames import not_finite
from layerscope.metrics import MetricSpec
from layerscope.resampling import half_samples, subsample_spread

_NO_VIEWS = "no views in the cache: extract with --views 2 or more, or --view-column"


@dataclass(frozen=True)
class Task:
    """What is computed for one layer under one pooling."""

    layer_name: str
    pooling: str
    specs: tuple[MetricSpec, ...]


@dataclass(frozen=True)
class Options:
    """How it is computed: resamples, seed, what becomes of rows that are not finite, and where."""

    draws: int
    seed: int
    nonfinite: Literal["refuse", "exclude"]
    device: str = "cpu"


def run_task(cache: LayerCache, rows: MeasuredRows, task: Task, options: Options) -> list[dict[str, Any]]:
    """The records of all metrics of one layer; metrics of the same rows share their work."""
    groups: dict[tuple[tuple[Source, ...], int | None], list[MetricSpec]] = {}
    for spec in task.specs:
        groups.setdefault((sources_of(cache, spec, task.layer_name), spec.max_n), []).append(spec)
    records = []
    for (sources, most), specs in groups.items():
        group = _Group(sources, most, tuple(specs))
        records += _group_records(cache, rows, task, group, options)
    return records


@dataclass(frozen=True)
class _Group:
    """Metrics that are computed from the same rows."""

    sources: tuple[Source, ...]
    max_n: int | None
    specs: tuple[MetricSpec, ...]


def _group_records(
    cache: LayerCache, rows: MeasuredRows, task: Task, group: _Group, options: Options
) -> list[dict[str, Any]]:
    usable = rows.usable(task.pooling, [view for _, view in group.sources if view is not None])
    note, reason = "", ""
    if not group.sources:
        reason = _NO_VIEWS
    else:
        broken = rows_not_finite(cache, group.sources, task.pooling, usable)
        if broken.size and options.nonfinite == "exclude":
            usable = np.setdiff1d(usable, broken)
            note = f";nonfinite=excluded:{len(broken)}"
        elif broken.size:
            reason = not_finite(broken.tolist())
    chosen = usable[_subsample(len(usable), group.max_n, options.seed)]
    note += f";subsample={len(chosen)}" if len(chosen) < len(usable) else ""
    if reason:
        found = {spec: Found(float("nan"), reason=reason) for spec in group.specs}
    else:
        sample = load_sample(cache, group.sources, task.pooling, chosen)
        found = _measure(sample, group.specs, rows.units(chosen), options)
    return [
        as_record(cache, task.layer_name, task.pooling, spec, found[spec])
        | {"variant": variant_of(spec, options.seed) + note, "n": len(chosen)}
        for spec in group.specs
    ]


def _subsample(n: int, most: int | None, seed: int) -> NDArray[np.int64]:
    """Positions of at most ``most`` of n rows, drawn with a seed, ascending."""
    if most is None or n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).permutation(n)[:most])


def _measure(
    sample: Sample, specs: tuple[MetricSpec, ...], units: NDArray[np.int64], options: Options
) -> dict[MetricSpec, Found]:
    """Every metric of the sample, and of each half-sample where the whole gives a value."""
    whole = {spec: sample.value(spec, options.seed) for spec in specs}
    defined = [spec for spec in specs if not whole[spec].reason]
    halves = half_samples(units, options.draws, options.seed) if defined else []
    drawn: dict[MetricSpec, list[float]] = {spec: [] for spec in specs}
    for half in halves:
        part = sample.take(half)
        for spec in defined:
            drawn[spec].append(part.value(spec, options.seed).value)
    size = int(np.mean([len(half) for half in halves])) if halves else 0
    spread = subsample_spread(len(units), size) if 0 < size < len(units) else 1.0
    return {
        spec: Found(value.value, np.asarray(drawn[spec], dtype=np.float64), spread, value.reason)
        for spec, value in whole.items()
    }
