"""How texts are put to an exported model: as they were put to the model when it was extracted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerscope.backbone import Backbone
from layerscope.errors import UsageError
from layerscope.layers import Layer
from layerscope.models import LoadedModel
from layerscope.pooling import TokenMasks, pool
from layerscope.tokens import SinkRule, SpecialTokens, TokenPolicy, Wrapping, make_batch, tokenize

PLAIN = {
    "mean": "mean", "last": "lasttoken", "first": "cls", "cls": "cls", "max": "max",
    "weighted-mean": "weightedmean",
}  # fmt: skip
"""Poolings that sentence-transformers has too, by its names."""


@dataclass(frozen=True)
class TextReading:
    """What an export must repeat of an extraction.

    Attributes:
        special_tokens: whether those that the tokenizer adds count in poolings.
        drop_first_token: whether the first one does not.
        prompt: stands before every text.
        max_length: the limit in tokens that was asked for or is the model's, or ``None``.
        sinks: which tokens ``mean-nosink`` leaves out; ``None`` where that is not known.
    """

    special_tokens: SpecialTokens = "keep"
    drop_first_token: bool = False
    prompt: str = ""
    max_length: int | None = None
    sinks: SinkRule | None = None

    @classmethod
    def of_identity(cls, identity: Mapping[str, Any]) -> TextReading:
        """From the identity of a cache.

        Raises:
            UsageError: texts were put to the model in a way that sentence-transformers cannot repeat.
        """
        prompt, prompt_tokens, chat = identity.get("prompt", ["", "keep", False])
        if chat:
            raise UsageError("the cache was extracted with --chat-template, which an export cannot repeat")
        if prompt and prompt_tokens == "drop":
            raise UsageError(
                "the cache was extracted with --prompt-tokens drop, which an export cannot repeat: keep them"
            )
        positions, ids = identity.get("sinks", [[], []])
        return cls(
            identity.get("special_tokens", "keep"),
            bool(identity.get("drop_first_token", False)),
            prompt,
            identity.get("max_length"),
            SinkRule(tuple(positions), tuple(ids)),
        )

    def is_plain(self, pooling: str) -> bool:
        """Whether the pooling module of sentence-transformers gives the same vectors."""
        return pooling in PLAIN and self.special_tokens == "keep" and not self.drop_first_token

    def policy(self, tokenizer: Any) -> TokenPolicy:
        """Which tokens count, as for an extraction."""
        return TokenPolicy(
            self.special_tokens, self.drop_first_token, self.sinks or SinkRule(), tokenizer.cls_token_id
        )

    def token_options(self, tokenizer: Any) -> dict[str, Any]:
        """The same, as the modules of an exported folder take it."""
        sinks = self.sinks or SinkRule()
        added = tokenize(tokenizer, [""], 8).ids.tolist() if self.special_tokens == "drop" else []
        return {
            "special_ids": added,
            "drop_first_token": self.drop_first_token,
            "sink_positions": list(sinks.positions),
            "sink_ids": list(sinks.token_ids),
            "cls_id": tokenizer.cls_token_id,
        }

    def pooled(
        self,
        loaded: LoadedModel,
        backbone: Backbone,
        layers: Sequence[Layer],
        poolings: Sequence[str],
        texts: Sequence[str],
    ) -> dict[str, Tensor]:
        """The pooled states of every layer of the whole model, by pooling, (n, l, d) each."""
        table = tokenize(loaded.tokenizer, texts, loaded.max_length, Wrapping(self.prompt))
        sets = self.policy(loaded.tokenizer).token_sets(table)
        batch = make_batch(table, sets, np.arange(len(texts)), pad_id=0)
        device = backbone.device
        masks = TokenMasks(*(_on(batch.sets[name], device) for name in ("kept", "nosink", "cls")))
        found: dict[str, list[Tensor]] = {name: [] for name in poolings}

        def visit(_: Layer, states: Tensor) -> None:
            for name in poolings:
                found[name].append(pool(name, states, masks).cpu())

        backbone.run(_on(batch.ids, device).long(), _on(batch.real, device), layers, visit)
        return {name: torch.stack(layers_of, dim=1) for name, layers_of in found.items()}


def _on(array: NDArray[Any], device: torch.device) -> Tensor:
    return torch.as_tensor(array, device=device)
