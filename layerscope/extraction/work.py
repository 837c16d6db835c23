"""Texts that go through the model in the same batches, whichever streams they are of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from layerscope.extraction.content import Content
from layerscope.tokens import TokenTable, join_tables


@dataclass(frozen=True)
class Work:
    """Distinct texts of one or several streams, numbered anew.

    Attributes:
        table: their tokens.
        sets: which tokens count, each (Σtokens,).
        stream: (n,) index of each text's stream.
        text: (n,) its number there.
        row: (n,) the row of the shard that it belongs to; views of one text have the same.
        dropout: seed of the dropout that the model runs with; ``None`` where it runs without.
    """

    table: TokenTable
    sets: dict[str, NDArray[np.bool_]]
    stream: NDArray[np.int64]
    text: NDArray[np.int64]
    row: NDArray[np.int64]
    dropout: int | None

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Of all texts, (n,)."""
        return np.arange(len(self.text), dtype=np.int64)

    def dropout_seed(self, numbers: NDArray[np.int64], *piece: int) -> int | None:
        """One for every batch, from its streams and its first text; ``None`` where there is no dropout."""
        if self.dropout is None:
            return None
        parts = [self.dropout, *np.unique(self.stream[numbers]), self.text[numbers[0]], *piece]
        return int(np.random.SeedSequence([int(part) for part in parts]).generate_state(1)[0])


def make_work(content: Content, texts_of: Mapping[int, NDArray[np.int64]], first_row: int) -> Work:
    """The texts with the given numbers of each stream; all of the streams run with dropout, or none.

    Args:
        content: what is stored, with the streams.
        texts_of: by index of the stream, numbers of its texts; at least one stream.
        first_row: of the shard.
    """
    parts = []
    for index, texts in texts_of.items():
        stream = content.streams[index]
        places = stream.table.places(texts)
        parts.append(
            Work(
                table=stream.table.take(texts),
                sets={name: mask[places] for name, mask in content.sets[index].items()},
                stream=np.full(len(texts), index),
                text=texts,
                row=stream.first_row[texts] - first_row,
                dropout=stream.dropout,
            )
        )
    return Work(
        table=join_tables([part.table for part in parts]),
        sets={name: np.concatenate([part.sets[name] for part in parts]) for name in parts[0].sets},
        stream=np.concatenate([part.stream for part in parts]),
        text=np.concatenate([part.text for part in parts]),
        row=np.concatenate([part.row for part in parts]),
        dropout=parts[0].dropout,
    )
