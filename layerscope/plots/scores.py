"""Scores against the layers, with picks and baselines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from layerscope.plots.curves import draw_ring, draw_series, figure_of, say_if_empty
from layerscope.plots.layer_axis import LayerAxis
from layerscope.plots.series import Series, check_columns, names_of, picks_for, rows_of, split_series
from layerscope.plots.style import (
    COLUMN_WIDTH,
    INK,
    SMALL,
    add_legend,
    house_style,
    label_of,
    new_figure,
    tag,
    wrapped,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_PREFERRED = "cosine_spearman"
_LABELS = {
    "cosine_spearman": "Spearman of cosine similarity with gold score",
    "cosine_pearson": "Pearson of cosine similarity with gold score",
}
_MOST_NAMED = 6  # picks that the legend names one by one
_SHORT = {"last layer": "last", "middle layer": "middle", "2/3 depth": "2/3"}


def plot_scores(
    scores: pd.DataFrame,
    picks: pd.DataFrame | None = None,
    ax: Axes | None = None,
    *,
    metric: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> Axes:
    """The score of every layer, with its interval as a band.

    Layers picked by a label-free criterion are ringed on the line of their pooling; the baselines
    (last layer, middle layer, 2/3 depth) are dashed uprights with their name on top.

    Args:
        scores: scores frame.
        picks: picks frame.
        ax: where to draw; a new figure of column width if None.
        metric: which score; ``cosine_spearman`` if None and present, else the frame's first.
        labels: axis label of each score.

    Raises:
        FrameError: the frame has no rows of this score.
    """
    chosen = score_name(scores, metric)
    rows = rows_of(scores, chosen, "scores")
    axis = LayerAxis.of(rows)
    drawn = split_series(rows)
    with house_style():
        panel = ax if ax is not None else new_figure(COLUMN_WIDTH, 3.0).add_subplot()
        axis.apply(panel)
        for nth, series in enumerate(drawn):
            draw_series(panel, series, axis, "score", nth)
        _draw_baselines(panel, drawn, axis, picks)
        _ring_picks(panel, _of_the_first_variant(drawn), axis, picks)
        say_if_empty(panel, rows, "score")
        panel.set_ylabel(wrapped(score_label(chosen, labels), 30))
        if "task" in rows.columns and len(names_of(rows, "task")) == 1:
            panel.set_title(names_of(rows, "task")[0], loc="left", pad=14)
        add_legend(figure_of(panel), [panel], own=ax is None)
    return panel


def score_name(scores: pd.DataFrame, metric: str | None) -> str:
    """The score to show: ``metric``, or the preferred one of the frame."""
    check_columns(scores, ("metric",), "scores")
    names = names_of(scores)
    return metric or (_PREFERRED if _PREFERRED in names else names[0])


def score_label(metric: str, labels: Mapping[str, str] | None) -> str:
    """The axis label of a score."""
    return label_of(metric, {**_LABELS, **(labels or {})})


def _draw_baselines(ax: Axes, drawn: list[Series], axis: LayerAxis, picks: pd.DataFrame | None) -> None:
    names_at: dict[float, list[str]] = {}
    for series in drawn:
        found = picks_for(series, picks, "baseline")
        for pick in [] if found is None else found.to_dict("records"):
            name = _SHORT.get(str(pick["criterion"]), str(pick["criterion"]))
            for place in axis.positions(series.at(str(pick["layer_name"]))):
                names = names_at.setdefault(place, [])
                names.extend([name] if name not in names else [])
    for nth, (place, names) in enumerate(sorted(names_at.items())):
        label = "baseline" if nth == 0 else None
        ax.axvline(
            place,
            color="0.35",
            linewidth=0.9,
            linestyle=(0, (4, 3)),
            label=label,
            gid=tag(ax, "baseline"),
            zorder=1,
        )
        ax.annotate(
            ", ".join(names), (place, 1), xycoords=ax.get_xaxis_transform(), xytext=(0, 2),
            textcoords="offset points", ha="center", va="bottom", fontsize=SMALL, color=INK,
        )  # fmt: skip


def _of_the_first_variant(drawn: list[Series]) -> list[Series]:
    """Those series that picks are scored by: where cosines are plain and centred, the plain ones."""
    variants = [str(series.rows["variant"].iloc[0]) if "variant" in series.rows else "" for series in drawn]
    return [series for series, variant in zip(drawn, variants, strict=True) if variant == variants[0]]


def _ring_picks(ax: Axes, drawn: list[Series], axis: LayerAxis, picks: pd.DataFrame | None) -> None:
    criteria: dict[tuple[str, str], list[str]] = {}
    rings: list[tuple[Series, dict[Any, Any]]] = []
    for series in drawn:
        found = picks_for(series, picks)
        for pick in [] if found is None else found.to_dict("records"):
            names = criteria.setdefault((series.pooling, str(pick["layer_name"])), [])
            names.extend([str(pick["criterion"])] if str(pick["criterion"]) not in names else [])
            rings.append((series, pick))
    named = [_named_pick(*key, names) for key, names in criteria.items()]
    label = "picked layer" if len(named) > _MOST_NAMED else "picked\n" + "\n".join(named)
    for series, pick in rings:
        draw_ring(ax, series.at(str(pick["layer_name"])), axis, "score", label)


def _named_pick(pooling: str, layer_name: str, criteria: list[str]) -> str:
    """What the legend says of one picked layer.

    >>> _named_pick("mean", "block.4", ["dime", "infonce", "lidar"])
    'block.4 (mean) by dime and 2 more'
    """
    more = f" and {len(criteria) - 1} more" if len(criteria) > 1 else ""
    return f"{layer_name} ({pooling}) by {criteria[0].replace('_', ' ')}{more}"
