"""Which rows of a cache make a training example."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast, get_args

import numpy as np
from numpy.typing import NDArray

from layerscope.cache import LayerCache
from layerscope.errors import CorpusError, UsageError, count_of, nearest
from layerscope.learn.objectives import Objective

FEWEST = 8
"""Fewer examples than this teach nothing and leave none to stop by."""

_HOW = {
    "triplets": "three --text-column options (anchor, positive, negative)",
    "scores": "two --text-column options and --score-column",
    "pairs": "two --text-column options",
    "views": "--views 2",
}


@dataclass(frozen=True)
class Examples:
    """Rows of a cache, side by side.

    Attributes:
        objective: what they are good for.
        rows: (m, sides) row numbers.
        views: the view of each side; ``None`` is the text itself.
        scores: (m,) human scores, where there are any.
    """

    objective: Objective
    rows: NDArray[np.int64]
    views: tuple[str | None, ...]
    scores: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, chosen: NDArray[np.int64]) -> Examples:
        """Some of them."""
        scores = None if self.scores is None else self.scores[chosen]
        return Examples(self.objective, self.rows[chosen], self.views, scores)


def choose_objective(cache: LayerCache, wanted: str) -> Objective:
    """What a cache can be trained on, or whether it can be trained on what is wanted.

    Raises:
        UsageError: no such objective.
        CorpusError: the cache lacks what it needs; the message says how to extract it.
    """
    known = ("auto", *get_args(Objective))
    if wanted not in known:
        raise UsageError(f"no objective is called '{wanted}': {nearest(str(wanted), known)}")
    rows = cache.rows
    possible = {
        "triplets": "triplet" in rows,
        "scores": "pair" in rows and "score" in rows and bool(rows["score"].notna().any()),
        "pairs": "pair" in rows,
        "views": bool(cache.views),
    }
    if wanted == "auto":
        wanted = next((name for name, can in possible.items() if can), wanted)
    if possible.get(wanted):
        return cast("Objective", wanted)
    if wanted == "auto":
        raise CorpusError(
            f"the cache {cache.path} holds nothing to train on, single texts only: extract with --views 2, "
            "or extract a corpus of pairs or triplets"
        )
    raise CorpusError(
        f"the cache {cache.path} holds not what the objective '{wanted}' needs: extract with {_HOW[wanted]}"
    )


def find_examples(cache: LayerCache, objective: Objective, poolings: tuple[str, ...]) -> Examples:
    """All examples of a cache whose texts have a vector.

    Raises:
        CorpusError: fewer than ``FEWEST`` of them, or scores that are all the same.
    """
    rows = cache.rows
    scores = None
    views: tuple[str | None, ...]
    if objective == "views":
        sides = np.arange(cache.n_rows)[:, None]
        sides, views = np.repeat(sides, 2, axis=1), (None, cache.views[0])
        if len(cache.views) > 1:
            views = (cache.views[0], cache.views[1])
    else:
        size = 3 if objective == "triplets" else 2
        sides, views = np.arange(cache.n_rows).reshape(-1, size), (None,) * size
    usable = ~rows["empty"].to_numpy(dtype=bool) & (rows["nonfinite"] == "").to_numpy(dtype=bool)
    needed = {f"{view}/{name}" if view else name for view in views for name in poolings}
    usable &= np.array([needed.isdisjoint(str(names).split(",")) for names in rows["undefined"]], dtype=bool)
    keep = usable[sides].all(axis=1)
    if objective == "scores":
        scores = rows["score"].to_numpy(dtype=np.float64)[sides[:, 0]]
        keep &= np.isfinite(scores)
    found = Examples(objective, sides, views, scores).take(np.flatnonzero(keep))
    if len(found) < FEWEST:
        raise CorpusError(
            f"the cache {cache.path} has {count_of(len(found), 'usable example')} for the objective "
            f"'{objective}': at least {FEWEST} are needed, and hundreds to learn anything"
        )
    if found.scores is not None and np.ptp(found.scores) == 0:
        raise CorpusError(f"the cache {cache.path} has the same score for all pairs: nothing to learn from")
    return found
