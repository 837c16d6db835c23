"""Scores and metrics from elsewhere as frames: tidy tables, and folders of mteb results."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from layerscope.errors import FrameError, UsageError, first_line, named
from layerscope.evaluate.mteb.results import SETTING, read_result
from layerscope.frames import METRIC_COLUMNS, SCORE_COLUMNS, numbers_in, read_frame
from layerscope.metrics import METRICS

SCORE_KEYS, METRIC_KEYS = ("model", "layer", "task", "main_score"), ("model", "layer", "metric", "value")
LAYER_PATTERN = r"(?:layer|block|hidden)[-_. ]?(?P<layer>\d+)"
_SPLITS = ("test", "validation", "dev", "train", "")
_RENAMED = {"entropy_dataset": "dataset_entropy", "entropy_sentence": "prompt_entropy"}
_SCORE_ALIASES = {"score": "main_score"}
_NO_RESULTS = ("model_meta.json", SETTING)


def import_table(
    path: str | Path, *, tasks: str | Path | None = None, pooling: str = "mean"
) -> tuple[str, pd.DataFrame]:
    """A tidy table from elsewhere, or a frame of ours, as a frame.

    A table of scores has the columns ``model, layer, task, main_score``, one of metrics ``model, layer,
    dataset, metric, value`` and perhaps ``split`` and ``normalization``. ``layer`` counts blocks from 0, the
    embeddings, to the model's last. Of several splits of one data set the test split is taken, else
    validation, else train; the note says which.

    Args:
        path: .csv (also .gz) or .parquet.
        tasks: a table with the columns ``task, dataset``, which renames the data sets of metrics to the tasks
            that they belong to.
        pooling: what the table does not say about the vectors.

    Returns:
        ``metrics`` or ``scores``, and the frame.

    Raises:
        FrameError: no such table, or one that lacks columns.
    """
    source = Path(path)
    table = _read(source)
    if {"layer_name", "depth", "pooling", "metric"} <= set(table.columns):
        kind = "metrics" if "value" in table else "scores"
        frame = read_frame(source, kind)
        return kind, _with_tasks(frame, tasks, source) if kind == "metrics" else frame
    table = table.rename(columns=_SCORE_ALIASES)
    if set(SCORE_KEYS) <= set(table.columns):
        return "scores", _scores(table, source, pooling)
    if set(METRIC_KEYS) <= set(table.columns):
        return "metrics", _with_tasks(_metrics(table, source, pooling), tasks, source)
    raise FrameError(
        f"{source} is neither a table of scores ({', '.join(SCORE_KEYS)}) nor one of metrics "
        f"({', '.join(METRIC_KEYS)}): it has {', '.join(map(str, table.columns))}"
    )


def import_results(
    folder: str | Path, *, layer_pattern: str = LAYER_PATTERN, pooling: str = "mean"
) -> pd.DataFrame:
    """A folder of mteb result files, ``…/MODEL/REVISION/TASK.json``, as a scores frame.

    Folders that layerscope wrote say which layer they are of; of others the name of the model or revision
    must, as ``layer_7``.

    Args:
        folder: of results, or the folder above it.
        layer_pattern: regular expression with a group ``layer``, for folders written by others; what it
            matches is taken out of the model's name.
        pooling: of the vectors, for folders written by others.

    Raises:
        FrameError: there are no results, or no layer in their names.
        UsageError: a pattern that cannot be one.
    """
    try:
        pattern = re.compile(layer_pattern)
    except re.error as error:
        raise UsageError(f"--layer-pattern '{layer_pattern}' is no regular expression ({error})") from error
    if "layer" not in pattern.groupindex:
        raise UsageError(f"--layer-pattern '{layer_pattern}' needs a group (?P<layer>...)")
    root = Path(folder)
    files = sorted(
        file
        for file in root.rglob("*.json")
        if file.name not in _NO_RESULTS and "items" not in file.parts[len(root.parts) :]
    )
    records = [record for file in files for record in _result_records(file, pattern, pooling)]
    if not records:
        raise FrameError(f"no mteb results in {root}: expected MODEL/REVISION/TASK.json")
    frame = pd.DataFrame.from_records(records)
    frame["layer"] = frame["layer"].astype(int)
    last = frame.groupby("model")["layer"].transform("max")
    frame["depth"] = frame["depth"].astype(float).fillna(frame["layer"] / last.where(last > 0, 1))
    return frame.reindex(columns=list(SCORE_COLUMNS))


def _read(source: Path) -> pd.DataFrame:
    if not source.is_file():
        raise FrameError(f"no table at {source}: give a .csv or .parquet file, or a folder of mteb results")
    try:
        table = pd.read_parquet(source) if source.suffix == ".parquet" else pd.read_csv(source)
    except (ValueError, OSError) as error:
        raise FrameError(f"{source} is not a readable table: {first_line(error)}") from error
    if table.empty:
        raise FrameError(f"{source} has no rows")
    return table


def _place(table: pd.DataFrame, source: Path) -> pd.DataFrame:
    """``layer``, ``layer_name`` and ``depth`` of each row."""
    layer = pd.to_numeric(table["layer"], errors="coerce")
    bad = table.index[layer.isna() | (layer < 0) | (layer % 1 != 0)]
    if len(bad):
        raise FrameError(
            f"{source}, row {bad[0] + 1}: the layer '{table.loc[bad[0], 'layer']}' is no number from 0 on"
        )
    whole = layer.astype(int)
    last = whole.groupby(table["model"]).transform("max")
    names = whole.map(lambda number: f"block.{number}" if number else "embed")
    return table.assign(layer=whole, layer_name=names, depth=whole / last.where(last > 0, 1))


def _scores(table: pd.DataFrame, source: Path, pooling: str) -> pd.DataFrame:
    placed = _place(table, source)
    _refuse_repeats(placed, ["model", "task", "layer"], source)
    frame = placed.assign(
        score=numbers_in(table, "main_score", source), metric="main_score", pooling=pooling, subset="all",
        variant="", split="", reason="", note="imported",
    )  # fmt: skip
    return frame.reindex(columns=list(SCORE_COLUMNS))


def _metrics(table: pd.DataFrame, source: Path, pooling: str) -> pd.DataFrame:
    placed = _place(table, source)
    known = {spec.name: spec.direction for spec in METRICS}
    names = placed["metric"].replace(_RENAMED)
    corpus = placed["dataset"] if "dataset" in placed else placed.get("corpus", source.stem)
    split = placed["split"].fillna("") if "split" in placed else pd.Series("", index=placed.index)
    variant = placed.get("normalization", placed.get("variant", pd.Series("", index=placed.index)))
    value = numbers_in(table, "value", source)
    frame = placed.assign(
        metric=names, corpus=corpus, value=value, variant=variant.fillna(""), pooling=pooling,
        direction=names.map(known), note=("split " + split).where(split != "", ""),
        reason=value.isna().map({True: "missing in the table", False: ""}),
        rank=split.map({name: at for at, name in enumerate(_SPLITS)}).fillna(len(_SPLITS)),
    )  # fmt: skip
    keys = ["model", "corpus", "layer", "metric", "variant"]
    _refuse_repeats(frame, [*keys, "rank"], source)
    first = frame.sort_values("rank", kind="stable").drop_duplicates(keys).sort_index()
    return first.reindex(columns=list(METRIC_COLUMNS))


def _refuse_repeats(table: pd.DataFrame, keys: list[str], source: Path) -> None:
    again = table.index[table.duplicated(keys)]
    if len(again):
        raise FrameError(
            f"{source}, row {again[0] + 1}: a second row of the same {', '.join(keys)}; leave one out"
        )


def _with_tasks(metrics: pd.DataFrame, tasks: str | Path | None, source: Path) -> pd.DataFrame:
    """Metrics of data sets as metrics of the tasks that the data sets belong to."""
    if tasks is None:
        return metrics
    path = Path(tasks)
    table = _read(path)
    missing = [name for name in ("task", "dataset") if name not in table]
    if missing:
        raise FrameError(f"{path} lacks the column(s) {', '.join(missing)} (found: {named(table.columns)})")
    pairs = table[["task", "dataset"]].drop_duplicates()
    joined = metrics.merge(pairs, left_on="corpus", right_on="dataset")
    if joined.empty:
        raise FrameError(f"{path} names no data set of {source} (as {named(metrics['corpus'], most=2)})")
    return joined.assign(corpus=joined["task"]).reindex(columns=list(metrics.columns))


def _result_records(file: Path, pattern: re.Pattern[str], pooling: str) -> Iterator[dict[str, Any]]:
    values = read_result(file)
    if "scores" not in values or "task_name" not in values:
        return
    place = _place_of(file, pattern, pooling)
    for split, entries in values["scores"].items():
        for entry in entries:
            if not isinstance(entry, dict) or "main_score" not in entry:
                raise FrameError(
                    f"{file}: no main_score in split {split}: it is no result of mteb 1.11 or later"
                )
            yield place | {
                "task": values["task_name"], "split": split, "subset": entry.get("hf_subset", "default"),
                "metric": "main_score", "score": entry["main_score"],
                "reason": "" if entry["main_score"] is not None else "missing in the file",
                "note": f"mteb {values.get('mteb_version') or 'of unknown version'}",
            }  # fmt: skip


def _place_of(file: Path, pattern: re.Pattern[str], pooling: str) -> dict[str, Any]:
    """Model, layer and pooling of a result file."""
    setting = file.parent / SETTING
    if setting.is_file():
        said = read_result(setting)
        return {
            "model": said["name"], "layer": said["layer_number"], "layer_name": said["layer"],
            "depth": said["depth"], "pooling": said["pooling"],
            "variant": "unit" if said["normalize"] else "raw",
        }  # fmt: skip
    revision, model = file.parent.name, file.parent.parent.name
    for name in (model, revision):
        found = pattern.search(name)
        if found:
            layer = int(found["layer"])
            rest = pattern.sub("", model).strip("-_. ") or model
            return {
                "model": rest.replace("__", "/", 1), "layer": layer, "depth": None, "pooling": pooling,
                "layer_name": f"block.{layer}" if layer else "embed", "variant": "",
            }  # fmt: skip
    raise FrameError(
        f"{file}: neither '{model}' nor '{revision}' names a layer: give --layer-pattern with a group "
        "(?P<layer>...)"
    )
