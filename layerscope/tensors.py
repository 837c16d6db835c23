"""Safetensors files of a cache: one tensor memory-mapped, and the mark that says which rows it holds.

The format: eight bytes of header length, a JSON header with shapes and offsets, then the raw tensors.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerscope.errors import CacheError

VERIFY = "run 'layerscope verify' on the cache, then 'layerscope repair' to mend it"
_DTYPES: dict[str, Any] = {"F32": np.float32, "I64": np.int64, "I32": np.int32, "BOOL": np.bool_}
_MARK = "layerscope"


def read_tensor(path: Path, name: str) -> NDArray[Any]:
    """One tensor of a safetensors file, memory-mapped and read-only."""
    try:
        header, start = _read_header(path)
        entry = header[name]
        shape, dtype = tuple(entry["shape"]), _DTYPES[entry["dtype"]]
        if 0 in shape:
            return np.empty(shape, dtype)
        return np.memmap(path, dtype=dtype, mode="r", offset=start + entry["data_offsets"][0], shape=shape)
    except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
        raise CacheError(f"{path} is damaged or lacks the tensor '{name}': {VERIFY}") from error


def read_shapes(path: Path) -> tuple[dict[str, tuple[int, ...]], str]:
    """The shape of every tensor in the file, and the mark that its writer left, empty where there is none.

    Raises:
        ValueError: no safetensors file, or one that was cut.
    """
    try:
        header, start = _read_header(path)
        marks = header.pop("__metadata__", {})
        ends = [int(entry["data_offsets"][1]) for entry in header.values()]
        shapes = {name: tuple(map(int, entry["shape"])) for name, entry in header.items()}
    except (OSError, KeyError, TypeError, AttributeError, IndexError, struct.error) as error:
        raise ValueError("no safetensors file") from error
    if path.stat().st_size != start + max(ends, default=0):
        raise ValueError("of another size than its header says")
    return shapes, str(marks.get(_MARK, ""))


def pack(tensors: dict[str, NDArray[Any]], mark: str) -> bytes:
    """The content of a safetensors file with a mark.

    As bytes, because safetensors' own writing hides why a disk refuses; one mark, because the order of
    several is not fixed.
    """
    from safetensors.numpy import save

    return bytes(save(tensors, metadata={_MARK: mark}))


def mark_of(folder: str, number: int, start: int, stop: int, identity_sha256: str) -> str:
    """What a shard says of itself, so that one that was put in another's place is noticed.

    >>> mark_of("embeddings", 1, 64, 128, "abcdef")
    'embeddings, shard 1, rows 64 to 127, of abcdef'
    """
    return f"{folder}, shard {number}, rows {start} to {stop - 1}, of {identity_sha256[:16]}"


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """The JSON header, and where the tensors start."""
    with path.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        return json.loads(stream.read(min(length, path.stat().st_size))), 8 + length
