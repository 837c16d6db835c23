"""Scores item by item, from what a task predicted: what a paired bootstrap over items needs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from layerscope.evaluate.correlation import pearson, spearman
from layerscope.evaluate.mteb.local_data import is_retrieval

Kind = Literal["mean", "spearman", "pearson", "average_precision"]
_CLOSE = 5e-6  # mteb rounds its scores to six places
_BLOCK = 100  # draws at a time
_RANKED = re.compile(r"(ndcg|map|recall|precision)_at_(\d+)")
_TREC = {"ndcg": "ndcg_cut", "map": "map_cut", "recall": "recall", "precision": "P"}


@dataclass(frozen=True)
class Items:
    """What each item of a task contributes to its main score.

    Attributes:
        kind: how items make the score: their ``mean``, a rank or linear correlation with ``gold``, or the
            average precision of ``values`` for the classes in ``gold``.
        values: (n,) of each item; (n, k) where the score is the best over k similarities.
        gold: (n,) human score or class; zeros for a mean.
    """

    kind: Kind
    values: NDArray[np.float64]
    gold: NDArray[np.float64]

    def score(self) -> float:
        """The main score of all items."""
        return float(self.scores(np.ones((1, len(self.gold))))[0])

    def scores(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """The main score under each row of ``weights`` (b, n), (b,)."""
        if self.kind == "mean":
            return np.asarray(weights @ self.values / weights.sum(axis=1))
        correlate = {"spearman": spearman, "pearson": pearson}.get(self.kind)
        if correlate is not None:
            return correlate(self.values, self.gold, weights)
        return np.array([self._best_precision(row) for row in weights])

    def draws(self, count: int, seed: int) -> NDArray[np.float64]:
        """The main score of ``count`` bootstrap samples of the items; the same samples for every layer."""
        rng = np.random.default_rng(seed)
        n = len(self.gold)
        found = []
        for start in range(0, count, _BLOCK):
            size = min(_BLOCK, count - start)
            weights = np.stack([np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(size)])
            found.append(self.scores(weights.astype(np.float64)))
        return np.concatenate(found) if found else np.empty(0)

    def _best_precision(self, weight: NDArray[np.float64]) -> float:
        from sklearn.metrics import average_precision_score

        drawn = weight > 0
        if len(np.unique(self.gold[drawn])) < 2:
            return float("nan")
        return max(
            float(average_precision_score(self.gold[drawn], column[drawn], sample_weight=weight[drawn]))
            for column in self.values.T
        )


def items_of(
    task: Any, split: str, subset: str, predictions: Path, scores: Mapping[str, Any]
) -> tuple[Items | None, str]:
    """What each item contributes to the main score, or why that is not known.

    Args:
        task: after it was evaluated.
        split: of its data.
        subset: of its data.
        predictions: the folder that it wrote its predictions to.
        scores: what it scored.

    Returns:
        The items, or None and the reason. They are given only if they make up the score that mteb found.
    """
    main = task.metadata.main_score
    reader = _reader(task, main)
    path = predictions / task.prediction_file_name
    if reader is None or not path.is_file():
        return None, f"no scores by item for {main}"
    predicted = json.loads(path.read_text(encoding="utf-8"))[subset][split]
    items = reader(task, _data(task, split, subset), predicted, scores)
    if items is None or not len(items.gold) or abs(items.score() - float(scores["main_score"])) > _CLOSE:
        return None, f"the items do not make up {main}"
    return items, ""


def _data(task: Any, split: str, subset: str) -> Any:
    data = task.dataset
    return data[subset][split] if subset in data else data[split]


_Reader = Callable[[Any, Any, Any, Mapping[str, Any]], Items | None]


def _reader(task: Any, main: str) -> _Reader | None:
    from mteb import abstasks

    if isinstance(task, abstasks.AbsTaskSTS) and main in ("cosine_spearman", "cosine_pearson"):
        return _sts
    if isinstance(task, abstasks.AbsTaskMultilabelClassification):
        return None
    if (
        isinstance(task, abstasks.AbsTaskClassification)
        and main == "accuracy"
        and not task.is_cross_validation
    ):
        return _classification
    if isinstance(task, abstasks.AbsTaskPairClassification) and main in (
        "max_ap",
        "cosine_ap",
        "similarity_ap",
    ):
        return _pairs
    if isinstance(task, abstasks.AbsTaskClustering) and main == "v_measure":
        return _clustering
    return _retrieval if is_retrieval(task) and _RANKED.fullmatch(main) else None


def _sts(task: Any, data: Any, predicted: Any, scores: Mapping[str, Any]) -> Items:
    del scores
    values = np.array(predicted["cosine_scores"], dtype=np.float64)
    kind: Kind = "spearman" if task.metadata.main_score == "cosine_spearman" else "pearson"
    return Items(kind, values, np.array(data["score"], dtype=np.float64))


def _classification(task: Any, data: Any, predicted: Any, scores: Mapping[str, Any]) -> Items:
    del scores
    truth = np.array(data[task.label_column_name])
    right = np.mean([np.array(run) == truth for run in predicted], axis=0)
    return Items("mean", right, np.zeros(len(right)))


def _pairs(task: Any, data: Any, predicted: Any, scores: Mapping[str, Any]) -> Items:
    del scores
    rows = data[0] if len(data) == 1 else data
    classes = np.array(rows[task.label_column_name], dtype=np.float64)
    signs = {
        "similarity_scores": 1, "cosine_scores": 1, "dot_scores": 1, "manhattan_distances": -1,
        "euclidean_distances": -1,
    }  # fmt: skip
    if task.metadata.main_score != "max_ap":
        signs = {"cosine_scores": 1}
    columns = [sign * np.array(predicted[name], dtype=np.float64) for name, sign in signs.items()]
    return Items("average_precision", np.stack(columns, axis=1), classes)


def _clustering(task: Any, data: Any, predicted: Any, scores: Mapping[str, Any]) -> Items:
    """Items are the sets of texts that were clustered, the same for every layer."""
    del task, data, predicted
    values = np.array([value for level in scores["v_measures"].values() for value in level])
    return Items("mean", values, np.zeros(len(values)))


def _retrieval(task: Any, data: Any, predicted: Any, scores: Mapping[str, Any]) -> Items:
    """Items are queries."""
    del scores
    import pytrec_eval

    found = _RANKED.fullmatch(task.metadata.main_score)
    assert found is not None  # or this reader would not have been chosen
    measure, cut = _TREC[found[1]], found[2]
    if task.ignore_identical_ids:
        predicted = {
            query: {name: score for name, score in ranked.items() if name != query}
            for query, ranked in predicted.items()
        }
    evaluator = pytrec_eval.RelevanceEvaluator(data["relevant_docs"], {f"{measure}.{cut}"})
    by_query = evaluator.evaluate(predicted)
    values = np.array([by_query[query][f"{measure}_{cut}"] for query in sorted(by_query)])
    return Items("mean", values, np.zeros(len(values)))
