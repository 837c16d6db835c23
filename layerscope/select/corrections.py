"""Corrections of a layer's vectors that cost nothing: fitted on a corpus, applied to every text after.

A few directions that all texts share, or a few coordinates of huge variance, can fill a cosine. Taking
them out leaves what tells texts apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from layerscope.errors import UsageError, nearest

ANISOTROPIC = 0.5
"""Mean cosine from which a correction is proposed.

On STS12 to STS16 (reports/pooling) corrections helped SmolLM2, at mean cosines from 0.7 on, and not MiniLM's
last layer, at 0.07 at most.
"""
CORRECTIONS: dict[str, str] = {
    "none": "vectors as they are",
    "center": "the mean vector subtracted",
    "components": "the mean and the first principal components taken out (all-but-the-top)",
    "dimensions": "the mean subtracted and the coordinates of largest variance set to zero",
}


@dataclass(frozen=True)
class Correction:
    """A fitted correction: x to (x - centre) less its parts along ``directions``.

    Attributes:
        kind: one of ``CORRECTIONS``.
        centre: (d,) what is subtracted.
        directions: (k, d) orthonormal rows that are taken out.
        n: texts that it was fitted on.
    """

    kind: str
    centre: NDArray[np.float64]
    directions: NDArray[np.float64]
    n: int

    def apply(self, vectors: ArrayLike) -> NDArray[np.float64]:
        """Corrected rows of ``vectors``, (n, d) float64; NaN rows stay NaN."""
        centred = np.asarray(vectors, dtype=np.float64) - self.centre
        return np.asarray(centred - (centred @ self.directions.T) @ self.directions)

    def as_affine(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """W, (d, d), and b, (d,), such that the corrected x is W x + b."""
        matrix = np.eye(len(self.centre)) - self.directions.T @ self.directions
        return matrix, -matrix @ self.centre

    def describe(self) -> str:
        """What is done, for people."""
        taken = f" ({len(self.directions)} of them)" if len(self.directions) else ""
        return f"{CORRECTIONS[self.kind]}{taken}, fitted on {self.n:,} texts"


def fit_correction(vectors: ArrayLike, kind: str = "center", count: int | None = None) -> Correction:
    """Fit a correction on the vectors of a corpus.

    Args:
        vectors: (n, d); rows that are not finite are left out.
        kind: one of ``CORRECTIONS``.
        count: how many components or coordinates to take out; where not given d / 100, at least 1, for
            ``components`` (as published), and 3 for ``dimensions``.

    Raises:
        UsageError: no such kind, fewer than two rows, or a count that is not below both n and d.

    Source: Mu & Viswanath 2018, "All-but-the-Top"; Timkey & van Schijndel 2021 for outlier coordinates.

    >>> fit_correction([[1.0, 2.0], [3.0, 2.0]]).apply([[2.0, 3.0]])
    array([[0., 1.]])
    """
    if kind not in CORRECTIONS:
        raise UsageError(f"no correction is called '{kind}': {nearest(str(kind), CORRECTIONS)}")
    rows = np.asarray(vectors, dtype=np.float64)
    rows = rows[np.isfinite(rows).all(axis=1)]
    n, d = rows.shape
    if n < 2:
        raise UsageError(f"a correction is fitted on two texts or more, and {n} have a vector")
    if count is None:
        count = {"components": max(1, d // 100), "dimensions": min(3, d - 1)}.get(kind, 0)
    takes_count = kind in ("components", "dimensions")
    if not isinstance(count, int | np.integer) or count < int(takes_count) or count >= min(n, d):
        raise UsageError(f"count is {count!r}: it must be a whole number from 1, below {min(n, d)}")
    if not takes_count:
        count = 0
    centre = np.zeros(d) if kind == "none" else rows.mean(axis=0)
    return Correction(kind, centre, _directions(rows - centre, kind, int(count)), n)


def correction_hint(frame: pd.DataFrame, pick: Mapping[Any, Any]) -> str | None:
    """One line where the vectors of a picked layer point much the same way, so that a correction may help.

    Args:
        frame: the metrics frame that the pick was made from; nothing is said where it lacks ``anisotropy``.
        pick: a row of a picks frame.
    """
    place = [name for name in ("model", "corpus", "pooling", "layer_name") if name in frame]
    rows = frame[(frame["metric"] == "anisotropy") & frame["value"].notna()]
    for name in place:
        rows = rows[rows[name] == pick[name]]
    if rows.empty or float(rows["value"].iloc[0]) < ANISOTROPIC:
        return None
    return (
        f"the vectors of {pick['layer_name']} ({pick['pooling']}) point much the same way (mean cosine "
        f"{rows['value'].iloc[0]:.2f}): export --correct components takes out what they share"
    )


def _directions(centred: NDArray[np.float64], kind: str, count: int) -> NDArray[Any]:
    if kind == "components":
        return np.asarray(np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :count].T)
    if kind == "dimensions":
        largest = np.argsort(-centred.var(axis=0), kind="stable")[:count]
        return np.asarray(np.eye(centred.shape[1])[np.sort(largest)])
    return np.empty((0, centred.shape[1]))
