"""Learned latents that attend over a set of vectors, and their mean."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class LatentAttention(nn.Module):
    """One block of cross-attention from learned latents to vectors, then the latents' mean, of unit length.

    Latents and vectors are normalised by layer norms of their own; h heads of width d_h without bias, scale
    1/√d_h, then a residual; a layer norm and a GEGLU feed-forward (d → 2·4d, gated to 4d, → d), then a
    residual; the mean over the r latents. Over the tokens of the last layer it is the trainable last-layer
    pooling.

    Args:
        width: d, of every vector.
        latents: r; d / 32 where not given, at least 8. The published 768 goes with d = 4096; its cost grows
            with r, and that of fitting on a processor is felt.
        heads: h; d / 128 where not given, at least 1 (published: 32).
        head_width: d_h; d / 2 where not given (published: 2048).

    Source: Tang & Yang 2024, "Pooling and Attention", after the perceiver of Jaegle et al. 2021.
    """

    def __init__(
        self,
        width: int,
        *,
        latents: int | None = None,
        heads: int | None = None,
        head_width: int | None = None,
    ) -> None:
        super().__init__()
        self.heads = heads or max(1, width // 128)
        inner = self.heads * (head_width or max(1, width // 2))
        self.latents = nn.Parameter(0.02 * torch.randn(latents or max(8, width // 32), width))
        self.norm_inputs = nn.LayerNorm(width)
        self.norm_latents = nn.LayerNorm(width)
        self.query = nn.Linear(width, inner, bias=False)
        self.key = nn.Linear(width, inner, bias=False)
        self.value = nn.Linear(width, inner, bias=False)
        self.output = nn.Linear(inner, width, bias=False)
        self.norm_hidden = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 8 * width)
        self.contract = nn.Linear(4 * width, width)

    def forward(self, vectors: Tensor, mask: Tensor | None = None) -> Tensor:
        """The vectors of b texts, (b, d), of unit length.

        Args:
            vectors: (b, l, d).
            mask: (b, l) true for vectors that count; all where not given.
        """
        inputs = self.norm_inputs(vectors)
        values = self._split(self.value(inputs))  # (b, h, l, d_h)
        mixed = torch.einsum("bhrl,bhld->brhd", self.attention(inputs, mask), values).flatten(2)
        hidden = self.latents + self.output(mixed)  # (b, r, d)
        grown, gate = self.expand(self.norm_hidden(hidden)).chunk(2, dim=-1)
        hidden = hidden + self.contract(grown * functional.gelu(gate))
        found: Tensor = functional.normalize(hidden.mean(dim=1), dim=-1)
        return found

    def attention(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """(b, h, r, l): what each latent gives to each normalised vector; sums to 1 over vectors."""
        queries = self._split(self.query(self.norm_latents(self.latents))[None])[0]  # (h, r, d_h)
        keys = self._split(self.key(inputs))
        scores = torch.einsum("hrd,bhld->bhrl", queries, keys) / queries.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None, :], torch.finfo(scores.dtype).min)
        weights: Tensor = scores.softmax(dim=-1)
        return weights

    def _split(self, vectors: Tensor) -> Tensor:
        """(b, x, h·d_h) as (b, h, x, d_h)."""
        count, length, inner = vectors.shape
        return vectors.view(count, length, self.heads, inner // self.heads).transpose(1, 2)
