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
    by_sources: dict[tuple[Source, ...], list[MetricSpec]] = {}
    for spec in task.specs:
        by_sources.setdefault(sources_of(cache, spec, task.layer_name), []).append(spec)
    records = []
    for sources, specs in by_sources.items():
        usable = _usable(cache, rows, task, sources, options)
        for most in dict.fromkeys(spec.max_n for spec in specs):
            group = tuple(spec for spec in specs if spec.max_n == most)
            records += _group_records(cache, rows, task, usable, group, options)
    return records


@dataclass(frozen=True)
class _Usable:
    """Rows that have finite vectors in all sources; a note on those left out, or why there is no value."""

    sources: tuple[Source, ...]
    rows: NDArray[np.int64]
    note: str = ""
    reason: str = ""


def _usable(
    cache: LayerCache, rows: MeasuredRows, task: Task, sources: tuple[Source, ...], options: Options
) -> _Usable:
    usable = rows.usable(task.pooling, [view for _, view in sources if view is not None])
    if not sources:
        return _Usable(sources, usable, reason=_NO_VIEWS)
    broken = rows_not_finite(cache, sources, task.pooling, usable)
    if not broken.size:
        return _Usable(sources, usable)
    if options.nonfinite == "exclude":
        return _Usable(sources, np.setdiff1d(usable, broken), note=f";nonfinite=excluded:{len(broken)}")
    return _Usable(sources, usable, reason=not_finite(broken.tolist()))


def _group_records(
    cache: LayerCache,
    rows: MeasuredRows,
    task: Task,
    usable: _Usable,
    specs: tuple[MetricSpec, ...],
    options: Options,
) -> list[dict[str, Any]]:
    """The records of metrics that take the same rows, and as many of them."""
    chosen = usable.rows[_subsample(len(usable.rows), specs[0].max_n, options.seed)]
    note = usable.note + (f";subsample={len(chosen)}" if len(chosen) < len(usable.rows) else "")
    if usable.reason:
        found = {spec: Found(float("nan"), reason=usable.reason) for spec in specs}
    else:
        sample = load_sample(cache, usable.sources, task.pooling, chosen)
        found = _measure(sample, specs, rows.units(chosen), options)
    return [
        as_record(cache, task.layer_name, task.pooling, spec, found[spec], len(chosen))
        | {"variant": variant_of(spec, options.seed) + note}
        for spec in specs
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
        spec: Found(
            value.value,
            np.asarray(drawn[spec], dtype=np.float64),
            spread,
            value.reason,
            "" if value.reason else sample.note(spec),
        )
        for spec, value in whole.items()
    }
