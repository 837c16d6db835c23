"""Rows [start, stop) of every stream while they are being computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from layerscope.extraction.content import Content
from layerscope.tensors import read_shapes, read_tensor
from layerscope.tokens import offsets_of


class Shard:
    """Arrays that fill up batch by batch; what is never filled stays NaN.

    Args:
        content: what is stored.
        start: first row.
        stop: one past the last row.
    """

    def __init__(self, content: Content, start: int, stop: int) -> None:
        self.start, self.stop = start, stop
        self._content = content
        rows = stop - start
        self._pooled: list[dict[str, NDArray[np.float32]]] = [
            {
                f"{pooling}/{layer}": np.full((rows, width), np.nan, dtype=np.float32)
                for pooling in content.poolings
                for layer, width in content.widths.items()
            }
            for _ in content.streams
        ]
        self._metrics = {
            (token_set, layer): {metric: np.full(rows, np.nan) for metric in content.token_metrics}
            for token_set in content.token_sets
            for layer in content.widths
        }
        self._tokens: dict[str, list[NDArray[np.float32]]] = {
            layer: [np.empty((0, width), np.float32)] * rows
            for layer, width in content.widths.items()
            if content.keep_tokens
        }
        self._held: list[set[str]] = [set() for _ in content.streams]  # names of tensors
        self._held_metrics: set[tuple[str, str, str]] = set()
        self._held_tokens: set[str] = set()

    def take(self, path: Path, files: Iterable[str]) -> None:
        """Fill in what a smaller extraction stored of these very rows, which is not computed again.

        Args:
            path: the cache folder.
            files: of its shard, as the manifest names them.
        """
        for file in files:
            folder = file.rpartition("/")[0]
            if folder == "token_metrics":
                self._take_metrics(pd.read_parquet(path / file))
            elif folder == "tokens":
                self._take_tokens(path / file)
            else:
                index = [stream.folder for stream in self._content.streams].index(folder)
                self._held[index] = self._pooled[index].keys() & read_shapes(path / file)[0].keys()
                for name in self._held[index]:
                    self._pooled[index][name][:] = read_tensor(path / file, name)

    def _take_metrics(self, held: pd.DataFrame) -> None:
        for (token_set, layer), group in held.groupby(["tokens", "layer_name"]):
            columns = self._metrics.get((str(token_set), str(layer)), {})
            for metric in columns.keys() & {*held.columns}:
                columns[metric][:] = group[metric]
                self._held_metrics.add((str(token_set), str(layer), metric))

    def _take_tokens(self, file: Path) -> None:
        offsets = read_tensor(file, "offsets")
        for layer in self._tokens.keys() & read_shapes(file)[0].keys():
            values = np.array(read_tensor(file, layer))
            self._tokens[layer] = np.split(values, offsets[1:-1])
            self._held_tokens.add(layer)

    def lacks(self, index: int, name: str) -> bool:
        """Whether a pooled layer of a stream is to be computed."""
        return name not in self._held[index]

    def lacks_metric(self, token_set: str, layer: str, metric: str) -> bool:
        """Whether a token metric is to be computed."""
        return (token_set, layer, metric) not in self._held_metrics

    def lacks_tokens(self, layer: str) -> bool:
        """Whether the token states of a layer are to be computed."""
        return self._content.keep_tokens and layer not in self._held_tokens

    def lacking(self, index: int) -> set[str]:
        """Names of the layers that a stream has to run for."""
        content = self._content
        return {
            layer
            for layer in content.widths
            if any(self.lacks(index, f"{pooling}/{layer}") for pooling in content.poolings)
            or (index == 0 and self._lacks_of_tokens(layer))
        }

    def _lacks_of_tokens(self, layer: str) -> bool:
        return self.lacks_tokens(layer) or any(
            self.lacks_metric(token_set, layer, metric)
            for token_set in self._content.token_sets
            for metric in self._content.token_metrics
        )

    def put(self, index: int, name: str, rows: NDArray[np.int64], values: Tensor) -> None:
        """Keep pooled vectors (b, d) of one stream at the given rows of the shard."""
        self._pooled[index][name][rows] = values.cpu().numpy()

    def put_metric(
        self, token_set: str, layer: str, metric: str, rows: NDArray[np.int64], values: Tensor
    ) -> None:
        """Keep one token metric (b,) at the given rows of the shard."""
        self._metrics[token_set, layer][metric][rows] = values.cpu().numpy()

    def put_tokens(
        self, layer: str, rows: NDArray[np.int64], states: Tensor, real: NDArray[np.bool_]
    ) -> None:
        """Keep the real token states of a batch (b, t, d)."""
        values = states.float().cpu().numpy()
        for position, row in enumerate(rows):
            self._tokens[layer][row] = values[position, real[position]]

    def put_row_tokens(self, layer: str, row: int, values: NDArray[np.float32]) -> None:
        """Keep the token states (t, d) of one row."""
        self._tokens[layer][row] = values

    def copy_repeats(self, path: Path, starts: NDArray[np.int64]) -> None:
        """Fill the rows whose text occurred before, in this shard or in an earlier one on disk.

        Args:
            path: the cache folder.
            starts: first row of every shard.
        """
        for index, stream in enumerate(self._content.streams):
            text_of = stream.text_of[self.start : self.stop]
            rows = np.flatnonzero(text_of >= 0)
            sources = stream.first_row[text_of[rows]]
            repeated = sources != rows + self.start
            rows, sources = rows[repeated], sources[repeated]
            here = sources >= self.start
            self._copy_within(index, rows[here], sources[here] - self.start)
            shard_of = np.searchsorted(starts, sources, side="right") - 1
            for number in np.unique(shard_of[~here]):
                chosen = ~here & (shard_of == number)
                self._copy_from_disk(index, path, int(number), rows[chosen], sources[chosen] - starts[number])

    def _copy_within(self, index: int, rows: NDArray[np.int64], sources: NDArray[np.int64]) -> None:
        for values in self._pooled[index].values():
            values[rows] = values[sources]
        if index > 0:
            return
        for metrics in self._metrics.values():
            for column in metrics.values():
                column[rows] = column[sources]
        for tokens in self._tokens.values():
            for row, source in zip(rows, sources, strict=True):
                tokens[row] = tokens[source]

    def _copy_from_disk(
        self, index: int, path: Path, number: int, rows: NDArray[np.int64], sources: NDArray[np.int64]
    ) -> None:
        file = path / self._content.streams[index].folder / f"{number:05d}.safetensors"
        for name, values in self._pooled[index].items():
            values[rows] = read_tensor(file, name)[sources]
        if index > 0:
            return
        if self._metrics:
            earlier = pd.read_parquet(path / "token_metrics" / f"{number:05d}.parquet")
            for (token_set, layer), group in earlier.groupby(["tokens", "layer_name"]):
                for metric, column in self._metrics[str(token_set), str(layer)].items():
                    column[rows] = group[metric].to_numpy()[sources]
        for layer, tokens in self._tokens.items():
            store = path / "tokens" / f"{number:05d}.safetensors"
            offsets, values = read_tensor(store, "offsets"), read_tensor(store, layer)
            for row, source in zip(rows, sources, strict=True):
                tokens[row] = np.array(values[offsets[source] : offsets[source + 1]])

    def tensors(self) -> dict[str, dict[str, NDArray[Any]]]:
        """What goes into the shard's safetensors files, by folder."""
        files: dict[str, dict[str, NDArray[Any]]] = {
            stream.folder: dict(pooled)
            for stream, pooled in zip(self._content.streams, self._pooled, strict=True)
        }
        if self._tokens:
            states = {layer: np.concatenate(parts) for layer, parts in self._tokens.items()}
            files["tokens"] = states | self._token_facts()
        return files

    def _token_facts(self) -> dict[str, NDArray[Any]]:
        """Ids of the stored tokens, which of them were kept for pooling, and where each row starts."""
        stream, kept = self._content.streams[0], self._content.sets[0]["kept"]
        spans = [
            stream.table.span(int(text)) if text >= 0 else slice(0, 0)
            for text in stream.text_of[self.start : self.stop]
        ]
        counts = [span.stop - span.start for span in spans]
        return {
            "ids": np.concatenate([stream.table.ids[span] for span in spans]),
            "kept": np.concatenate([kept[span] for span in spans]),
            "offsets": offsets_of(counts),
        }

    def metrics_frame(self) -> pd.DataFrame | None:
        """Token metrics, a row per text, layer and token set; ``None`` where none were asked for."""
        if not self._metrics:
            return None
        rows = np.arange(self.start, self.stop)
        parts = [
            pd.DataFrame({"row": rows, "layer_name": layer, "tokens": token_set, **columns})
            for (token_set, layer), columns in self._metrics.items()
        ]
        return pd.concat(parts, ignore_index=True)

    def broken(self, index: int) -> NDArray[np.bool_]:
        """Which rows of a stream have a value that is not finite though they have tokens, (rows,)."""
        found = np.zeros(self.stop - self.start, dtype=bool)
        for _, rows in self._broken_by_layer(index):
            found[rows] = True
        return found

    def _broken_by_layer(self, index: int) -> Iterator[tuple[str, NDArray[np.int64]]]:
        """Of every pooling and layer of a stream, the layer and its rows that are not finite."""
        for name, values in self._pooled[index].items():
            pooling, layer = name.split("/", 1)
            defined = self._content.defined(pooling, index)[self.start : self.stop]
            yield layer, np.flatnonzero(defined & ~np.isfinite(values).all(axis=1))

    def nonfinite(self) -> dict[int, list[str]]:
        """By row, the layers (of a view: view/layer) with a value that is not finite though it has tokens."""
        found: dict[int, list[str]] = {}
        for index, stream in enumerate(self._content.streams):
            for layer, rows in self._broken_by_layer(index):
                for row in rows:
                    layers = found.setdefault(self.start + int(row), [])
                    if stream.prefix + layer not in layers:
                        layers.append(stream.prefix + layer)
        return found
