"""A frame split into the lines of a figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from layerscope.errors import FrameError, nearest
from layerscope.frames import RUN_COLUMNS
from layerscope.layers import as_layer_order, site_of
from layerscope.plots.style import LOOKS, SeriesStyle, pooling_family, series_style, slots_of

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

_KEYS = (
    "pooling", "model", "corpus", "task", "split", "subset", "variant", "score_variant", *RUN_COLUMNS, "site",
)  # fmt: skip
_MOST = 12
SITE_LABELS = {"block": "residual stream", "attn": "attention output", "mlp": "MLP output"}
"""How figures call the sites of a block, in their order."""


@dataclass(frozen=True, eq=False)
class Series:
    """One line of a figure.

    Attributes:
        label: its pooling, and what else tells it from the other lines.
        rows: its rows in order of layers, each layer once.
        style: how it is drawn.
    """

    label: str
    rows: pd.DataFrame
    style: SeriesStyle

    @property
    def pooling(self) -> str:
        """Its pooling."""
        return str(self.rows["pooling"].iloc[0])

    def at(self, layer_name: str) -> pd.DataFrame:
        """The row of one layer (no row where the layer is absent)."""
        return self.rows[self.rows["layer_name"] == layer_name]


def check_columns(frame: pd.DataFrame, needed: Iterable[str], what: str) -> None:
    """Refuse a frame that has no rows or lacks a column.

    Raises:
        FrameError: naming what is missing.
    """
    missing = [column for column in needed if column not in frame.columns]
    if missing:
        found = ", ".join(map(str, frame.columns))
        raise FrameError(f"this {what} frame lacks the column(s) {', '.join(missing)} (found: {found})")
    if frame.empty:
        raise FrameError(f"this {what} frame has no rows: there is nothing to draw")


def rows_of(frame: pd.DataFrame, metric: str, what: str = "metrics") -> pd.DataFrame:
    """The rows of one metric.

    Raises:
        FrameError: there are none; the message names the metrics there are, the nearest first.
    """
    value = "score" if what == "scores" else "value"
    check_columns(frame, ("layer", "layer_name", "depth", "pooling", "metric", value), what)
    rows = frame[frame["metric"] == metric]
    if rows.empty:
        raise FrameError(f"no rows of metric '{metric}' in this frame: {nearest(metric, names_of(frame))}")
    return rows


def of_pooling(rows: pd.DataFrame, pooling: str) -> pd.DataFrame:
    """The rows of one pooling; of a token metric, those of the tokens that this pooling averages.

    Raises:
        FrameError: there are none; the message names the poolings there are.
    """
    known = names_of(rows, "pooling")
    chosen = [pooling] if pooling in known else [name for name in known if pooling_family(name) == pooling]
    if not chosen:
        metric = rows["metric"].iloc[0]
        raise FrameError(f"no rows of '{metric}' have the pooling '{pooling}': {nearest(pooling, known)}")
    return rows[rows["pooling"].isin(chosen)]


def names_of(frame: pd.DataFrame, column: str = "metric") -> list[str]:
    """The distinct values of a column, in order of appearance."""
    return [str(name) for name in frame[column].dropna().unique()]


def split_series(rows: pd.DataFrame) -> list[Series]:
    """One series per pooling, and per model, corpus, task, recipe and site within a block where several.

    Raises:
        FrameError: more lines than a figure can show, or two values for one layer of a line.
    """
    rows = _with_sites(rows)
    groups, keys = _groups(rows)
    slots = slots_of(str(group["pooling"].iloc[0]) for group in groups)
    seen: dict[str, int] = {}
    series = []
    for group in groups:
        pooling = str(group["pooling"].iloc[0])
        nth = seen[pooling] = seen.get(pooling, -1) + 1
        label = ", ".join([pooling, *_distinctions(group, rows[rows["pooling"] == pooling], keys[1:])])
        series.append(Series(label, _in_layer_order(group, label), series_style(slots[pooling], nth)))
    return series


def split_models(rows: pd.DataFrame) -> list[Series]:
    """One series per model, and per pooling, corpus, task and recipe where the frame has several.

    A model (or revision of one) has one colour and marker, whatever its pooling; its lines differ in their
    dashes. More models than there are colours begin again with other dashes.

    Raises:
        FrameError: more lines than a figure can show, or two values for one layer of a line.
    """
    rows = _with_sites(rows)
    groups, keys = _groups(rows)
    models = names_of(rows, "model")
    short = dict(zip(models, short_names(models), strict=True))
    looks: dict[tuple[str, ...], int] = {}
    seen: dict[int, int] = {}
    series = []
    for group in sorted(groups, key=lambda group: models.index(str(group["model"].iloc[0]))):
        who = tuple(str(group[key].iloc[0]) for key in ("model", "revision") if key in keys)
        slot = looks.setdefault(who, len(looks)) % LOOKS
        nth = seen[slot] = seen.get(slot, -1) + 1
        others = _distinctions(group, rows, [key for key in keys if key != "model"])
        label = ", ".join([short[who[0]], *others])
        style = replace(series_style(slot, nth), hollow=False)
        series.append(Series(label, _in_layer_order(group, label), style))
    return series


def short_names(models: Sequence[str]) -> list[str]:
    """Models by the last part of their name, where that tells them apart.

    >>> short_names(["org/small", "org/large"]), short_names(["a/base", "b/base"])
    (['small', 'large'], ['a/base', 'b/base'])
    """
    last = [name.rstrip("/").rpartition("/")[2] for name in models]
    return last if len(set(last)) == len(set(models)) else list(models)


def _with_sites(rows: pd.DataFrame) -> pd.DataFrame:
    """``rows`` with a column for the site within a block, where there are others than the residual stream."""
    sites = rows["layer_name"].astype(str).map(site_of)
    return rows.assign(site=sites.map(SITE_LABELS)) if (sites != "block").any() else rows


def _groups(rows: pd.DataFrame) -> tuple[list[pd.DataFrame], list[str]]:
    """The rows of each line, and the columns that tell lines apart."""
    keys = [key for key in _KEYS if key in rows.columns]
    groups = [group for _, group in rows.groupby(keys, sort=False, dropna=False)]
    if len(groups) > _MOST:
        several = [key for key in keys if rows[key].nunique(dropna=False) > 1]
        raise FrameError(
            f"{len(groups)} lines are too many for one figure (at most {_MOST}): "
            f"select rows by {', '.join(several)} first"
        )
    return groups, keys


def _distinctions(group: pd.DataFrame, peers: pd.DataFrame, keys: list[str]) -> list[str]:
    """What tells ``group`` from the other series of its pooling."""
    texts = []
    for key in keys:
        if peers[key].nunique(dropna=False) > 1:
            texts.append(_own_parts(str(group[key].iloc[0]), [str(value) for value in peers[key].unique()]))
    return texts


def _own_parts(value: str, others: list[str]) -> str:
    """The parts of a recipe that not all recipes share.

    >>> _own_parts("rows=raw;alpha=2", ["rows=raw;alpha=1", "rows=raw;alpha=2"])
    'alpha=2'
    """
    shared = set.intersection(*(set(other.split(";")) for other in others))
    return "; ".join(part for part in value.split(";") if part not in shared) or value


def _in_layer_order(group: pd.DataFrame, label: str) -> pd.DataFrame:
    if group["layer_name"].duplicated().any():
        twice = group.loc[group["layer_name"].duplicated(), "layer_name"].iloc[0]
        raise FrameError(
            f"two values for layer {twice} of '{label}': select one model, corpus, task and recipe first"
        )
    return group.set_index("layer_name", drop=False).loc[as_layer_order(group["layer_name"])]


def in_common(rows: pd.DataFrame) -> str:
    """What all rows are of: their model, texts, pooling, task, each where there is but one.

    A list of texts from Python has no name to tell. Poolings of vectors and of token metrics that go together
    count as one.
    """
    words = {"model": "model", "corpus": "texts", "pooling": "pooling", "task": "task"}
    parts = []
    for key, word in words.items():
        values = list(rows[key].unique()) if key in rows.columns and rows[key].notna().all() else []
        if key == "pooling" and len(values) > 1:
            values = list({pooling_family(str(value)) for value in values})
        if len(values) == 1 and values[0] != word:
            parts.append(f"{word}: {values[0]}")
    return "; ".join(parts)


def floats(rows: pd.DataFrame, column: str) -> NDArray[np.float64]:
    """A column as float64; missing where the column is absent or a value is not finite."""
    if column not in rows.columns:
        return np.full(len(rows), np.nan)
    values = rows[column].to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(np.isfinite(values), values, np.nan)


def picks_for(series: Series, picks: pd.DataFrame | None, kind: str = "criterion") -> pd.DataFrame | None:
    """The picks that were made on the model and pooling of ``series``, or None where there are none."""
    if picks is None or picks.empty:
        return None
    check_columns(picks, ("criterion", "layer_name", "pooling"), "picks")
    found = picks[picks["pooling"].astype(str).map(pooling_family) == pooling_family(series.pooling)]
    if "kind" in found.columns:
        found = found[found["kind"] == kind]
    for key in ("model", "corpus"):
        if key in found.columns and key in series.rows.columns:
            own = series.rows[key].iloc[0]
            found = found[found[key].isna() | (found[key] == own)]
    found = found[found["layer_name"].notna()]
    return None if found.empty else found
