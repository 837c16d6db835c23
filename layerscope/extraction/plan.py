"""What a run is going to do, and who is told how it goes."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from layerscope.cache import LayerCache
from layerscope.errors import CacheError
from layerscope.files import human_bytes
from layerscope.sinks import SinkReport


@dataclass(frozen=True)
class Plan:
    """What a run is going to do, known before it starts.

    Attributes:
        model: its name.
        rows: texts of the corpus.
        unique: distinct texts that are run, over all views.
        tokens: their tokens.
        truncated: texts of the corpus that are longer than the maximum length.
        max_length: the most tokens of a text.
        layers: names.
        poolings: names.
        views: names.
        bytes: size of the cache on disk.
        shards: number of shards.
        sinks: what the pilot found, or ``None`` where it was not needed.
        notes: what was guessed about, or done to, the corpus.
        finished_shards: how many of the shards are there already.
        bytes_there: size of what is there already.
    """

    model: str
    rows: int
    unique: int
    tokens: int
    truncated: int
    max_length: int
    layers: list[str]
    poolings: list[str]
    views: list[str]
    bytes: int
    shards: int
    sinks: SinkReport | None
    notes: tuple[str, ...]
    finished_shards: int = 0
    bytes_there: int = 0


class Listener:
    """Is told how a run goes; override what is of interest."""

    def remote(self, name: str) -> None:
        """The model is not on this machine; the hub is asked for it, which may take a while."""

    def hit(self, cache: LayerCache) -> None:
        """The same extraction is on disk already."""

    def plan(self, plan: Plan) -> None:
        """Everything is ready; the run starts now."""

    def progress(self, done: int, total: int) -> None:
        """``done`` of ``total`` tokens are through the model or on disk already."""


def check_space(path: Path, plan: Plan) -> None:
    """Refuse a run whose cache would not fit on the disk.

    Raises:
        CacheError: says how much is needed and how much is free.
    """
    free = shutil.disk_usage(path).free
    needed = plan.bytes - plan.bytes_there
    if needed > free:
        raise CacheError(
            f"the cache needs {human_bytes(needed)}, but only {human_bytes(free)} are free at {path}: "
            "choose fewer layers, poolings or views, or another disk with -o"
        )
