"""Cache -> metrics frame: every metric for every layer and pooling, with intervals."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from joblib import Parallel, delayed, parallel_config
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from layerscope.cache import LayerCache, as_cache
from layerscope.errors import MetricError, UsageError
from layerscope.frames import METRIC_COLUMNS, as_frame, not_finite
from layerscope.metrics import METRICS, MetricSpec, Undefined, get_metric
from layerscope.resampling import bootstrap_means, check_draws, half_samples, interval, subsample_spread

Progress = Callable[[int, int], None]
_WORTH_A_PROCESS = 50_000  # rows × tasks × draws: about two seconds of work
_NO_VIEWS = "no views in the cache: extract with --views 2 or more, or --view-column"


@dataclass(frozen=True)
class _Task:
    """What is computed for one layer under one pooling."""

    layer_name: str
    pooling: str
    specs: tuple[MetricSpec, ...]


def analyze(
    cache: LayerCache | str | Path,
    metrics: str | MetricSpec | Sequence[str | MetricSpec] | None = None,
    *,
    pooling: str | Sequence[str] | None = None,
    draws: int = 100,
    seed: int = 0,
    duplicates: Literal["keep", "drop"] = "keep",
    workers: int | None = None,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Compute label-free metrics of every layer in the cache.

    Empty texts, and texts without a token for a pooling, are left out. A layer with a row that is
    not finite has no value; the reason names the row.

    Args:
        cache: from ``extract``, ``LayerCache(path)``, or the path alone.
        metrics: names, or specs of your own, one or several; all of them where not given.
        pooling: which of the cache's poolings, one or several; all of them where not given.
        draws: resamples for intervals; 0 for none.
        seed: of the resamples and of metrics that draw.
        duplicates: ``keep`` measures a text as often as it occurs, ``drop`` once.
        workers: processes, each with one layer at a time; where not given, the number of processors, or
            one for a job that is too small to be worth it.
        progress: called with the number of layers done and to do.

    Returns:
        A frame with the columns ``METRIC_COLUMNS``, one row per layer, pooling and metric. ``value``
        is NaN with a ``reason`` where a metric is undefined.

    Raises:
        UsageError: a metric or pooling that is not known, or an option that makes no sense.
        MetricError: a metric failed; the message names it, the layer and the pooling.
    """
    cache = as_cache(cache)
    check_draws(draws, seed)
    if workers is not None and workers < 1:
        raise UsageError(f"workers is {workers}: it must be 1 or more")
    if duplicates not in ("keep", "drop"):
        raise UsageError(f"duplicates is '{duplicates}': it must be keep or drop")
    specs = _chosen_specs(metrics)
    poolings = cache.chosen_poolings(pooling)
    sets = tuple(spec for spec in specs if spec.kind != "tokens")
    tasks = [_Task(layer, name, sets) for name in poolings for layer in cache.layers] if sets else []
    rows = _Rows(cache, drop_duplicates=duplicates == "drop")
    records: list[dict[str, Any]] = []
    with closing(_run_tasks(cache, rows, tasks, draws, seed, workers)) as done:
        for number, found in enumerate(done, start=1):
            records += found
            if progress is not None:
                progress(number, len(tasks))
    for spec in specs:
        if spec.kind == "tokens":
            records += _token_records(cache, rows, spec, draws, seed)
    if not records:
        raise UsageError(
            "nothing to compute: the cache holds no token metrics; extract again, or choose others"
        )
    return _in_order(as_frame(records, METRIC_COLUMNS), [spec.name for spec in specs], cache.layers)


def _run_tasks(
    cache: LayerCache, rows: _Rows, tasks: list[_Task], draws: int, seed: int, workers: int | None
) -> Generator[list[dict[str, Any]]]:
    """The records of each task, in order.

    In processes and not threads, because decompositions hold a lock in OpenBLAS; one BLAS thread each,
    because small ones gain nothing from more.
    """
    if workers is None:
        is_small = cache.n_rows * len(tasks) * (draws + 1) < _WORTH_A_PROCESS
        workers = 1 if is_small else min(os.cpu_count() or 1, len(tasks))
    if workers == 1:
        with threadpool_limits(limits=1):
            for task in tasks:
                yield _run_task(cache, rows, task, draws, seed)
        return
    parallel = Parallel(n_jobs=workers, return_as="generator")
    with parallel_config(backend="loky", inner_max_num_threads=1):
        yield from parallel(delayed(_run_task)(cache, rows, task, draws, seed) for task in tasks)


