"""A metrics frame and a scores frame as arrays over the same tasks and layers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from layerscope.errors import FrameError, UsageError, count_of, named, nearest
from layerscope.frames import MEAN_OF_TOKENS, check_same_model, labels, residual_rows
from layerscope.layers import as_layer_order
from layerscope.metrics import METRICS
from layerscope.select.selector import Direction

_PREFERRED_SCORES = ("main_score", "cosine_spearman")
_WHOLE = ("all", "default")
FEWEST_TASKS = 6
"""With fewer there are no intervals and no tests over tasks: a paired test on five has no p below 1/16."""
_LEAST_SHARE = 0.5  # of the tasks that a metric must have values for, to be compared with the others


@dataclass(frozen=True)
class Criterion:
    """A metric in one recipe.

    Attributes:
        metric: its name.
        variant: the recipe; empty where the frame has only one of this metric.
    """

    metric: str
    variant: str = ""

    def __str__(self) -> str:
        return f"{self.metric} ({self.variant})" if self.variant else self.metric


@dataclass(frozen=True)
class Aligned:
    """One model's scores and metrics over the same T tasks and L layers.

    Attributes:
        model: its name.
        pooling: of the vectors that were scored.
        tasks: the T tasks that every criterion has values for.
        layers: the L layers, in order.
        depths: share of the blocks that have run, by layer.
        scores: (T, L).
        values: (T, L) of each criterion; NaN at a layer where it has none.
        directions: which end of a criterion is taken to be better, where that is known.
        notes: what was left out, and why.
    """

    model: str
    pooling: str
    tasks: list[str]
    layers: list[str]
    depths: dict[str, float]
    scores: NDArray[np.float64]
    values: dict[Criterion, NDArray[np.float64]]
    directions: dict[Criterion, Direction]
    notes: list[str] = field(default_factory=list)


def align(
    metrics: pd.DataFrame,
    scores: pd.DataFrame,
    *,
    pooling: str | None = None,
    score: str | None = None,
    variant: str | None = None,
) -> list[Aligned]:
    """Line metrics up with scores, for every model that is in both.

    A task is matched with the corpus of the same name; metrics of one corpus that is no task are taken for
    all tasks. Subsets of a task are averaged where there is no score of the whole. Only tasks that have
    every criterion are kept, so that all are compared on the same ones; a criterion that has less than half
    of the tasks is left out instead.

    Args:
        metrics: metrics frame.
        scores: scores frame.
        pooling: which of the scores; ``mean`` where there are several.
        score: which score; ``main_score`` or ``cosine_spearman`` where not given.
        variant: which recipe of metrics that come in several; all of them where not given.

    Raises:
        FrameError: the frames have no model, layer or task in common.
        UsageError: a pooling, score or variant that is not there.
    """
    check_same_model(metrics, scores)
    metrics, scores = residual_rows(metrics), residual_rows(scores)
    chosen, pooling = _one_pooling(_one_score(scores, score), pooling)
    own = metrics[labels(metrics, "pooling").replace(MEAN_OF_TOKENS) == pooling]
    if own.empty:
        known = named(labels(metrics, "pooling").unique())
        raise FrameError(f"no metric is of the pooling '{pooling}' that the scores are of (found: {known})")
    own = _one_variant(own, variant)
    own, chosen = _named(own, ["model", "corpus", "variant"]), _named(chosen, ["model", "task"])
    models = [name for name in dict.fromkeys(chosen["model"]) if name in set(own["model"])]
    if not models and (own["model"] == "").all():  # a table from elsewhere that is of one model
        models, own = list(dict.fromkeys(chosen["model"])), own.assign(model=chosen["model"].iloc[0])
    return [
        _align_model(name, pooling, own[own["model"] == name], chosen[chosen["model"] == name])
        for name in models
    ]


def _named(frame: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """The frame with ``columns`` as text, empty where they are missing."""
    return frame.assign(**{name: labels(frame, name) if name in frame else "" for name in columns})


def _one_score(scores: pd.DataFrame, wanted: str | None) -> pd.DataFrame:
    """One score of each task: the one asked for, else the main score, else the preferred correlation."""
    known = list(dict.fromkeys(scores["metric"]))
    if wanted is not None and wanted not in known:
        raise UsageError(f"the scores frame holds no score '{wanted}': {nearest(wanted, known)}")
    task = labels(scores, "task") if "task" in scores else pd.Series("", index=scores.index)
    parts = []
    for _, every in scores.groupby(task, sort=False):
        names = list(dict.fromkeys(every["metric"]))
        preferred = [name for name in (wanted, *_PREFERRED_SCORES) if name in names]
        rows = every[every["metric"] == (preferred or names)[0]]
        variants = list(dict.fromkeys(labels(rows, "variant"))) if "variant" in rows else [""]
        parts.append(rows if len(variants) == 1 else rows[labels(rows, "variant") == _plain(variants)])
    return pd.concat(parts)


def _plain(variants: list[str]) -> str:
    return "raw" if "raw" in variants else variants[0]


def _one_pooling(scores: pd.DataFrame, wanted: str | None) -> tuple[pd.DataFrame, str]:
    known = list(dict.fromkeys(labels(scores, "pooling")))
    name = wanted if wanted is not None else ("mean" if "mean" in known else known[0])
    if name not in known:
        raise UsageError(f"the scores frame holds no pooling '{name}': {nearest(name, known)}")
    return scores[labels(scores, "pooling") == name], name


def _one_variant(metrics: pd.DataFrame, wanted: str | None) -> pd.DataFrame:
    if "variant" not in metrics:
        return metrics
    names = labels(metrics, "variant")
    if wanted is not None and wanted not in set(names):
        raise UsageError(f"no metric has the variant '{wanted}': {nearest(wanted, names.unique())}")
    several = names.groupby(metrics["metric"]).transform("nunique") > 1
    kept = metrics if wanted is None else metrics[~several | (names == wanted)]
    still = labels(kept, "variant").groupby(kept["metric"]).transform("nunique") > 1
    return kept.assign(variant=labels(kept, "variant").where(still, ""))


def _align_model(model: str, pooling: str, metrics: pd.DataFrame, scores: pd.DataFrame) -> Aligned:
    table = _score_table(scores)
    metric_layers = list(dict.fromkeys(metrics["layer_name"]))
    partner = {name: _partner(name, metric_layers) for name in table.columns}
    layers = [name for name in as_layer_order(table.columns) if partner[name] is not None]
    if not layers:
        raise FrameError(
            f"{model}: metrics and scores have no layer in common (metrics: {named(metric_layers)}; "
            f"scores: {named(table.columns)})"
        )
    complete = table[layers].dropna()
    notes = [
        f"{model}: {count_of(len(table) - len(complete), 'task')} left out: no score at some layer"
    ] if len(complete) < len(table) else []  # fmt: skip
    by_criterion = {
        Criterion(str(metric), str(variant)): _metric_table(
            rows, list(complete.index), [str(partner[name]) for name in layers]
        )
        for (metric, variant), rows in metrics.groupby(["metric", "variant"], sort=False)
    }
    tasks, kept, more = _common_tasks(model, list(complete.index), by_criterion)
    depths = dict(zip(scores["layer_name"], scores["depth"].astype(float), strict=True))
    at = [list(complete.index).index(task) for task in tasks]
    return Aligned(
        model,
        pooling,
        tasks,
        layers,
        {name: depths[name] for name in layers},
        complete.to_numpy(dtype=np.float64)[at],
        {criterion: by_criterion[criterion][at] for criterion in kept},
        {criterion: way for criterion in kept if (way := _direction(criterion, metrics)) is not None},
        notes + more,
    )


def _score_table(scores: pd.DataFrame) -> pd.DataFrame:
    """Tasks by layers; the score of the whole task, else the mean over its splits and subsets."""
    rows = scores
    if "subset" in rows:
        whole = labels(rows, "subset").isin(_WHOLE)
        rows = rows[whole | ~labels(rows, "task").isin(labels(rows, "task")[whole].unique())]
    averaged = rows.groupby(["task", "layer_name"], sort=False)["score"].agg(
        lambda values: values.mean(skipna=False)
    )
    return averaged.unstack("layer_name").reindex(list(dict.fromkeys(rows["task"])))


def _partner(name: str, known: list[str]) -> str | None:
    """The layer whose metrics go with a score: itself, else the block whose final norm it is."""
    raw = "embed" if name == "normed.0" else name.replace("normed.", "block.")
    return next((candidate for candidate in (name, raw) if candidate in known), None)


def _metric_table(rows: pd.DataFrame, tasks: list[str], layers: list[str]) -> NDArray[np.float64]:
    """(T, L) values of one criterion; a single corpus that is no task stands for every task."""
    if rows.duplicated(["corpus", "layer_name"]).any():
        twice = rows[rows.duplicated(["corpus", "layer_name"])].iloc[0]
        raise FrameError(
            f"two values of {twice['metric']} for {twice['corpus']} at {twice['layer_name']}: leave one out"
        )
    wide = rows.set_index(["corpus", "layer_name"])["value"].astype(float).unstack("layer_name")
    if len(wide) == 1 and wide.index[0] not in tasks:
        wide = pd.concat([wide] * len(tasks), keys=tasks).droplevel(1)
    return wide.reindex(index=tasks, columns=layers).to_numpy(dtype=np.float64)


def _common_tasks(
    model: str, tasks: list[str], values: dict[Criterion, NDArray[np.float64]]
) -> tuple[list[str], list[Criterion], list[str]]:
    """Tasks that all criteria cover, which criteria those are, and what was left out."""
    covers = {criterion: ~np.isnan(table).all(axis=1) for criterion, table in values.items()}
    kept = [criterion for criterion, has in covers.items() if has.mean() >= _LEAST_SHARE]
    if not tasks or not kept:
        raise FrameError(
            f"{model}: metrics and scores have no task in common (tasks: {named(tasks) or 'none'}); "
            "a corpus of the metrics must be named as its task, or --tasks must say which it is"
        )
    common = np.all([covers[criterion] for criterion in kept], axis=0)
    notes = [
        f"{model}: {criterion} left out: it has values for {int(has.sum())} of {len(tasks)} tasks"
        for criterion, has in covers.items()
        if criterion not in kept
    ]
    if not common.all():
        notes.append(
            f"{model}: compared on the {int(common.sum())} of {len(tasks)} tasks that have every metric"
        )
    if not common.any():
        raise FrameError(f"{model}: no task has all of {named(map(str, kept))}")
    return [task for task, is_common in zip(tasks, common, strict=True) if is_common], kept, notes


def _direction(criterion: Criterion, metrics: pd.DataFrame) -> Direction | None:
    if "direction" in metrics:
        stated = metrics.loc[metrics["metric"] == criterion.metric, "direction"].dropna().unique().tolist()
        if stated in (["higher"], ["lower"]):
            return stated[0]  # type: ignore[no-any-return]
    return next((spec.direction for spec in METRICS if spec.name == criterion.metric), None)
