"""Layer-wise attention pooling (LLAP): every layer's first token asks all layers' means."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_SLOPES = (1 / 8, 1 / 3)


class LayerAttention(nn.Module):
    """Attention over layers: c_i, the state of one token at layer i, asks the mean states m_j of all layers.

    q_i = ρ(Q c_i), k_j = ρ(K m_j), v_j = ρ(V m_j), with one map each for all layers, no bias, and ρ a
    randomised leaky ReLU (slope drawn from [1/8, 1/3] in training, its mean in evaluation). The score
    q_i · k_j / n is normalised by a softmax over j; t is the mean over i of Σ_j a_ij v_j. The vector of the
    text is tanh(W [c_last ; t] + b). The score is divided by the number of layers n, not by √d.

    Args:
        n_layers: n, the embedding output among them.
        width: d, of every layer.

    Source: Oh et al. 2022, "Don't Judge a Language Model by Its Last Layer".
    """

    def __init__(self, n_layers: int, width: int) -> None:
        super().__init__()
        self.n_layers = n_layers
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.activation = nn.RReLU(*_SLOPES)
        self.output = nn.Linear(2 * width, width)

    def forward(self, pooled: Tensor, token: Tensor) -> Tensor:
        """The vectors of b texts, (b, d), each entry in (-1, 1).

        Args:
            pooled: (b, n, d) mean states m.
            token: (b, n, d) states c of the classification token, or of the last one in a causal model.
        """
        values = self.activation(self.value(pooled))
        mixed = torch.einsum("bij,bjd->bid", self._attention(pooled, token), values).mean(dim=1)
        return torch.tanh(self.output(torch.cat([token[:, -1], mixed], dim=-1)))

    def layer_weights(self, pooled: Tensor, token: Tensor) -> Tensor:
        """The attention that each layer gets in each text, the mean over queries, (b, n); rows sum to 1."""
        return self._attention(pooled, token).mean(dim=1)

    def _attention(self, pooled: Tensor, token: Tensor) -> Tensor:
        """a, (b, n, n): row i is what query i gives to each layer."""
        queries, keys = self.activation(self.query(token)), self.activation(self.key(pooled))
        return (torch.einsum("bid,bjd->bij", queries, keys) / self.n_layers).softmax(dim=-1)
