"""Scores against the layers, with picks and baselines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from layerscope.plots.curves import draw_ring, draw_series, figure_of, say_if_empty
from layerscope.plots.layer_axis import LayerAxis
from layerscope.plots.series import Series, check_columns, floats, names_of, picks_for, rows_of, split_series
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

_PREFERRED = ("main_score", "cosine_spearman")
_SURE = 0.05
_LABELS = {
    "cosine_spearman": "Spearman of cosine similarity with gold score",
    "main_score": "Main score of the task",
    "cosine_pearson": "Pearson of cosine similarity with gold score",
}
_LETTERS = "ABCDEF"  # of picks that the legend names one by one; of more it names none
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

    Layers picked by a label-free criterion are ringed on the line of their pooling, and lettered where
    they are few, so that the legend can say which criteria picked each; the baselines
    (last layer, middle layer, 2/3 depth) are dashed uprights with their name on top. A star stands at layers
    that are better than the last one beyond chance (``vs_last_p``, which holds for all layers at once).

    Args:
        scores: scores frame.
        picks: picks frame.
        ax: where to draw; a new figure of column width if None.
        metric: which score; if None, ``main_score`` or ``cosine_spearman``, else the frame's first.
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
        _star_better(panel, drawn, axis)
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
    return metric or next((name for name in _PREFERRED if name in names), names[0])


def score_label(metric: str, labels: Mapping[str, str] | None) -> str:
    """The axis label of a score."""
    return label_of(metric, {**_LABELS, **(labels or {})})


def _star_better(ax: Axes, drawn: list[Series], axis: LayerAxis) -> None:
    """Stars above the layers that beat the last one."""
    label: str | None = f"better than the last layer, p < {_SURE}"
    for series in drawn:
        gain, p = floats(series.rows, "vs_last"), floats(series.rows, "vs_last_p")
        better = series.rows[(gain > 0) & (p < _SURE)]
        if better.empty:
            continue
        ax.plot(
            axis.positions(better), floats(better, "score"), linestyle="none", marker="*", markersize=9,
            color=series.style.colour, markeredgecolor="white", markeredgewidth=0.5, label=label,
            gid=tag(ax, "better"), zorder=5,
        )  # fmt: skip
        label = None


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
    rings: dict[tuple[Series, str], None] = {}
    for series in drawn:
        found = picks_for(series, picks)
        for pick in [] if found is None else found.to_dict("records"):
            names = criteria.setdefault((series.pooling, str(pick["layer_name"])), [])
            names.extend([str(pick["criterion"])] if str(pick["criterion"]) not in names else [])
            rings[(series, str(pick["layer_name"]))] = None
    letters = dict(zip(criteria, _LETTERS, strict=False)) if len(criteria) <= len(_LETTERS) else {}
    for series, layer_name in rings:
        row = series.at(layer_name)
        draw_ring(ax, row, axis, "score", "picked layer")
        _write_letter(ax, row, axis, letters.get((series.pooling, layer_name), ""))
    for key, letter in letters.items():
        _explain_letter(ax, letter, _pick_label(*key, criteria[key]))


def _write_letter(ax: Axes, row: pd.DataFrame, axis: LayerAxis, letter: str) -> None:
    """A letter beside a ring; nothing where the layer has no score."""
    for x, y in zip(axis.positions(row), floats(row, "score"), strict=True):
        if letter and y == y:  # noqa: PLR0124 - NaN is not equal to itself
            ax.annotate(
                letter, (x, y), xytext=(-6, 5), textcoords="offset points", ha="right", va="bottom",
                fontsize=SMALL, fontweight="bold", gid=tag(ax, "letter"), zorder=6,
            )  # fmt: skip


def _explain_letter(ax: Axes, letter: str, label: str) -> None:
    """An entry of the legend that begins with the letter and has no other sign."""
    ax.plot([], [], linestyle="none", label=f"{letter}: {label}", gid=tag(ax, "letter.key"))


def _pick_label(pooling: str, layer_name: str, criteria: list[str]) -> str:
    """What the legend says of one picked layer.

    >>> _pick_label("mean", "block.4", ["dime", "infonce", "lidar"])
    'block.4 (mean) by dime and 2 more'
    """
    more = f" and {len(criteria) - 1} more" if len(criteria) > 1 else ""
    return f"{layer_name} ({pooling}) by {criteria[0].replace('_', ' ')}{more}"
