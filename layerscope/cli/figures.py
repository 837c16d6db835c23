"""The kinds of figures that ``layerscope plot`` draws: what each is made of, and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.errors import FrameError, UsageError, named, nearest
from layerscope.frames import MEAN_OF_TOKENS, read_frame
from layerscope.manifest import MANIFEST

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")


@dataclass(frozen=True)
class FigureOptions:
    """What a figure is drawn of and with; ``None`` where nothing was said.

    Attributes:
        metrics: names of metrics, scores or criteria.
        corpus: texts, or the task of scores.
        pooling: name of a pooling.
        label: column of a cache's rows.
        layers: layers of a cache.
        method: of a projection.
    """

    metrics: list[str] | None = None
    corpus: str | None = None
    pooling: str | None = None
    label: str | None = None
    layers: str | None = None
    method: str | None = None


@dataclass(frozen=True)
class FigureKind:
    """One kind of figure.

    Attributes:
        says: what it shows.
        source: kind of the frames it is made of, ``cache`` for a cache.
        draw: from frame (or the path of a cache) and options to a figure.
        takes: the options that mean something to it.
    """

    says: str
    source: str
    draw: Callable[[Any, FigureOptions], Figure]
    takes: tuple[str, ...]


def draw_figure(sources: list[Path], kind: str, options: FigureOptions) -> Figure:
    """Read the frames, or the cache, and draw.

    Raises:
        UsageError: an unknown kind, an option that this kind does not take, or several caches.
        FrameError: not such frames, or nothing in them to draw.
    """
    if kind not in KINDS:
        raise UsageError(f"no kind of figure is called '{kind}': {nearest(kind, KINDS)}")
    chosen = KINDS[kind]
    for name, value in vars(options).items():
        if value and name not in chosen.takes:
            option = {"metrics": "--metric"}.get(name, f"--{name}")
            raise UsageError(f"a figure of kind {kind} takes no {option}: leave it out")
    if chosen.source == "cache":
        if len(sources) > 1:
            raise UsageError(f"a figure of kind {kind} is of one cache, {len(sources)} are given")
        return chosen.draw(sources[0], options)
    return chosen.draw(_chosen(_read(sources, kind, chosen.source), options), options)


def _read(sources: list[Path], kind: str, frames: str) -> pd.DataFrame:
    """All frames one below the other."""
    import pandas as pd

    for source in sources:
        if (source / MANIFEST).is_file():
            raise UsageError(
                f"{source} is a cache, and a figure of kind {kind} is of {frames} frames: name a file, "
                f"as those in {source / 'frames'}"
            )
    every = [read_frame(source, frames) for source in sources]
    return pd.concat(every, ignore_index=True) if len(every) > 1 else every[0]


def _chosen(frame: pd.DataFrame, options: FigureOptions) -> pd.DataFrame:
    """The rows of the corpus (or task) and pooling that are wanted."""
    if options.corpus is not None:
        key = next((name for name in ("corpus", "task") if name in frame.columns), None)
        if key is None:
            raise FrameError("this frame does not say what texts it is of: leave --corpus out")
        frame = _only(frame, key, frame[key].astype(str) == options.corpus, options.corpus)
    if options.pooling is not None:
        of_vectors = frame["pooling"].map(lambda name: MEAN_OF_TOKENS.get(name, name))
        wanted = (frame["pooling"] == options.pooling) | (of_vectors == options.pooling)
        frame = _only(frame, "pooling", wanted, options.pooling)
    return frame


def _only(frame: pd.DataFrame, column: str, is_wanted: pd.Series[bool], value: str) -> pd.DataFrame:
    if not is_wanted.any():
        raise FrameError(
            f"no rows have the {column} '{value}': {nearest(value, map(str, frame[column].unique()))}"
        )
    return frame[is_wanted]


def _labels() -> Mapping[str, str]:
    """The axis label of every metric of ours."""
    from layerscope.metrics import LAYER_METRICS, METRICS

    return {spec.name: spec.label for spec in (*METRICS, *LAYER_METRICS)}


def _one_metric(options: FigureOptions) -> str | None:
    if options.metrics and len(options.metrics) > 1:
        raise UsageError(f"this figure is of one metric, {named(options.metrics)} are given")
    return options.metrics[0] if options.metrics else None


def _curves(frame: pd.DataFrame, options: FigureOptions) -> Figure:
    from layerscope.plots import plot_metrics

    return plot_metrics(_of_metrics(frame, options), labels=_labels())


def _heatmap(frame: pd.DataFrame, options: FigureOptions) -> Figure:
    from layerscope.plots import plot_heatmap
    from layerscope.plots.curves import figure_of

    return figure_of(plot_heatmap(_of_metrics(frame, options), labels=_labels()))


def _of_metrics(frame: pd.DataFrame, options: FigureOptions) -> pd.DataFrame:
    """The rows of the metrics that are wanted, in their order."""
    import pandas as pd

    from layerscope.plots.series import rows_of

    return pd.concat([rows_of(frame, name) for name in options.metrics]) if options.metrics else frame


def _models(frame: pd.DataFrame, options: FigureOptions) -> Figure:
    from layerscope.plots import plot_models, plot_models_grid
    from layerscope.plots.curves import figure_of

    names = options.metrics or list(dict.fromkeys(frame["metric"]))
    if len(names) == 1:
        return figure_of(plot_models(frame, names[0], labels=_labels()))
    return plot_models_grid(frame, names, labels=_labels())


def _training(frame: pd.DataFrame, options: FigureOptions) -> Figure:
    from layerscope.plots import plot_training

    _check_one_corpus(frame)
    return plot_training(frame, options.metrics, labels=_labels())


def _sites(frame: pd.DataFrame, options: FigureOptions) -> Figure:
    from layerscope.plots import plot_sites

    return _panels(frame, options, plot_sites)


def _perturbation(frame: pd.DataFrame, options: FigureOptions) -> Figure:
    from layerscope.plots import plot_perturbation

    return _panels(frame, options, plot_perturbation)


def _panels(frame: pd.DataFrame, options: FigureOptions, draw: Callable[..., Axes]) -> Figure:
    """Every metric that is wanted in a panel of its own, all in one pooling where it is named."""
    from layerscope.plots.curves import figure_of, new_grid
    from layerscope.plots.style import add_legend, house_style

    names = options.metrics or list(dict.fromkeys(frame["metric"]))
    if len(names) == 1:
        return figure_of(draw(frame, names[0], labels=_labels()))
    with house_style():
        panels = new_grid(len(names), columns=3, height=1.95)
        titles = []
        for panel, name in zip(panels, names, strict=True):
            legend = draw(frame, name, panel, labels=_labels()).get_legend()
            titles += [legend.get_title().get_text()] if legend else []
            panel.legend_ = None  # one for all panels, below
        title = titles[0] if len({*titles}) == 1 else None
        add_legend(figure_of(panels[0]), panels, own=True, title=title)
    return figure_of(panels[0])


def _stability(frame: pd.DataFrame, options: FigureOptions) -> Figure:
    from layerscope.plots import plot_selection_stability
    from layerscope.plots.curves import figure_of
    from layerscope.select import pick_shares

    _check_one_corpus(frame)
    return figure_of(plot_selection_stability(pick_shares(frame, options.metrics)))


def _check_one_corpus(frame: pd.DataFrame) -> None:
    if "corpus" in frame.columns and frame["corpus"].nunique() > 1:
        raise UsageError(
            f"the frame is of several corpora: choose one with --corpus ({named(frame['corpus'])})"
        )


def _scores(frame: pd.DataFrame, options: FigureOptions) -> Figure:
    from layerscope.plots import plot_scores
    from layerscope.plots.curves import figure_of

    return figure_of(plot_scores(frame, metric=_one_metric(options)))


def _cka(frame: pd.DataFrame, options: FigureOptions) -> Figure:
    from layerscope.plots import plot_layer_pairs_grid

    return plot_layer_pairs_grid(frame)


def _correlations(frame: pd.DataFrame, options: FigureOptions) -> Figure:
    from layerscope.plots import plot_correlations
    from layerscope.plots.curves import figure_of

    return figure_of(plot_correlations(frame))


def _embeddings(cache: Path, options: FigureOptions) -> Figure:
    from layerscope.analysis import project_layers
    from layerscope.plots import plot_embeddings

    return plot_embeddings(
        project_layers(
            cache, options.layers, labels=options.label, pooling=options.pooling,
            method=options.method or "pca",
        )
    )  # fmt: skip


_OF_METRICS = ("metrics", "corpus", "pooling")
KINDS: Mapping[str, FigureKind] = {
    "curves": FigureKind("every metric by layer", "metrics", _curves, _OF_METRICS),
    "heatmap": FigureKind("all metrics by layer, scaled", "metrics", _heatmap, _OF_METRICS),
    "models": FigureKind("several models over depth", "metrics", _models, _OF_METRICS),
    "training": FigureKind("metrics by layer over training steps", "metrics", _training, _OF_METRICS),
    "sites": FigureKind("attention and MLP outputs beside the blocks", "metrics", _sites, _OF_METRICS),
    "perturbation": FigureKind("metrics by level of a perturbation", "metrics", _perturbation, _OF_METRICS),
    "stability": FigureKind("how often subsamples pick each layer", "metrics", _stability, _OF_METRICS),
    "scores": FigureKind("a score by layer", "scores", _scores, _OF_METRICS),
    "cka": FigureKind("similarity of every two layers", "layer pairs", _cka, ("corpus", "pooling")),
    "correlations": FigureKind("metrics against scores", "correlations", _correlations, ("pooling",)),
    "embeddings": FigureKind(
        "the texts of a cache as points", "cache", _embeddings, ("label", "layers", "method", "pooling")
    ),
}
"""Every kind by its name."""
