"""Attention sinks: tokens whose states are far larger than those of their neighbours.

Many decoders give one token, usually the first, activations hundreds of times the others'; a mean
over tokens is then mostly that token. Sinks form and vanish from layer to layer, so a short pilot
looks at every layer of a few texts, and the same tokens are then left out at all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerscope.layers import Layer
from layerscope.tokens import SinkRule, TokenTable, batch_texts, make_batch

RATIO = 10.0
_MAJORITY = 0.5
_MIN_TOKENS = 4
_MIN_OCCURRENCES = 5


@dataclass(frozen=True)
class SinkReport:
    """What the pilot found.

    Attributes:
        rule: which tokens to leave out.
        n_texts: how many texts were looked at.
        largest_ratio: the largest norm of a token over its row's median norm, at any layer.
        explained: share of the sink tokens seen that ``rule`` covers; 1 where there were none.
    """

    rule: SinkRule
    n_texts: int
    largest_ratio: float
    explained: float

    def as_dict(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            "positions": list(self.rule.positions),
            "token_ids": list(self.rule.token_ids),
            "ratio": RATIO,
            "pilot_texts": self.n_texts,
            "largest_ratio": round(self.largest_ratio, 3),
            "explained": round(self.explained, 4),
        }

    @classmethod
    def of_dict(cls, found: dict[str, Any]) -> SinkReport:
        """From the manifest."""
        rule = SinkRule(tuple(found["positions"]), tuple(found["token_ids"]))
        return cls(rule, found["pilot_texts"], found["largest_ratio"], found["explained"])


def find_sinks(
    backbone: Any,
    table: TokenTable,
    *,
    n_texts: int = 32,
    token_budget: int = 4096,
    seed: int = 0,
    equal_lengths: bool = False,
) -> SinkReport:
    """Look for sinks in a few texts: tokens above ``RATIO`` times the row's median norm at any layer.

    A position is a sink where most of the texts have one there; a token id, where most of its
    occurrences elsewhere are.

    Args:
        backbone: the model, a ``layerscope.backbone.Backbone``.
        table: the corpus' texts; those under four tokens are not looked at.
        n_texts: how many texts to draw.
        token_budget: padded tokens per batch.
        seed: of the draw.
        equal_lengths: only texts of equal length in one batch.
    """
    table = table.beginnings()
    usable = np.flatnonzero(table.lengths >= _MIN_TOKENS)
    if usable.size == 0:
        return SinkReport(SinkRule(), 0, 1.0, 1.0)
    drawn = np.random.default_rng(seed).permutation(usable)[:n_texts]
    layers = backbone.layers("all")
    ratio = np.ones(len(table.ids))
    for texts in batch_texts(table, np.sort(drawn), token_budget, equal_lengths=equal_lengths):
        batch = make_batch(table, {}, texts, pad_id=0)
        largest = _largest_ratios(backbone, batch.ids, batch.real, layers)
        for row, text in enumerate(texts):
            ratio[table.span(int(text))] = largest[row, batch.real[row]]
    return _describe(table, drawn, ratio)


def _largest_ratios(
    backbone: Any, ids: NDArray[np.int32], real: NDArray[np.bool_], layers: list[Layer]
) -> NDArray[np.float64]:
    """For every token, its norm over the row's median norm, the largest over layers; (b, t)."""
    device = backbone.device
    mask = torch.as_tensor(real, device=device)
    largest = torch.zeros(mask.shape, dtype=torch.float32, device=device)

    def visit(_: Layer, states: Tensor) -> None:
        norms = states.float().norm(dim=-1)
        median = norms.masked_fill(~mask, float("nan")).nanmedian(dim=1, keepdim=True).values
        torch.maximum(largest, (norms / median).nan_to_num(0.0), out=largest)

    unnormed = [layer for layer in layers if not layer.is_normed]
    backbone.run(torch.as_tensor(ids, device=device).long(), mask, unnormed, visit)
    return largest.double().cpu().numpy()


def _describe(table: TokenTable, drawn: NDArray[np.int64], ratio: NDArray[np.float64]) -> SinkReport:
    flat = np.concatenate([np.arange(table.offsets[text], table.offsets[text + 1]) for text in drawn])
    position = np.concatenate([np.arange(table.lengths[text]) for text in drawn])
    ids, is_sink = table.ids[flat], ratio[flat] > RATIO
    at = np.bincount(position[is_sink], minlength=1)
    positions = tuple(int(p) for p in np.flatnonzero(at > _MAJORITY * len(drawn)))
    elsewhere = ~np.isin(position, positions)
    token_ids = tuple(
        int(token)
        for token in np.unique(ids[elsewhere & is_sink])
        if np.sum(elsewhere & (ids == token)) >= _MIN_OCCURRENCES
        and np.mean(is_sink[elsewhere & (ids == token)]) > _MAJORITY
    )
    covered = np.isin(position, positions) | np.isin(ids, token_ids)
    explained = float(np.mean(covered[is_sink])) if is_sink.any() else 1.0
    return SinkReport(SinkRule(positions, token_ids), len(drawn), float(ratio[flat].max()), explained)
