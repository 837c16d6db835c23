"""Texts -> token ids, one ragged table; which tokens count; and batches of near-equal length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

_CHUNK = 1024
_MANY_UNKNOWN = 0.5  # share of a corpus' tokens

SpecialTokens = Literal["keep", "drop"]


@dataclass(frozen=True)
class TokenTable:
    """Token ids of n texts in one flat array.

    Attributes:
        ids: (Σtokens,) int32.
        special: (Σtokens,) bool, tokens that the tokenizer added (as [CLS], <s>).
        offsets: (n + 1,) int64; text i has ``ids[offsets[i]:offsets[i + 1]]``.
        truncated: (n,) bool, whether the text was longer than the maximum length.
    """

    ids: NDArray[np.int32]
    special: NDArray[np.bool_]
    offsets: NDArray[np.int64]
    truncated: NDArray[np.bool_]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each text, (n,)."""
        return np.diff(self.offsets)

    def span(self, text: int) -> slice:
        """Where the tokens of text number ``text`` stand in the flat arrays."""
        return slice(int(self.offsets[text]), int(self.offsets[text + 1]))


def tokenize(tokenizer: Any, texts: Sequence[str], max_length: int) -> TokenTable:
    """Tokenize each text on its own, special tokens added, cut to ``max_length`` tokens.

    Args:
        tokenizer: a Hugging Face tokenizer; give a copy, since calling one changes its state.
        texts: n texts.
        max_length: the most tokens a text may have, special tokens included.
    """
    ids: list[NDArray[np.int32]] = []
    special: list[NDArray[np.bool_]] = []
    truncated = np.zeros(len(texts), dtype=bool)
    for start in range(0, len(texts), _CHUNK):
        chunk = list(texts[start : start + _CHUNK])
        encoded = _encode(tokenizer, chunk, max_length=None)
        for position, text_ids in enumerate(encoded["input_ids"]):
            mask = encoded["special_tokens_mask"][position]
            if len(text_ids) > max_length:
                cut = _encode(tokenizer, [chunk[position]], max_length=max_length)
                text_ids, mask = cut["input_ids"][0], cut["special_tokens_mask"][0]  # noqa: PLW2901
                truncated[start + position] = True
            ids.append(np.asarray(text_ids, dtype=np.int32))
            special.append(np.asarray(mask, dtype=bool))
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in ids], dtype=np.int64)])
    return TokenTable(
        np.concatenate([np.empty(0, np.int32), *ids]),
        np.concatenate([np.empty(0, bool), *special]),
        offsets.astype(np.int64),
        truncated,
    )


def _encode(tokenizer: Any, texts: list[str], max_length: int | None) -> Any:
    length = {} if max_length is None else {"max_length": max_length}
    return tokenizer(
        texts,
        add_special_tokens=True,
        truncation=max_length is not None,
        padding=False,
        return_attention_mask=False,
        return_special_tokens_mask=True,
        verbose=False,
        **length,
    )


def unknown_tokens_note(table: TokenTable, tokenizer: Any) -> tuple[str, ...]:
    """A note where the tokenizer does not know most of the texts; none where all is well."""
    ids = table.ids[~table.special]
    unknown = getattr(tokenizer, "unk_token_id", None)
    share = float(np.mean(ids == unknown)) if unknown is not None and len(ids) else 0.0
    if share <= _MANY_UNKNOWN:
        return ()
    return (
        f"{share:.0%} of the tokens are unknown to the tokenizer: is it the model's, and the language right?",
    )


@dataclass(frozen=True)
class SinkRule:
    """Which tokens are attention sinks: those at ``positions`` and those with an id in ``token_ids``."""

    positions: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.positions or self.token_ids)


@dataclass(frozen=True)
class TokenPolicy:
    """Which tokens of a text count.

    Attributes:
        special_tokens: ``keep`` or ``drop`` those that the tokenizer added.
        drop_first_token: leave out the first token of each text.
        sinks: what ``mean-nosink`` leaves out besides.
        cls_token_id: the id of the classification token, if there is one.
    """

    special_tokens: SpecialTokens = "keep"
    drop_first_token: bool = False
    sinks: SinkRule = field(default_factory=SinkRule)
    cls_token_id: int | None = None

    def token_sets(self, table: TokenTable) -> dict[str, NDArray[np.bool_]]:
        """The token sets ``kept``, ``nosink`` and ``cls``, each (Σtokens,) as ``table.ids``."""
        position = np.arange(len(table.ids)) - np.repeat(table.offsets[:-1], table.lengths)
        kept = np.ones(len(table.ids), dtype=bool)
        if self.special_tokens == "drop":
            kept &= ~table.special
        if self.drop_first_token:
            kept &= position > 0
        sink = np.isin(position, self.sinks.positions) | np.isin(table.ids, self.sinks.token_ids)
        cls = np.zeros_like(kept) if self.cls_token_id is None else table.ids == self.cls_token_id
        return {"kept": kept, "nosink": kept & ~sink, "cls": cls}


def count_tokens(table: TokenTable, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many of the chosen tokens (Σtokens,) each text has, (n,)."""
    running = np.concatenate([[0], np.cumsum(chosen)])
    return np.asarray(running[table.offsets[1:]] - running[table.offsets[:-1]], dtype=np.int64)


@dataclass(frozen=True)
class TokenBatch:
    """A right-padded batch.

    Attributes:
        texts: (b,) the texts' numbers in the table.
        ids: (b, t) int32, padded with any valid id.
        real: (b, t) bool, false for padding.
        sets: the token sets, each (b, t) bool, false for padding.
    """

    texts: NDArray[np.int64]
    ids: NDArray[np.int32]
    real: NDArray[np.bool_]
    sets: dict[str, NDArray[np.bool_]]


def make_batch(
    table: TokenTable, sets: dict[str, NDArray[np.bool_]], texts: NDArray[np.int64], pad_id: int
) -> TokenBatch:
    """Right-pad the texts with the given numbers into one batch."""
    lengths = table.lengths[texts]
    real = np.arange(int(lengths.max())) < lengths[:, None]
    flat = np.concatenate([np.arange(table.offsets[text], table.offsets[text + 1]) for text in texts])
    ids = np.full(real.shape, pad_id, dtype=np.int32)
    ids[real] = table.ids[flat]
    padded = {}
    for name, chosen in sets.items():
        padded[name] = np.zeros(real.shape, dtype=bool)
        padded[name][real] = chosen[flat]
    return TokenBatch(texts, ids, real, padded)


def batch_texts(
    table: TokenTable, texts: NDArray[np.int64], token_budget: int
) -> Iterator[NDArray[np.int64]]:
    """Split ``texts`` into groups of near-equal length whose padded size fits ``token_budget``.

    Longest first, so that a batch too large for the memory shows at once. A text longer than the
    budget is a group of its own.
    """
    lengths = table.lengths[texts]
    ordered = texts[np.argsort(-lengths, kind="stable")]
    start = 0
    while start < len(ordered):
        longest = int(table.lengths[ordered[start]])
        size = max(1, token_budget // max(1, longest))
        yield ordered[start : start + size]
        start += size
