"""analyze_checkpoints(): the metrics of every layer at several checkpoints of one training."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from layerscope.analysis import analyze
from layerscope.corpus import Corpus, read_corpus
from layerscope.errors import UsageError
from layerscope.experiments.progress_of_runs import Progress, RunListener, Tell
from layerscope.extraction import extract
from layerscope.metrics import MetricSpec
from layerscope.models import is_hub_id

_READING = (
    "text_columns", "view_column", "score_column", "label_column", "split", "limit", "quoting", "encoding",
)  # fmt: skip
_AFTER_A_WORD = re.compile(r"(?:step|checkpoint|ckpt|iter)s?[-_=]?(\d+)", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Checkpoint:
    """One state of a model in training.

    Attributes:
        model: what ``extract`` takes.
        name: its revision, or the name of its folder.
        revision: on the hub; ``None`` for a folder.
    """

    model: Any
    name: str
    revision: str | None = None


def analyze_checkpoints(
    models: str | Path | Sequence[str | Path],
    texts: Any,
    *,
    path: str | Path,
    revisions: Sequence[str] = (),
    metrics: Sequence[str | MetricSpec] | None = None,
    seed: int = 0,
    draws: int = 100,
    progress: Progress | None = None,
    tell: Tell | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Run several checkpoints of a model over the same texts and measure every layer of each.

    Each checkpoint has a cache of its own, ``path/checkpoints/<name>``; one that is there already is not
    run again. One checkpoint is in memory at a time.

    Args:
        models: folders of checkpoints; or one hub id, with ``revisions``.
        texts: as for ``extract``.
        path: the folder.
        revisions: of the hub id: branches, tags or commits.
        metrics: as for ``analyze``; all of them where not given.
        seed: of views and of resamples.
        draws: resamples for intervals; 0 for none.
        progress: called with steps done and to do.
        tell: called with lines for people.
        options: of ``extract``, as ``layers``, ``pooling``, ``views``, ``limit`` …

    Returns:
        A metrics frame with two more columns: ``revision``, the name of the checkpoint, and ``step`` (see
        ``steps_of``), in ascending order of step. ``model`` is the hub id, or the folder that holds the
        checkpoints.

    Raises:
        UsageError: less than two checkpoints, or two of the same name.
        LayerscopeError: what ``extract`` and ``analyze`` raise.

    Source: Skean et al. 2025, section 4.3, for layers over the course of training.
    """
    checkpoints = find_checkpoints(models, revisions)
    steps = steps_of([checkpoint.name for checkpoint in checkpoints])
    in_order = sorted(zip(steps, checkpoints, strict=True), key=lambda pair: pair[0])
    reading = {key: options.pop(key) for key in _READING if key in options}
    corpus = texts if isinstance(texts, Corpus) else read_corpus(texts, **reading)
    frames = []
    for nth, (step, checkpoint) in enumerate(in_order):
        cache = extract(
            checkpoint.model,
            corpus,
            path=Path(path) / "checkpoints" / checkpoint.name.replace("/", "-"),
            revision=checkpoint.revision,
            seed=seed,
            listener=RunListener(nth, len(in_order), checkpoint.name, progress, tell),
            **options,
        )
        frame = analyze(cache, metrics, draws=draws, seed=seed)
        frames.append(frame.assign(model=_name_of_run(checkpoints), revision=checkpoint.name, step=step))
    return pd.concat(frames, ignore_index=True)


def find_checkpoints(
    models: str | Path | Sequence[str | Path], revisions: Sequence[str] = ()
) -> list[Checkpoint]:
    """The checkpoints that are meant: revisions of one hub id, or folders.

    Raises:
        UsageError: less than two, two of the same name, or revisions of what is not one hub id.
    """
    given = [models] if isinstance(models, str | Path) else list(models)
    if revisions:
        if len(given) != 1 or not is_hub_id(given[0]):
            raise UsageError("--revisions are of one model on the hub: give its id, and no other model")
        found = [Checkpoint(given[0], revision, revision) for revision in revisions]
    else:
        found = [Checkpoint(model, _name_of(model)) for model in given]
    names = [checkpoint.name for checkpoint in found]
    if len(names) < 2:
        raise UsageError(
            "there is one checkpoint only: give several folders, or a hub id with several --revisions"
        )
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two checkpoints are called '{name}': rename one, or name it once")
    return found


def steps_of(names: Sequence[str]) -> list[int]:
    """The step of each checkpoint: the number in its name, else its place in the order given, from 0.

    The number after step, checkpoint, ckpt or iter counts, else the last one. Where a name has none, or two
    have the same, the places are taken for all.

    >>> steps_of(["checkpoint-200", "checkpoint-1000"]), steps_of(["step1000-tokens4B", "step500-tokens2B"])
    ([200, 1000], [1000, 500])
    >>> steps_of(["step512", "main"])
    [0, 1]
    """
    found = [_AFTER_A_WORD.findall(name) or _NUMBER.findall(name) for name in names]
    steps = [int(numbers[-1]) for numbers in found if numbers]
    return steps if len({*steps}) == len(names) else list(range(len(names)))


def _name_of_run(checkpoints: Sequence[Checkpoint]) -> str:
    """One name for what was trained: the hub id, or the innermost folder that all checkpoints are in."""
    if checkpoints[0].revision or any(is_hub_id(checkpoint.model) for checkpoint in checkpoints):
        return str(checkpoints[0].model)
    folders = [Path(checkpoint.model).expanduser().resolve().parent for checkpoint in checkpoints]
    return Path(os.path.commonpath(folders)).name


def _name_of(model: str | Path) -> str:
    """The name of a folder or file; of a hub id the id itself."""
    return str(model) if is_hub_id(model) else Path(model).expanduser().resolve().name
