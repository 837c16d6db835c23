"""Texts -> token ids, one ragged table; which tokens count; and batches of near-equal length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from layerscope.errors import UsageError

_CHUNK = 1024
_MANY_UNKNOWN = 0.5  # share of a corpus' tokens

SpecialTokens = Literal["keep", "drop"]
OnTruncate = Literal["warn", "error", "chunk"]


@dataclass(frozen=True)
class TokenTable:
    """Token ids of n texts in one flat array.

    Attributes:
        ids: (Σtokens,) int32.
        special: (Σtokens,) bool, tokens that are not of the text: added by the tokenizer (as [CLS], <s>) or
            by its chat template.
        offsets: (n + 1,) int64; text i has ``ids[offsets[i]:offsets[i + 1]]``.
        truncated: (n,) bool, whether the text was longer than the maximum length.
        prompt: (Σtokens,) bool, tokens of the prompt before the text; ``None`` where there is none.
        pieces: of each text that is run in pieces, how many tokens each of them has; they stand one after the
            other, with the tokenizer's own tokens around each.
    """

    ids: NDArray[np.int32]
    special: NDArray[np.bool_]
    offsets: NDArray[np.int64]
    truncated: NDArray[np.bool_]
    prompt: NDArray[np.bool_] | None = None
    pieces: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each text, (n,)."""
        return np.diff(self.offsets)

    def span(self, text: int) -> slice:
        """Where the tokens of text number ``text`` stand in the flat arrays."""
        return slice(int(self.offsets[text]), int(self.offsets[text + 1]))

    @property
    def _places(self) -> NDArray[np.int64]:
        """Place of every token in its text, (Σtokens,)."""
        return np.arange(len(self.ids)) - np.repeat(self.offsets[:-1], self.lengths)

    @property
    def positions(self) -> NDArray[np.int64]:
        """Place of every token in its text, or in its piece, (Σtokens,)."""
        found = self._places
        for text, lengths in self.pieces.items():
            found[self.span(text)] = np.concatenate([np.arange(length) for length in lengths])
        return found

    def places(self, texts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the tokens of the texts with the given numbers stand in the flat arrays."""
        return np.concatenate([np.empty(0, np.int64), *(np.arange(*self.offsets[t : t + 2]) for t in texts)])

    def take(self, texts: NDArray[np.int64]) -> TokenTable:
        """The texts with the given numbers as a table of their own, which does not say what is a prompt."""
        places = self.places(texts)
        offsets = offsets_of(self.lengths[texts])
        pieces = {new: self.pieces[int(old)] for new, old in enumerate(texts) if int(old) in self.pieces}
        return TokenTable(
            self.ids[places], self.special[places], offsets, self.truncated[texts], pieces=pieces
        )

    def pieces_of(self, text: int) -> TokenTable:
        """The pieces of one text as a table of their own."""
        span = self.span(text)
        lengths = self.pieces[text]
        offsets = offsets_of(lengths)
        return TokenTable(self.ids[span], self.special[span], offsets, np.zeros(len(lengths), bool))

    def beginnings(self) -> TokenTable:
        """The table with the first piece only of every text."""
        if not self.pieces:
            return self
        lengths = self.lengths.copy()
        for text, pieces in self.pieces.items():
            lengths[text] = pieces[0]
        kept = self._places < np.repeat(lengths, self.lengths)
        offsets = offsets_of(lengths)
        prompt = None if self.prompt is None else self.prompt[kept]
        return TokenTable(self.ids[kept], self.special[kept], offsets, self.truncated, prompt)


def offsets_of(lengths: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each of n things of the given lengths starts in a row of them, and the end of the last, (n + 1,).

    >>> offsets_of([2, 3]).tolist()
    [0, 2, 5]
    """
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)


def join_tables(tables: Sequence[TokenTable]) -> TokenTable:
    """The texts of one or several tables in one, which does not say what is a prompt."""
    lengths = np.concatenate([table.lengths for table in tables])
    pieces: dict[int, tuple[int, ...]] = {}
    before = 0
    for table in tables:
        pieces |= {before + text: parts for text, parts in table.pieces.items()}
        before += len(table.lengths)
    return TokenTable(
        np.concatenate([table.ids for table in tables]),
        np.concatenate([table.special for table in tables]),
        offsets_of(lengths),
        np.concatenate([table.truncated for table in tables]),
        pieces=pieces,
    )


