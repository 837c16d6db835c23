"""What rows.parquet says of every text."""

from __future__ import annotations

import numpy as np
import pandas as pd

from layerscope.corpus import Corpus
from layerscope.extraction.content import Content
from layerscope.files import text_sha256


def rows_frame(
    corpus: Corpus, content: Content, nonfinite: dict[int, list[str]], recovered: dict[int, str]
) -> pd.DataFrame:
    """One row a text: counts and flags, then the corpus' own columns.

    Args:
        corpus: n texts.
        content: what was stored.
        nonfinite: by row, the layers with a value that is not finite.
        recovered: by row, how a row that was not finite became so.
    """
    stream = content.streams[0]
    rows = np.arange(content.n_rows)
    first = np.where(stream.text_of >= 0, stream.spread(stream.first_row), rows)
    kept = content.token_counts("kept")
    pieces = np.ones(len(stream.table.lengths), dtype=np.int64)
    for text, lengths in stream.table.pieces.items():
        pieces[text] = len(lengths)
    frame = pd.DataFrame(
        {
            "row": rows,
            "text_sha256": [text_sha256(text) for text in corpus.texts],
            "tokens": stream.spread(stream.table.lengths),
            "kept_tokens": kept,
            "sink_tokens": kept - content.token_counts("nosink"),
            "truncated": stream.spread(stream.table.truncated),
            "pieces": stream.spread(pieces),
            "empty": corpus.rows["empty"].to_numpy(dtype=bool),
            "duplicate_of": pd.array(np.where(first != rows, first, -1), dtype="Int64"),
            "undefined": _undefined(content),
            "nonfinite": [",".join(nonfinite.get(row, [])) for row in range(content.n_rows)],
            "recovered": [recovered.get(row, "") for row in range(content.n_rows)],
        }
    )
    frame["duplicate_of"] = frame["duplicate_of"].where(frame["duplicate_of"] >= 0)
    known = {"text", "view_text", "view_empty", *frame.columns}
    own = [column for column in corpus.rows.columns if column not in known]
    return frame.join(corpus.rows[own].reset_index(drop=True))


def _undefined(content: Content) -> list[str]:
    """For each row, the poolings (of a view: view/pooling) that have no token to pool."""
    missing: list[list[str]] = [[] for _ in range(content.n_rows)]
    for index, stream in enumerate(content.streams):
        for pooling in content.poolings:
            for row in np.flatnonzero(~content.defined(pooling, index)):
                missing[row].append(stream.prefix + pooling)
    return [",".join(names) for names in missing]
