"""evaluate_mteb(): every layer of a model on MTEB tasks, from one run of the model."""

from __future__ import annotations

import copy
import math
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from layerscope.errors import UsageError
from layerscope.evaluate.differences import with_differences
from layerscope.evaluate.mteb.encoder import LayerEncoder, NoScoreError, Setting, model_meta
from layerscope.evaluate.mteb.items import items_of
from layerscope.evaluate.mteb.results import PLACES, LayerResults, Scored
from layerscope.evaluate.mteb.tasks import find_tasks, load_data, quiet
from layerscope.evaluate.mteb.texts import TextStore
from layerscope.extraction import Listener
from layerscope.extraction.identity import tokenizer_identity
from layerscope.files import check_writable, json_sha256
from layerscope.frames import SCORE_COLUMNS, as_frame
from layerscope.models import ModelSource, OpenedModel
from layerscope.pooling import check_poolings
from layerscope.resampling import check_draws, interval

MAIN_SCORE = "main_score"
_NO_WORKERS: dict[str, Any] = {"batch_size": 32, "show_progress_bar": False}


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation tells whoever started it.

    Attributes:
        progress: is told how many (task, layer, pooling) are scored, of how many.
        note: is told in words what is worth knowing.
        listener: is told how the model's runs go.
    """

    progress: Callable[[int, int], None] = lambda done, total: None
    note: Callable[[str], None] = lambda text: None
    listener: Listener | None = None


def evaluate_mteb(
    model: Any,
    tasks: Sequence[Any] = (),
    *,
    results: str | Path,
    benchmark: str | None = None,
    task_data: str | Path | None = None,
    tokenizer: Any = None,
    layers: str | Sequence[str | int] = "all",
    pooling: str | Sequence[str] = "mean",
    normalize: bool = False,
    prompt: str = "",
    query_prompt: str = "",
    document_prompt: str = "",
    draws: int = 500,
    seed: int = 0,
    max_length: int | None = None,
    dtype: Any = "auto",
    device: str = "auto",
    batch_tokens: int = 4096,
    special_tokens: Any = "keep",
    drop_first_token: bool = False,
    blocks: str | None = None,
    final_norm: str | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
    part: Any = "encoder",
    told: Evaluation | None = None,
) -> pd.DataFrame:
    """Score every layer on MTEB tasks; the model runs once over each text, whatever the number of layers.

    The tasks, and how they score, are mteb's own. Vectors come from a cache in ``results``, layer by layer,
    memory-mapped. Results that are there already are read, not computed or written again.

    Args:
        model: a hub id, a folder, a .gguf file, or a loaded transformers model (then ``tokenizer`` too).
        tasks: names of mteb tasks, or tasks of one's own (``mteb.AbsTask``) that load their data themselves
            or have it in ``task_data``.
        results: folder of mteb result files, scores by item and cached vectors.
        benchmark: a benchmark of mteb, whose tasks are scored too.
        task_data: folder with data of tasks in files (see ``layerscope.evaluate.mteb.local_data``); tasks
            without a folder there are fetched as mteb does.
        tokenizer: of a loaded model.
        layers: as for ``extract``; ``normed`` are those with the final norm applied, as a model cut there
            returns them.
        pooling: one or several names.
        normalize: scale vectors to unit length, as models with a normalising last module do. It changes
            classification and clustering, not cosines.
        prompt: stands before every text that is neither query nor document.
        query_prompt: stands before every query.
        document_prompt: stands before every document.
        draws: bootstrap samples of a task's items, for intervals; 0 for none.
        seed: of the bootstrap.
        max_length: a limit in tokens below that of the model.
        dtype: of the weights, as for ``extract``; so are the options from here on.
        device: where to run.
        batch_tokens: padded tokens per batch.
        special_tokens: ``keep`` or ``drop`` what the tokenizer adds.
        drop_first_token: leave the first token of every text out.
        blocks: module path of the block list.
        final_norm: module path of the final norm.
        revision: of the model on the hub.
        allow_pickle: also load weights from pickles.
        trust_remote_code: run Python code that comes with the model.
        part: of an encoder-decoder.
        told: whom to tell about progress.

    Returns:
        A frame with the columns ``SCORE_COLUMNS``: one row per task, split, subset, layer and pooling with
        the metric ``main_score``, in [0, 1] or [-1, 1]; ``note`` says which score of the task that is. A
        layer without a score has a ``reason``.

    Raises:
        UsageError: an unknown task, layer or pooling, or the same layer twice.
        CorpusError: the data of a task cannot be had, or lack a column.
        CacheError: the results folder holds results of other data, or of another version of mteb.
    """
    told = told or Evaluation()
    check_draws(draws, seed)
    poolings = _poolings(pooling)
    chosen = find_tasks(tasks, benchmark)
    folder = Path(results)
    data_folder = None if task_data is None else _existing(Path(task_data))
    check_writable(folder)
    loading = {
        "dtype": dtype, "device": device, "max_length": max_length, "revision": revision, "part": part,
        "allow_pickle": allow_pickle, "trust_remote_code": trust_remote_code,
    }  # fmt: skip
    opened = OpenedModel(model, tokenizer=tokenizer, **loading)
    reading = {
        "special_tokens": special_tokens, "drop_first_token": drop_first_token, "blocks": blocks,
        "final_norm": final_norm, "part": part, "max_length": max_length, "dtype": dtype,
    }  # fmt: skip
    whose = {} if tokenizer is None else {"tokenizer": tokenizer_identity(tokenizer)}
    options = reading | {
        "device": device, "revision": revision, "batch_tokens": batch_tokens, "allow_pickle": allow_pickle,
        "trust_remote_code": trust_remote_code, "tokenizer": tokenizer,
    }  # fmt: skip
    place = folder / "embeddings" / json_sha256([opened.source.identity, reading | whose])[:16]
    store = TextStore(place, opened, layers, poolings, options, told.listener)
    prompts = {"text": prompt, "query": query_prompt, "document": document_prompt}
    settings = [
        Setting(layer, name, normalize, prompts, reading | whose)
        for layer in store.layers()
        for name in poolings
    ]
    run = _Run(opened, store, folder, settings, draws, seed)
    records: list[dict[str, Any]] = []
    with quiet():
        for number, task in enumerate(chosen):
            if task.superseded_by:
                told.note(f"{task.metadata.name} is superseded by {task.superseded_by}")
            data = load_data(task, data_folder)
            for step, found in enumerate(run.task(task, data)):
                records += found
                told.progress(number * len(settings) + step + 1, len(chosen) * len(settings))
            task.unload_data()
    return with_differences(as_frame(records, SCORE_COLUMNS))


def _existing(folder: Path) -> Path:
    if not folder.is_dir():
        raise UsageError(f"--task-data {folder} is no folder: give one with a folder for every task")
    return folder


def _poolings(pooling: str | Sequence[str]) -> list[str]:
    names = [name.strip() for name in pooling.split(",")] if isinstance(pooling, str) else list(pooling)
    check_poolings(names)
    if len(set(names)) < len(names):
        raise UsageError(f"a pooling is named twice: {', '.join(names)}; name each once")
    return names


class _Run:
    """Scores tasks, setting by setting."""

    def __init__(
        self,
        model: OpenedModel,
        store: TextStore,
        folder: Path,
        settings: list[Setting],
        draws: int,
        seed: int,
    ) -> None:
        self._model = model
        self._store = store
        self._folder = folder
        self._settings = settings
        self._draws = draws
        self._seed = seed

    def task(self, task: Any, data: str) -> Iterator[list[dict[str, Any]]]:
        """The records of each setting in turn."""
        source = self._model.source
        state = _RandomState(task)
        for setting in self._settings:
            meta = model_meta(source.name, source.identity, setting, setting.options.get("max_length"))
            results = LayerResults(self._folder, meta, _description(setting, source))
            found = results.read(task, data)
            if found is None:
                with state.restored():
                    encoder = LayerEncoder(self._store, setting, meta)
                    try:
                        found = _score(task, encoder, results, data)
                    except NoScoreError as error:
                        found = _without_score(task, str(error))
            yield [self._record(task, setting, entry) for entry in found]

    def _record(self, task: Any, setting: Setting, entry: Scored) -> dict[str, Any]:
        items = entry.items if math.isfinite(entry.score) else None
        draws = items.draws(self._draws, self._seed) if items is not None and self._draws else None
        low, high = (math.nan, math.nan) if draws is None else interval(entry.score, draws)
        return {
            "model": self._model.source.name,
            "task": task.metadata.name,
            "split": entry.split,
            "subset": entry.subset,
            **_place(setting),
            "pooling": setting.pooling,
            "metric": MAIN_SCORE,
            "variant": setting.variant,
            "score": entry.score,
            "ci_low": low,
            "ci_high": high,
            "n": None if items is None else len(items.gold),
            "reason": entry.reason,
            "note": f"{task.metadata.main_score}; mteb {version('mteb')}",
            "draws": None if draws is None else draws.tolist(),
        }


def _place(setting: Setting) -> dict[str, Any]:
    return {"layer": setting.layer.blocks, "layer_name": setting.layer.name, "depth": setting.layer.depth}


def _description(setting: Setting, source: ModelSource) -> dict[str, Any]:
    return setting.identity(source.identity) | {
        "name": source.name,
        "layer_number": setting.layer.blocks,
        "depth": setting.layer.depth,
    }


def _score(task: Any, encoder: LayerEncoder, results: LayerResults, data: str) -> list[Scored]:
    """Let mteb score a layer, and write what it found."""
    import mteb

    with tempfile.TemporaryDirectory() as place:
        found = mteb.evaluate(
            encoder,
            task,
            cache=None,
            co2_tracker=False,
            encode_kwargs=dict(_NO_WORKERS),  # type: ignore[arg-type]
            prediction_folder=place,
            show_progress_bar=False,
        )
        result = found.task_results[0]
        scored = []
        for split, entries in result.scores.items():
            for entry in entries:
                items, reason = items_of(task, split, str(entry["hf_subset"]), Path(place), entry)
                score = round(float(entry["main_score"]), PLACES)  # as the file will say
                if not math.isfinite(score):
                    items, reason = None, "mteb found no number"
                scored.append(Scored(split, str(entry["hf_subset"]), score, items, reason))
    results.write(task, result, scored, data)
    return scored


def _without_score(task: Any, reason: str) -> list[Scored]:
    return [
        Scored(split, subset, math.nan, None, reason)
        for split in task.eval_splits
        for subset in task.hf_subsets
    ]


class _RandomState:
    """All random states that a task may draw from, as they are once its data are loaded."""

    def __init__(self, task: Any) -> None:
        self._task = task
        self._own = {
            name: copy.deepcopy(value)
            for name, value in vars(task).items()
            if isinstance(value, random.Random | np.random.Generator)
        }

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Every layer draws what the first one did; the caller's global states are left alone."""
        import torch

        legacy = np.random.get_state()  # noqa: NPY002 - mteb's tasks draw from it
        outer = random.getstate(), torch.get_rng_state()
        vars(self._task).update(copy.deepcopy(self._own))
        try:
            random.seed(self._task.seed)
            np.random.seed(self._task.seed)  # noqa: NPY002
            yield
        finally:
            random.setstate(outer[0])
            np.random.set_state(legacy)  # noqa: NPY002
            torch.set_rng_state(outer[1])
