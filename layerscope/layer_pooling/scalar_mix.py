"""Scalar mix: one weight a layer, and one scale."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ScalarMix(nn.Module):
    """A weighted mean of layers, γ Σ_l softmax(w)_l h_l, the same weights for every text.

    All layers start with the same weight, and γ with 1, which a cosine does not see.

    Args:
        n_layers: how many layers are mixed.
        width: d, of every layer.

    Source: Peters et al. 2018 (ELMo), equation 1.

    >>> mix = ScalarMix(2, 3)
    >>> mix(torch.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])).tolist()
    [[0.5, 0.5, 0.0]]
    """

    def __init__(self, n_layers: int, width: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(n_layers))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, pooled: Tensor) -> Tensor:
        """The mix, (b, d), of pooled states (b, l, d)."""
        return self.scale * torch.einsum("l,bld->bd", self.logits.softmax(dim=0), pooled)

    def layer_weights(self, pooled: Tensor) -> Tensor:
        """The weight of each layer in each text, (b, l); rows sum to 1."""
        return self.logits.softmax(dim=0).expand(len(pooled), -1)
