"""A text that is longer than the model allows, run in pieces and pooled back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerscope.extraction.content import TOKEN_SETS
from layerscope.extraction.shard import Shard
from layerscope.pooling import combine, token_set_of


class Pieces:
    """What the pieces of one text gave, batch by batch in their order; takes what its shard lacks.

    Args:
        shard: where the text's row goes.
    """

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self.lacking, self.lacks = shard.lacking, shard.lacks
        self.lacks_metric, self.lacks_tokens = shard.lacks_metric, shard.lacks_tokens
        self._pooled: dict[str, list[Tensor]] = {}
        self._metrics: dict[tuple[str, str, str], list[Tensor]] = {}
        self._tokens: dict[str, list[NDArray[np.float32]]] = {}

    def put(self, index: int, name: str, rows: NDArray[np.int64], values: Tensor) -> None:
        """Keep pooled vectors (b, d) of the next pieces."""
        del index, rows
        self._pooled.setdefault(name, []).append(values.cpu())

    def put_metric(
        self, token_set: str, layer: str, metric: str, rows: NDArray[np.int64], values: Tensor
    ) -> None:
        """Keep one token metric (b,) of the next pieces."""
        del rows
        self._metrics.setdefault((token_set, layer, metric), []).append(values.cpu())

    def put_tokens(
        self, layer: str, rows: NDArray[np.int64], states: Tensor, real: NDArray[np.bool_]
    ) -> None:
        """Keep the real token states of the next pieces."""
        values = states.float().cpu().numpy()
        kept = self._tokens.setdefault(layer, [])
        kept += [values[position, real[position]] for position in range(len(rows))]

    def pour(self, index: int, row: int, counts: Mapping[str, NDArray[Any]]) -> None:
        """Put the text's row together from its pieces.

        Args:
            index: of the stream.
            row: in the shard.
            counts: tokens of every piece in each token set, (pieces,).
        """
        rows = np.array([row])
        for name, values in self._pooled.items():
            pooling = name.split("/", 1)[0]
            weights = torch.as_tensor(counts[token_set_of(pooling)])
            self._shard.put(index, name, rows, combine(pooling, torch.cat(values), weights)[None])
        for (token_set, layer, metric), values in self._metrics.items():
            found = torch.cat(values)
            weights = torch.as_tensor(counts[TOKEN_SETS[token_set]]).double() * ~found.isnan()
            mean = (found.nan_to_num() * weights).sum() / weights.sum()  # NaN where no piece has a value
            self._shard.put_metric(token_set, layer, metric, rows, mean[None])
        for layer, parts in self._tokens.items():
            self._shard.put_row_tokens(layer, row, np.concatenate(parts))