def _chosen_specs(metrics: str | MetricSpec | Sequence[str | MetricSpec] | None) -> list[MetricSpec]:
    if metrics is None:
        return list(METRICS)
    given = [metrics] if isinstance(metrics, str | MetricSpec) else list(metrics)
    if not given:
        raise UsageError("metrics is empty: name one, or leave it out for all of them")
    for name in given:
        if not isinstance(name, str | MetricSpec):
            raise UsageError(f"metrics: expected names or MetricSpecs, got {name!r}")
    specs = list(dict.fromkeys(spec if isinstance(spec, MetricSpec) else get_metric(spec) for spec in given))
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two different metrics are called '{name}': give yours another name")
    return specs


class _Rows:
    """Which rows of the cache are measured."""

    def __init__(self, cache: LayerCache, *, drop_duplicates: bool) -> None:
        rows = cache.rows
        keep = ~rows["empty"].to_numpy(dtype=bool)
        if drop_duplicates:
            keep &= rows["duplicate_of"].isna().to_numpy()
        self._keep = keep
        self._undefined = [frozenset(names.split(",")) for names in rows["undefined"]]
        self._nonfinite = [frozenset(names.split(",")) for names in rows["nonfinite"]]
        self._units = rows["pair"].to_numpy(dtype=np.int64) if "pair" in rows else np.arange(len(rows))

    def usable(self, pooling: str | None = None, views: Iterable[str] = ()) -> NDArray[np.int64]:
        """Rows with a vector for ``pooling``, in the texts and in the views; (m,) row numbers."""
        needed = {f"{view}/{pooling}" for view in views} | ({pooling} if pooling else set())
        defined = np.array([needed.isdisjoint(names) for names in self._undefined], dtype=bool)
        return np.flatnonzero(self._keep & defined)

    def broken(self, rows: NDArray[np.int64], layer_name: str) -> NDArray[np.bool_]:
        """Which of ``rows`` are not finite at that layer though the text has tokens; (m,)."""
        return np.array([layer_name in self._nonfinite[row] for row in rows], dtype=bool)

    def units(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """What is resampled together: the rows of a pair."""
        return np.asarray(self._units[rows])


def _run_task(cache: LayerCache, rows: _Rows, task: _Task, draws: int, seed: int) -> list[dict[str, Any]]:
    records = []
    for spec in task.specs:
        views = _views_for(cache, spec)
        usable = rows.usable(task.pooling, [view for view in views if view is not None])
        chosen = _subsample(len(usable), spec.max_n, seed)
        found = _values(cache, rows, task, spec, views, usable, chosen, draws, seed)
        note = f";subsample={len(chosen)}" if len(chosen) < len(usable) else ""
        records.append(
            _record(cache, task.layer_name, task.pooling, spec, found)
            | {"variant": _variant(spec, seed) + note, "n": len(chosen)}
        )
    return records


def _subsample(n: int, most: int | None, seed: int) -> NDArray[np.int64]:
    """Positions of at most ``most`` of n rows, drawn with a seed, ascending."""
    if most is None or n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).permutation(n)[:most])


def _views_for(cache: LayerCache, spec: MetricSpec) -> list[str | None]:
    """What stands for the views of a text: names of views, ``None`` for the text itself."""
    if spec.kind == "samples":
        return [None]
    if not cache.views:
        return []
    views: list[str | None] = list(cache.views)
    if len(views) == 1:
        views = [None, *views]
    return views[:2] if spec.kind == "pair" else views


@dataclass(frozen=True)
class _Found:
    """A value with its resampled values, or the reason why there is none."""

    value: float
    draws: NDArray[np.float64]
    spread: float = 1.0
    width: int = 0
    reason: str = ""


_NONE = np.empty(0)


