"""Views of a text, for InfoNCE, LiDAR and DiME: edits, crops, dropout, or a second wording.

The published study (Skean et al. 2025, "Layer by Layer") makes its views with three augmenters of
nlpaug, one after the other, at their defaults: ``SplitAug``, ``RandomCharAug``, ``KeyboardAug``.
This module does the same kinds of edits in its own code. Rates and limits are the defaults of nlpaug
1.1.11 (its ``augmenter/word/split.py``, ``augmenter/char/random.py``, ``augmenter/char/keyboard.py``):
``aug_p = aug_word_p = 0.3`` of the words, at least 1 and at most 10 of them, words of ``min_char = 4``
letters or more; in each chosen word ``aug_char_p = 0.3`` of the letters, at least 1 and at most 10;
random characters from the Latin letters, the digits and ``!@#$%^&*()_+``. Counts are rounded down.

What differs, on purpose: white space and punctuation stay where they are (nlpaug tokenizes the text
and joins it again); a random character is never the one it replaces; a keyboard slip goes from a
letter to a letter beside it on a QWERTY keyboard and keeps its case; a letter with its accents, or an
emoji with its modifiers, is one unit; where no word has four letters, those of two and three are used.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np

from layerscope.errors import UsageError, nearest

_T = TypeVar("_T")

ViewKind = Literal["augment", "crop", "dropout", "column"]
RECIPE = 1  # part of the identity: raise it whenever the same input gives another view
_MOST = 10
_LONG_WORD, _SHORT_WORD = 4, 2
_RANDOM = string.ascii_letters + string.digits + "!@#$%^&*()_+"
_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_JOINER = "\u200d"


class EditRates(NamedTuple):
    """Shares in [0, 1] of what is edited.

    Attributes:
        word: of the words of a text, in each of the three steps.
        char: of the letters of a word, in the two steps that change letters.
    """

    word: float = 0.3
    char: float = 0.3


DEFAULT_RATES = EditRates()


def augment(
    text: str,
    *,
    seed: int,
    row: int,
    view: int,
    word_rate: float = DEFAULT_RATES.word,
    char_rate: float = DEFAULT_RATES.char,
) -> str:
    """One augmented view of ``text``: words split, then letters replaced, then keyboard slips.

    The result is a function of the arguments alone: not of other rows, of the order of calls, of the
    platform or of numpy's version. The same text in another row gets other edits.

    Args:
        text: any text; without a word of two letters or more it comes back unchanged.
        seed: of the corpus' views, 0 or more.
        row: of the text in the corpus, 0 or more.
        view: number of the view, 0 or more.
        word_rate: share of the words edited in each step, in [0, 1]; above 0 at least one word is.
        char_rate: share of a chosen word's letters edited, in [0, 1]; above 0 at least one is.

    Returns:
        A text with at least one more space than ``text``, if that has a word of two letters and
        ``word_rate`` is above 0.

    Raises:
        UsageError: a rate outside [0, 1], or a negative number.

    >>> augment("Layers of a language model", seed=0, row=0, view=0)
    'Layerd of a lanHua7e mode l'
    """
    rates = _checked(EditRates(word_rate, char_rate))
    if min(seed, row, view) < 0:
        raise UsageError(f"seed, row and view are 0 or more, got {seed}, {row} and {view}")
    dice = _Dice(seed, row, view)
    for edit in (_split_word, _random_characters, _keyboard_slips):
        text = _edited(text, edit, rates, dice)
    return text


def crop(text: str, *, seed: int, row: int, view: int) -> str:
    """A run of at least half of the words of ``text``, drawn with a seed; blanks between them stay.

    Args:
        text: any text; a single word comes back as it is.
        seed: of the corpus' views, 0 or more.
        row: of the text in the corpus.
        view: number of the view.

    >>> crop("one two three four five six", seed=1, row=0, view=0)
    'two three four'
    """
    words = list(re.finditer(r"\S+", text))
    if len(words) < 2:
        return text
    dice = _Dice(seed, row, view)
    fewest = (len(words) + 1) // 2
    count = fewest + dice.below(len(words) - fewest + 1)
    first = dice.below(len(words) - count + 1)
    return text[words[first].start() : words[first + count - 1].end()]


def augmented_views(
    texts: Sequence[str], n_views: int, seed: int = 0, rates: EditRates = DEFAULT_RATES
) -> list[list[str]]:
    """``n_views`` augmented views of every text.

    Args:
        texts: n texts; their places are the rows of :func:`augment`.
        n_views: how many, 1 or more.
        seed: 0 or more.
        rates: shares of words and letters.

    Returns:
        ``n_views`` lists of n texts; view k of fewer views is view k of more.

    Raises:
        UsageError: less than one view, or what :func:`augment` refuses.

    >>> [len(view) for view in augmented_views(["a cat", "", "two dogs"], 2)]
    [3, 3]
    """
    if n_views < 1:
        raise UsageError(f"{n_views} views: ask for one or more")
    return [
        [
            augment(text, seed=seed, row=row, view=view, word_rate=rates.word, char_rate=rates.char)
            for row, text in enumerate(texts)
        ]
        for view in range(n_views)
    ]


@dataclass(frozen=True)
class ViewPlan:
    """Which views of a corpus are embedded beside its texts.

    Attributes:
        kind: ``augment`` (edits, by this module), ``crop`` (a run of half of the words or more), ``dropout``
            (the text itself, with the model's dropout on) or ``column`` (a second wording in the corpus).
        count: how many views; 1 for ``column``.
        seed: of the edits, crops or dropout.
        rates: of the edits.

    Raises:
        UsageError: an unknown kind, less than one view, several of a column, a rate outside [0, 1].

    >>> ViewPlan("augment", 2).names
    ('augment.1', 'augment.2')
    """

    kind: ViewKind
    count: int = 1
    seed: int = 0
    rates: EditRates = DEFAULT_RATES

    def __post_init__(self) -> None:
        if self.kind not in get_args(ViewKind):
            raise UsageError(f"no views of kind '{self.kind}': {nearest(self.kind, get_args(ViewKind))}")
        if self.count < 1 or (self.kind == "column" and self.count > 1):
            wanted = "exactly 1" if self.kind == "column" else "1 or more"
            raise UsageError(f"{self.count} views of kind '{self.kind}': ask for {wanted}")
        if self.seed < 0:
            raise UsageError(f"the seed of the views is {self.seed}: give 0 or more")
        _checked(self.rates)

    @property
    def names(self) -> tuple[str, ...]:
        """A name a view: ``augment.1``, ``augment.2`` ..., or ``column``."""
        if self.kind == "column":
            return ("column",)
        return tuple(f"{self.kind}.{number}" for number in range(1, self.count + 1))

    def texts(
        self, corpus_texts: Sequence[str], view_texts: Sequence[str] | None = None
    ) -> dict[str, list[str]]:
        """The n texts of every view, by the view's name, in the order of ``names``.

        Args:
            corpus_texts: the n texts of the corpus.
            view_texts: the corpus' own second wordings, needed for ``column`` only.

        Raises:
            UsageError: ``column`` and no such texts, or not n of them.
        """
        if self.kind == "augment":
            views = augmented_views(corpus_texts, self.count, self.seed, self.rates)
            return dict(zip(self.names, views, strict=True))
        if self.kind == "dropout":
            return {name: list(corpus_texts) for name in self.names}
        if self.kind == "crop":
            return {
                name: [
                    crop(text, seed=self.seed, row=row, view=view) for row, text in enumerate(corpus_texts)
                ]
                for view, name in enumerate(self.names)
            }
        if view_texts is None or len(view_texts) != len(corpus_texts):
            found = "none" if view_texts is None else str(len(view_texts))
            raise UsageError(
                f"views from a column need a second wording of all {len(corpus_texts)} texts, found {found}: "
                "name the column with --view-column"
            )
        return {"column": list(view_texts)}

    def covers(self, other: ViewPlan) -> bool:
        """Whether these views are all of ``other``'s, or more of them."""
        return self.count >= other.count and self == replace(other, count=self.count)

    @classmethod
    def of_identity(cls, identity: Mapping[str, Any] | None) -> ViewPlan | None:
        """The plan that has this identity; ``None`` for none.

        >>> ViewPlan.of_identity(ViewPlan("crop", 3, seed=5).identity())
        ViewPlan(kind='crop', count=3, seed=5, rates=EditRates(word=0.3, char=0.3))
        """
        if identity is None:
            return None
        rates = EditRates(
            identity.get("word_rate", DEFAULT_RATES.word), identity.get("char_rate", DEFAULT_RATES.char)
        )
        return cls(identity["kind"], identity.get("count", 1), identity.get("seed", 0), rates)

    def identity(self) -> dict[str, Any]:
        """All that decides the views' texts, given the corpus, as plain JSON values."""
        if self.kind == "column":
            return {"kind": "column"}
        if self.kind != "augment":
            return {"kind": self.kind, "recipe": RECIPE, "count": self.count, "seed": self.seed}
        return {
            "kind": "augment",
            "recipe": RECIPE,
            "count": self.count,
            "seed": self.seed,
            "word_rate": float(self.rates.word),
            "char_rate": float(self.rates.char),
        }


def _checked(rates: EditRates) -> EditRates:
    for name, rate in rates._asdict().items():
        if not 0 <= rate <= 1:
            raise UsageError(f"the {name} rate is {rate}: give a share between 0 and 1")
    return rates


class _Dice:
    """Draws made from the raw bits of Philox, which numpy keeps the same in all versions."""

    def __init__(self, seed: int, row: int, view: int) -> None:
        self._bits = np.random.Philox(np.random.SeedSequence(seed, spawn_key=(row, view)))

    def below(self, n: int) -> int:
        """A whole number in 0 ... n - 1 (n is far below 2**64, so the remainder is even enough)."""
        return int(self._bits.random_raw()) % n

    def one(self, items: Sequence[_T]) -> _T:
        return items[self.below(len(items))]

    def some(self, items: Sequence[_T], k: int) -> list[_T]:
        """``k`` different items, in a random order."""
        pool = list(items)
        for i in range(k):
            j = i + self.below(len(pool) - i)
            pool[i], pool[j] = pool[j], pool[i]
        return pool[:k]


_Edit = Callable[[list[str], float, _Dice], list[str]]


def _edited(text: str, edit: _Edit, rates: EditRates, dice: _Dice) -> str:
    """Apply ``edit`` to a share of the words of ``text``."""
    pieces = _pieces(text)
    words = [k for k, piece in enumerate(pieces) if _is_letter(piece[0])]
    long_words = [k for k in words if len(pieces[k]) >= _LONG_WORD]
    candidates = long_words or [k for k in words if len(pieces[k]) >= _SHORT_WORD]
    chosen = dice.some(candidates, _how_many(len(words), rates.word, len(candidates)))
    for k in sorted(chosen):
        pieces[k] = edit(pieces[k], rates.char, dice)
    return "".join(unit for piece in pieces for unit in piece)


def _how_many(total: int, rate: float, most: int) -> int:
    if rate == 0:
        return 0
    return min(max(int(rate * total), 1), _MOST, most)


def _pieces(text: str) -> list[list[str]]:
    """Words, and what stands between them, each a list of units."""
    pieces: list[list[str]] = []
    for unit in _units(text):
        if pieces and _is_letter(unit) == _is_letter(pieces[-1][0]):
            pieces[-1].append(unit)
        else:
            pieces.append([unit])
    return pieces


def _units(text: str) -> list[str]:
    """What a reader takes for one character: a letter with its accents, an emoji with its modifiers."""
    if text.isascii():
        return list(text)
    units: list[str] = []
    for character in text:
        if units and _continues(units[-1], character):
            units[-1] += character
        else:
            units.append(character)
    return units


def _continues(unit: str, character: str) -> bool:
    if unicodedata.category(character) in ("Mn", "Mc", "Me") or character == _JOINER:
        return True
    if "\U0001f3fb" <= character <= "\U0001f3ff" or "\U000e0020" <= character <= "\U000e007f":
        return True  # skin tones and the tags of regional flags
    is_flag = "\U0001f1e6" <= character <= "\U0001f1ff"
    return unit.endswith(_JOINER) or (is_flag and len(unit) == 1 and "\U0001f1e6" <= unit <= "\U0001f1ff")


def _is_letter(unit: str) -> bool:
    return unit[0].isalnum() or unit[0] == "_"


def _split_word(units: list[str], char_rate: float, dice: _Dice) -> list[str]:
    """The word in two, anywhere between its first and its last unit."""
    del char_rate
    at = 1 + dice.below(len(units) - 1)
    return [*units[:at], " ", *units[at:]]


def _random_characters(units: list[str], char_rate: float, dice: _Dice) -> list[str]:
    return _replaced(units, range(len(units)), lambda unit: _RANDOM.replace(unit, ""), char_rate, dice)


def _keyboard_slips(units: list[str], char_rate: float, dice: _Dice) -> list[str]:
    on_keyboard = [k for k, unit in enumerate(units) if unit in _NEIGHBOURS]
    return _replaced(units, on_keyboard, _NEIGHBOURS.__getitem__, char_rate, dice)


def _replaced(
    units: list[str], places: Sequence[int], choices: Callable[[str], str], rate: float, dice: _Dice
) -> list[str]:
    """``units`` with a share of them, at ``places`` only, replaced by one of their ``choices``."""
    changed = list(units)
    for k in dice.some(places, _how_many(len(units), rate, len(places))):
        changed[k] = dice.one(choices(units[k]))
    return changed


def _keyboard() -> dict[str, str]:
    """Each Latin letter's neighbours on a QWERTY keyboard, in its own case.

    A row is shifted by about half a key against the one above it: key k of a row touches keys k and
    k + 1 of the row above, and k - 1 and k of the row below.
    """
    near: dict[str, str] = {}
    for r, keys in enumerate(_ROWS):
        for k, key in enumerate(keys):
            spots = ((r, k - 1), (r, k + 1), (r - 1, k), (r - 1, k + 1), (r + 1, k - 1), (r + 1, k))
            near[key] = "".join(
                _ROWS[i][j] for i, j in spots if 0 <= i < len(_ROWS) and 0 <= j < len(_ROWS[i])
            )
    return near | {key.upper(): keys.upper() for key, keys in near.items()}


_NEIGHBOURS = _keyboard()
