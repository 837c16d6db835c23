"""Token ids of texts changed on purpose: repeated, random, or drawn anew.

Skean et al. 2025 ("Layer by Layer", section 5 and appendix F) put such extreme prompts to a model and watch
the prompt entropy of its layers. Ids are changed after tokenizing, so that a text keeps its number of tokens
(but for ``random-prompt``, whose number is the level). What the tokenizer, a chat template or a prompt puts
around a text is left alone.

``repeat``: one token of each text is drawn from its own, and every token becomes that one with probability p.
``random-token``: every token becomes one drawn uniformly from the vocabulary with probability p.
``random-prompt``: the whole text becomes so many tokens drawn uniformly from the vocabulary.

The vocabulary is that of the tokenizer without its special tokens. Draws depend on seed and row only, and not
on the level: what is replaced at p = 0.1 is replaced by the same at p = 0.5, and a shorter random prompt is
the beginning of a longer one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from layerscope.errors import UsageError, nearest
from layerscope.tokens import TokenTable, offsets_of

PerturbationKind = Literal["repeat", "random-token", "random-prompt"]
KINDS: tuple[PerturbationKind, ...] = get_args(PerturbationKind)


@dataclass(frozen=True)
class Perturbation:
    """How the token ids of every text are changed.

    Attributes:
        kind: ``repeat``, ``random-token`` or ``random-prompt``.
        level: probability in [0, 1] that a token is replaced; for ``random-prompt`` how many tokens it has.
        seed: of the draws, 0 or more.

    Raises:
        UsageError: another kind, or a level or seed that cannot be.
    """

    kind: PerturbationKind
    level: float
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"no perturbation is called '{self.kind}': {nearest(str(self.kind), KINDS)}")
        if not isinstance(self.level, Real) or isinstance(self.level, bool):
            raise UsageError(f"the level of a perturbation is {self.level!r}: it must be a number")
        if self.kind == "random-prompt" and not (self.level >= 1 and float(self.level).is_integer()):
            raise UsageError(
                f"level {self.level:g} of random-prompt is a number of tokens: it must be whole, 1 or more"
            )
        if self.kind != "random-prompt" and not 0 <= self.level <= 1:
            raise UsageError(f"level {self.level:g} of {self.kind} is a probability: it must be from 0 to 1")
        if not isinstance(self.seed, int) or isinstance(self.seed, bool) or self.seed < 0:
            raise UsageError(f"--seed is {self.seed!r}: it must be a whole number, 0 or more")
        object.__setattr__(self, "level", float(self.level))  # which may be a whole number, or numpy's

    def identity(self) -> list[Any]:
        """What of it changes a number: all of it, as ``Perturbation(*identity)`` takes it."""
        return [self.kind, self.level, self.seed]

    def apply(
        self, table: TokenTable, rows: Sequence[int], vocabulary: NDArray[np.int64], max_length: int
    ) -> TokenTable:
        """The perturbed texts.

        Args:
            table: n tokenized texts.
            rows: (n,) a number of each text that its draws come from.
            vocabulary: ids to draw from, see ``vocabulary_of``.
            max_length: the most tokens of a text, those around it included.

        Raises:
            UsageError: random prompts would be longer than that.
        """
        draws = [np.random.default_rng([self.seed, int(row)]) for row in rows]
        if self.kind == "random-prompt":
            return self._drawn_anew(table.beginnings(), draws, vocabulary, max_length)
        ids = table.ids.copy()
        own = _own_tokens(table)
        for text, draw in enumerate(draws):
            places = table.span(text).start + np.flatnonzero(own[table.span(text)])
            if not places.size:
                continue
            which = draw.random(len(places)) < self.level
            found = draw.random(len(places))
            if self.kind == "repeat":
                ids[places[which]] = _pick(table.ids[places], found[:1])
            else:
                ids[places[which]] = _pick(vocabulary, found[which])
        return TokenTable(ids, table.special, table.offsets, table.truncated, table.prompt, table.pieces)

    def _drawn_anew(
        self,
        table: TokenTable,
        draws: Sequence[np.random.Generator],
        vocabulary: NDArray[np.int64],
        max_length: int,
    ) -> TokenTable:
        """Random ids in the place of each text, between what stands around it."""
        count = int(self.level)
        own = _own_tokens(table)
        parts: dict[str, list[NDArray[Any]]] = {"ids": [], "special": [], "prompt": []}
        lengths = []
        for text, draw in enumerate(draws):
            before, after = _around(own[table.span(text)])
            around = table.span(text).start + np.concatenate([before, after])
            if len(around) + count > max_length:
                raise UsageError(
                    f"random prompts of {count} tokens, and the {len(around)} around each, are more than the "
                    f"{max_length} that the model takes: choose a smaller level"
                )
            new = _pick(vocabulary, draw.random(count))
            none = np.zeros(count, dtype=bool)
            parts["ids"].append(np.insert(table.ids[around], len(before), new))
            parts["special"].append(np.insert(table.special[around], len(before), none))
            if table.prompt is not None:
                parts["prompt"].append(np.insert(table.prompt[around], len(before), none))
            lengths.append(len(around) + count)
        return TokenTable(
            np.concatenate([np.empty(0, np.int32), *parts["ids"]]).astype(np.int32),
            np.concatenate([np.empty(0, bool), *parts["special"]]),
            offsets_of(lengths),
            np.zeros(len(lengths), dtype=bool),
            None if table.prompt is None else np.concatenate([np.empty(0, bool), *parts["prompt"]]),
        )


def vocabulary_of(tokenizer: Any, known: int) -> NDArray[np.int64]:
    """The ids that random tokens are drawn from, ascending: those of the tokenizer but for special tokens.

    Args:
        tokenizer: a Hugging Face tokenizer.
        known: how many tokens the model has embeddings of.
    """
    added = getattr(tokenizer, "added_tokens_decoder", {})
    special = {*tokenizer.all_special_ids, *(number for number, token in added.items() if token.special)}
    return np.array(
        sorted({i for i in tokenizer.get_vocab().values() if i < known} - special), dtype=np.int64
    )


def _own_tokens(table: TokenTable) -> NDArray[np.bool_]:
    """Which tokens are of the texts themselves, (Σtokens,)."""
    own = ~table.special
    return own if table.prompt is None else own & ~table.prompt


def _around(own: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places of the tokens before and after those of the text itself."""
    places = np.flatnonzero(own)
    if not places.size:
        return np.arange(len(own)), np.arange(0)
    return np.arange(places[0]), np.arange(places[-1] + 1, len(own))


def _pick(ids: NDArray[Any], at: NDArray[np.float64]) -> NDArray[Any]:
    """The ids at shares in [0, 1) of the way through them."""
    return ids[(at * len(ids)).astype(np.int64)]