@dataclass(frozen=True)
class Wrapping:
    """What is put around every text before it is tokenized.

    Attributes:
        prompt: stands before the text, as ``"query: "``.
        chat: whether the text, with its prompt, is the user's turn in the tokenizer's chat template.
    """

    prompt: str = ""
    chat: bool = False

    def check(self, tokenizer: Any) -> None:
        """Refuse a tokenizer that cannot do this.

        Raises:
            UsageError: no chat template, or a tokenizer that does not say where its tokens stand.
        """
        if self.chat and not getattr(tokenizer, "chat_template", None):
            raise UsageError("--chat-template: this tokenizer has none; leave the option away")
        if (self.chat or self.prompt) and not getattr(tokenizer, "is_fast", False):
            raise UsageError(
                f"--prompt and --chat-template need a fast tokenizer, not a {type(tokenizer).__name__}"
            )

    def around(self, tokenizer: Any, text: str) -> tuple[str, int, int, int]:
        """The whole, and where in it the prompt begins, the text begins and the text ends."""
        whole = self.prompt + text
        if not self.chat:
            return whole, 0, len(self.prompt), len(whole)
        turn = [{"role": "user", "content": whole}]
        rendered = str(tokenizer.apply_chat_template(turn, tokenize=False))
        bare = whole.strip()  # templates may strip blanks
        start = rendered.find(bare)
        if start < 0:
            raise UsageError(f"--chat-template: the template changes the text {text[:40]!r}")
        blanks = len(whole) - len(whole.lstrip())
        return rendered, start, start + max(0, len(self.prompt) - blanks), start + len(bare)


def tokenize(
    tokenizer: Any,
    texts: Sequence[str],
    max_length: int,
    wrapping: Wrapping = Wrapping(),
    *,
    in_pieces: bool = False,
) -> TokenTable:
    """Tokenize each text on its own, special tokens added, cut to ``max_length`` tokens or in pieces of them.

    A chat template brings its own special tokens, so that the tokenizer adds none then.

    Args:
        tokenizer: a Hugging Face tokenizer; give a copy, since calling one changes its state.
        texts: n texts.
        max_length: the most tokens a text may have, special tokens included.
        wrapping: what is put around each text.
        in_pieces: whether a longer text is divided and not cut.

    Raises:
        UsageError: the tokenizer cannot wrap texts so, or leaves no room between its own tokens.
    """
    wrapping.check(tokenizer)
    ids: list[NDArray[np.int32]] = []
    special: list[NDArray[np.bool_]] = []
    prompt: list[NDArray[np.bool_]] = []
    lengths: list[int] = []
    truncated = np.zeros(len(texts), dtype=bool)
    pieces: dict[int, tuple[int, ...]] = {}
    wrapped = wrapping != Wrapping()
    for start in range(0, len(texts), _CHUNK):
        chunk = [wrapping.around(tokenizer, text) for text in texts[start : start + _CHUNK]]
        encoded = _encode(tokenizer, [whole for whole, *_ in chunk], None, wrapping, wrapped)
        for position, (whole, first, own, end) in enumerate(chunk):
            found, at = encoded, position
            is_long = len(encoded["input_ids"][position]) > max_length
            if is_long and not in_pieces:
                found, at = _encode(tokenizer, [whole], max_length, wrapping, wrapped), 0
                truncated[start + position] = True
            mask = np.asarray(found["special_tokens_mask"][at], dtype=bool)
            before = np.zeros_like(mask)
            if wrapped:
                mask, before = _outside(found["offset_mapping"][at], mask, first, own, end)
            order: Any = slice(None)
            if is_long and in_pieces:
                parts = _divide(mask, max_length)
                pieces[start + position] = tuple(map(len, parts))
                order = np.concatenate(parts)
            ids.append(np.asarray(found["input_ids"][at], dtype=np.int32)[order])
            special.append(mask[order])
            prompt.append(before[order])
        lengths += [len(part) for part in ids[-len(chunk) :]]
        for parts_of in (ids, special, prompt):  # an array a text would take more room than its tokens
            parts_of[-len(chunk) :] = [np.concatenate(parts_of[-len(chunk) :])]
    return TokenTable(
        np.concatenate([np.empty(0, np.int32), *ids]),
        np.concatenate([np.empty(0, bool), *special]),
        offsets_of(lengths),
        truncated,
        np.concatenate([np.empty(0, bool), *prompt]) if wrapping.prompt else None,
        pieces,
    )


def _divide(special: NDArray[np.bool_], most: int) -> list[NDArray[np.int64]]:
    """Places of the tokens of each piece: what stands before and after the text around each part of it."""
    own = np.flatnonzero(~special)
    own = own if own.size else np.arange(len(special))  # nothing but special tokens
    before, after = np.arange(own[0]), np.arange(own[-1] + 1, len(special))
    inner = np.arange(own[0], own[-1] + 1)
    room = most - len(before) - len(after)
    if room < 1:
        raise UsageError(
            f"--max-length is {most}: {len(before) + len(after)} tokens stand around every text, "
            "which leaves no room for it"
        )
    return [
        np.concatenate([before, inner[start : start + room], after]) for start in range(0, len(inner), room)
    ]


