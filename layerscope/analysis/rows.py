"""Which texts of a cache are measured, and their vectors."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from layerscope.cache import LayerCache


class MeasuredRows:
    """Which rows of the cache are measured."""

    def __init__(self, cache: LayerCache, *, drop_duplicates: bool) -> None:
        rows = cache.rows
        keep = ~rows["empty"].to_numpy(dtype=bool)
        if drop_duplicates:
            keep &= rows["duplicate_of"].isna().to_numpy()
        self._keep = keep
        self._undefined = [frozenset(names.split(",")) for names in rows["undefined"]]
        self._nonfinite = [frozenset(names.split(",")) for names in rows["nonfinite"]]
        group = next((name for name in ("pair", "triplet") if name in rows), None)
        self._units = np.arange(len(rows)) if group is None else rows[group].to_numpy(dtype=np.int64)

    def usable(self, pooling: str | None = None, views: Iterable[str] = ()) -> NDArray[np.int64]:
        """Rows with a vector for ``pooling``, in the texts and in the views; (m,) row numbers."""
        needed = {f"{view}/{pooling}" for view in views} | ({pooling} if pooling else set())
        defined = np.array([needed.isdisjoint(names) for names in self._undefined], dtype=bool)
        return np.flatnonzero(self._keep & defined)

    def broken(self, rows: NDArray[np.int64], layer_name: str) -> NDArray[np.bool_]:
        """Which of ``rows`` are not finite at that layer though the text has tokens; (m,)."""
        return np.array([layer_name in self._nonfinite[row] for row in rows], dtype=bool)

    def units(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """What is resampled together: the rows of a pair or triplet."""
        return np.asarray(self._units[rows])
