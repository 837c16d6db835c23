"""What learned poolings are trained for."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

Objective = Literal["triplets", "pairs", "views", "scores"]
OBJECTIVES: dict[str, str] = {
    "triplets": "anchor and positive are alike, the negative and the batch's other texts are not",
    "pairs": "the two texts of a pair are alike, the batch's other texts are not",
    "views": "two views of a text are alike, the batch's other texts are not (dropout views: SimCSE)",
    "scores": "cosines order pairs as human scores do (CoSENT)",
}


def contrastive_loss(
    anchors: Tensor,
    positives: Tensor,
    negatives: Tensor | None = None,
    *,
    temperature: float = 0.05,
    same: Tensor | None = None,
) -> Tensor:
    """Mean over anchors of -log softmax at its own positive, among all positives and negatives of the batch.

    Args:
        anchors: (b, d).
        positives: (b, d), row i that of anchor i.
        negatives: (b, d) hard negatives, or none.
        temperature: what cosines are divided by.
        same: (b, b or 2b) true where a candidate is the text of the anchor or of its positive, and must not
            count as a negative.

    Source: Gao et al. 2021 (SimCSE), equations 1 and 5, with the weight of hard negatives 1.

    >>> x = torch.eye(2)
    >>> round(float(contrastive_loss(x, x, temperature=1.0)), 4)  # log(1 + 1 / e)
    0.3133
    """
    candidates = positives if negatives is None else torch.cat([positives, negatives])
    cosines = functional.normalize(anchors, dim=-1) @ functional.normalize(candidates, dim=-1).T
    own = torch.arange(len(anchors), device=anchors.device)
    if same is not None:
        others = same.clone()
        others[own, own] = False
        cosines = cosines.masked_fill(others, float("-inf"))
    return functional.cross_entropy(cosines / temperature, own)


def cosent_loss(first: Tensor, second: Tensor, scores: Tensor, *, temperature: float = 0.05) -> Tensor:
    """log(1 + Σ exp((cos_j - cos_i) / τ)) over all pairs of pairs i, j of which i has the higher score.

    Args:
        first: (b, d).
        second: (b, d), row i makes a pair with row i of ``first``.
        scores: (b,) human scores; only their order counts.
        temperature: τ.

    Source: Su 2022, CoSENT, as sentence-transformers has it.

    >>> x, y = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> round(float(cosent_loss(x, y, torch.tensor([0.0, 1.0]), temperature=1.0)), 4)  # log(1 + e)
    1.3133
    """
    cosines = functional.cosine_similarity(first, second, dim=-1) / temperature
    differences = cosines[None, :] - cosines[:, None]  # (i, j): cos_j - cos_i
    wrong = differences[scores[:, None] > scores[None, :]]
    return torch.cat([wrong.new_zeros(1), wrong]).logsumexp(dim=0)
