"""Cache -> metrics frame: every metric for every layer and pooling, with intervals."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from joblib import Parallel, delayed, parallel_config
from threadpoolctl import threadpool_limits

from layerscope.analysis.rows import MeasuredRows
from layerscope.analysis.task import Options, Task, run_task
from layerscope.analysis.tokens import token_records
from layerscope.cache import LayerCache, as_cache
from layerscope.errors import UsageError
from layerscope.frames import METRIC_COLUMNS, as_frame
from layerscope.metrics import METRICS, MetricSpec, cka
from layerscope.metrics.eigen import decomposing_on, find_device
from layerscope.metrics.own import find_metric
from layerscope.metrics.published import PROMPT_VECTOR, PUBLISHED
from layerscope.resampling import check_draws

ALL_PAIRS = cka.SPEC.name
RECIPES: dict[str, Sequence[MetricSpec]] = {"default": METRICS, "published": PUBLISHED}
Progress = Callable[[int, int], None]
_WORTH_A_PROCESS = 50_000  # rows × tasks × draws: about two seconds of work


def analyze(
    cache: LayerCache | str | Path,
    metrics: str | MetricSpec | Sequence[str | MetricSpec] | None = None,
    *,
    pooling: str | Sequence[str] | None = None,
    draws: int = 100,
    seed: int = 0,
    duplicates: Literal["keep", "drop"] = "keep",
    nonfinite: Literal["refuse", "exclude"] = "refuse",
    recipe: Literal["default", "published"] = "default",
    workers: int | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Compute label-free metrics of every layer in the cache.

    Empty texts, and texts without a token for a pooling, are left out. A layer with a row that is
    not finite has no value, unless such rows are to be left out; the reason names the row.

    Args:
        cache: from ``extract``, ``LayerCache(path)``, or the path alone.
        metrics: names, or specs of your own (also as ``module:object``), one or several; all of them
            where not given.
        pooling: which of the cache's poolings, one or several; all of them where not given.
        draws: resamples for intervals; 0 for none.
        seed: of the resamples and of metrics that draw.
        duplicates: ``keep`` measures a text as often as it occurs, ``drop`` once.
        nonfinite: ``refuse`` gives a layer with a NaN or an infinity no value; ``exclude`` leaves such rows
            out at that layer, and ``variant`` says how many.
        recipe: ``published`` computes the metrics that the released code of Skean et al. 2025 has as it does,
            from a cache with the pooling ``prompt-vector``.
        workers: processes, each with one layer at a time; where not given, the number of processors, or
            one for a job that is too small to be worth it.
        device: where matrices are decomposed, in float64: ``auto`` takes a CUDA GPU where there is one, which
            one process then uses; ``cpu``; ``cuda``.
        progress: called with the number of layers done and to do.

    Returns:
        A frame with the columns ``METRIC_COLUMNS``, one row per layer, pooling and metric. ``value``
        is NaN with a ``reason`` where a metric is undefined. ``frame.attrs["analyze"]`` holds these
        options, and so does a parquet file of it.

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
    if nonfinite not in ("refuse", "exclude"):
        raise UsageError(f"nonfinite is '{nonfinite}': it must be refuse or exclude")
    options = Options(draws, seed, nonfinite, find_device(device))
    if recipe not in RECIPES:
        raise UsageError(f"recipe is '{recipe}': it must be {' or '.join(RECIPES)}")
    specs = _chosen_specs(metrics, RECIPES[recipe])
    if recipe == "published":
        pooling = _prompt_vectors(cache, pooling)
    poolings = cache.chosen_poolings(pooling)
    sets = tuple(spec for spec in specs if spec.kind != "tokens")
    tasks = [Task(layer, name, sets) for name in poolings for layer in cache.layers] if sets else []
    rows = MeasuredRows(cache, drop_duplicates=duplicates == "drop")
    records: list[dict[str, Any]] = []
    with closing(_run_tasks(cache, rows, tasks, options, workers)) as done:
        for number, found in enumerate(done, start=1):
            records += found
            if progress is not None:
                progress(number, len(tasks))
    for spec in specs:
        if spec.kind == "tokens":
            records += token_records(cache, rows, spec, options)
    if not records:
        raise UsageError(
            "nothing to compute: the cache holds no token metrics; extract again, or choose others"
        )
    frame = _in_order(as_frame(records, METRIC_COLUMNS), [spec.name for spec in specs], cache.layers)
    frame.attrs["analyze"] = {
        "metrics": _names_of(metrics),
        "pooling": pooling if pooling is None or isinstance(pooling, str) else list(pooling),
        "draws": int(draws),  # which may be numpy's, which parquet files cannot hold
        "seed": int(seed),
        "duplicates": duplicates,
        "nonfinite": nonfinite,
        "recipe": recipe,
    }
    return frame


def _names_of(metrics: str | MetricSpec | Sequence[str | MetricSpec] | None) -> list[str] | None:
    """What was asked for, as it can be asked for again."""
    if metrics is None:
        return None
    given = [metrics] if isinstance(metrics, str | MetricSpec) else metrics
    return [metric.name if isinstance(metric, MetricSpec) else metric for metric in given]


def _run_tasks(
    cache: LayerCache, rows: MeasuredRows, tasks: list[Task], options: Options, workers: int | None
) -> Generator[list[dict[str, Any]]]:
    """The records of each task, in order.

    In processes and not threads, because decompositions hold a lock in OpenBLAS; one BLAS thread each,
    because small ones gain nothing from more.
    """
    if options.device != "cpu":
        with decomposing_on(options.device):
            for task in tasks:
                yield run_task(cache, rows, task, options)
        return
    if workers is None:
        is_small = cache.n_rows * len(tasks) * (options.draws + 1) < _WORTH_A_PROCESS
        workers = 1 if is_small else min(os.cpu_count() or 1, len(tasks))
    if workers == 1:
        with threadpool_limits(limits=1):
            for task in tasks:
                yield run_task(cache, rows, task, options)
        return
    parallel = Parallel(n_jobs=workers, return_as="generator")
    with parallel_config(backend="loky", inner_max_num_threads=1):
        yield from parallel(delayed(run_task)(cache, rows, task, options) for task in tasks)


def _prompt_vectors(cache: LayerCache, pooling: str | Sequence[str] | None) -> str:
    """The one pooling of the published recipe."""
    if pooling not in (None, PROMPT_VECTOR, [PROMPT_VECTOR]):
        raise UsageError(f"the published recipe has one pooling, {PROMPT_VECTOR}: leave --pooling away")
    if PROMPT_VECTOR not in cache.poolings:
        raise UsageError(
            f"the cache holds no prompt vectors, which the published recipe needs: "
            f"extract with --pooling {PROMPT_VECTOR}"
        )
    return PROMPT_VECTOR


def _chosen_specs(
    metrics: str | MetricSpec | Sequence[str | MetricSpec] | None, known: Sequence[MetricSpec]
) -> list[MetricSpec]:
    if metrics is None:
        return list(known)
    given = [metrics] if isinstance(metrics, str | MetricSpec) else list(metrics)
    if not given:
        raise UsageError("metrics is empty: name one, or leave it out for all of them")
    for name in given:
        if not isinstance(name, str | MetricSpec):
            raise UsageError(f"metrics: expected names or MetricSpecs, got {name!r}")
    specs = list(dict.fromkeys(_spec_of(metric, known) for metric in given))
    if any(spec.name == ALL_PAIRS for spec in specs):
        raise UsageError(f"{ALL_PAIRS} is of all pairs of layers: take compare_layers, or analyze --cka")
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two different metrics are called '{name}': give yours another name")
    return specs


def _spec_of(metric: str | MetricSpec, known: Sequence[MetricSpec]) -> MetricSpec:
    if isinstance(metric, MetricSpec):
        return metric
    named = next((spec for spec in known if spec.name == metric), None)
    spec = named or find_metric(metric)
    if named is None and ":" not in metric and known is not METRICS:
        names = ", ".join(other.name for other in known)
        raise UsageError(f"the published recipe has no metric '{metric}' (it has {names})")
    return spec


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
