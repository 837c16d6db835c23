"""The manifest of a cache: what it must say, and whether what it says agrees with itself."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from layerscope.errors import CacheError, UsageError
from layerscope.files import json_sha256
from layerscope.layers import make_layer

SCHEMA = 1
FORMAT = "layerscope-cache"
MANIFEST = "manifest.json"
# What CacheWriter adds to the layout that it is given.
OWN_KEYS = (
    "format", "schema", "status", "identity_sha256", "layout_sha256", "created", "shards", "held",
    "rows_sha256",
)  # fmt: skip

_TEXT_OR_NONE = (str, type(None))
_KEYS: dict[str, type | tuple[type, ...]] = {
    "status": str,
    "created": str,
    "identity": dict,
    "identity_sha256": str,
    "request": dict,
    "made_of": dict,
    "rows": int,
    "layers": list,
    "widths": dict,
    "poolings": list,
    "views": list,
    "token_metrics": list,
    "sinks": (dict, type(None)),
    "versions": dict,
    "planned_shards": int,
    "shards": list,
    "model": dict,
    "model.name": str,
    "model.class": str,
    "model.n_blocks": int,
    "model.blocks": str,
    "model.final_norm": _TEXT_OR_NONE,
    "corpus": dict,
    "corpus.name": str,
    "corpus.sha256": str,
    "corpus.pairs": bool,
}
_SHARD_KEYS = {"number": int, "start": int, "stop": int, "files": dict, "nonfinite": dict}
_ALWAYS, _OPTIONAL = {"embeddings"}, {"tokens", "token_metrics"}


class DamagedManifestError(CacheError):
    """The manifest is there but is no JSON, or lacks what every manifest has."""


def find_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a cache folder, or ``None`` where there is none."""
    return read_manifest(folder) if (folder / MANIFEST).is_file() else None


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a cache folder, with every key there and of its type.

    Raises:
        CacheError: no cache, or one of a newer layerscope.
        DamagedManifestError: it cannot be read, or lacks something.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise CacheError(f"no cache at {folder}: make one with 'layerscope extract MODEL CORPUS -o {folder}'")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise DamagedManifestError(
            f"{path} cannot be read ({error}): extract again with --overwrite"
        ) from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise CacheError(f"{path} is not the manifest of a layerscope cache: choose another folder")
    schema: Any = manifest.get("schema")
    if _is(schema, int) and schema > SCHEMA:
        raise CacheError(
            f"the cache {folder} has schema {schema}, this layerscope reads up to {SCHEMA}: upgrade"
        )
    for problem in _key_problems(manifest):
        raise DamagedManifestError(f"{path} is damaged ({problem}): extract again with --overwrite")
    return manifest


def _key_problems(manifest: dict[str, Any]) -> Iterable[str]:
    """What is missing or of another type."""
    for key, kind in {"schema": int, **_KEYS}.items():
        value: Any = manifest
        for part in key.split("."):
            if part not in value:
                yield f"it lacks '{key}'"
                return
            value = value[part]
        if not _is(value, kind):
            yield f"'{key}' is {value!r}"
            return
    if manifest["status"] == "complete" and not _is(manifest.get("rows_sha256"), str):
        yield "it lacks 'rows_sha256'"
    if not _is(manifest.get("held", []), list):
        yield f"'held' is {manifest['held']!r}"
        return
    for at, shard in enumerate([*manifest["shards"], *manifest.get("held", ())]):
        for key, kind in _SHARD_KEYS.items():
            if not isinstance(shard, dict) or not _is(shard.get(key), kind):
                yield f"shard {at} of its table lacks '{key}'"
    for key in ("layers", "poolings", "views"):
        names = manifest[key]
        if not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
            yield f"'{key}' is no list of different names"
    if not all(_is(width, int) and width > 0 for width in manifest["widths"].values()):
        yield "'widths' holds something else than widths"


def _is(value: Any, kind: type | tuple[type, ...]) -> bool:
    """``isinstance``, but true and false are no numbers."""
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def layout_problems(manifest: dict[str, Any]) -> list[str]:
    """Where the manifest contradicts itself, each in one line; none if all is well."""
    found = [*_name_problems(manifest), *_table_problems(manifest)]
    layout = {key: value for key, value in manifest.items() if key not in OWN_KEYS}
    sha256 = manifest.get("layout_sha256")  # which caches of earlier versions lack
    if not found and sha256 is not None and sha256 != json_sha256(layout):
        found.append("it was edited after it was written (its layout_sha256 is another)")
    return [f"{MANIFEST}: {problem}" for problem in found]


def _name_problems(manifest: dict[str, Any]) -> Iterable[str]:
    for key, least in (("rows", 1), ("planned_shards", 1), ("model.n_blocks", 1)):
        value = manifest["model"]["n_blocks"] if "." in key else manifest[key]
        if value < least:
            yield f"'{key}' is {value}"
            return
    for key in ("layers", "poolings"):
        if not manifest[key]:
            yield f"'{key}' is empty"
    for name in manifest["layers"]:
        try:
            make_layer(name, manifest["model"]["n_blocks"])
        except UsageError as error:
            yield str(error)
    if set(manifest["widths"]) != set(manifest["layers"]):
        yield "'widths' and 'layers' name different layers"


def _table_problems(manifest: dict[str, Any]) -> Iterable[str]:
    """Shards that are listed twice, overlap, leave rows out, or list other files than they should."""
    shards = sorted(manifest["shards"], key=lambda shard: int(shard["number"]))
    is_complete = manifest["status"] == "complete"
    if is_complete and len(shards) != manifest["planned_shards"]:
        yield f"it lists {len(shards)} of {manifest['planned_shards']} shards, yet says it is complete"
    if any(shard["start"] >= shard["stop"] for shard in shards):
        yield "a shard holds no rows"
    for one, next_one in itertools.pairwise(shards):
        if one["number"] == next_one["number"]:
            yield f"it lists shard {one['number']} twice"
        elif one["number"] + 1 == next_one["number"] and one["stop"] != next_one["start"]:
            yield f"shard {next_one['number']} does not start where shard {one['number']} stops"
    covered = sum(shard["stop"] - shard["start"] for shard in shards)
    if (is_complete and covered != manifest["rows"]) or covered > manifest["rows"]:
        yield f"it says {manifest['rows']} rows, its shards hold {covered}"
    if is_complete and shards and shards[0]["start"] != 0:
        yield f"its shards start at row {shards[0]['start']}"
    folders = [_folders(shard) for shard in shards]
    for shard, listed in zip(shards, folders, strict=True):
        if not lists_its_files(shard, manifest["views"]) or listed != folders[0]:
            yield f"shard {shard['number']} lists other files than it should"


def lists_its_files(shard: dict[str, Any], views: Iterable[str]) -> bool:
    """Whether a shard of the table names a file of the texts and of every view, and no strange ones."""
    folders = _folders(shard)
    needed = _ALWAYS | {f"views/{view}" for view in views}
    return folders is not None and needed <= folders <= needed | _OPTIONAL


def _folders(shard: dict[str, Any]) -> set[str] | None:
    """The folders of the shard's files; ``None`` where a file is not named after the shard."""
    folders = set()
    for file in shard["files"]:
        folder, _, name = str(file).rpartition("/")
        if name != shard_file(folder, int(shard["number"])):
            return None
        folders.add(folder)
    return folders


def shard_file(folder: str, number: int) -> str:
    """Name of a shard's file in one of the folders.

    >>> shard_file("embeddings", 3)
    '00003.safetensors'
    """
    return f"{number:05d}." + ("parquet" if folder == "token_metrics" else "safetensors")
