"""What an extraction stores: which numbers for which rows, and how many bytes that is."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from layerscope.extraction.streams import Stream
from layerscope.metrics import METRICS
from layerscope.metrics.published import TOKEN_COLUMNS
from layerscope.pooling import token_set_of
from layerscope.tokens import TokenPolicy, count_tokens

TOKEN_METRICS = {spec.name: spec.batch for spec in METRICS if spec.batch is not None}
PUBLISHED_TOKEN_METRICS = {name: spec.batch for name, spec in TOKEN_COLUMNS.items() if spec.batch is not None}
TOKEN_SETS = {"tokens": "kept", "tokens-nosink": "nosink"}


class Content:
    """The layers, poolings, token metrics and token states of every stream.

    Args:
        widths: width of each wanted layer, in order of computation.
        poolings: names.
        policy: which tokens count.
        token_metrics: names of the metrics of token states.
        keep_tokens: whether the token states of the first stream are stored too.
        streams: the corpus and its views.
    """

    def __init__(
        self,
        widths: dict[str, int],
        poolings: list[str],
        policy: TokenPolicy,
        token_metrics: tuple[str, ...],
        keep_tokens: bool,
        streams: list[Stream],
    ) -> None:
        self.widths = widths
        self.poolings = poolings
        self.token_metrics = token_metrics
        self.keep_tokens = keep_tokens
        self.streams = streams
        self.sets = [policy.token_sets(stream.table) for stream in streams]
        self._counts = [
            {name: count_tokens(stream.table, chosen) for name, chosen in sets.items()}
            for stream, sets in zip(streams, self.sets, strict=True)
        ]

    @property
    def n_rows(self) -> int:
        """Number of texts, empty ones included."""
        return len(self.streams[0].text_of)

    @property
    def n_tokens(self) -> int:
        """Tokens of the distinct texts of all streams."""
        return sum(len(stream.table.ids) for stream in self.streams)

    @property
    def token_sets(self) -> list[str]:
        """Sets of tokens that the token metrics are computed over."""
        if not self.token_metrics:
            return []
        return [name for name, key in TOKEN_SETS.items() if key == "kept" or "mean-nosink" in self.poolings]

    @cached_property
    def row_bytes(self) -> NDArray[np.int64]:
        """Bytes on disk of each row, (n,)."""
        width = sum(self.widths.values())
        pooled = 4 * width * len(self.poolings) * len(self.streams)
        metrics = 8 * len(self.widths) * len(self.token_sets) * len(self.token_metrics)
        sizes = np.full(self.n_rows, pooled + metrics, dtype=np.int64)
        if self.keep_tokens:
            main = self.streams[0]
            sizes += main.spread(main.table.lengths) * (4 * width + 5)
        return sizes

    def token_counts(self, token_set: str, index: int = 0) -> NDArray[np.int64]:
        """Tokens of a set in each row of a stream, (n,); 0 for empty rows."""
        return self.streams[index].spread(self._counts[index][token_set])

    def defined(self, pooling: str, index: int = 0) -> NDArray[np.bool_]:
        """Rows of a stream that have a token to pool, (n,)."""
        return self.token_counts(token_set_of(pooling), index) > 0
