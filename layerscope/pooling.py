"""Token states of one layer -> one vector per text.

Every function takes ``states`` of shape (b, t, d) and a boolean ``mask`` of shape (b, t) that says
which tokens count. What the mask leaves out is selected away, never multiplied by zero, so that
NaN or infinite padding cannot leak. A text with no token left gets a row of NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerscope.errors import UsageError, nearest


@dataclass(frozen=True)
class TokenMasks:
    """Which tokens of a padded batch belong to which set; each a boolean tensor (b, t).

    Attributes:
        kept: real tokens, less those that the special-token policy drops.
        nosink: ``kept`` less attention sinks.
        cls: the classification token.
    """

    kept: Tensor
    nosink: Tensor
    cls: Tensor

    def take(self, rows: NDArray[np.int64]) -> TokenMasks:
        """Those of some texts of the batch."""
        return TokenMasks(self.kept[rows], self.nosink[rows], self.cls[rows])


def mean(states: Tensor, mask: Tensor) -> Tensor:
    """Mean of the masked tokens, (b, d) float32.

    >>> states = torch.tensor([[[1.0], [3.0], [float("nan")]]])
    >>> mean(states, torch.tensor([[True, True, False]])).tolist()
    [[2.0]]
    """
    return _select(states, mask, 0.0).sum(dim=1) / mask.sum(dim=1, keepdim=True)


def weighted_mean(states: Tensor, mask: Tensor) -> Tensor:
    """Mean weighted by position (1, 2, … over the masked tokens), (b, d) float32.

    The pooling of SGPT (Muennighoff 2022): in a causal model later tokens have seen more.
    """
    weights = (mask.cumsum(dim=1) * mask).to(dtype=torch.float32).unsqueeze(-1)
    return (_select(states, mask, 0.0) * weights).sum(dim=1) / weights.sum(dim=1)


def maximum(states: Tensor, mask: Tensor) -> Tensor:
    """Largest value of each dimension over the masked tokens, (b, d) float32."""
    pooled = _select(states, mask, float("-inf")).amax(dim=1)
    return _missing_where_empty(pooled, mask)


def first(states: Tensor, mask: Tensor) -> Tensor:
    """State of the first masked token, (b, d) float32."""
    return _pick(states, mask, mask.int().argmax(dim=1))


def last(states: Tensor, mask: Tensor) -> Tensor:
    """State of the last masked token, (b, d) float32."""
    return _pick(states, mask, mask.shape[1] - 1 - mask.flip(1).int().argmax(dim=1))


def prompt_vector(states: Tensor, mask: Tensor) -> Tensor:
    """Mean of the masked tokens after each was centred by their mean and scaled to unit norm, (b, d) float32.

    What the published recipe is computed from (Skean et al. 2025, released code); in float64 inside. NaN
    where there are fewer than two tokens, or one equals their mean.
    """
    counts = mask.sum(dim=1)[:, None, None]
    keep = mask.unsqueeze(-1)
    tokens = torch.where(keep, states, 0).to(dtype=torch.float64)
    centred = tokens - tokens.sum(dim=1, keepdim=True) / counts
    unit = centred / torch.linalg.vector_norm(centred, dim=-1, keepdim=True)
    return (torch.where(keep, unit, 0).sum(dim=1) / counts[:, 0]).to(dtype=torch.float32)


def _select(states: Tensor, mask: Tensor, other: float) -> Tensor:
    return states.to(dtype=torch.float32).masked_fill(~mask.unsqueeze(-1), other)


def _pick(states: Tensor, mask: Tensor, position: Tensor) -> Tensor:
    rows = position.new_tensor(range(len(position)))
    return _missing_where_empty(states[rows, position].to(dtype=torch.float32), mask)


def _missing_where_empty(pooled: Tensor, mask: Tensor) -> Tensor:
    return pooled.masked_fill(~mask.any(dim=1, keepdim=True), float("nan"))


_POOLINGS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], str]] = {
    "mean": (mean, "kept"),
    "mean-nosink": (mean, "nosink"),
    "last": (last, "kept"),
    "first": (first, "kept"),
    "cls": (first, "cls"),
    "max": (maximum, "kept"),
    "weighted-mean": (weighted_mean, "kept"),
    "prompt-vector": (prompt_vector, "kept"),
}
POOLINGS = tuple(_POOLINGS)


def check_poolings(names: Iterable[str]) -> list[str]:
    """``names`` as a list without repeats, or a ``UsageError`` for one that is not known."""
    chosen = list(dict.fromkeys(names))
    for name in chosen:
        if name not in _POOLINGS:
            raise UsageError(f"no pooling is called '{name}': {nearest(name, POOLINGS)}")
    if not chosen:
        raise UsageError(f"no pooling selected: {nearest('', POOLINGS)}")
    return chosen


def pool(name: str, states: Tensor, masks: TokenMasks) -> Tensor:
    """Pool ``states`` (b, t, d) by the pooling called ``name`` into (b, d) float32."""
    function, token_set = _POOLINGS[name]
    return function(states, getattr(masks, token_set))


def combine(name: str, values: Tensor, counts: Tensor) -> Tensor:
    """What a pooling gives of a text from what it gave of its pieces.

    Args:
        name: of the pooling. ``first`` and ``cls`` take the first piece, ``last`` the last one, ``max`` the
            largest entries, all others the mean weighted by tokens.
        values: (pieces, d) float32.
        counts: (pieces,) how many tokens of the pooling's set each piece has.

    Returns:
        (d,) float32; NaN where no piece has such a token.
    """
    known = counts > 0
    if not bool(known.any()):
        return values.new_full(values.shape[1:], float("nan"))
    values, counts = values[known], counts[known]
    if name in ("first", "cls"):
        return values[0]
    if name == "last":
        return values[-1]
    if name == "max":
        return values.amax(dim=0)
    weights = counts.double() / counts.sum()
    return (weights[:, None] * values.double()).sum(dim=0).float()


def token_set_of(name: str) -> str:
    """The field of ``TokenMasks`` that the pooling called ``name`` reads."""
    return _POOLINGS[name][1]
