"""Multi-layer trainable pooling: learned latents attend over the pooled vectors of all layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from layerscope.layer_pooling.latent_attention import LatentAttention


class MultiLayer(LatentAttention):
    """Latent attention over layers, a learned embedding of each layer added to its vector first.

    Args:
        n_layers: L, how many layers there are.
        width: d, of every layer.
        sizes: ``latents``, ``heads``, ``head_width``, as for ``LatentAttention``.

    Source: Tang & Yang 2024, "Pooling and Attention".
    """

    def __init__(self, n_layers: int, width: int, **sizes: int | None) -> None:
        super().__init__(width, **sizes)
        self.layer_embedding = nn.Parameter(0.02 * torch.randn(n_layers, width))

    def forward(self, vectors: Tensor, mask: Tensor | None = None) -> Tensor:
        """The vectors of b texts, (b, d), of unit length, from pooled states (b, l, d)."""
        return super().forward(vectors + self.layer_embedding, mask)

    def layer_weights(self, pooled: Tensor) -> Tensor:
        """The attention that each layer gets in each text, the mean over latents and heads, (b, l)."""
        inputs: Tensor = self.norm_inputs(pooled + self.layer_embedding)
        return self.attention(inputs).mean(dim=(1, 2))
