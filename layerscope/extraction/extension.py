"""What a folder holds already of the extraction asked for, so that only the rest of it is computed.

Most of an extraction's identity decides every number: model, tokenizer, what is put around a text, which
tokens count. The rest, its extent, says how much is stored: layers, poolings, views, token metrics, texts. A
folder whose numbers are decided alike takes more of them, and keeps those it has.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from layerscope.cache import LayerCache
from layerscope.corpus import Corpus
from layerscope.errors import UsageError, count_of
from layerscope.files import text_sha256
from layerscope.integrity import ROWS, rows_problems
from layerscope.layers import RESIDUAL, parse_layers
from layerscope.manifest import DamagedManifestError, find_manifest, layout_problems
from layerscope.sinks import SinkReport
from layerscope.views import ViewPlan

# Keys of an identity that say how much is stored; sinks follow from the corpus, or from what is there.
_EXTENT = {"corpus", "layers", "pooling", "views", "token_metrics", "keep_tokens", "sinks"}


@dataclass(frozen=True)
class Asked:
    """How much one call of ``extract`` asks for.

    Attributes:
        layers: items of a selection, as ``parse_layers`` takes them.
        poolings: names, or ``["auto"]``.
        views: of the corpus, or ``None``.
        token_metrics: names.
        keep_tokens: whether token states are stored.
        sites: of ``layerscope.layers.SITES``.
    """

    layers: list[str]
    poolings: list[str]
    views: ViewPlan | None
    token_metrics: tuple[str, ...]
    keep_tokens: bool
    sites: tuple[str, ...] = RESIDUAL


def finished_cache(path: Path, request: dict[str, Any], asked: Asked, corpus: Corpus) -> LayerCache | None:
    """The cache at ``path`` where it is complete and whole and holds all that is asked for, else ``None``.

    Needs no model. Every checksum is checked, so that asking again mends what is damaged.

    Args:
        path: the folder.
        request: what decides every number, as far as it is known before the model is loaded.
        asked: how much is wanted.
        corpus: of which texts.
    """
    try:
        manifest = find_manifest(path)
    except DamagedManifestError:  # told, or replaced, by the writer
        return None
    if manifest is None or manifest["status"] != "complete" or layout_problems(manifest):
        return None
    if manifest["request"] != request or manifest["identity"]["corpus"] != corpus.sha256:
        return None
    if not _holds(manifest, asked):
        return None
    return None if LayerCache(path, allow_partial=True).verify() else LayerCache(path)


def _holds(manifest: dict[str, Any], asked: Asked) -> bool:
    """Whether a cache stores all that is asked for."""
    identity, model = manifest["identity"], manifest["model"]
    try:
        layers = parse_layers(asked.layers, model["n_blocks"], model["final_norm"] is not None, asked.sites)
    except UsageError:  # told once the model is loaded
        return False
    held_views = ViewPlan.of_identity(identity["views"])
    if asked.views is not None and (held_views is None or not held_views.covers(asked.views)):
        return False
    poolings = {"mean"} if asked.poolings == ["auto"] else {*asked.poolings}
    return (
        {layer.name for layer in layers} <= {*identity["layers"]}
        and poolings <= {*identity["pooling"]}
        and (asked.poolings != ["auto"] or manifest["sinks"] is not None)
        and {*asked.token_metrics} <= {*identity["token_metrics"]}
        and asked.keep_tokens <= identity["keep_tokens"]
    )


@dataclass(frozen=True)
class Held:
    """An extraction on disk that the one asked for adds to, or goes on with.

    Attributes:
        manifest: of the cache.
        rows: how many texts its shards are planned for.
    """

    manifest: dict[str, Any]
    rows: int

    @property
    def identity(self) -> dict[str, Any]:
        """Its own."""
        identity: dict[str, Any] = self.manifest["identity"]
        return identity

    @property
    def starts(self) -> list[int]:
        """First row of each of its shards."""
        return list(self.manifest["starts"])

    @property
    def sinks(self) -> SinkReport | None:
        """The attention sinks that were found in its texts, which hold for all that is added."""
        found = self.manifest["sinks"]
        return None if found is None else SinkReport.of_dict(found)

    def with_views(self, asked: ViewPlan | None) -> ViewPlan | None:
        """The views of both."""
        held = ViewPlan.of_identity(self.identity["views"])
        if held is None or asked is None:
            return asked or held
        return held if held.covers(asked) else asked

    def additions(self, identity: dict[str, Any], rows: int) -> tuple[str, ...]:
        """A line for people: what is added to what is there; none where nothing is."""
        parts = [
            *self._named("layer", "layers", identity),
            *self._named("pooling", "pooling", identity),
            *self._named("token metric", "token_metrics", identity),
        ]
        held = ViewPlan.of_identity(self.identity["views"])
        wanted = ViewPlan.of_identity(identity["views"])
        more = (wanted.count if wanted else 0) - (held.count if held else 0)
        parts += [count_of(more, "view")] if more else []
        parts += ["token states"] if identity["keep_tokens"] and not self.identity["keep_tokens"] else []
        parts += [count_of(rows - self.rows, "text")] if rows > self.rows else []
        return (f"adds to what the cache holds: {'; '.join(parts)}",) if parts else ()

    def _named(self, what: str, key: str, identity: dict[str, Any]) -> list[str]:
        new = [name for name in identity[key] if name not in self.identity[key]]
        return [f"{what} {', '.join(new)}"] if new else []


def find_held(path: Path, basis: dict[str, Any], views: ViewPlan | None, corpus: Corpus) -> Held | None:
    """The extraction at ``path`` where its numbers are decided alike and its texts begin the corpus.

    Args:
        path: the folder.
        basis: what decides every number.
        views: that are asked for.
        corpus: whose first texts the cache may hold.
    """
    try:
        manifest = find_manifest(path)
    except DamagedManifestError:
        return None
    if manifest is None or "starts" not in manifest or layout_problems(manifest):
        return None
    identity = manifest["identity"]
    if any(identity.get(key) != basis.get(key) for key in (identity.keys() | basis.keys()) - _EXTENT):
        return None
    held_views = ViewPlan.of_identity(identity["views"])
    if views is not None and held_views is not None:
        if not (held_views.covers(views) or views.covers(held_views)):
            return None
    elif held_views is not None and held_views.kind == "column" and "view_text" not in corpus.rows.columns:
        return None
    if identity["corpus"] == corpus.sha256:
        return Held(manifest, corpus.n_texts)
    same_views = held_views is None or held_views.kind != "column"  # whose texts are not on record
    if same_views and manifest["status"] == "complete" and _begins(path, manifest, corpus.texts):
        return Held(manifest, int(manifest["rows"]))
    return None


def _begins(path: Path, manifest: dict[str, Any], texts: Iterable[str]) -> bool:
    """Whether the texts begin with those of a finished cache."""
    if rows_problems(path, manifest):
        return False
    held = pd.read_parquet(path / ROWS, columns=["text_sha256"])["text_sha256"].tolist()
    first = [text_sha256(text) for text, _ in zip(texts, held, strict=False)]
    return first == held
