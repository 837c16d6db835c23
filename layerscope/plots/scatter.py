"""A metric against a score, one labelled point per layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from layerscope.errors import FrameError
from layerscope.plots.curves import figure_of, new_grid
from layerscope.plots.layer_axis import block_label
from layerscope.plots.point_labels import PointLabel, place_labels
from layerscope.plots.scores import score_label, score_name
from layerscope.plots.series import check_columns, floats, names_of, rows_of, split_series
from layerscope.plots.style import (
    COLUMN_WIDTH,
    add_legend,
    house_style,
    label_of,
    new_figure,
    pooling_family,
    tag,
    wrapped,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_POINT_LEGEND = "number beside a point: layer (k = block.k)"
_SCORE_KEYS = ("task", "split", "subset")


def plot_metric_against_score(
    metrics: pd.DataFrame,
    scores: pd.DataFrame,
    metric: str,
    ax: Axes | None = None,
    *,
    score: str | None = None,
    variant: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> Axes:
    """One point per layer and pooling: the metric across, the score upwards, the layer beside it.

    A token-level metric is set against the score of the mean of the same tokens. Layers that lack
    either number are left out.

    Args:
        metrics: metrics frame.
        scores: scores frame.
        metric: name of the metric.
        ax: where to draw; a new figure of column width if None.
        score: which score; ``cosine_spearman`` if None and present, else the frame's first.
        variant: which variant of the score; ``raw`` if None and present, else the frame's first.
        labels: axis label of each metric and score.

    Raises:
        FrameError: no rows of this metric or score, or no layer that has both.
    """
    with house_style():
        panel = ax if ax is not None else new_figure(COLUMN_WIDTH, 3.1).add_subplot()
        points = _draw_points(panel, metrics, _score_rows(scores, score, variant), metric, labels)
        add_legend(figure_of(panel), [panel], own=ax is None, title=_POINT_LEGEND)
        place_labels([(panel, points)])
    return panel


def plot_metrics_against_score(
    metrics: pd.DataFrame,
    scores: pd.DataFrame,
    *,
    score: str | None = None,
    variant: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> Figure:
    """Every metric against the score, as small multiples of page width.

    A metric that has no layer in common with the scores has no panel.

    Args:
        metrics: metrics frame.
        scores: scores frame.
        score: which score; cosine_spearman if None and present, else the frame's first.
        variant: which variant of the score; raw if None and present, else the frame's first.
        labels: axis label of each metric and score.

    Raises:
        FrameError: no metric has a layer in common with the scores.
    """
    check_columns(metrics, ("layer", "layer_name", "depth", "pooling", "metric", "value"), "metrics")
    chosen = _score_rows(scores, score, variant)
    names = [name for name in names_of(metrics) if not _joined(rows_of(metrics, name), chosen).empty]
    if not names:
        raise FrameError(
            "no layer has both a metric and a score: do both frames hold the same layers and poolings?"
        )
    with house_style():
        panels = new_grid(len(names), columns=2, height=2.6)
        points = [
            _draw_points(panel, metrics, chosen, name, labels)
            for panel, name in zip(panels, names, strict=True)
        ]
        add_legend(figure_of(panels[0]), panels, own=True, title=_POINT_LEGEND)
        place_labels(list(zip(panels, points, strict=True)))
    return figure_of(panels[0])


def joined_points(
    metrics: pd.DataFrame,
    scores: pd.DataFrame,
    metric: str,
    *,
    score: str | None = None,
    variant: str | None = None,
) -> pd.DataFrame:
    """The rows that :func:`plot_metric_against_score` draws: those of the metric, with ``score`` beside them.

    Raises:
        FrameError: no rows of this metric or score.
    """
    return _joined(rows_of(metrics, metric), _score_rows(scores, score, variant))


def _score_rows(scores: pd.DataFrame, score: str | None, variant: str | None) -> pd.DataFrame:
    """The rows of one score and one variant of it."""
    rows = rows_of(scores, score_name(scores, score), "scores")
    variants = names_of(rows, "variant") if "variant" in rows.columns else []
    if variant is not None and variant not in variants:
        raise FrameError(f"no scores of variant '{variant}' in this frame (known: {', '.join(variants)})")
    if not variants:
        return rows
    return rows[rows["variant"] == (variant or ("raw" if "raw" in variants else variants[0]))]


def _joined(rows: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """Metric rows with the score of the same layer, pooling and model beside them."""
    left, right = (
        rows.assign(family=rows["pooling"].map(pooling_family)),
        scores.assign(family=scores["pooling"]),
    )
    keys = ["layer_name", "family"]
    if "model" in left.columns and "model" in right.columns:
        keys.append("model")
    carried = [key for key in _SCORE_KEYS if key in right.columns and key not in left.columns]
    both = left.merge(right[[*keys, *carried, "score"]], on=keys)
    return both[~np.isnan(floats(both, "value")) & ~np.isnan(floats(both, "score"))]


def _draw_points(
    ax: Axes, metrics: pd.DataFrame, scores: pd.DataFrame, metric: str, labels: Mapping[str, str] | None
) -> list[PointLabel]:
    both = _joined(rows_of(metrics, metric), scores)
    if both.empty:
        raise FrameError(
            f"no layer has both a value of '{metric}' and a score: values are of pooling "
            f"{', '.join(names_of(rows_of(metrics, metric), 'pooling'))}, "
            f"scores of {', '.join(names_of(scores, 'pooling'))}"
        )
    points = []
    for series in split_series(both):
        x, y, style = floats(series.rows, "value"), floats(series.rows, "score"), series.style
        ax.plot(
            x, y, linestyle="none", marker=style.marker, color=style.colour, label=series.label,
            markerfacecolor=style.face, markersize=4, gid=tag(ax, style.role),
        )  # fmt: skip
        texts = [
            _point_text(name, k)
            for name, k in zip(series.rows["layer_name"], series.rows["layer"], strict=True)
        ]
        points += [PointLabel(*point, style.colour) for point in zip(x, y, texts, strict=True)]
    ax.set_xlabel(wrapped(label_of(metric, labels), 46))
    ax.set_ylabel(_score_axis_label(scores, labels))
    ax.margins(0.09)
    return points


def _point_text(layer_name: str, blocks: int) -> str:
    if layer_name == "norm":
        return "norm"
    return f"n{blocks}" if layer_name.startswith("normed.") else block_label(int(blocks))


def _score_axis_label(scores: pd.DataFrame, labels: Mapping[str, str] | None) -> str:
    tasks = names_of(scores, "task") if "task" in scores.columns else []
    label = score_label(str(scores["metric"].iloc[0]), labels)
    return wrapped(f"{tasks[0]}: {label}" if len(tasks) == 1 else label, 34)
