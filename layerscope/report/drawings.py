"""The report's figures, drawn into the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from layerscope.errors import FrameError
from layerscope.plots import plot_heatmap, plot_metric, plot_metric_against_score, plot_scores
from layerscope.plots.curves import figure_of
from layerscope.plots.scatter import joined_points
from layerscope.plots.scores import score_name
from layerscope.plots.series import rows_of
from layerscope.plots.style import label_of
from layerscope.report.inline_svg import Inliner
from layerscope.report.readings import Reading, read_layers, read_points
from layerscope.report.words import values_of, without_unit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_PHONE = 4.0  # inches; a wider figure is scrolled on a phone, not shrunk


@dataclass(frozen=True)
class Drawing:
    """One figure as an ``svg`` element, or ``problem``, the reason why it could not be drawn."""

    svg: Markup
    alt: str
    caption: str
    width: int
    problem: str = ""

    @property
    def is_wide(self) -> bool:
        """Whether it needs more than a column."""
        return self.width > _PHONE * 96


@dataclass(frozen=True)
class Section:
    """Figures under one heading, with a sentence on how to read them."""

    heading: str
    lead: str
    drawings: list[Drawing]
    has_readings: bool = True


def draw_all(
    metrics: pd.DataFrame,
    scores: pd.DataFrame | None,
    picks: pd.DataFrame | None,
    labels: Mapping[str, str] | None,
    descriptions: Mapping[str, str],
    page: Inliner,
) -> list[Section]:
    """The sections of figures, those that answer the question first."""
    sections = []
    if scores is not None:
        sections.append(_score_section(scores, picks, labels, page))
    sections.append(_curve_section(metrics, picks, labels, descriptions, page))
    sections.append(_heat_section(metrics, labels, page))
    if scores is not None:
        sections.append(_scatter_section(metrics, scores, labels, page))
    return sections


def _drawing(
    page: Inliner,
    draw: Callable[[], Axes],
    alt: str,
    read: Callable[[], Sequence[Reading]] | None = None,
    caption: str = "",
) -> Drawing:
    try:
        ax = draw()
        figure = figure_of(ax)
        readings = () if read is None else read()
    except FrameError as error:
        return Drawing(Markup(), alt, caption, 0, str(error))
    svg = page.inline(figure, alt, readings, None if read is None else ax)
    return Drawing(svg, alt, caption, round(figure.get_figwidth() * 96))


def _tasks(scores: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Each task (with its split and subset, where there are several) and its rows."""
    keys = [key for key in ("task", "split", "subset") if key in scores.columns]
    if not keys:
        yield "the labelled data", scores
        return
    for _, group in scores.groupby(keys, sort=False, dropna=False):
        shown = [key for key in keys if key == "task" or len(values_of(scores, key)) > 1]
        yield ", ".join(str(group[key].iloc[0]) for key in shown), group


def _score_section(
    scores: pd.DataFrame, picks: pd.DataFrame | None, labels: Mapping[str, str] | None, page: Inliner
) -> Section:
    drawings = [
        _drawing(
            page,
            lambda group=group: plot_scores(group, picks, labels=labels),  # type: ignore[misc]
            f"Score on {task} by layer, one line per pooling, with picked layers and baselines marked.",
            lambda group=group: read_layers(rows_of(group, score_name(group, None), "scores"), "score"),  # type: ignore[misc]
        )
        for task, group in _tasks(scores)
    ]
    lead = (
        "The higher, the better. Rings are layers picked without labels; dashed lines are fixed rules "
        "(last layer, middle layer, 2/3 depth); bands are 95% intervals."
    )
    return Section("Scores by layer", lead, drawings)


def _curve_section(
    metrics: pd.DataFrame,
    picks: pd.DataFrame | None,
    labels: Mapping[str, str] | None,
    descriptions: Mapping[str, str],
    page: Inliner,
) -> Section:
    drawings = [
        _drawing(
            page,
            lambda name=name: plot_metric(metrics, name, picks=picks, labels=labels),  # type: ignore[misc]
            f"{label_of(name, labels)} by layer, one line per pooling.",
            lambda name=name: read_layers(rows_of(metrics, name), "value"),  # type: ignore[misc]
            descriptions.get(name, ""),
        )
        for name in values_of(metrics, "metric")
    ]
    lead = "Bands are 95% intervals. A ring marks the layer that a metric picks, a cross one without a value."
    return Section("Metrics by layer", lead, drawings)


def _heat_section(metrics: pd.DataFrame, labels: Mapping[str, str] | None, page: Inliner) -> Section:
    drawing = _drawing(
        page,
        lambda: plot_heatmap(metrics, labels=labels),
        "All metrics by layer as a heat map, each row scaled over its layers; the values are in the table.",
    )
    return Section(
        "All metrics at a glance", "Colours compare layers within a row, never rows.", [drawing], False
    )


def _scatter_section(
    metrics: pd.DataFrame, scores: pd.DataFrame, labels: Mapping[str, str] | None, page: Inliner
) -> Section:
    tasks = list(_tasks(scores))
    task, group = tasks[0]
    drawings = [
        _drawing(
            page,
            lambda name=name: plot_metric_against_score(metrics, group, name, labels=labels),  # type: ignore[misc]
            f"{label_of(name, labels)} against the score on {task}, one labelled point per layer.",
            lambda name=name: read_points(  # type: ignore[misc]
                joined_points(metrics, group, name), lambda key: without_unit(label_of(key, labels))
            ),
        )
        for name in values_of(metrics, "metric")
    ]
    lead = f"A metric is a good guide on {task} if its points rise, or fall, steadily."
    if len(tasks) > 1:
        lead += f" Only the first of {len(tasks)} tasks is drawn; the table of scores holds all."
    return Section("Metrics against scores", lead, drawings)
