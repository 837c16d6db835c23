"""How often every layer is picked, by criterion, when the texts are resampled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from layerscope.errors import FrameError, UsageError, nearest
from layerscope.frames import SHARE_COLUMNS, as_frame, check_one, labels
from layerscope.select.selector import LayerSelector

_NONE = (
    "no metric of this frame has resampled values: make it with 'layerscope analyze CACHE --draws 100', and "
    "hand on the .parquet file, since a .csv has none"
)


def pick_shares(
    frame: pd.DataFrame, criteria: Sequence[str] | None = None, *, pooling: str | None = None
) -> pd.DataFrame:
    """The share of subsamples of the texts in which each layer is best, by criterion and pooling.

    The subsamples are those that ``analyze`` drew, the same for all layers and criteria; ``LayerSelector``
    counts them, and what it calls support is the share of the pick.

    Args:
        frame: a metrics frame of one model and corpus, with ``draws``.
        criteria: names of metrics; where not given all that have resampled values and a better end.
        pooling: only what is of this pooling; all where not given.

    Returns:
        A frame with the columns ``SHARE_COLUMNS``: a row per criterion, pooling and layer that has a value.
        ``share`` is in [0, 1] and sums to 1 over layers; ``picked`` marks the layer that all texts pick.

    Raises:
        UsageError: a criterion or pooling that the frame does not hold.
        FrameError: several models or corpora, or no resampled values.
    """
    check_one(frame, "the metrics frame")
    known = list(dict.fromkeys(frame["metric"]))
    for name in criteria or ():
        if name not in known:
            raise UsageError(f"the frame holds no metric '{name}': {nearest(name, known)}")
    poolings = list(dict.fromkeys(frame["pooling"].astype(str)))
    if pooling is not None and pooling not in poolings:
        raise UsageError(f"the frame holds no pooling '{pooling}': {nearest(pooling, poolings)}")
    rows = frame if pooling is None else frame[frame["pooling"] == pooling]
    records: list[dict[str, Any]] = []
    for name in criteria or known:
        of_one = rows[rows["metric"] == name]
        keys = [
            of_one["pooling"].astype(str),
            labels(of_one, "variant") if "variant" in of_one else "pooling",
        ]
        for _, within in of_one.groupby(keys, sort=False):
            records += _shares(within, name, must=bool(criteria))
    if not records:
        raise FrameError(_NONE)
    return as_frame(records, SHARE_COLUMNS)


def _shares(rows: pd.DataFrame, criterion: str, *, must: bool) -> list[dict[str, Any]]:
    """The shares of one criterion in one pooling and recipe; none where it picks nothing."""
    try:
        fitted = LayerSelector(criterion).fit(rows)
    except (FrameError, UsageError):
        if must:
            raise
        return []
    if fitted.shares_ is None:
        return []
    ranking = fitted.ranking_.reindex(columns=[*SHARE_COLUMNS[:-3]])
    return [
        {
            **{str(name): value for name, value in layer.items()},
            "criterion": criterion,
            "share": share,
            "picked": layer["layer_name"] == fitted.layer_,
        }
        for layer, share in zip(ranking.to_dict("records"), np.asarray(fitted.shares_).tolist(), strict=True)
    ]
