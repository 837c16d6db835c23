"""The loop over shards and batches: each shard is written while the next one is computed."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
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
from layerscope.extraction.work import Work, make_work
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
    return list(itertools.pairwise([*starts.tolist(), len(row_bytes)]))


class Job:
    """Runs the texts of every shard that is not on disk yet.

    Args:
        backbone: the model.
        layers: what to capture.
        content: what to store.
        batch_tokens: padded tokens per batch; halved for good when memory runs out.
        equal_lengths: only texts of equal length in one batch.
        starts: first rows of the shards of an extraction that this one adds to.
        planned_rows: how many rows those shards hold.
    """

    def __init__(
        self,
        backbone: Backbone,
        layers: list[Layer],
        content: Content,
        batch_tokens: int,
        *,
        equal_lengths: bool = False,
        starts: Sequence[int] = (),
        planned_rows: int = 0,
    ) -> None:
        if batch_tokens < 1:
            raise UsageError(f"--batch-tokens is {batch_tokens}: it must be at least 1")
        self._backbone = backbone
        self._layers = layers
        self._content = content
        self._batch_tokens = batch_tokens
        self._equal_lengths = equal_lengths
        size = max(SHARD_BYTES, min(_LARGEST_SHARD, int(content.row_bytes.sum()) // _MOST_SHARDS))
        new = cut_into_shards(content.row_bytes[planned_rows:], size)
        self.bounds = [
            *itertools.pairwise([*starts, planned_rows] if starts else []),
            *((planned_rows + start, planned_rows + stop) for start, stop in new),
        ]

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
                before, done = done, done + self._tokens_of(start, stop)
                if number in finished:
                    listener.progress(done, total)
                    continue
                shard = Shard(self._content, start, stop)
                held = writer.held(number)
                if held is not None:
                    shard.take(writer.path, held["files"])
                for tokens in self._compute(shard):
                    before += tokens
                    listener.progress(before, total)
                if before < done:  # the rest was there
                    listener.progress(done, total)
                recovered = {int(row): str(how) for row, how in (held or {}).get("recovered", {}).items()}
                recovered |= self._retry(shard)
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
        """Tokens of the texts that a shard adds."""
        return sum(
            int(stream.table.lengths[stream.new_texts(start, stop)].sum()) for stream in self._content.streams
        )

    def _lacking(self, shard: Shard) -> dict[int, Stream]:
        """The streams that lack something in a shard, by index."""
        return {index: stream for index, stream in enumerate(self._content.streams) if shard.lacking(index)}

    def _compute(self, shard: Shard) -> Iterator[int]:
        """Run the shard's new texts, views by dropout apart; yields the number of tokens of each batch."""
        for with_dropout in (False, True):
            texts_of = {
                index: stream.new_texts(shard.start, shard.stop)
                for index, stream in self._lacking(shard).items()
                if (stream.dropout is not None) is with_dropout
            }
            if not texts_of:
                continue
            work = make_work(self._content, texts_of, shard.start)
            groups = self._groups(work.table, work.numbers, work.row)
            while groups:
                group = groups.pop(0)
                try:
                    self._run_group(shard, work, group)
                except (torch.OutOfMemoryError, MemoryError) as error:
                    sizes = work.table.pieces.get(int(group[0]), tuple(work.table.lengths[group].tolist()))
                    self._shrink(max(sizes), len(sizes), error)
                    rest = np.concatenate([group, *groups])
                    groups = self._groups(work.table, rest, work.row[rest])
                    continue
                yield int(work.table.lengths[group].sum())

    def _retry(self, shard: Shard) -> dict[int, str]:
        """Run rows that came out non-finite alone, then in float32; by row, what helped.

        A model that gives many of them is broken, and every row of it would be run three times. What does not
        fit in memory in float32 stays as it is.
        """
        recovered: dict[int, str] = {}
        for how in self._second_ways:
            broken = {
                index: texts for index in self._lacking(shard) if len(texts := self._broken(shard, index))
            }
            if not broken:
                break
            widened = in_float32(self._backbone.model) if how == "float32" else contextlib.nullcontext()
            with contextlib.suppress(torch.OutOfMemoryError, MemoryError), widened:
                for index, texts in broken.items():
                    work = make_work(self._content, {index: texts}, shard.start)
                    for number in work.numbers:
                        self._run_group(shard, work, np.array([number]))
            for index, texts in broken.items():
                mended = np.setdiff1d(texts, self._broken(shard, index))
                recovered |= {int(row): how for row in self._content.streams[index].first_row[mended]}
        return recovered

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

    def _groups(
        self, table: TokenTable, texts: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> list[NDArray[np.int64]]:
        """What is run together, the views of one text above all; a text in pieces is a group of its own."""
        long = np.isin(texts, list(table.pieces))
        whole = batch_texts(
            table,
            texts[~long],
            self._batch_tokens,
            equal_lengths=self._equal_lengths,
            together=rows[~long],
        )
        return [*np.split(texts[long], long.sum()), *whole] if long.any() else list(whole)

    def _run_group(self, shard: Shard, work: Work, group: NDArray[np.int64]) -> None:
        number = int(group[0])
        if number not in work.table.pieces:
            batch = make_batch(work.table, work.sets, group, self._pad_id)
            self._run_batch(shard, batch, work.stream[group], work.row[group], work.dropout_seed(group))
            return
        table = work.table.pieces_of(number)
        chosen = {name: mask[work.table.span(number)] for name, mask in work.sets.items()}
        index = int(work.stream[number])
        parts, places = Pieces(shard), np.arange(len(table.lengths), dtype=np.int64)
        for some in self._groups(table, places, places):
            batch = make_batch(table, chosen, some, self._pad_id)  # in order: only the last one is shorter
            self._run_batch(
                parts, batch, np.full(len(some), index), some, work.dropout_seed(group, int(some[0]))
            )
        counts = {name: count_tokens(table, mask) for name, mask in chosen.items()}
        parts.pour(index, int(work.row[number]), counts)

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
        sink: Shard | Pieces,
        batch: TokenBatch,
        streams: NDArray[np.int64],
        rows: NDArray[np.int64],
        dropout_seed: int | None,
    ) -> None:
        """Run one batch for the layers that its streams lack.

        Args:
            sink: where the vectors go.
            batch: b texts.
            streams: (b,) index of each text's stream.
            rows: (b,) where each text goes in the sink.
            dropout_seed: see ``Backbone.run``.
        """
        device = self._backbone.device
        masks = TokenMasks(
            **{name: torch.as_tensor(mask, device=device) for name, mask in batch.sets.items()}
        )
        members = {int(index): np.flatnonzero(streams == index) for index in np.unique(streams)}
        lacking = {index: sink.lacking(index) for index in members}
        layers = [layer for layer in self._layers if any(layer.name in names for names in lacking.values())]

        def visit(layer: Layer, states: Tensor) -> None:
            for pooling in self._content.poolings:
                name = f"{pooling}/{layer.name}"
                wanted = [index for index in members if sink.lacks(index, name)]
                if wanted:
                    values = pool(pooling, states, masks).cpu()
                for index in wanted:
                    sink.put(index, name, rows[members[index]], values[members[index]])
            if layer.name in lacking.get(0, ()):
                own = members[0]
                is_all = len(own) == len(rows)  # then nothing is copied
                self._visit_tokens(
                    sink,
                    rows[own],
                    layer,
                    states if is_all else states[own],
                    masks if is_all else masks.take(own),
                    batch.real[own],
                )

        self._backbone.run(
            torch.as_tensor(batch.ids, device=device).long(),
            torch.as_tensor(batch.real, device=device),
            layers,
            visit,
            dropout_seed=dropout_seed,
        )

    def _visit_tokens(
        self,
        sink: Shard | Pieces,
        rows: NDArray[np.int64],
        layer: Layer,
        states: Tensor,
        masks: TokenMasks,
        real: NDArray[np.bool_],
    ) -> None:
        """Token metrics and, where wanted, the token states of the corpus itself."""
        for token_set in self._content.token_sets:
            mask = getattr(masks, TOKEN_SETS[token_set])
            for metric in self._content.token_metrics:
                if sink.lacks_metric(token_set, layer.name, metric):
                    sink.put_metric(token_set, layer.name, metric, rows, _BATCHES[metric](states, mask))
        if sink.lacks_tokens(layer.name):
            sink.put_tokens(layer.name, rows, states, real)
