"""Report and figures of a cache: the frames, with labels and provenance filled in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from layerscope.cache import LayerCache
from layerscope.errors import FrameError, count_of, named
from layerscope.metrics import METRICS
from layerscope.plots import (
    plot_heatmap,
    plot_metrics,
    plot_metrics_against_score,
    plot_scores,
    save_figure,
)
from layerscope.plots.curves import figure_of
from layerscope.report.commands import Commands, Files
from layerscope.report.page import write_report
from layerscope.report.words import count_draws, plain, values_of

LABELS = {spec.name: spec.label for spec in METRICS}
READS = {spec.name: spec.reads for spec in METRICS}


def write_cache_report(
    path: str | Path,
    cache: LayerCache,
    *,
    metrics: pd.DataFrame,
    scores: pd.DataFrame | None = None,
    picks: pd.DataFrame | None = None,
    files: Files | None = None,
    commands: Sequence[str] = (),
) -> Path:
    """Write the HTML report of the corpus in ``cache``.

    Args:
        path: the file.
        cache: what the metrics were computed from.
        metrics: metrics frame.
        scores: scores frame, which may be of another corpus under the same model.
        picks: picks frame.
        files: where these frames are and how the layers were picked, for the commands that the page shows.
        commands: shell commands that make the report again; where not given, a line for each stage, from
            what the cache and ``files`` say.

    Returns:
        ``path``.

    Raises:
        FrameError: the metrics are of another model or corpus, or the scores of another model.
    """
    _check_source(cache, metrics, "metrics", {"model": cache.model, "corpus": cache.corpus})
    if scores is not None:
        _check_source(cache, scores, "scores", {"model": cache.model})
    lines = Commands(cache, metrics, scores, picks, files or Files(), Path(path))
    return write_report(
        path,
        metrics=metrics,
        scores=scores,
        picks=picks,
        rows=cache.rows,
        provenance=_provenance(cache, metrics),
        commands=commands or lines.again(),
        command_note="" if commands else lines.note(),
        export_command=lines.export,
        labels=LABELS,
        descriptions=READS,
    )


def _check_source(cache: LayerCache, frame: pd.DataFrame, what: str, expected: dict[str, str]) -> None:
    """Refuse a frame that is not of this cache's model and corpus."""
    for column, name in expected.items():
        others = [other for other in values_of(frame, column) if other != name]
        if others:
            raise FrameError(
                f"the {what} are of the {column} {named(others)}, the cache {cache.path} is of {name}: "
                f"give {what} of the same {column}"
            )


def _provenance(cache: LayerCache, metrics: pd.DataFrame) -> dict[str, Any]:
    """Where the numbers come from."""
    manifest = cache.manifest
    identity, model = manifest["identity"], manifest["model"]
    norm = f"final norm at {model['final_norm']}" if model["final_norm"] else "no final norm"
    blocks = f"{count_of(model['n_blocks'], 'block')} at {model['blocks']}"
    facts: dict[str, Any] = {
        "model": f"{cache.model} ({model['class']}, {blocks}, {norm})",
        "model identity": ", ".join(f"{name} {value}" for name, value in identity["model"].items()),
        "corpus": f"{cache.corpus}, {count_of(cache.n_rows, 'text')}, "
        f"sha256 {manifest['corpus']['sha256'][:16]}…"
        + "".join(f"; {note}" for note in manifest["corpus"].get("notes", [])),
        "maximum length": count_of(identity["max_length"], "token"),
        "special tokens": identity["special_tokens"]
        + (", first token dropped" if identity["drop_first_token"] else "")
        + _wrapping(*identity.get("prompt", ("", "keep", False))),
        "layers": ", ".join(manifest["layers"]),
        "poolings": ", ".join(manifest["poolings"]),
        "views": plain(identity["views"]) if identity.get("views") else "none",
        "weights": identity["dtype"],
        "tokenizer": identity["tokenizer"],
        "versions": ", ".join(f"{name} {version}" for name, version in manifest["versions"].items()),
        "extracted": manifest["created"],
        "intervals of metrics": _intervals(metrics),
        "n_draws": count_draws(metrics),
    }
    if manifest["sinks"] is not None:
        facts["sinks"] = manifest["sinks"]
    return facts


def _intervals(metrics: pd.DataFrame) -> str:
    """Where the intervals of the metrics come from."""
    draws, options = count_draws(metrics), metrics.attrs.get("analyze")
    if not draws:
        return "none: no subsamples were drawn"
    seed = f", seed {options['seed']}" if isinstance(options, dict) and "seed" in options else ""
    ways = "halves of the texts, drawn without replacement; for means over texts, a bootstrap"
    return f"95%, from {draws:,} resamples{seed} ({ways})"


def _wrapping(prompt: str, prompt_tokens: str, chat: bool) -> str:
    """What stands around every text.

    >>> _wrapping("query: ", "drop", chat=False)
    ", after the prompt 'query: ' (tokens dropped)"
    """
    before = f", after the prompt {prompt!r} (tokens {'kept' if prompt_tokens == 'keep' else 'dropped'})"
    return (before if prompt else "") + (", in the chat template" if chat else "")


def write_figures(
    folder: str | Path,
    *,
    metrics: pd.DataFrame,
    scores: pd.DataFrame | None = None,
    picks: pd.DataFrame | None = None,
) -> list[Path]:
    """Write the standard figures as PNG and SVG.

    ``metrics`` (every metric by layer) and ``heatmap``; with scores also ``scores`` and
    ``metrics-against-scores``.

    Returns:
        The files.
    """
    target = Path(folder)
    figures = {
        "metrics": plot_metrics(metrics, picks, labels=LABELS),
        "heatmap": figure_of(plot_heatmap(metrics, labels=LABELS)),
    }
    if scores is not None:
        figures["scores"] = figure_of(plot_scores(scores, picks, labels=LABELS))
        figures["metrics-against-scores"] = plot_metrics_against_score(metrics, scores, labels=LABELS)
    return [path for name, figure in figures.items() for path in save_figure(figure, target / name)]
