"""The loop over shards and batches: each shard is written while the next one is computed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerscope.backbone import Backbone, in_float32
from layerscope.cache import CacheWriter
from layerscope.errors import ModelError, UsageError
from layerscope.extraction.content import PUBLISHED_TOKEN_METRICS, TOKEN_METRICS, TOKEN_SETS, Content
from layerscope.extraction.pieces import Pieces
from layerscope.extraction.plan import Listener, Plan
from layerscope.extraction.shard import Shard
from layerscope.extraction.streams import Stream
from layerscope.layers import Layer
from layerscope.pooling import TokenMasks, pool
from layerscope.sinks import SinkReport
from layerscope.tokens import TokenBatch, TokenTable, batch_texts, count_tokens, make_batch

_FEW_BROKEN, _SHARE_BROKEN = 8, 0.1  # rows of a shard; with more, running them again is no use
SHARD_BYTES = 8 * 1024**2  # of a small cache; three shards are in memory: computed, packed, written
_LARGEST_SHARD, _MOST_SHARDS = 64 * 1024**2, 128
_BATCHES = TOKEN_METRICS | PUBLISHED_TOKEN_METRICS


def cut_into_shards(row_bytes: NDArray[np.int64], shard_bytes: int) -> list[tuple[int, int]]:
    """Consecutive ranges of rows, each of about ``shard_bytes``.

    >>> cut_into_shards(np.array([4, 4, 4, 4, 4]), shard_bytes=8)
    [(0, 2), (2, 4), (4, 5)]
    """
    shard_of = (np.cumsum(row_bytes) - 1) // shard_bytes
    starts = np.flatnonzero(np.diff(shard_of, prepend=-1))
    return list(zip(starts.tolist(), [*starts[1:].tolist(), len(row_bytes)], strict=True))


class Job:
    """Runs the texts of every shard that is not on disk yet.

    Args:
        backbone: the model.
        layers: what to capture.
        content: what to store.
        batch_tokens: padded tokens per batch; halved for good when memory runs out.
        equal_lengths: only texts of equal length in one batch.
    """

    def __init__(
        self,
        backbone: Backbone,
        layers: list[Layer],
        content: Content,
        batch_tokens: int,
        *,
        equal_lengths: bool = False,
    ) -> None:
        if batch_tokens < 1:
            raise UsageError(f"--batch-tokens is {batch_tokens}: it must be at least 1")
        self._backbone = backbone
        self._layers = layers
        self._content = content
        self._batch_tokens = batch_tokens
        self._equal_lengths = equal_lengths
        whole = int(content.row_bytes.sum())
        self.bounds = cut_into_shards(
            content.row_bytes, max(SHARD_BYTES, min(_LARGEST_SHARD, whole // _MOST_SHARDS))
        )

    def plan(self, model: str, notes: tuple[str, ...], max_length: int, sinks: SinkReport | None) -> Plan:
        """What ``run`` is going to do where nothing is on disk yet."""
        main = self._content.streams[0]
        return Plan(
            model=model,
            rows=self._content.n_rows,
            unique=sum(len(stream.first_row) for stream in self._content.streams),
            tokens=self._content.n_tokens,
            truncated=int(main.spread(main.table.truncated).sum()),
            max_length=max_length,
            layers=list(self._content.widths),
            poolings=self._content.poolings,
            views=[stream.view for stream in self._content.streams[1:]],
            bytes=int(self._content.row_bytes.sum()),
            shards=len(self.bounds),
            sinks=sinks,
            notes=notes,
        )

    def run(self, writer: CacheWriter, listener: Listener) -> None:
        """Compute and write what is missing; tell ``listener`` after every batch."""
        done, total = 0, self._content.n_tokens
        starts = np.array([start for start, _ in self.bounds])
        finished = writer.finished
        pending: Future[None] | None = None
        with ThreadPoolExecutor(max_workers=1) as background:
            for number, (start, stop) in enumerate(self.bounds):
                if number in finished:
                    done += self._tokens_of(start, stop)
                    listener.progress(done, total)
                    continue
                shard = Shard(self._content, start, stop)
                for index in self._indices:
                    for tokens in self._fill(shard, index):
                        done += tokens
                        listener.progress(done, total)
                recovered = self._retry(shard)
                if pending is not None:
                    pending.result()
                shard.copy_repeats(writer.path, starts)
                pending = background.submit(
                    writer.write_shard,
                    number,
                    start,
                    stop,
                    shard.tensors(),
                    shard.metrics_frame(),
                    shard.nonfinite(),
                    recovered,
                )
            if pending is not None:
                pending.result()

    def _tokens_of(self, start: int, stop: int) -> int:
        """Tokens of the texts that a finished shard added."""
        return sum(
            int(stream.table.lengths[stream.new_texts(start, stop)].sum()) for stream in self._content.streams
        )

    def _fill(self, shard: Shard, index: int) -> Iterator[int]:
        """Run the shard's new texts of one stream; yields the number of tokens of each batch."""
        table = self._content.streams[index].table
        texts = self._content.streams[index].new_texts(shard.start, shard.stop)
        groups = self._groups(table, texts)
        while groups:
            group = groups.pop(0)
            try:
                self._run_group(shard, index, group)
            except (torch.OutOfMemoryError, MemoryError) as error:
                sizes = table.pieces.get(int(group[0]), tuple(table.lengths[group].tolist()))
                self._shrink(max(sizes), len(sizes), error)
                groups = self._groups(table, np.concatenate([group, *groups]))
                continue
            yield int(table.lengths[group].sum())

    def _retry(self, shard: Shard) -> dict[int, str]:
        """Run rows that came out non-finite alone, then in float32; by row, what helped.

        A model that gives many of them is broken, and every row of it would be run three times.
        """
        recovered: dict[int, str] = {}
        for how in self._second_ways:
            broken = [(index, texts) for index in self._indices if len(texts := self._broken(shard, index))]
            if not broken:
                break
            with in_float32(self._backbone.model) if how == "float32" else contextlib.nullcontext():
                for index, texts in broken:
                    for text in texts:
                        self._run_group(shard, index, np.array([text]))
            for index, texts in broken:
                mended = np.setdiff1d(texts, self._broken(shard, index))
                rows = self._content.streams[index].first_row[mended]
                recovered |= {int(row): how for row in rows}
        return recovered

    @property
    def _indices(self) -> range:
        return range(len(self._content.streams))

    @property
    def _second_ways(self) -> list[str]:
        """How a row that came out non-finite is run again; only half precision can be widened."""
        half = self._backbone.dtype in (torch.float16, torch.bfloat16)
        return ["alone", "float32"] if half and not self._backbone.is_quantized else ["alone"]

    def _broken(self, shard: Shard, index: int) -> NDArray[np.int64]:
        """Texts of one stream that came out non-finite; none where they are too many to be run again."""
        stream = self._content.streams[index]
        texts = stream.new_texts(shard.start, shard.stop)
        found = texts[shard.broken(index)[stream.first_row[texts] - shard.start]]
        return found[:0] if len(found) > max(_FEW_BROKEN, _SHARE_BROKEN * len(texts)) else found

    def _groups(self, table: TokenTable, texts: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """What is run together; a text in pieces is a group of its own."""
        long = np.isin(texts, list(table.pieces))
        whole = batch_texts(table, texts[~long], self._batch_tokens, equal_lengths=self._equal_lengths)
        return [*np.split(texts[long], long.sum()), *whole] if long.any() else list(whole)

    def _run_group(self, shard: Shard, index: int, texts: NDArray[np.int64]) -> None:
        stream, sets = self._content.streams[index], self._content.sets[index]
        rows = stream.first_row[texts] - shard.start
        text = int(texts[0])
        if text not in stream.table.pieces:
            batch = make_batch(stream.table, sets, texts, self._pad_id)
            self._run_batch(shard, index, batch, rows, _dropout_seed(stream, text))
            return
        table = stream.table.pieces_of(text)
        chosen = {name: mask[stream.table.span(text)] for name, mask in sets.items()}
        parts = Pieces()
        for some in self._groups(table, np.arange(len(table.lengths), dtype=np.int64)):
            batch = make_batch(table, chosen, some, self._pad_id)  # in order: only the last one is shorter
            self._run_batch(parts, index, batch, some, _dropout_seed(stream, text, int(some[0])))
        counts = {name: count_tokens(table, mask) for name, mask in chosen.items()}
        parts.pour(shard, index, int(rows[0]), counts)

    def _shrink(self, longest: int, count: int, error: BaseException) -> None:
        """Halve the budget after running out of memory, unless one text (or piece) alone was too much."""
        size = min(count, max(1, self._batch_tokens // longest))
        if size == 1:
            raise ModelError(
                f"a text of {longest} tokens does not fit in memory: set --max-length lower"
            ) from error
        self._batch_tokens = max(1, size * longest // 2)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    @property
    def _pad_id(self) -> int:
        """Any valid id will do under the mask; the model's own where it has one."""
        pad_id = getattr(self._backbone.model.config, "pad_token_id", None)
        return pad_id if isinstance(pad_id, int) and pad_id >= 0 else 0

    def _run_batch(
        self,
        shard: Shard | Pieces,
        index: int,
        batch: TokenBatch,
        rows: NDArray[np.int64],
        dropout_seed: int | None,
    ) -> None:
        device = self._backbone.device
        masks = TokenMasks(
            **{name: torch.as_tensor(mask, device=device) for name, mask in batch.sets.items()}
        )

        def visit(layer: Layer, states: Tensor) -> None:
            for pooling in self._content.poolings:
                shard.put(index, f"{pooling}/{layer.name}", rows, pool(pooling, states, masks))
            if index == 0:
                self._visit_tokens(shard, rows, layer, states, masks, batch)

        ids = torch.as_tensor(batch.ids, device=device).long()
        self._backbone.run(
            ids,
            torch.as_tensor(batch.real, device=device),
            self._layers,
            visit,
            dropout_seed=dropout_seed,
        )

    def _visit_tokens(
        self,
        shard: Shard | Pieces,
        rows: NDArray[np.int64],
        layer: Layer,
        states: Tensor,
        masks: TokenMasks,
        batch: TokenBatch,
    ) -> None:
        """Token metrics and, where wanted, the token states of the corpus itself."""
        for token_set in self._content.token_sets:
            mask = getattr(masks, TOKEN_SETS[token_set])
            for metric in self._content.token_metrics:
                shard.put_metric(token_set, layer.name, metric, rows, _BATCHES[metric](states, mask))
        if self._content.keep_tokens:
            shard.put_tokens(layer.name, rows, states, batch.real)


def _dropout_seed(stream: Stream, *first: int) -> int | None:
    """One for every batch of a view, from its seed and first text; ``None`` where there is no dropout."""
    if stream.dropout is None:
        return None
    return int(np.random.SeedSequence([*stream.dropout, *first]).generate_state(1)[0])
