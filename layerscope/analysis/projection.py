"""The texts of a cache in two dimensions, layer by layer."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from layerscope.analysis.rows import MeasuredRows
from layerscope.cache import LayerCache, as_cache
from layerscope.errors import FrameError, UsageError, check_whole, nearest
from layerscope.frames import PROJECTION_COLUMNS

METHODS = ("pca", "umap")
FEWEST = 4
"""Texts that a projection needs at least: three span a plane whatever they are."""
_SHOWN = 6  # layers that are projected where nothing else is said
_TEXTS = 2000


def project_layers(
    cache: LayerCache | str | Path,
    layers: str | Sequence[str | int] | None = None,
    *,
    labels: str | Sequence[object] | None = None,
    pooling: str | None = None,
    method: str = "pca",
    texts: int = _TEXTS,
    seed: int = 0,
) -> pd.DataFrame:
    """Two coordinates for every text at every layer, from the cached vectors.

    Each layer is projected by itself: axes differ from layer to layer, and their signs mean nothing.
    Texts without a vector (empty, without a token for this pooling, not finite) have no coordinates, and a
    ``reason``.

    Args:
        cache: from ``extract``, ``LayerCache(path)``, or the path alone.
        layers: names or places of layers in the cache (a string separates them by commas), or ``all``; six,
            spread over the depth, where not given.
        labels: a column of the cache's rows, or one label a text; the column ``label`` where not given.
        pooling: which of the cache's poolings; the first where not given.
        method: ``pca`` (linear: distances keep their meaning) or ``umap`` (neighbours stay together,
            distances between groups mean little; needs the package umap-learn).
        texts: at most so many texts, drawn by ``seed``, the same for all layers.
        seed: of the draw of texts and of UMAP.

    Returns:
        A frame with the columns ``PROJECTION_COLUMNS``, a row per layer and text. ``explained`` is the share
        of the layer's variance on the two axes, in [0, 1], and missing for UMAP.

    Raises:
        UsageError: an unknown layer, pooling, column or method, labels of another number than the texts, or
            UMAP without its package.
        FrameError: fewer than four texts have a vector at a layer, or all have the same.

    Source: Pearson 1901 (principal components, by scikit-learn); McInnes, Healy and Melville 2018 (UMAP).
    """
    cache = as_cache(cache)
    check_whole("texts", texts, FEWEST)
    check_whole("seed", seed, 0)
    if method not in METHODS:
        raise UsageError(f"method is '{method}': {nearest(method, METHODS)}")
    if method == "umap" and importlib.util.find_spec("umap") is None:
        raise UsageError("UMAP needs the package umap-learn: pip install umap-learn, or take method pca")
    (name,) = cache.chosen_poolings(pooling or cache.poolings[0])
    of_text = _labels(cache, labels)
    chosen = _drawn(cache.n_rows, texts, seed)
    parts = []
    for layer in _layers(cache, layers):
        reasons = _reasons(cache, layer, name, chosen)
        points, explained = _project(cache, layer, name, chosen[reasons == ""], method, seed)
        coordinates = np.full((len(chosen), 2), np.nan)
        coordinates[reasons == ""] = points
        info = cache.layer_info(layer)
        parts.append(
            pd.DataFrame(
                {"model": cache.model, "corpus": cache.corpus, "pooling": name, "method": method,
                 "layer": info.blocks, "layer_name": layer, "depth": info.depth, "row": chosen,
                 "x": coordinates[:, 0], "y": coordinates[:, 1], "label": of_text[chosen],
                 "explained": explained, "reason": reasons},
                columns=list(PROJECTION_COLUMNS),
            )
        )  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def _layers(cache: LayerCache, wanted: str | Sequence[str | int] | None) -> list[str]:
    """The names of the layers asked for."""
    if wanted == "all":
        return cache.layers
    if wanted is None:
        places = np.linspace(0, len(cache.layers) - 1, min(_SHOWN, len(cache.layers))).round().astype(int)
        return [cache.layers[place] for place in places]
    names = [item.strip() for item in wanted.split(",")] if isinstance(wanted, str) else list(wanted)
    return list(dict.fromkeys(_layer(cache, name) for name in names))


def _layer(cache: LayerCache, name: str | int) -> str:
    """A layer by its name or its place among those of the cache."""
    try:
        place = int(name)
    except ValueError:
        return cache.layer_info(str(name)).name
    if not -len(cache.layers) <= place < len(cache.layers):
        raise UsageError(f"layer {place} does not exist: the cache holds {len(cache.layers)} layers")
    return cache.layers[place]


def _labels(cache: LayerCache, labels: str | Sequence[object] | None) -> NDArray[Any]:
    """The label of every text as a string, ``None`` where it has none; (n,)."""
    if labels is None:
        if "label" not in cache.rows.columns:
            return np.full(cache.n_rows, None, dtype=object)
        labels = "label"
    if isinstance(labels, str):
        if labels not in cache.rows.columns:
            raise UsageError(
                f"the cache's rows have no column '{labels}': {nearest(labels, map(str, cache.rows.columns))}"
            )
        labels = list(cache.rows[labels])
    if len(labels) != cache.n_rows:
        raise UsageError(f"{len(labels)} labels for {cache.n_rows} texts: give one a text")
    values = pd.Series(list(labels), dtype=object)
    return values.astype(str).astype(object).where(values.notna(), None).to_numpy(dtype=object)


def _drawn(n: int, most: int, seed: int) -> NDArray[np.int64]:
    """``most`` of ``n`` rows, ascending; all of them where they are no more."""
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, size=most, replace=False))


def _reasons(cache: LayerCache, layer: str, pooling: str, rows: NDArray[np.int64]) -> NDArray[Any]:
    """Why each of ``rows`` has no vector, empty where it has one."""
    measured = MeasuredRows(cache, drop_duplicates=False)
    reasons = np.full(len(rows), "", dtype=object)
    reasons[measured.broken(rows, layer)] = "not finite"
    reasons[~np.isin(rows, measured.usable(pooling))] = "no token to pool"
    reasons[cache.rows["empty"].to_numpy(dtype=bool)[rows]] = "empty text"
    return reasons


def _project(
    cache: LayerCache, layer: str, pooling: str, rows: NDArray[np.int64], method: str, seed: int
) -> tuple[NDArray[np.float64], float]:
    """Coordinates of ``rows``, (m, 2), and the share of the variance that they hold."""
    place = f"at layer {layer}, pooling {pooling}"
    if len(rows) < FEWEST:
        raise FrameError(f"{len(rows)} texts have a vector {place}: a projection needs {FEWEST} or more")
    vectors = cache.layer(layer, pooling)[rows].astype(np.float64)
    if not np.ptp(vectors, axis=0).any():
        raise FrameError(f"all {len(rows)} texts have the same vector {place}: there is nothing to project")
    if method == "umap":
        return _umap(vectors, seed), float("nan")
    from sklearn.decomposition import PCA

    fitted = PCA(n_components=2, svd_solver="full")
    return fitted.fit_transform(vectors), float(fitted.explained_variance_ratio_.sum())


def _umap(vectors: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    from umap import UMAP

    neighbours = min(15, len(vectors) - 1)
    fitted = UMAP(n_neighbors=neighbours, random_state=seed, n_jobs=1).fit_transform(vectors)
    return np.asarray(fitted, dtype=np.float64)