def _values(
    cache: LayerCache,
    rows: _Rows,
    task: _Task,
    spec: MetricSpec,
    views: list[str | None],
    usable: NDArray[np.int64],
    chosen: NDArray[np.int64],
    draws: int,
    seed: int,
) -> _Found:
    """The metric on the chosen of the usable rows, all of which must be finite."""
    if not views:
        return _Found(float("nan"), _NONE, reason=_NO_VIEWS)
    stack = [
        np.asarray(cache.layer(task.layer_name, task.pooling, view)[usable], dtype=np.float64)
        for view in views
    ]
    width = stack[0].shape[1]
    broken = np.flatnonzero(~np.all([np.isfinite(part).all(axis=1) for part in stack], axis=0))
    if broken.size:
        return _Found(float("nan"), _NONE, width=width, reason=not_finite(usable[broken].tolist()))
    stack, usable = [part[chosen] for part in stack], usable[chosen]
    place = f"layer {task.layer_name}, pooling {task.pooling}"
    value, reason = _evaluate(spec, stack, seed, place)
    if reason:
        return _Found(float("nan"), _NONE, width=width, reason=reason)
    samples = half_samples(rows.units(usable), draws, seed)
    drawn = [_evaluate(spec, [part[sample] for part in stack], seed, place)[0] for sample in samples]
    size = int(np.mean([len(sample) for sample in samples])) if samples else 0
    spread = subsample_spread(len(usable), size) if 0 < size < len(usable) else 1.0
    return _Found(value, np.asarray(drawn, dtype=np.float64), spread, width)


def _evaluate(spec: MetricSpec, stack: list[NDArray[np.float64]], seed: int, place: str) -> tuple[float, str]:
    """The metric's value, or NaN and a reason; whatever else it raises is told with its place."""
    arguments = [np.stack(stack, axis=1)] if spec.kind == "views" else stack
    if len(stack[0]) < spec.minimum_n:
        return float("nan"), f"fewer than {spec.minimum_n} samples"
    try:
        value = float(spec.function(*arguments, seed=seed) if spec.seeded else spec.function(*arguments))
    except Undefined as undefined:
        return float("nan"), undefined.reason
    except Exception as error:
        raise MetricError(
            f"metric '{spec.name}' failed at {place}: {type(error).__name__}: {error}"
        ) from error
    return (value, "") if np.isfinite(value) else (float("nan"), "the value is not finite")


def _variant(spec: MetricSpec, seed: int) -> str:
    """The recipe with the seed that was used."""
    return re.sub(r"seed=\d+", f"seed={seed}", spec.variant) if spec.seeded else spec.variant


def _record(
    cache: LayerCache, layer_name: str, pooling: str, spec: MetricSpec, found: _Found
) -> dict[str, Any]:
    layer = cache.layer_info(layer_name)
    low, high = interval(found.value, found.draws, found.spread)
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
        "d": found.width or None,
        "reason": found.reason,
        "draws": found.draws.tolist() if found.draws.size else None,
        "direction": spec.direction,
    }


def _token_records(
    cache: LayerCache, rows: _Rows, spec: MetricSpec, draws: int, seed: int
) -> Iterator[dict[str, Any]]:
    """Means over prompts of a metric that was computed during extraction."""
    table = cache.token_metrics
    if spec.name not in table.columns:
        for layer_name in cache.layers:
            found = _Found(float("nan"), _NONE, reason="not computed during extraction")
            yield _record(cache, layer_name, "tokens", spec, found) | {"n": 0}
        return
    usable = rows.usable()
    for token_set, group in table.groupby("tokens", sort=False):
        wide = group.pivot(index="row", columns="layer_name", values=spec.name)[cache.layers]
        values = wide.to_numpy(dtype=np.float64)[usable]
        resampled = bootstrap_means(values, draws, seed) if len(usable) else np.empty((0, values.shape[1]))
        for column, layer_name in enumerate(cache.layers):
            missing = np.isnan(values[:, column])
            present = values[~missing, column]
            broken = usable[missing & rows.broken(usable, layer_name)]
            width = cache.manifest["widths"][layer_name]
            if broken.size:
                found = _Found(float("nan"), _NONE, width=width, reason=not_finite(broken.tolist()))
            elif present.size:
                found = _Found(float(present.mean()), resampled[:, column], width=width)
            else:
                found = _Found(float("nan"), _NONE, width=width, reason="undefined for every text")
            yield _record(cache, layer_name, str(token_set), spec, found) | {"n": int(present.size)}


def _in_order(frame: pd.DataFrame, metrics: list[str], layers: list[str]) -> pd.DataFrame:
    """Sorted by metric as asked for, then pooling, then layer in order of computation."""
    poolings = list(dict.fromkeys(frame["pooling"]))
    keys = pd.DataFrame(
        {
            "metric": frame["metric"].map({name: i for i, name in enumerate(metrics)}),
            "pooling": frame["pooling"].map({name: i for i, name in enumerate(poolings)}),
            "layer": frame["layer_name"].map({name: i for i, name in enumerate(layers)}),
        }
    )
    return frame.loc[keys.sort_values(["metric", "pooling", "layer"]).index].reset_index(drop=True)
