"""Whether the files of a cache are those that its manifest describes, told from their headers alone.

Reading every byte is for ``LayerCache.verify``; this is cheap enough for every opening.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from layerscope.files import file_sha256
from layerscope.tensors import mark_of, read_shapes

ROWS = "rows.parquet"
_ROW_COLUMNS = (
    "row",
    "text_sha256",
    "tokens",
    "truncated",
    "empty",
    "duplicate_of",
    "undefined",
    "nonfinite",
)


def checksum_problems(folder: Path, file: str, sha256: str) -> list[str]:
    """Whether one file is there with the checksum of the manifest; this reads all of it."""
    path = folder / file
    if not path.is_file():
        return [f"{file}: missing"]
    if file_sha256(path) == sha256:
        return []
    return [f"{file}: damaged (its checksum is not the one in the manifest)"]


def rows_problems(folder: Path, manifest: dict[str, Any]) -> list[str]:
    """Whether ``rows.parquet`` is the manifest's, with as many rows."""
    import pyarrow.parquet

    found = checksum_problems(folder, ROWS, manifest["rows_sha256"])
    if found:
        return found
    try:
        facts = pyarrow.parquet.read_metadata(folder / ROWS)
    except (OSError, ValueError) as error:
        return [f"{ROWS}: damaged ({(str(error).splitlines() or ['unreadable'])[0]})"]
    if facts.num_rows != manifest["rows"]:
        return [f"{ROWS}: it has {facts.num_rows} rows, the manifest says {manifest['rows']}"]
    columns = facts.schema.to_arrow_schema().names
    pair_columns = ("pair", "side") if manifest["corpus"]["pairs"] else ()
    lacking = [name for name in (*_ROW_COLUMNS, *pair_columns) if name not in columns]
    return [f"{ROWS}: it lacks the column(s) {', '.join(lacking)}"] if lacking else []


def shard_problems(folder: Path, manifest: dict[str, Any], shard: dict[str, Any]) -> list[str]:
    """Whether the files of one shard hold what they should; files that are missing are passed over."""
    found = []
    for file in shard["files"]:
        path = folder / file
        if path.is_file():
            found += [f"{file}: {problem}" for problem in _file_problems(path, file, manifest, shard)]
    return found


def _file_problems(path: Path, file: str, manifest: dict[str, Any], shard: dict[str, Any]) -> Iterable[str]:
    kind = file.rsplit("/", 1)[0]
    rows = shard["stop"] - shard["start"]
    if kind == "token_metrics":
        yield from _table_problems(path, shard, rows * len(manifest["layers"]))
        return
    try:
        shapes, mark = read_shapes(path)
    except ValueError as error:
        yield f"damaged ({error})"
        return
    own = mark_of(kind, shard["number"], shard["start"], shard["stop"], manifest["identity_sha256"])
    if mark and mark != own:  # shards of earlier versions have no mark
        yield f"it is another shard ({mark})"
    elif kind == "tokens":
        yield from _token_problems(shapes, manifest["widths"], rows)
    else:
        widths = manifest["widths"]
        expected = {
            f"{pooling}/{layer}": (rows, width)
            for pooling in manifest["poolings"]
            for layer, width in widths.items()
        }
        yield from _differences(shapes, expected)


def _differences(found: dict[str, tuple[int, ...]], expected: Mapping[str, tuple[int, ...]]) -> Iterable[str]:
    """The first name or shape that is not as expected."""
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            yield f"it lacks the tensor '{name}' that the manifest names"
        elif name not in expected:
            yield f"it holds the tensor '{name}' that the manifest does not name"
        elif found[name] != expected[name]:
            yield f"the tensor '{name}' has shape {found[name]}, the manifest says {expected[name]}"
        else:
            continue
        return


def _token_problems(shapes: dict[str, tuple[int, ...]], widths: dict[str, int], rows: int) -> Iterable[str]:
    tokens = shapes.get("ids", (0,))[0]
    expected: dict[str, tuple[int, ...]] = {layer: (tokens, width) for layer, width in widths.items()}
    return _differences(shapes, expected | {"ids": (tokens,), "kept": (tokens,), "offsets": (rows + 1,)})


def _table_problems(path: Path, shard: dict[str, Any], rows: int) -> Iterable[str]:
    """Token metrics: whole rounds of rows, and the row numbers of this shard."""
    import pyarrow.parquet

    try:
        facts = pyarrow.parquet.read_metadata(path)
    except (OSError, ValueError):
        yield "damaged (no parquet file)"
        return
    if not facts.num_rows or not rows or facts.num_rows % rows:
        yield f"it has {facts.num_rows} rows, no multiple of {rows}"
        return
    at = facts.schema.to_arrow_schema().names.index("row") if "row" in facts.schema.names else None
    if at is None:
        yield "it lacks the column row"
        return
    parts = [facts.row_group(part).column(at).statistics for part in range(facts.num_row_groups)]
    known = [part for part in parts if part is not None and part.has_min_max]
    if known and (min(p.min for p in known), max(p.max for p in known)) != (
        shard["start"],
        shard["stop"] - 1,
    ):
        yield "it holds the rows of another shard"
