"""LayerCache: every layer's embeddings of a corpus on disk, and how they get there whole.

::

    manifest.json                    identity, layout, and the table of shards with checksums
    rows.parquet                     one row a text: flags, counts, the corpus' own columns
    embeddings/00000.safetensors …   tensors <pooling>/<layer_name>, (rows, width) float32
    views/<view>/00000.safetensors … the same for augmented views
    tokens/00000.safetensors …       with keep_tokens: <layer_name> (Σtokens, width), ids, kept, offsets
    token_metrics/00000.parquet …    metrics of token states, a row per text, layer and token set

Shard k of every folder holds the same rows. A shard is written under a temporary name, flushed and
renamed; the manifest, which lists it, is replaced after that. So a file that the manifest names is
whole, and a run that was killed goes on from there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from layerscope.errors import CacheError, UsageError, count_of, nearest
from layerscope.files import (
    explained,
    file_sha256,
    json_sha256,
    make_folder,
    write_atomic,
    write_bytes,
    write_json,
)
from layerscope.integrity import ROWS, checksum_problems, rows_problems, shard_problems
from layerscope.layers import Layer, as_layer_order, make_layer
from layerscope.manifest import (
    FORMAT,
    MANIFEST,
    SCHEMA,
    DamagedManifestError,
    find_manifest,
    layout_problems,
    lists_its_files,
    read_manifest,
    shard_file,
)
from layerscope.tensors import VERIFY, mark_of, pack, read_tensor

_HOLDER = ".writer.tmp"
_PARTS = ("embeddings", "views", "tokens", "token_metrics", "frames")


class LayerCache:
    """Read-only access to a cache folder.

    Opening checks the manifest, ``rows.parquet`` and the header of every shard; ``verify`` reads all of it.

    Args:
        path: the folder.
        allow_partial: also open one that is unfinished or damaged, as ``verify`` does.

    Raises:
        CacheError: the folder is not a cache, was written by a newer version, is unfinished or damaged.
    """

    def __init__(self, path: str | Path, *, allow_partial: bool = False) -> None:
        self.path = Path(path)
        self.manifest: dict[str, Any] = read_manifest(self.path)
        if self.manifest["status"] != "complete" and not allow_partial:
            done, planned = self.progress
            raise CacheError(
                f"the cache {self.path} is unfinished ({done} of {planned} shards): "
                "run the same extract command again to complete it"
            )
        if not allow_partial:
            self._refuse_damage()

    def __repr__(self) -> str:
        return (
            f"LayerCache('{self.path}': {self.n_rows} rows, {len(self.layers)} layers, "
            f"poolings {', '.join(self.poolings)})"
        )

    @property
    def model(self) -> str:
        """The model's name."""
        return str(self.manifest["model"]["name"])

    @property
    def corpus(self) -> str:
        """The corpus' name."""
        return str(self.manifest["corpus"]["name"])

    @property
    def layers(self) -> list[str]:
        """Layer names in order of computation."""
        return as_layer_order(self.manifest["layers"])

    @property
    def poolings(self) -> list[str]:
        """Names of the poolings that are stored."""
        return list(self.manifest["poolings"])

    @property
    def views(self) -> list[str]:
        """Names of the stored views of each text."""
        return list(self.manifest["views"])

    @property
    def n_rows(self) -> int:
        """Number of texts."""
        return int(self.manifest["rows"])

    @property
    def progress(self) -> tuple[int, int]:
        """Finished and planned shards."""
        return len(self.manifest["shards"]), int(self.manifest["planned_shards"])

    @cached_property
    def rows(self) -> pd.DataFrame:
        """One row a text: ``row``, flags, token counts and the corpus' own columns."""
        return _read_parquet(self.path / ROWS)

    def layer_info(self, name: str) -> Layer:
        """Position and depth of the layer called ``name``."""
        self._check("layer", name, self.layers)
        return make_layer(name, int(self.manifest["model"]["n_blocks"]))

    def chosen_poolings(self, pooling: str | Sequence[str] | None) -> list[str]:
        """One or several stored poolings, each once; all of them for ``None``.

        Raises:
            UsageError: one that is not stored.
        """
        given = [pooling] if isinstance(pooling, str) else pooling
        chosen = self.poolings if given is None else list(dict.fromkeys(given))
        for name in chosen:
            self._check("pooling", name, self.poolings)
        return chosen

    def layer(
        self, name: str | int | np.integer[Any], pooling: str | None = None, view: str | None = None
    ) -> NDArray[np.float32]:
        """All rows of one layer, (n, d) float32, read-only; row i is text i.

        Memory-mapped where the cache has one shard, otherwise joined in memory: use ``blocks`` to
        stream a large cache. Rows of empty texts, and of texts without a token for this pooling, are NaN.

        Args:
            name: a layer name, or an index into ``layers``.
            pooling: one of ``poolings``; the first where not given.
            view: one of ``views``; the texts themselves where not given.
        """
        parts = list(self.blocks(name, pooling, view))
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
        whole.flags.writeable = False
        return whole

    def blocks(
        self, name: str | int | np.integer[Any], pooling: str | None = None, view: str | None = None
    ) -> Iterator[NDArray[np.float32]]:
        """The rows of one layer shard by shard, each (rows, d) float32, memory-mapped and read-only."""
        if isinstance(name, int | np.integer):
            names = self.layers
            if not -len(names) <= name < len(names):
                raise UsageError(
                    f"layer {name} does not exist: the cache holds {count_of(len(names), 'layer')}"
                )
            name = names[name]
        pooling = self.poolings[0] if pooling is None else pooling
        self._check("layer", name, self.layers)
        self._check("pooling", pooling, self.poolings)
        if view is not None:
            self._check("view", view, self.views)
        folder = "embeddings" if view is None else f"views/{view}"
        for file in self._files(folder):
            yield read_tensor(file, f"{pooling}/{name}")

    def tokens(self, name: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Token states of one layer: values (Σtokens, d) float32 and offsets (n + 1,) int64.

        Raises:
            CacheError: the cache was extracted without ``keep_tokens``.
        """
        self._check("layer", name, self.layers)
        files = self._files("tokens")
        if not files:
            raise CacheError(f"the cache {self.path} holds no token states: extract with --keep-tokens")
        values = [read_tensor(file, name) for file in files]
        counts = [np.diff(read_tensor(file, "offsets")) for file in files]
        offsets = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
        return (values[0] if len(values) == 1 else np.concatenate(values)), offsets

    @cached_property
    def token_metrics(self) -> pd.DataFrame:
        """Metrics of token states: ``row``, ``layer_name``, ``tokens`` (token set), a column a metric."""
        files = self._files("token_metrics")
        if not files:
            return pd.DataFrame(columns=["row", "layer_name", "tokens"])
        return pd.concat([_read_parquet(file) for file in files], ignore_index=True)

    def verify(self) -> list[str]:
        """Check every file against its checksum and the manifest; the problems found, none if all is well."""
        problems = layout_problems(self.manifest)
        for shard in self.manifest["shards"]:
            damaged = [
                problem
                for file, sha256 in shard["files"].items()
                for problem in checksum_problems(self.path, file, sha256)
            ]
            problems += damaged or shard_problems(self.path, self.manifest, shard)
        if self.manifest["status"] == "complete":
            problems += rows_problems(self.path, self.manifest)
        done, planned = self.progress
        if done < planned:
            problems.append(
                f"{planned - done} of {planned} shards are not there yet (run the extract command again)"
            )
        return problems

    def _refuse_damage(self) -> None:
        """Raise where the files are not those that the manifest describes."""
        problems = layout_problems(self.manifest) or rows_problems(self.path, self.manifest)
        if not problems:
            for shard in self.manifest["shards"]:
                problems += shard_problems(self.path, self.manifest, shard)
        if problems:
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise CacheError(f"the cache {self.path} is damaged: {problems[0]}{more}: {VERIFY}")

    def _files(self, folder: str) -> list[Path]:
        """The shards of one folder in row order, each checked to be there."""
        names = [
            name
            for shard in sorted(self.manifest["shards"], key=lambda shard: int(shard["start"]))
            for name in shard["files"]
            if name.rsplit("/", 1)[0] == folder
        ]
        for name in names:
            if not (self.path / name).is_file():
                raise CacheError(f"{self.path / name} is missing: run 'layerscope verify {self.path}'")
        return [self.path / name for name in names]

    @staticmethod
    def _check(what: str, name: object, known: list[str]) -> None:
        if not isinstance(name, str):
            raise UsageError(f"expected the name of a {what}, got {name!r}")
        if name not in known:
            raise UsageError(
                f"the cache holds no {what} '{name}': {nearest(name, known) if known else 'it has none'}"
            )


def as_cache(cache: LayerCache | str | Path) -> LayerCache:
    """``cache`` itself, or the one in the folder of that name.

    Raises:
        UsageError: neither a cache nor a path.
        CacheError: see ``LayerCache``.
    """
    if isinstance(cache, LayerCache):
        return cache
    if isinstance(cache, str | Path):
        return LayerCache(cache)
    raise UsageError(f"expected a LayerCache or the path of one, got {type(cache).__name__}")


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise CacheError(f"{path} is missing or damaged: {VERIFY}") from error


# Writing


class CacheWriter:
    """Fills a cache folder shard by shard; use as a context manager.

    Args:
        path: the folder, which may not exist yet.
        layout: what the manifest says besides the shard table: identity, model, layers …
        overwrite: replace a cache that holds another extraction.
        adds_to: identity of a smaller extraction in the folder, whose shards are to be completed.

    Raises:
        CacheError: the folder holds something else, or another process is writing to it.
    """

    def __init__(
        self,
        path: Path,
        layout: dict[str, Any],
        *,
        overwrite: bool = False,
        adds_to: dict[str, Any] | None = None,
    ) -> None:
        self.path = path
        self._adds_to = None if adds_to is None else json_sha256(adds_to)
        self._manifest = {
            **layout,
            "format": FORMAT,
            "schema": SCHEMA,
            "status": "partial",
            "identity_sha256": json_sha256(layout["identity"]),
            "layout_sha256": json_sha256(layout),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "shards": [],
            "held": [],
        }
        self._overwrite = overwrite
        self._lock: int | None = None
        self._is_new = False
        self._made_folder = False
        self._outdates_frames = False
        self._waits = False

    def __enter__(self) -> CacheWriter:
        self._made_folder = not self.path.exists()
        make_folder(self.path)
        self._lock = _lock_folder(self.path)
        try:
            self._open()
            _sign(self.path)
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, error: type[BaseException] | None = None, *_: object) -> None:
        if self._lock is not None:
            with contextlib.suppress(OSError):
                (self.path / _HOLDER).unlink()
        if error is not None and self._is_new and not self._manifest["shards"]:
            self._withdraw()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _withdraw(self) -> None:
        """Leave nothing behind of a cache that failed before its first shard was whole."""
        _remove_parts(self.path)
        if self._made_folder:
            with contextlib.suppress(OSError):
                self.path.rmdir()

    def _open(self) -> None:
        _remove_temporaries(self.path)
        old = self._old_manifest()
        self._is_new = old is None
        if old is None:
            others = [entry.name for entry in self.path.iterdir()]
            if others:
                raise CacheError(
                    f"the folder {self.path} is not empty and not a cache (it holds {others[0]}): "
                    "choose another with -o"
                )
        elif old["identity_sha256"] == self._manifest["identity_sha256"]:
            self._manifest["created"] = old["created"]
            whole = {int(shard["number"]): shard for shard in old["shards"] if self._is_whole(shard)}
            self._manifest["shards"] = [whole[number] for number in sorted(whole)]
            self._manifest["held"] = old.get("held", [])
        elif old["identity_sha256"] == self._adds_to:
            self._manifest["held"] = [*old["shards"], *old.get("held", ())]
            self._outdates_frames = old["corpus"]["sha256"] != self._manifest["corpus"]["sha256"]
            self._waits = True
            return  # what is there stays as it is until the first shard of more is written
        elif self._overwrite:
            _remove_parts(self.path)
        else:
            raise CacheError(
                f"the cache {self.path} holds another extraction "
                f"(different: {_differences(old, self._manifest)}): "
                "choose another folder with -o, or replace it with --overwrite"
            )
        write_json(self.path / MANIFEST, self._manifest)

    def _old_manifest(self) -> dict[str, Any] | None:
        """The manifest that is there; one that cannot be read is dropped where it may be replaced."""
        try:
            return find_manifest(self.path)
        except DamagedManifestError:
            if not self._overwrite:
                raise
            _remove_parts(self.path)
            return None

    def _is_whole(self, shard: dict[str, Any]) -> bool:
        """Whether a shard that the old manifest lists need not be written again."""
        if not self._is_planned(shard) or not lists_its_files(shard, self._manifest["views"]):
            return False
        if any(checksum_problems(self.path, file, sha256) for file, sha256 in shard["files"].items()):
            return False
        return not shard_problems(self.path, self._manifest, shard)

    def held(self, number: int) -> dict[str, Any] | None:
        """What the table says of a shard of the smaller extraction; ``None`` where it is not whole."""
        for shard in self._manifest["held"]:
            if shard["number"] == number and self._is_planned(shard):
                broken = (
                    checksum_problems(self.path, file, sha256) for file, sha256 in shard["files"].items()
                )
                return None if any(broken) else dict(shard)
        return None

    def _is_planned(self, shard: dict[str, Any]) -> bool:
        """Whether a shard holds the rows that its number stands for."""
        number, bounds = int(shard["number"]), [*self._manifest["starts"], self._manifest["rows"]]
        return [shard["start"], shard["stop"]] == bounds[number : number + 2]

    @property
    def bytes_there(self) -> int:
        """Size of the shards that need not be written, or are to be completed."""
        files = {
            file for key in ("shards", "held") for shard in self._manifest[key] for file in shard["files"]
        }
        return sum((self.path / file).stat().st_size for file in files if (self.path / file).is_file())

    @property
    def finished(self) -> set[int]:
        """Numbers of the shards that are already there and whole."""
        return {int(shard["number"]) for shard in self._manifest["shards"]}

    @property
    def nonfinite(self) -> dict[int, list[str]]:
        """Layers with a value that is not finite, by row number."""
        return {
            int(row): list(layers)
            for shard in self._manifest["shards"]
            for row, layers in shard["nonfinite"].items()
        }

    @property
    def recovered(self) -> dict[int, str]:
        """How rows that were not finite became so, by row number."""
        return {
            int(row): str(how)
            for shard in self._manifest["shards"]
            for row, how in shard.get("recovered", {}).items()
        }

    def write_shard(
        self,
        number: int,
        start: int,
        stop: int,
        tensors: dict[str, dict[str, NDArray[Any]]],
        token_metrics: pd.DataFrame | None,
        nonfinite: dict[int, list[str]],
        recovered: dict[int, str] | None = None,
    ) -> None:
        """Write rows [start, stop) of every folder, then name them in the manifest.

        Args:
            number: the shard's number.
            start: first row.
            stop: one past the last row.
            tensors: for each folder (``embeddings``, ``views/<view>``, ``tokens``) its named tensors.
            token_metrics: a frame, or ``None``.
            nonfinite: by row number, the layers with a value that is not finite.
            recovered: by row number, how a row that was not finite became so: ``alone`` or ``float32``.
        """
        self._begin()
        files = {}
        for folder, named in tensors.items():
            target = self.path / folder / shard_file(folder, number)
            make_folder(target.parent)
            content = pack(named, mark_of(folder, number, start, stop, self._manifest["identity_sha256"]))
            write_bytes(target, content)
            files[f"{folder}/{target.name}"] = file_sha256(target)
        if token_metrics is not None:
            target = self.path / "token_metrics" / shard_file("token_metrics", number)
            make_folder(target.parent)
            write_atomic(target, lambda temporary: token_metrics.to_parquet(temporary, index=False))
            files[f"token_metrics/{target.name}"] = file_sha256(target)
        entry = {
            "number": number,
            "start": start,
            "stop": stop,
            "files": files,
            "nonfinite": {str(row): layers for row, layers in nonfinite.items()},
            "recovered": {str(row): how for row, how in (recovered or {}).items()},
        }
        self._manifest["shards"] = sorted(
            [*self._manifest["shards"], entry], key=lambda shard: shard["number"]
        )
        self._manifest["held"] = [shard for shard in self._manifest["held"] if shard["number"] != number]
        write_json(self.path / MANIFEST, self._manifest)

    def _begin(self) -> None:
        """Say that the folder is being added to, before its first file is replaced."""
        if not self._waits:
            return
        self._waits = False
        write_json(self.path / MANIFEST, self._manifest)
        if self._outdates_frames:
            shutil.rmtree(self.path / "frames", ignore_errors=True)

    def finish(self, rows: pd.DataFrame) -> None:
        """Write ``rows.parquet`` and mark the cache complete."""
        del self._manifest["held"]
        target = self.path / ROWS
        write_atomic(target, lambda temporary: rows.to_parquet(temporary, index=False))
        self._manifest |= {"status": "complete", "rows_sha256": file_sha256(target)}
        write_json(self.path / MANIFEST, self._manifest)


def _lock_folder(folder: Path) -> int | None:
    """Take an exclusive lock on the folder itself; the system drops it when the process ends."""
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        return None
    with explained(folder):
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise CacheError(
            f"{_holder(folder)} is writing to the cache {folder}: wait until it has finished, or stop it"
        ) from error
    return descriptor


def _sign(folder: Path) -> None:
    """Say who holds the lock; what a killed process leaves is removed with its temporary files."""
    with contextlib.suppress(OSError):  # a courtesy, which a full disk may refuse
        (folder / _HOLDER).write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")


def _holder(folder: Path) -> str:
    try:
        return (folder / _HOLDER).read_text(encoding="utf-8") or "another process"
    except OSError:
        return "another process"


def _remove_temporaries(folder: Path) -> None:
    for leftover in folder.rglob(".*.tmp"):
        leftover.unlink(missing_ok=True)


def _remove_parts(folder: Path) -> None:
    with explained(folder), contextlib.suppress(FileNotFoundError):
        (folder / MANIFEST).unlink()
        (folder / ROWS).unlink(missing_ok=True)
        for part in _PARTS:
            shutil.rmtree(folder / part, ignore_errors=True)


def _differences(old: dict[str, Any], new: dict[str, Any]) -> str:
    """Which parts of two identities differ, in words."""
    keys = sorted({*old["identity"], *new["identity"]})
    different = [key for key in keys if old["identity"].get(key) != new["identity"].get(key)]
    return ", ".join(different) or "layerscope's own format"
