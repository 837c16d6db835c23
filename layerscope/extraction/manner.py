"""How texts are put to the model, and which of their tokens count."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from layerscope.backbone import Backbone
from layerscope.errors import UsageError
from layerscope.sinks import SinkReport, find_sinks
from layerscope.tokens import OnTruncate, SinkRule, SpecialTokens, TokenPolicy, TokenTable, Wrapping


@dataclass(frozen=True)
class Manner:
    """Choices of one extraction; see ``layerscope.extraction.extract`` for each.

    Attributes:
        wrapping: what stands around a text.
        special_tokens: those of the tokenizer in poolings.
        prompt_tokens: those of the prompt in poolings.
        drop_first_token: from poolings.
        on_truncate: what happens to long texts.
        deterministic: batches without padding.
        batch_tokens: padded tokens of a batch.
    """

    wrapping: Wrapping
    special_tokens: SpecialTokens
    prompt_tokens: SpecialTokens
    drop_first_token: bool
    on_truncate: OnTruncate
    deterministic: bool
    batch_tokens: int

    @property
    def in_pieces(self) -> bool:
        """Whether long texts are divided."""
        return self.on_truncate == "chunk"

    def identity(self) -> dict[str, Any]:
        """What of it changes a number."""
        return {
            "special_tokens": self.special_tokens,
            "drop_first_token": self.drop_first_token,
            "prompt": [self.wrapping.prompt, self.prompt_tokens, self.wrapping.chat],
            "deterministic": self.deterministic,
            "in_pieces": self.in_pieces,
        }

    def options(self) -> dict[str, Any]:
        """As ``extract`` takes them."""
        options = {
            field.name: getattr(self, field.name) for field in fields(self) if field.name != "wrapping"
        }
        return options | {"prompt": self.wrapping.prompt, "chat_template": self.wrapping.chat}

    def token_policy(
        self,
        backbone: Backbone,
        table: TokenTable,
        wanted: list[str],
        known: SinkReport | None,
        cls_token_id: int | None,
    ) -> tuple[TokenPolicy, list[str], SinkReport | None]:
        """Which tokens count, and the poolings; a pilot looks for sinks where a pooling needs it.

        Args:
            backbone: the model.
            table: the corpus.
            wanted: poolings, or ``["auto"]``.
            known: sinks that were found before and hold on.
            cls_token_id: of the tokenizer.

        Raises:
            UsageError: a pooling that the tokenizer has no token for.
        """
        if "cls" in wanted and cls_token_id is None:
            raise UsageError(
                "pooling 'cls': this model's tokenizer has no classification token; use first or last"
            )
        plain = TokenPolicy(
            self.special_tokens, self.drop_first_token, SinkRule(), cls_token_id, self.prompt_tokens
        )
        if known is None and not {"auto", "mean-nosink"} & {*wanted}:
            return plain, wanted, None
        sinks = known or find_sinks(
            backbone, table, token_budget=self.batch_tokens, equal_lengths=self.deterministic
        )
        policy = replace(plain, sinks=sinks.rule)
        sets = policy.token_sets(table)
        has_sinks = bool((sets["kept"] & ~sets["nosink"]).any())
        automatic = ["mean", "mean-nosink"] if has_sinks else ["mean"]
        return policy, automatic if wanted == ["auto"] else wanted, sinks
