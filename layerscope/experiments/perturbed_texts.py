"""perturb(): the metrics of every layer while the texts are made more and more extreme."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from layerscope.analysis import analyze
from layerscope.corpus import Corpus, read_corpus
from layerscope.errors import UsageError
from layerscope.experiments.progress_of_runs import Progress, RunListener, Tell
from layerscope.extraction import extract
from layerscope.metrics import MetricSpec
from layerscope.metrics.own import find_metric
from layerscope.models import OpenedModel
from layerscope.perturbation import Perturbation, PerturbationKind

LEVELS: dict[str, tuple[float, ...]] = {
    "repeat": (0, 0.1, 0.25, 0.5, 0.75, 1),
    "random-token": (0, 0.1, 0.25, 0.5, 0.75, 1),
    "random-prompt": (8, 16, 32, 64, 128),
}
"""The levels of each kind where none are given."""
_MODEL_OPTIONS = (
    "dtype", "device", "max_length", "revision", "allow_pickle", "trust_remote_code", "part", "tokenizer",
)  # fmt: skip
_READING = ("text_columns", "split", "limit", "quoting", "encoding")


def perturb(
    model: Any,
    texts: Any,
    *,
    path: str | Path,
    kind: PerturbationKind = "repeat",
    levels: Sequence[float] | None = None,
    metrics: Sequence[str] = ("prompt_entropy",),
    seed: int = 0,
    draws: int = 100,
    progress: Progress | None = None,
    tell: Tell | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Run a model over texts at several levels of a perturbation and measure every layer at each.

    The model is opened once. Each level has a cache of its own, ``path/levels/<kind>-<level>``; a level that
    is there already is not run again.

    Args:
        model: as for ``extract``.
        texts: as for ``extract``; for ``random-prompt`` they say how many prompts there are.
        path: the folder.
        kind: ``repeat``, ``random-token`` or ``random-prompt``; see ``layerscope.perturbation``.
        levels: probabilities in [0, 1], for ``random-prompt`` numbers of tokens; ``LEVELS`` where not given.
        metrics: names of metrics of token states or of samples; those that need views have none here.
        seed: of the perturbation and of resamples.
        draws: resamples for intervals; 0 for none.
        progress: called with steps done and to do.
        tell: called with lines for people.
        options: of ``extract``, as ``layers``, ``pooling``, ``limit``, ``max_length`` …

    Returns:
        A metrics frame with two more columns: ``perturbation``, the kind, and ``level``, in ascending order.

    Raises:
        UsageError: a level that cannot be or is named twice, or a metric that needs views.
        LayerscopeError: what ``extract`` and ``analyze`` raise.

    Source: Skean et al. 2025, section 5 and appendix F.
    """
    chosen = [
        Perturbation(kind, level, seed) for level in (LEVELS.get(kind, (0,)) if levels is None else levels)
    ]
    chosen = _in_order(chosen)
    specs = [_spec_of(name) for name in metrics]
    if not specs:
        raise UsageError("no metric is named: name one with --metrics")
    reading = {key: options.pop(key) for key in _READING if key in options}
    corpus = texts if isinstance(texts, Corpus) else read_corpus(texts, **reading)
    opened = OpenedModel(model, **{key: options[key] for key in _MODEL_OPTIONS if key in options})
    of_tokens = tuple(spec.name for spec in specs if spec.kind == "tokens")
    frames = []
    for nth, perturbation in enumerate(chosen):
        level = f"{perturbation.level:g}"
        cache = extract(
            opened,
            corpus,
            path=Path(path) / "levels" / f"{kind}-{level}",
            perturbation=perturbation,
            token_metrics=of_tokens,
            listener=RunListener(nth, len(chosen), f"level {level}", progress, tell),
            **options,
        )
        frame = analyze(cache, specs, draws=draws, seed=seed)
        frames.append(frame.assign(perturbation=kind, level=perturbation.level))
    return pd.concat(frames, ignore_index=True)


def _in_order(chosen: Sequence[Perturbation]) -> list[Perturbation]:
    """Ascending by level, each once.

    Raises:
        UsageError: a level is named twice, or none is.
    """
    levels = [perturbation.level for perturbation in chosen]
    if not levels:
        raise UsageError("no level is named: name one with --levels")
    for level in levels:
        if levels.count(level) > 1:
            raise UsageError(f"level {level:g} is named twice: name it once")
    return sorted(chosen, key=lambda perturbation: perturbation.level)


def _spec_of(name: str) -> MetricSpec:
    spec = find_metric(name)
    if spec.kind in ("pair", "views"):
        raise UsageError(f"metric '{spec.name}' needs views of each text, which perturbed texts do not have")
    return spec
