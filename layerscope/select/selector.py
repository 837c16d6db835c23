"""LayerSelector: the best layer by one criterion, with its runner-up and how sure that is."""

from __future__ import annotations

from typing import Any, Literal, Self, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from layerscope.errors import FrameError, UsageError, named, nearest
from layerscope.frames import draws_by_layer, labels, residual_rows
from layerscope.metrics import METRICS
from layerscope.resampling import interval

Direction = Literal["higher", "lower"]
FEWEST_TEXTS = 20
"""With fewer, halves of the texts agree by accident as often as not: nothing is said about certainty."""
SCORES = ("cosine_spearman", "main_score")
"""Scores by the one of which a layer is best, the first that a frame holds."""
_TIE = 1e-9

_NEEDED = ("layer", "layer_name", "depth", "pooling", "metric", "value")
_PREFERRED = ("mean-nosink", "tokens-nosink")


class LayerSelector(BaseEstimator):  # type: ignore[misc]
    """Pick the layer with the highest or lowest value of one metric, without labels.

    A layer whose value is missing is never picked, nor are ``attn.k`` and ``mlp.k``, at which no model can be
    cut.

    Args:
        criterion: name of a metric in the frame.
        direction: ``higher`` or ``lower``; what the frame says, or the metric's own, where not given.
        pooling: which pooling to choose within; where not given and there are several, the one
            without attention sinks, else the first in the frame.
        variant: which recipe of the metric, where the frame has several.

    Attributes:
        layer_: name of the picked layer.
        layer_index_: how many blocks have run there.
        depth_: share of the blocks that have run there.
        value_: the criterion's value there.
        runner_up_: name of the second best layer, ``None`` where there is no other.
        ranking_: frame of all layers, best first.
        support_: share of the resamples in which this layer is best, of those in which any layer has a
            value; NaN where there are none, or fewer than ``FEWEST_TEXTS`` texts.
        most_picked_: name of the layer that is best in most resamples, with its share of them in
            ``most_picked_support_``; ``None`` where there is no support.
        shares_: (l,) share of those resamples in which each layer of ``ranking_`` is best; ``None`` where
            there is no support.
        difference_: the pick's value less the runner-up's, with its 95 % interval (value, low, high).
        clear_: whether that interval excludes zero and most resamples agree; false without resamples.
        direction_: the direction used.
        pooling_: the pooling used.
        variant_: the recipe used.
        n_layers_: how many layers had a value.
        n_: the fewest texts behind a layer's value, ``None`` where the frame does not say.

    Source: Skean et al. 2025 for picking a layer by a label-free metric; the direction is a choice.

    >>> frame = pd.DataFrame(
    ...     {"layer": [0, 1], "layer_name": ["embed", "block.1"], "depth": [0.0, 1.0], "pooling": "mean",
    ...      "metric": "dataset_entropy", "value": [1.0, 2.0]}
    ... )
    >>> LayerSelector("dataset_entropy", direction="higher").fit(frame).layer_
    'block.1'
    """

    def __init__(
        self,
        criterion: str = "participation_ratio",
        direction: Direction | None = None,
        pooling: str | None = None,
        variant: str | None = None,
    ) -> None:
        self.criterion = criterion
        self.direction = direction
        self.pooling = pooling
        self.variant = variant

    def fit(self, frame: pd.DataFrame, y: object = None) -> Self:
        """Choose from a metrics frame of one model and corpus.

        Args:
            frame: as ``analyze`` returns it.
            y: ignored, present for scikit-learn's conventions.

        Raises:
            UsageError: the criterion, direction, pooling or variant is not known or not unique.
            FrameError: no layer has a value, all have the same, or the frame holds several models or
                corpora.
        """
        self._check_options(frame)
        self.direction_ = self._direction(frame)
        candidates = self._candidates(frame)
        self.pooling_ = str(candidates["pooling"].iloc[0])
        self.variant_ = labels(candidates, "variant").iloc[0] if "variant" in candidates else ""
        self.ranking_ = candidates.sort_values(
            "value", ascending=self.direction_ == "lower", kind="stable"
        ).reset_index(drop=True)
        best = self.ranking_.iloc[0]
        self.layer_ = str(best["layer_name"])
        self.layer_index_ = int(best["layer"])
        self.depth_ = float(best["depth"])
        self.value_ = float(best["value"])
        self.n_layers_ = len(self.ranking_)
        self.runner_up_ = str(self.ranking_["layer_name"].iloc[1]) if self.n_layers_ > 1 else None
        if self.n_layers_ > 1 and np.ptp(self.ranking_["value"]) <= _TIE * abs(self.value_):
            raise FrameError(
                f"all {self.n_layers_} layers have the same value: there is nothing to choose by"
            )
        self.n_ = fewest_texts(self.ranking_)
        self._judge()
        _, low, high = self.difference_
        self.clear_ = bool((low > 0 or high < 0) and self.support_ > 0.5)
        return self

    @classmethod
    def from_scores(
        cls,
        scores: pd.DataFrame,
        metric: str | None = None,
        pooling: str | None = None,
        variant: str | None = None,
    ) -> Self:
        """The best layer on a small labelled set, where labels can be had: a fitted selector.

        A hundred pairs usually choose better than a criterion without labels;
        ``layerscope.evaluate.labels.label_curve`` says how many are enough for a model.

        Args:
            scores: a scores frame of one model and one task.
            metric: which score; ``cosine_spearman`` or ``main_score`` where not given.
            pooling: which pooling to choose within, as for a metric.
            variant: ``raw``, ``center`` …; ``raw``, or the only one, where not given.

        Raises:
            FrameError: several models or tasks, or no such score.
        """
        for column in ("model", "task", "split", "subset"):
            values = scores[column] if column in scores else pd.Series(dtype=str)
            if column == "subset" and (values == "all").any():
                scores = scores[values == "all"]
            elif values.nunique() > 1:
                raise FrameError(
                    f"the scores frame holds several values of {column} ({named(values)}): choose one"
                )
        known = list(dict.fromkeys(scores["metric"]))
        chosen = metric or next((name for name in SCORES if name in known), known[0] if known else "")
        rows = scores[scores["metric"] == chosen]
        if rows.empty:
            raise FrameError(f"the scores frame holds no {chosen}: {nearest(chosen, known)}")
        if variant is None and "variant" in rows:
            variants = list(dict.fromkeys(labels(rows, "variant")))
            variant = variants[0] if len(variants) == 1 else "raw"
        frame = rows.rename(columns={"score": "value"}).assign(direction="higher")
        return cls(chosen, "higher", pooling, variant).fit(frame)

    def _check_options(self, frame: object) -> None:
        if not isinstance(self.criterion, str):
            raise UsageError(f"criterion is {self.criterion!r}: it must be the name of a metric")
        if not isinstance(frame, pd.DataFrame):
            raise UsageError(f"expected a metrics frame, as analyze returns it, got {type(frame).__name__}")
        missing = [column for column in _NEEDED if column not in frame]
        if missing:
            raise FrameError(f"this is no metrics frame: it lacks the column(s) {', '.join(missing)}")

    def _direction(self, frame: pd.DataFrame) -> Direction:
        """The one asked for, else the frame's, else the metric's own."""
        if self.direction is not None:
            if self.direction not in ("higher", "lower"):
                raise UsageError(f"direction is '{self.direction}': it must be higher or lower")
            return self.direction
        if "direction" in frame:
            stated = frame.loc[frame["metric"] == self.criterion, "direction"].dropna().unique().tolist()
            if stated in (["higher"], ["lower"]):
                return cast("Direction", stated[0])
            if stated:
                raise FrameError(
                    f"the frame says of '{self.criterion}' that {named(stated)} is better: "
                    "it must be higher or lower"
                )
        for spec in METRICS:
            if spec.name == self.criterion:
                return spec.direction
        raise UsageError(
            f"which end of '{self.criterion}' is better is not known: "
            "say --direction (direction= in Python), or take a metric that is "
            f"({nearest(self.criterion, [spec.name for spec in METRICS])})"
        )

    def _candidates(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows to choose from: one value a layer."""
        for column in ("model", "corpus"):
            if column in frame and frame[column].nunique() > 1:
                names = ", ".join(map(str, frame[column].unique()))
                raise FrameError(
                    f"the frame holds several values of {column} ({names}): choose one and fit again"
                )
        metrics = list(dict.fromkeys(frame["metric"]))
        if self.criterion not in metrics:
            raise UsageError(
                f"the frame holds no metric '{self.criterion}': {nearest(self.criterion, metrics)}"
            )
        rows = residual_rows(frame[frame["metric"] == self.criterion])
        rows = _narrow(rows, "pooling", self.pooling, prefer=_PREFERRED)
        if "variant" in rows:
            rows = _narrow(rows, "variant", self.variant, prefer=())
        if rows["layer_name"].duplicated().any():
            raise FrameError(f"the frame holds several values of '{self.criterion}' for one layer")
        defined = rows[rows["value"].notna()]
        if defined.empty:
            reasons = [
                str(reason) for reason in rows.get("reason", pd.Series(dtype=str)).dropna().unique() if reason
            ]
            raise FrameError(
                f"no layer has a value of '{self.criterion}': {'; '.join(reasons) or 'all are missing'}"
            )
        return defined

    def _judge(self) -> None:
        """Support, and the difference to the runner-up with its interval."""
        missing = float("nan")
        self.support_, self.most_picked_, self.most_picked_support_ = missing, None, missing
        self.difference_ = (missing, missing, missing)
        self.shares_: NDArray[np.float64] | None = None
        draws = draws_by_layer(self.ranking_)
        if self.n_layers_ == 1 or draws is None or self._has_too_few_texts:
            return
        sign = 1.0 if self.direction_ == "higher" else -1.0
        ranked = np.where(np.isnan(draws), -np.inf, sign * draws)
        decided = ~np.isnan(draws).all(axis=1)
        if decided.any():
            best = np.argmax(ranked[decided], axis=1)
            shares = np.bincount(best, minlength=self.n_layers_) / decided.sum()
            self.shares_ = shares
            self.support_ = float(shares[0])
            self.most_picked_ = str(self.ranking_["layer_name"].iloc[int(shares.argmax())])
            self.most_picked_support_ = float(shares.max())
        difference = self.value_ - float(self.ranking_["value"].iloc[1])
        self.difference_ = (difference, *self._lead_interval(difference, draws[:, 0] - draws[:, 1]))

    def _lead_interval(self, difference: float, leads: NDArray[np.float64]) -> tuple[float, float]:
        return interval(difference, leads)

    @property
    def _has_too_few_texts(self) -> bool:
        return self.n_ is not None and self.n_ < FEWEST_TEXTS

    def as_record(self) -> dict[str, Any]:
        """The pick as one row of a picks frame."""
        check_is_fitted(self, "layer_")
        runner_up_value = float(self.ranking_["value"].iloc[1]) if self.runner_up_ else float("nan")
        return {
            "kind": "criterion",
            "criterion": self.criterion,
            "metric": self.criterion,
            "variant": self.variant_,
            "direction": self.direction_,
            "pooling": self.pooling_,
            "layer": self.layer_index_,
            "layer_name": self.layer_,
            "depth": self.depth_,
            "value": self.value_,
            "runner_up": self.runner_up_,
            "runner_up_value": runner_up_value,
            "support": self.support_,
            "most_picked": self.most_picked_,
            "most_picked_support": self.most_picked_support_,
            "clear": self.clear_,
            "n": self.n_,
            "reason": f"fewer than {FEWEST_TEXTS} texts" if self._has_too_few_texts else "",
        }


def _narrow(rows: pd.DataFrame, column: str, wanted: str | None, prefer: tuple[str, ...]) -> pd.DataFrame:
    """Rows with one value of ``column``: the wanted one, or the only or preferred one."""
    names = labels(rows, column)
    known = list(dict.fromkeys(names))
    if wanted is None:
        preferred = [name for name in prefer if name in known]
        if len(known) > 1 and column == "variant":
            raise UsageError(
                f"the frame holds several variants of this metric: choose one with variant= ({known})"
            )
        wanted = (preferred or known)[0]
    if wanted not in known:
        raise UsageError(f"the frame holds no {column} '{wanted}': {nearest(wanted, known)}")
    return rows[names == wanted]


def fewest_texts(rows: pd.DataFrame) -> int | None:
    """The fewest texts behind a value in ``rows``, ``None`` where that is not told."""
    known = rows["n"].dropna() if "n" in rows else pd.Series(dtype=float)
    return None if known.empty else int(known.min())
