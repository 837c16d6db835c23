"""Rows that come block by block, so that memory does not grow with their number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from layerscope.metrics.checks import Array, largest_entry
from layerscope.metrics.spec import Undefined

FloatArray = npt.NDArray[np.float64]
BLOCK = 8192


class Blocks:
    """A stream of rows that can be read again and again, in float64 blocks of ``block`` rows.

    Args:
        start: starts a new reading; yields arrays ``(rows, …)`` of any real dtype and any number of rows.
        n: how many rows there are in all.
        d: width of a row.
        block: rows at a time.

    >>> stream = Blocks(lambda: iter([np.eye(3), np.ones((2, 3))]), n=5, d=3, block=2)
    >>> [part.shape for part in stream]
    [(2, 3), (2, 3), (1, 3)]
    >>> next(iter(stream.take(np.array([0, 4])))).tolist()
    [[1.0, 0.0, 0.0], [1.0, 1.0, 1.0]]
    """

    def __init__(self, start: Callable[[], Iterable[Array]], n: int, d: int, *, block: int = BLOCK) -> None:
        self._start = start
        self.n = n
        self.d = d
        self.block = block

    @classmethod
    def of(cls, Z: Array, block: int = BLOCK) -> Blocks:
        """An array as a stream."""
        return cls(
            lambda: (Z[i : i + block] for i in range(0, len(Z), block)), len(Z), Z.shape[-1], block=block
        )

    def __iter__(self) -> Iterator[FloatArray]:
        """New arrays of ``block`` rows, the last one of what is left."""
        waiting: list[Array] = []
        count = 0
        for part in self._start():
            rest = part
            while len(rest):
                taken = rest[: self.block - count]
                waiting.append(taken)
                count += len(taken)
                rest = rest[len(taken) :]
                if count == self.block:
                    yield _joined(waiting)
                    waiting, count = [], 0
        if count:
            yield _joined(waiting)

    def take(self, rows: npt.NDArray[np.int64]) -> Blocks:
        """The stream of some of the rows, given by ascending numbers."""

        def start() -> Iterator[Array]:
            first = 0
            for part in self._start():
                low, high = np.searchsorted(rows, [first, first + len(part)])
                yield part[rows[low:high] - first]
                first += len(part)

        return Blocks(start, len(rows), self.d, block=self.block)

    def joined(self) -> FloatArray:
        """All rows in one array."""
        return np.concatenate(list(self)) if self.n else np.empty((0, self.d))

    def resized(self, block: int) -> Blocks:
        """The same rows in blocks of another size."""
        return Blocks(self._start, self.n, self.d, block=block)


def stack_blocks(streams: Sequence[Blocks]) -> Blocks:
    """Several streams of the same samples as one of ``(rows, streams, d)`` blocks."""
    first = streams[0]

    def start() -> Iterator[Array]:
        for parts in zip(*(stream.resized(first.block) for stream in streams), strict=True):
            yield np.stack(parts, axis=1)

    return Blocks(start, first.n, first.d, block=first.block)


def check_blocks(blocks: Blocks, *, minimum: int = 2, unit: str = "samples") -> float:
    """Check a stream of rows in one reading, as ``check_rows`` does an array.

    Returns:
        The largest magnitude.

    Raises:
        Undefined: too few rows, a NaN or infinity, or all rows identical.

    >>> check_blocks(Blocks.of(np.array([[1.0, -4.0], [2.0, 0.0]])))
    4.0
    """
    if blocks.n < minimum:
        raise Undefined(f"fewer than {minimum} {unit}")
    peak, first, constant = 0.0, None, True
    for part in blocks:
        largest = largest_entry(part)
        if not math.isfinite(largest):
            raise Undefined("not finite")
        peak = max(peak, largest)
        first = part[0].copy() if first is None else first
        constant = constant and bool((part == first).all())
    if constant:
        raise Undefined("constant")
    return peak


def _joined(parts: list[Array]) -> FloatArray:
    return np.concatenate(parts, dtype=np.float64) if len(parts) > 1 else np.array(parts[0], dtype=np.float64)
