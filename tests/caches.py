"""Small caches on disk from given arrays, without a model."""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
import pandas as pd

from layerscope.cache import CacheWriter, LayerCache
from layerscope.layers import as_layer_order


def make_cache(
    path,
    embeddings,
    *,
    n_blocks,
    texts=None,
    pairs=False,
    views=None,
    token_metrics=None,
    undefined=None,
    columns=None,
    shards=1,
    model="tiny",
    corpus="toy",
):
    """A finished ``LayerCache`` at ``path``; the flags of the rows follow from texts and arrays.

    Args:
        path: a folder that does not exist yet.
        embeddings: ``"pooling/layer"`` -> (n, d).
        n_blocks: how many blocks the model has.
        texts: n strings, where not given all different; blank ones are empty texts, equal ones duplicates.
        pairs: whether rows 2i and 2i + 1 are a pair.
        views: name -> ``"pooling/layer"`` -> (n, d).
        token_metrics: token set -> metric -> layer -> (n,).
        undefined: row -> poolings (of a view: view/pooling) without a token.
        columns: more columns of the rows, (n,) each.
        shards: how many files the rows are spread over.
        model: its name.
        corpus: its name.
    """
    n = len(next(iter(embeddings.values())))
    texts = [f"text {i}" for i in range(n)] if texts is None else list(texts)
    undefined = undefined or {}
    empty = [not text.strip() for text in texts]
    streams = {
        folder: {name: _stored(array, name, prefix, empty, undefined) for name, array in arrays.items()}
        for folder, prefix, arrays in [
            ("embeddings", "", embeddings),
            *((f"views/{view}", f"{view}/", arrays) for view, arrays in (views or {}).items()),
        ]
    }
    layers = as_layer_order(dict.fromkeys(name.split("/")[1] for name in embeddings))
    bounds = np.linspace(0, n, shards + 1).astype(int).tolist()
    layout = {
        "identity": {"made": "for a test"},
        "request": {},
        "made_of": {},
        "model": {
            "name": model,
            "class": "Tiny",
            "n_blocks": n_blocks,
            "blocks": "blocks",
            "final_norm": None,
        },
        "corpus": {"name": corpus, "sha256": "", "pairs": pairs, "notes": []},
        "rows": n,
        "layers": layers,
        "widths": {name.split("/")[1]: array.shape[1] for name, array in streams["embeddings"].items()},
        "poolings": list(dict.fromkeys(name.split("/")[0] for name in embeddings)),
        "views": list(views or {}),
        "token_metrics": [],
        "sinks": None,
        "starts": bounds[:-1],
        "planned_shards": shards,
        "versions": {},
    }
    nonfinite = _nonfinite(streams, empty, undefined)
    table = _token_table(token_metrics)
    with CacheWriter(path, layout) as writer:
        for number, (start, stop) in enumerate(itertools.pairwise(bounds)):
            writer.write_shard(
                number,
                start,
                stop,
                {
                    folder: {name: array[start:stop] for name, array in arrays.items()}
                    for folder, arrays in streams.items()
                },
                None if table is None else table[table["row"].between(start, stop - 1)],
                {row: layers for row, layers in nonfinite.items() if start <= row < stop},
            )
        writer.finish(_rows_frame(texts, empty, undefined, nonfinite, pairs, columns))
    return LayerCache(path)


def _stored(array, name, prefix, empty, undefined):
    stored = np.array(array, dtype=np.float32)
    stored[empty] = np.nan
    for row, names in undefined.items():
        if prefix + name.split("/")[0] in names:
            stored[row] = np.nan
    return stored


def _nonfinite(streams, empty, undefined):
    found: dict[int, list[str]] = {}
    for folder, arrays in streams.items():
        prefix = folder.removeprefix("embeddings").removeprefix("views/")
        prefix = f"{prefix}/" if prefix else ""
        for name, array in arrays.items():
            pooling, layer = name.split("/")
            for row in np.flatnonzero(~np.isfinite(array).all(axis=1)):
                layers = found.setdefault(int(row), [])
                has_tokens = not empty[row] and prefix + pooling not in undefined.get(row, [])
                if has_tokens and prefix + layer not in layers:
                    layers.append(prefix + layer)
    return found


def _token_table(token_metrics):
    if token_metrics is None:
        return None
    parts = []
    for token_set, metrics in token_metrics.items():
        layers = next(iter(metrics.values()))
        for layer in layers:
            columns = {metric: np.asarray(values[layer], dtype=float) for metric, values in metrics.items()}
            rows = np.arange(len(next(iter(columns.values()))))
            parts.append(pd.DataFrame({"row": rows, "layer_name": layer, "tokens": token_set, **columns}))
    return pd.concat(parts, ignore_index=True)


def _rows_frame(texts, empty, undefined, nonfinite, pairs, columns):
    n = len(texts)
    first = {text: row for row, text in reversed(list(enumerate(texts)))}
    repeats = [first[text] if first[text] != row else None for row, text in enumerate(texts)]
    frame = pd.DataFrame(
        {
            "row": np.arange(n),
            "text_sha256": [hashlib.sha256(text.encode()).hexdigest() for text in texts],
            "tokens": [len(text.split()) for text in texts],
            "truncated": False,
            "empty": empty,
            "duplicate_of": pd.array(repeats, dtype="Int64"),
            "undefined": [",".join(undefined.get(row, [])) for row in range(n)],
            "nonfinite": [",".join(nonfinite.get(row, [])) for row in range(n)],
        }
    )
    if pairs:
        frame["pair"], frame["side"] = np.arange(n) // 2, np.arange(n) % 2
    return frame.assign(**(columns or {}))
