"""Pairs with human scores, for a model that encodes texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from layerscope.corpus import Corpus
from layerscope.errors import CorpusError
from layerscope.evaluate.sts import cosine_of_pairs

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class ScoredPairs:
    """The pairs of a corpus that have a score.

    Args:
        corpus: of pairs.

    Attributes:
        texts: the 2m texts of m pairs, interleaved.
        scores: (m,) their scores.

    Raises:
        CorpusError: no pairs, or fewer than two different scores.
    """

    def __init__(self, corpus: Corpus) -> None:
        if not corpus.is_pairs or "score" not in corpus.rows:
            raise CorpusError(f"the dev set {corpus.name} holds no pairs with scores: name its columns")
        rows = corpus.rows[np.isfinite(corpus.rows["score"])]
        self.texts: list[str] = rows["text"].tolist()
        self.scores = rows["score"].to_numpy(dtype=np.float64)[::2]
        if len(self.scores) < 2 or np.ptp(self.scores) == 0:
            raise CorpusError(f"the dev set {corpus.name} has fewer than two different scores")

    def cosines(self, model: SentenceTransformer) -> NDArray[np.float64]:
        """Of every pair, (m,)."""
        vectors = model.encode(self.texts, batch_size=64, show_progress_bar=False, convert_to_numpy=True)
        return cosine_of_pairs(np.asarray(vectors))

    def spearman(self, model: SentenceTransformer) -> float:
        """Of cosine with the scores; 0 where all cosines are equal."""
        cosines = self.cosines(model)
        return float(spearmanr(cosines, self.scores).statistic) if np.ptp(cosines) > 0 else 0.0
