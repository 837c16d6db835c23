"""Picks frame: one pick a criterion and pooling, and the depth rules that it must beat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from layerscope.depth_rules import DEPTH_RULES, rule_layer
from layerscope.errors import FrameError, UsageError, nearest
from layerscope.frames import PICK_COLUMNS, RANK_AGGREGATE, as_frame, labels, residual_rows
from layerscope.select.aggregate import RankAggregateSelector
from layerscope.select.selector import Direction, LayerSelector

AGGREGATED = ("participation_ratio", "uniformity", "isoscore")
"""What the rank aggregate adds up; it is the decisive criterion where none is named."""
_NEXT = AGGREGATED[0]


def pick_layers(
    frame: pd.DataFrame,
    criteria: Sequence[str] | None = None,
    directions: Mapping[str, Direction] | None = None,
    *,
    others: bool = False,
) -> pd.DataFrame:
    """Pick a layer by every criterion within every pooling, and by depth alone for comparison.

    Args:
        frame: a metrics frame, of one or several models and corpora. Rows of ``attn.k`` and ``mlp.k`` are
            passed over: no model can be cut there.
        criteria: names of metrics, the decisive one first, or ``rank_aggregate``, the mean rank by those of
            ``AGGREGATED``; where not given ``rank_aggregate``, if the frame has what it adds up, and then all
            metrics of the frame.
        directions: by criterion, where it shall not be the metric's own.
        others: pick by the frame's other metrics too, after those of ``criteria``.

    Returns:
        A frame with the columns ``PICK_COLUMNS``. A criterion with no value at any layer has no
        ``layer_name``, and a ``reason``; so has one that was not named and whose better end is not known.

    Raises:
        UsageError: a criterion that the frame does not hold.
        FrameError: the frame holds nothing but ``attn.k`` and ``mlp.k``.
    """
    frame = residual_rows(frame)
    known = list(dict.fromkeys(frame["metric"]))
    if set(AGGREGATED) <= set(known):
        known = [RANK_AGGREGATE, *known]
    named = list(dict.fromkeys(criteria or ()))
    for name in named:
        if name not in known:
            if name == RANK_AGGREGATE:
                raise UsageError(
                    f"{RANK_AGGREGATE} needs {', '.join(AGGREGATED)}, and the frame lacks one of them"
                )
            raise UsageError(f"the frame holds no metric '{name}': {nearest(name, known)}")
    if RANK_AGGREGATE in (directions or {}):
        raise UsageError(f"{RANK_AGGREGATE} has no direction: each metric that it adds up keeps its own")
    rest = (
        sorted(known, key=lambda name: (name != RANK_AGGREGATE, name != _NEXT)) if others or not named else []
    )
    chosen = list(dict.fromkeys([*named, *rest]))
    records: list[dict[str, Any]] = []
    keys = [key for key in ("model", "corpus") if key in frame]
    for names, group in frame.groupby(keys, sort=False, dropna=False) if keys else [((), frame)]:
        place = dict(zip(keys, names, strict=True))
        records += [place | record for record in _criteria(group, chosen, named, directions or {})]
        records += [place | record for record in _baselines(group)]
    return as_frame(records, PICK_COLUMNS)


def _criteria(
    group: pd.DataFrame, criteria: list[str], named: list[str], directions: Mapping[str, Direction]
) -> list[dict[str, Any]]:
    records = []
    for criterion in criteria:
        for selector, place in _selectors(group, criterion, directions.get(criterion)):
            try:
                within = group[group["pooling"] == place["pooling"]]
                records.append(selector.fit(within).as_record() | place)
            except (FrameError, UsageError) as error:
                if criterion in named and isinstance(error, UsageError):
                    raise
                records.append({"kind": "criterion", "clear": False, "reason": str(error)} | place)
    return records


def _selectors(
    group: pd.DataFrame, criterion: str, direction: Direction | None
) -> Iterator[tuple[LayerSelector | RankAggregateSelector, dict[str, Any]]]:
    """A selector for every pooling and variant of a criterion, and what names it in a picks frame."""
    named: dict[str, Any] = {"criterion": criterion, "metric": criterion}
    rows = group[group["metric"] == (_NEXT if criterion == RANK_AGGREGATE else criterion)]
    for pooling in dict.fromkeys(rows["pooling"]):
        place = named | {"pooling": pooling}
        if criterion == RANK_AGGREGATE:
            aggregate = RankAggregateSelector(AGGREGATED, pooling=pooling)
            yield aggregate, place | {"variant": ", ".join(AGGREGATED)}
            continue
        within = rows[rows["pooling"] == pooling]
        for variant in dict.fromkeys(labels(within, "variant")) if "variant" in within else [None]:
            yield LayerSelector(criterion, direction, pooling, variant), place | {"variant": variant}


def _baselines(group: pd.DataFrame) -> list[dict[str, Any]]:
    """Layers that depth alone picks, for every pooling."""
    records = []
    for pooling in _vector_poolings(group):
        within = group[group["pooling"] == pooling].drop_duplicates("layer_name")
        for rule in DEPTH_RULES:
            depth_of = dict(zip(within["layer_name"], within["depth"], strict=True))
            chosen = within[within["layer_name"] == rule_layer(rule, list(depth_of), depth_of)].iloc[0]
            records.append(
                {"kind": "baseline", "criterion": rule, "pooling": pooling, "layer": int(chosen["layer"]),
                 "layer_name": chosen["layer_name"], "depth": float(chosen["depth"]), "clear": False,
                 "reason": ""}
            )  # fmt: skip
    return records


def _vector_poolings(group: pd.DataFrame) -> list[str]:
    """Poolings that give vectors; the token sets of token metrics only where there are no others."""
    names = list(dict.fromkeys(group["pooling"].astype(str)))
    return [name for name in names if not name.startswith("tokens")] or names
