"""RankAggregateSelector: the layer that several criteria rank best together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from layerscope.errors import FrameError, UsageError
from layerscope.frames import draws_by_layer
from layerscope.resampling import LEVEL
from layerscope.select.selector import Direction, LayerSelector, fewest_texts


class _MeanRankSelector(LayerSelector):
    """Takes the interval of the lead from the quantiles of its resamples.

    A layer that ranks first everywhere cannot do better in a resample, only those behind it worse: reflected
    around the value, as for a metric, such leads would seem to vanish.
    """

    def _lead_interval(self, difference: float, leads: NDArray[np.float64]) -> tuple[float, float]:
        low, high = np.quantile(leads, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return float(low), float(high)


class RankAggregateSelector(BaseEstimator):  # type: ignore[misc]
    """Pick the layer with the best mean rank over several criteria.

    Each criterion ranks the layers that all criteria have a value for (1 is best, ties share their mean
    rank). Support is counted over resamples in which every criterion is ranked anew.

    Args:
        criteria: names of metrics in the frame, two or more.
        directions: by criterion, where it shall not be the frame's or the metric's own.
        pooling: which pooling to choose within; as for ``LayerSelector`` where not given.
        variants: by criterion, which recipe, where the frame has several.

    Attributes:
        selectors_: the fitted ``LayerSelector`` of each criterion, by name.
        ranks_: frame of the rank that each criterion gives to each layer, and their mean.
        layer_: name of the picked layer, and ``layer_index_``, ``depth_``, ``runner_up_``, ``support_``,
            ``most_picked_``, ``clear_``, ``pooling_``, ``n_layers_`` and ``n_`` as for ``LayerSelector``.
        value_: its mean rank; ``ranking_`` and ``difference_`` are of mean ranks too.

    Source: Borda's count; the mean of ranks is the usual way to add up criteria of different scales.
    """

    def __init__(
        self,
        criteria: Sequence[str],
        directions: Mapping[str, Direction] | None = None,
        pooling: str | None = None,
        variants: Mapping[str, str] | None = None,
    ) -> None:
        self.criteria = criteria
        self.directions = directions
        self.pooling = pooling
        self.variants = variants

    def fit(self, frame: pd.DataFrame, y: object = None) -> Self:
        """Choose from a metrics frame of one model and corpus.

        Args:
            frame: as ``analyze`` returns it.
            y: ignored, present for scikit-learn's conventions.

        Raises:
            UsageError: fewer than two criteria, or one that is not known or not unique.
            FrameError: no layer has a value of all criteria, or as for ``LayerSelector``.
        """
        names = [self.criteria] if isinstance(self.criteria, str) else list(self.criteria)
        if len(set(names)) < 2 or len(set(names)) != len(names):
            raise UsageError(f"criteria are {names}: name two or more different ones")
        chosen = dict(self.directions or {}), dict(self.variants or {})
        self.selectors_ = {
            name: LayerSelector(name, chosen[0].get(name), self.pooling, chosen[1].get(name)).fit(frame)
            for name in names
        }
        rankings = {name: one.ranking_.set_index("layer_name") for name, one in self.selectors_.items()}
        first = rankings[names[0]]
        common = [
            layer for layer in first.index if all(layer in ranking.index for ranking in rankings.values())
        ]
        if not common:
            raise FrameError(f"no layer has a value of all of {', '.join(names)}")
        ranks = {name: self._ranks(name, rankings[name].loc[common]) for name in names}
        total = pd.DataFrame({name: ranked for name, (ranked, _) in ranks.items()}, index=common)
        self.ranks_ = total.assign(mean=total.mean(axis=1)).rename_axis("layer_name").reset_index()
        drawn = [draws for _, draws in ranks.values() if draws is not None]
        rows = first.loc[common].reset_index().drop(columns=["draws", "direction"], errors="ignore")
        rows = rows.assign(
            metric=f"rank aggregate of {', '.join(names)}",
            variant="",
            value=total.mean(axis=1).to_numpy(),
            n=fewest_texts(pd.concat(rankings.values())),
        )
        if len(drawn) == len(names) and len({len(draws) for draws in drawn}) == 1:
            rows["draws"] = list(np.mean(drawn, axis=0).T)
        self.selector_ = _MeanRankSelector(str(rows["metric"].iloc[0]), "lower").fit(rows)
        for name, value in vars(self.selector_).items():
            if name.endswith("_"):
                setattr(self, name, value)
        return self

    def _ranks(self, name: str, rows: pd.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Rank of each layer, (l,), and in each resample, (draws, l)."""
        sign = -1.0 if self.selectors_[name].direction_ == "higher" else 1.0
        draws = draws_by_layer(rows)
        values = sign * rows["value"].to_numpy(dtype=np.float64)
        if draws is None or np.isnan(draws).any():
            return rankdata(values), None
        return rankdata(values), rankdata(sign * draws, axis=1)

    def as_record(self) -> dict[str, Any]:
        """The pick as one row of a picks frame."""
        check_is_fitted(self, "selector_")
        return self.selector_.as_record()
