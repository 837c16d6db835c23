"""mteb's result files: written strictly and once, read back into the scores frame.

Beside a layer's results stand its scores by item and what they rest on::

    RESULTS/results/<model>__<layer>__<pooling>/<revision>/TASK.json          mteb's own format
                                                          model_meta.json     mteb's own format
                                                          layerscope.json     the setting
                                                          items/TASK.parquet  scores by item
                                                          items/TASK.json     the data they are of
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from layerscope.errors import CacheError, first_line
from layerscope.evaluate.mteb.items import Items
from layerscope.files import make_folder, write_atomic, write_json

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from mteb.results import TaskResult

SETTING = "layerscope.json"
PLACES = 6
"""Decimal places of scores in files, as mteb's own."""
_OTHER = "choose another --results folder, or remove the file"


@dataclass(frozen=True)
class Scored:
    """One main score of a layer.

    Attributes:
        split: of the task.
        subset: of the task.
        score: the main score; NaN where mteb found none.
        items: what each item contributes, where that is known.
        reason: why there is no score, or no items.
    """

    split: str
    subset: str
    score: float
    items: Items | None
    reason: str


class LayerResults:
    """The results of one layer, one file a task, which is never written over.

    Args:
        folder: the results folder of all layers.
        meta: of the layer.
        setting: what the layer is, for reading the folder without its name.
    """

    def __init__(self, folder: Path, meta: ModelMeta, setting: Mapping[str, Any]) -> None:
        self._meta = meta
        self._setting = dict(setting)
        self.folder = folder / "results" / meta.model_name_as_path() / str(meta.revision)

    def read(self, task: Any, data: str) -> list[Scored] | None:
        """What is there of ``task``; None where nothing is.

        Raises:
            CacheError: it is damaged, of other data, or of another version of mteb.
        """
        path = self._path(task)
        if not path.is_file():
            return None
        return [
            Scored(split, str(entry["hf_subset"]), _score(entry), *self._read_items(task, split, entry))
            for split, entry in self._checked(task, path, data)
        ]

    def write(self, task: Any, result: TaskResult, scored: Sequence[Scored], data: str) -> None:
        """Write what ``task`` found, items first, so that a result file stands for all of it."""
        folder = self.folder / "items"
        make_folder(folder)
        for entry in scored:
            if entry.items is not None:
                _write_items(self._items_path(task, entry.split, entry.subset), entry.items)
        reasons = {f"{entry.split}/{entry.subset}": entry.reason for entry in scored}
        write_json(folder / f"{task.metadata.name}.json", {"data": data, "reasons": reasons})
        write_json(self.folder / "model_meta.json", _strict(self._meta.to_dict()))
        write_json(self.folder / SETTING, self._setting)
        values = result.model_dump()
        values["date"] = result.date.timestamp() if result.date else None
        write_json(self._path(task), _strict(values))

    def _path(self, task: Any) -> Path:
        return self.folder / f"{task.metadata.name}.json"

    def _items_path(self, task: Any, split: str, subset: str) -> Path:
        return self.folder / "items" / f"{task.metadata.name}.{split}.{subset}.parquet"

    def _checked(self, task: Any, path: Path, data: str) -> list[tuple[str, dict[str, Any]]]:
        import mteb

        values = read_result(path)
        if values.get("mteb_version") != mteb.__version__:
            raise CacheError(
                f"{path} was written by mteb {values.get('mteb_version')}, this is {mteb.__version__}: "
                f"scores of two versions do not mix; {_OTHER}"
            )
        noted = self.folder / "items" / f"{task.metadata.name}.json"
        if noted.is_file() and read_result(noted)["data"] != data:
            raise CacheError(f"{path} was scored on other data than are given now: {_OTHER}")
        entries = [(split, entry) for split, list_ in values["scores"].items() for entry in list_]
        found = {(split, entry["hf_subset"]) for split, entry in entries}
        missing = {(split, subset) for split in task.eval_splits for subset in task.hf_subsets} - found
        if missing:
            raise CacheError(f"{path} lacks {' of '.join(sorted(missing)[0][::-1])}: {_OTHER}")
        return entries

    def _read_items(self, task: Any, split: str, entry: Mapping[str, Any]) -> tuple[Items | None, str]:
        path = self._items_path(task, split, str(entry["hf_subset"]))
        noted = read_result(self.folder / "items" / f"{task.metadata.name}.json")
        reason = str(noted["reasons"].get(f"{split}/{entry['hf_subset']}", ""))
        if not path.is_file():
            return None, reason
        try:
            frame = pd.read_parquet(path)
        except (OSError, ValueError) as error:
            raise CacheError(f"{path} is damaged ({first_line(error)}): {_OTHER}") from error
        columns = [name for name in frame.columns if name.startswith("value")]
        values = frame[columns].to_numpy(dtype=np.float64)
        flat = values[:, 0] if columns == ["value"] else values
        return Items(frame["kind"].iloc[0], flat, frame["gold"].to_numpy(dtype=np.float64)), reason


def read_result(path: Path) -> dict[str, Any]:
    """A JSON file as a dictionary.

    Raises:
        CacheError: it is none.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CacheError(f"{path} is damaged ({first_line(error)}): {_OTHER}") from error
    if not isinstance(values, dict):
        raise CacheError(f"{path} is no result file: {_OTHER}")
    return values


def _score(entry: Mapping[str, Any]) -> float:
    value = entry["main_score"]
    return float("nan") if value is None else float(value)


def _write_items(path: Path, items: Items) -> None:
    values = items.values if items.values.ndim > 1 else items.values[:, None]
    names = ["value"] if items.values.ndim == 1 else [f"value_{k}" for k in range(values.shape[1])]
    frame = pd.DataFrame(values, columns=names)
    whole = frame.assign(gold=items.gold, kind=items.kind)
    write_atomic(path, lambda temporary: whole.to_parquet(temporary, index=False))


def _strict(value: Any) -> Any:
    """A value as strict JSON: what is not a number is null, and scores have six places, as mteb's.

    >>> _strict({"a": [float("nan"), 0.12345678, 2]})
    {'a': [None, 0.123457, 2]}
    """
    if isinstance(value, Mapping):
        return {str(key): _strict(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set):
        return [_strict(inner) for inner in value]
    if isinstance(value, np.generic):
        return _strict(value.item())
    if isinstance(value, float):
        return round(value, PLACES) if math.isfinite(value) else None
    return value if isinstance(value, bool | int | str | None) else str(value)
