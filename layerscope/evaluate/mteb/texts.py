"""The texts that tasks ask for, each run through the model once, all layers cached."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from layerscope.backbone import Backbone
from layerscope.cache import LayerCache
from layerscope.errors import CacheError, UsageError
from layerscope.extraction import Listener, extract
from layerscope.files import json_sha256, make_folder, write_atomic
from layerscope.layers import Layer, parse_layers
from layerscope.manifest import MANIFEST
from layerscope.models import OpenedModel

_TEXTS = "texts.parquet"


class TextStore:
    """Vectors of every layer for any text, from a cache that grows by the texts it has not seen.

    There is a cache for every prompt. Beside it stand the texts that it holds, so that a later run goes
    on from there; they are written before the model runs, so that an interrupted run does too.

    Args:
        folder: where the caches are.
        model: the model, loaded when a text is not there yet.
        layers: as for ``extract``.
        poolings: names.
        options: of ``extract``, which decide what the vectors are.
        listener: is told how extractions go.
    """

    def __init__(
        self,
        folder: Path,
        model: OpenedModel,
        layers: str | Sequence[str | int],
        poolings: Sequence[str],
        options: dict[str, Any],
        listener: Listener | None = None,
    ) -> None:
        self._folder = folder
        self._model = model
        self._wanted = layers
        self._poolings = list(poolings)
        self._options = options
        self._listener = listener
        self._held: dict[str, _Held] = {}

    def layers(self) -> list[Layer]:
        """The layers asked for; how many there are says a cache where there is one, else the model.

        Raises:
            UsageError: a layer that does not exist, or that is named twice.
        """
        n_blocks, has_norm = self._structure()
        given = self._wanted.split(",") if isinstance(self._wanted, str) else list(self._wanted)
        name_of: dict[Layer, str] = {}
        for item in map(str, given):
            found = parse_layers([item], n_blocks, has_norm)
            if len(found) == 1 and found[0] in name_of:
                other = "" if item.strip() == name_of[found[0]] else f", as {name_of[found[0]]} and {item}"
                raise UsageError(f"the layer {found[0].name} is named twice in --layers{other}: name it once")
            name_of |= dict.fromkeys(found, item.strip())
        return parse_layers(self._wanted, n_blocks, has_norm)

    def _structure(self) -> tuple[int, bool]:
        """How many blocks there are, and whether there is a final norm."""
        for manifest in sorted(self._folder.glob(f"*/cache/{MANIFEST}")):
            described = LayerCache(manifest.parent, allow_partial=True).manifest["model"]
            return int(described["n_blocks"]), described["final_norm"] is not None
        overrides = {key: self._options.get(key) for key in ("blocks", "final_norm")}
        structure = Backbone(self._model.loaded.model, **overrides).structure
        return structure.n_blocks, structure.norm_path is not None

    def vectors(
        self, texts: Sequence[str], layer: str, pooling: str, prompt: str = ""
    ) -> NDArray[np.float32]:
        """One row a text, (n, d) float32; zeros for a text without a token, NaN where the model gave one.

        Args:
            texts: any; those not seen before are run first.
            layer: its name.
            pooling: one of the store's.
            prompt: stands before every text.
        """
        held = self._held.get(prompt) or self._open(prompt)
        self._held[prompt] = held
        unseen = [text for text in dict.fromkeys(texts) if text not in held.row_of]
        if unseen or held.cache is None:
            held.add(unseen)
            self._extract(held, prompt)
        assert held.cache is not None  # it was made just now
        rows = np.array([held.row_of[text] for text in texts], dtype=np.int64)
        return _rows_of(held.cache, layer, pooling, rows)

    def _open(self, prompt: str) -> _Held:
        held = _Held(self._folder / f"prompt-{json_sha256(prompt)[:12]}")
        if held.texts:
            self._extract(held, prompt)  # which is a hit where the cache has all of it
        return held

    def _extract(self, held: _Held, prompt: str) -> None:
        held.cache = extract(
            self._model,
            held.texts,
            path=held.folder / "cache",
            layers=self._wanted,
            pooling=self._poolings,
            token_metrics=(),
            prompt=prompt,
            listener=self._listener,
            **self._options,
        )


class _Held:
    """The texts of one prompt, their rows, and their cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache: LayerCache | None = None
        self.texts: list[str] = self._read()
        self.row_of = {text: row for row, text in enumerate(self.texts)}

    def _read(self) -> list[str]:
        path = self.folder / _TEXTS
        if not path.is_file():
            return []
        try:
            return list(map(str, pd.read_parquet(path)["text"]))
        except (OSError, ValueError, KeyError) as error:
            raise CacheError(
                f"{path} is damaged: remove {self.folder}, and the texts are run again"
            ) from error

    def add(self, texts: Sequence[str]) -> None:
        """Note ``texts``, on disk too."""
        for text in texts:
            self.row_of[text] = len(self.texts)
            self.texts.append(text)
        make_folder(self.folder)
        frame = pd.DataFrame({"text": self.texts})
        write_atomic(self.folder / _TEXTS, lambda temporary: frame.to_parquet(temporary, index=False))


def _rows_of(cache: LayerCache, layer: str, pooling: str, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Some rows of one layer, in the order asked for, shard by shard."""
    found: NDArray[np.float32] | None = None
    start = 0
    for block in cache.blocks(layer, pooling):
        if found is None:
            found = np.zeros((len(rows), block.shape[1]), dtype=np.float32)
        here = np.flatnonzero((rows >= start) & (rows < start + len(block)))
        found[here] = block[rows[here] - start]
        start += len(block)
    assert found is not None  # a cache has a shard
    nothing_in_it = cache.rows["empty"].to_numpy(dtype=bool)[rows]
    found[nothing_in_it] = 0.0
    return found