def _outside(
    spans: Sequence[tuple[int, int]], special: NDArray[np.bool_], first: int, own: int, end: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which tokens are of the template or the tokenizer, and which of the prompt.

    A token that reaches into the text from what stands before it, as one with a leading blank, is the text's.
    """
    starts, stops = np.array(spans, dtype=np.int64).reshape(-1, 2).T
    outside = special | (stops <= first) | (starts >= end) | (starts == stops)
    return outside, ~outside & (stops <= own)


def _encode(tokenizer: Any, texts: list[str], max_length: int | None, wrapping: Wrapping, spans: bool) -> Any:
    length = {} if max_length is None else {"max_length": max_length}
    return tokenizer(
        texts,
        add_special_tokens=not wrapping.chat,
        truncation=max_length is not None,
        padding=False,
        return_attention_mask=False,
        return_special_tokens_mask=True,
        return_offsets_mapping=spans,
        verbose=False,
        **length,
    )


def bos_eos_note(table: TokenTable, tokenizer: Any) -> tuple[str, ...]:
    """How many tokens that begin or end a sequence a text got; none where the tokenizer has no such token."""
    counts = []
    for kind in ("bos", "eos"):
        token = getattr(tokenizer, f"{kind}_token_id", None)
        if token is None or not len(table.lengths):
            continue
        found = count_tokens(table, table.ids == token)
        low, high = int(found.min()), int(found.max())
        many = str(low) if low == high else f"{low} to {high}"
        counts.append(f"{many} {kind.upper()} ({getattr(tokenizer, f'{kind}_token')})")
    return (f"each text got {', '.join(counts)}",) if counts else ()


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
        prompt_tokens: ``keep`` or ``drop`` those of the prompt before the text.
    """

    special_tokens: SpecialTokens = "keep"
    drop_first_token: bool = False
    sinks: SinkRule = field(default_factory=SinkRule)
    cls_token_id: int | None = None
    prompt_tokens: SpecialTokens = "keep"

    def token_sets(self, table: TokenTable) -> dict[str, NDArray[np.bool_]]:
        """The token sets ``kept``, ``nosink`` and ``cls``, each (Σtokens,) as ``table.ids``."""
        position = table.positions
        kept = np.ones(len(table.ids), dtype=bool)
        if self.special_tokens == "drop":
            kept &= ~table.special
        if self.drop_first_token:
            kept &= position > 0
        if self.prompt_tokens == "drop" and table.prompt is not None:
            kept &= ~table.prompt
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
    flat = table.places(texts)
    ids = np.full(real.shape, pad_id, dtype=np.int32)
    ids[real] = table.ids[flat]
    padded = {}
    for name, chosen in sets.items():
        padded[name] = np.zeros(real.shape, dtype=bool)
        padded[name][real] = chosen[flat]
    return TokenBatch(texts, ids, real, padded)


def batch_texts(
    table: TokenTable,
    texts: NDArray[np.int64],
    token_budget: int,
    *,
    equal_lengths: bool = False,
    together: NDArray[np.int64] | None = None,
) -> Iterator[NDArray[np.int64]]:
    """Split ``texts`` into groups of near-equal length whose padded size fits ``token_budget``.

    Longest first, so that a batch too large for the memory shows at once. A text longer than the
    budget is a group of its own.

    Args:
        table: of the texts.
        texts: (n,) their numbers.
        token_budget: padded tokens of a group.
        equal_lengths: no group needs padding.
        together: (n,) texts with the same number, as the views of one text, share a group where the budget
            and ``equal_lengths`` allow.
    """
    lengths = table.lengths[texts]
    kin = (
        np.arange(len(texts))
        if together is None or equal_lengths
        else np.unique(together, return_inverse=True)[1]
    )
    longest_of = np.zeros(len(texts), dtype=np.int64)
    np.maximum.at(longest_of, kin, lengths)
    order = np.lexsort((kin, -longest_of[kin]))
    ordered, kin, lengths = texts[order], kin[order], longest_of[kin][order]
    start = 0
    while start < len(ordered):
        longest = int(lengths[start])
        stop = start + max(1, token_budget // max(1, longest))
        if equal_lengths:
            stop = min(stop, int(np.searchsorted(-lengths, -longest, side="right")))
        elif stop < len(ordered) and kin[stop] == kin[stop - 1]:
            first = start + int(np.searchsorted(kin[start:stop] == kin[stop], True))
            stop = first if first > start else stop
        yield ordered[start:stop]
        start = stop
