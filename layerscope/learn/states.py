"""The pooled states of several layers side by side, from a cache."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerscope.cache import LayerCache
from layerscope.errors import CacheError, UsageError, named
from layerscope.layer_pooling import Kind
from layerscope.layers import is_sublayer

_IN_MEMORY = 6 * 1024**3
_PREFERRED = ("mean-nosink", "mean")
_TOKENS = ("cls", "last", "first")


def choose_layers(cache: LayerCache, kind: Kind, layers: Sequence[str] | None) -> list[str]:
    """The layers to mix: those given, or all that a Hugging Face model returns as ``hidden_states``.

    These are the embedding output (where the kind takes it), every block but the last, and the last with
    its final norm where there is one.

    Raises:
        UsageError: a layer that the cache does not hold, or fewer than two of them.
        CacheError: their widths differ.
    """
    if layers is None:
        last = f"block.{cache.manifest['model']['n_blocks']}"
        chosen = [
            name
            for name in cache.layers
            if not name.startswith("normed.")
            and not is_sublayer(name)
            and (name != "embed" or kind.takes_embed)
            and (name != last or "norm" not in cache.layers)
        ]
    else:
        asked = {cache.layer_info(name).name for name in layers}
        chosen = [name for name in cache.layers if name in asked]
    if len(chosen) < 2:
        raise UsageError(
            f"a mix needs two layers or more, and this is {named(chosen) or 'none'}: name others"
        )
    widths = {cache.manifest["widths"][name] for name in chosen}
    if len(widths) > 1:
        raise CacheError(
            f"layers of different widths ({named(sorted(widths))}) cannot be mixed: name layers of one width"
        )
    return chosen


def choose_poolings(cache: LayerCache, kind: Kind, pooling: str | None, token: str | None) -> tuple[str, ...]:
    """The pooling of each input of a kind: those given, or the first that fits and is in the cache.

    Raises:
        UsageError: the cache lacks one that is needed; the message says how to extract it.
    """
    pooled = _stored(cache, pooling, _PREFERRED, "mean")
    if not kind.needs_token:
        return (pooled,)
    return pooled, _stored(cache, token, _TOKENS, "mean,cls (mean,last for a decoder)")


def _stored(cache: LayerCache, wanted: str | None, fitting: tuple[str, ...], how: str) -> str:
    names = fitting if wanted is None else (wanted,)
    for name in names:
        if name in cache.poolings:
            return name
    raise UsageError(
        f"the cache {cache.path} holds the pooling {named(cache.poolings)}, and {' or '.join(names)} is "
        f"needed: extract with --pooling {how if wanted is None else wanted}"
    )


def load_states(
    cache: LayerCache, layers: Sequence[str], pooling: str, view: str | None, rows: NDArray[np.int64]
) -> NDArray[np.float32]:
    """States of some rows, (m, l, d) float32; in a temporary file where they are too many for memory."""
    shape = (len(rows), len(layers), int(cache.manifest["widths"][layers[0]]))
    states = _room(shape)
    for at, name in enumerate(layers):
        start = 0
        for block in cache.blocks(name, pooling, view):
            here = np.flatnonzero((rows >= start) & (rows < start + len(block)))
            states[here, at] = block[rows[here] - start]
            start += len(block)
    return states


def _room(shape: tuple[int, ...]) -> NDArray[Any]:
    if 4 * int(np.prod(shape, dtype=np.int64)) <= _IN_MEMORY:
        return np.empty(shape, dtype=np.float32)
    with tempfile.NamedTemporaryFile(prefix="layerscope-") as file:  # stays open as long as it is mapped
        return np.memmap(file.name, dtype=np.float32, mode="w+", shape=shape)


def as_tensor(states: NDArray[np.float32], rows: NDArray[np.int64], device: torch.device) -> Tensor:
    """Some rows of states on a device."""
    return torch.from_numpy(np.ascontiguousarray(states[rows])).to(device)
