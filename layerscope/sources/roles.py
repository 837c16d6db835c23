"""Which column of a table holds the texts, the scores, the labels: as named, or else guessed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from layerscope.errors import UsageError, nearest
from layerscope.sources.table import RawTable, is_missing
from layerscope.sources.text_formats import is_number

_TRIPLETS = (
    ("anchor", "positive", "negative"), ("query", "positive", "negative"), ("sent0", "sent1", "hardneg"),
)  # fmt: skip
_PAIRS = (
    ("sentence1", "sentence2"), ("sentencea", "sentenceb"), ("sent1", "sent2"), ("text1", "text2"),
    ("texta", "textb"), ("question1", "question2"), ("premise", "hypothesis"), ("anchor", "positive"),
    ("query", "positive"),
)  # fmt: skip
_SINGLES = (
    "text", "sentence", "content", "document", "body", "passage", "abstract", "review", "utterance",
    "query", "question", "prompt", "title",
)  # fmt: skip
_SCORES = ("score", "similarity", "similarityscore", "relatedness", "relatednessscore", "goldscore")
_LABELS = ("label", "labeltext", "category", "class", "topic", "intent", "target")
_NEITHER = ("id", "idx", "index", "uuid", "guid", "split")
_PLAIN_NAMES = frozenset(
    (*(name for group in _TRIPLETS + _PAIRS for name in group), *_SINGLES, *_SCORES, *_LABELS, *_NEITHER)
)


@dataclass(frozen=True)
class Roles:
    """Names of columns by what they are for; ``notes`` say which of them were guessed.

    Attributes:
        texts: one column of texts, the two columns of pairs, or the three of triplets.
        view: a second wording of each text, or None.
        score: a number a row, or None.
        label: a class a row, or None.
        notes: lines for people.
    """

    texts: tuple[str, ...]
    view: str | None = None
    score: str | None = None
    label: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Every column in use."""
        return (*self.texts, *(name for name in (self.view, self.score, self.label) if name is not None))


class KnownNames:
    """The column names that tell a header from data: the usual ones and those that were asked for."""

    def __init__(self, asked: Iterable[str] = ()) -> None:
        self._asked = frozenset(asked)

    def __contains__(self, name: object) -> bool:
        return name in self._asked or (isinstance(name, str) and _plain(name) in _PLAIN_NAMES)


def _plain(name: str) -> str:
    """A column's name without case, spaces, dots, hyphens and underscores."""
    return "".join(letter for letter in name.casefold() if letter not in " ._-")


def assign_roles(
    table: RawTable,
    *,
    text_columns: Sequence[str] = (),
    view_column: str | None = None,
    score_column: str | None = None,
    label_column: str | None = None,
) -> Roles:
    """Check the columns that were named, guess those that were not.

    Texts are guessed from the usual names (triplets such as ``anchor``, ``positive``, ``negative`` first,
    then pairs such as ``sentence1``, ``sentence2``), or are the only column of words. In pairs a column
    ``label`` of decimal numbers is the score.

    Raises:
        UsageError: a named column is not there, has two roles, or is neither text nor number; more
            than three text columns; a view of pairs; or nothing to guess the texts from.

    >>> table = RawTable("x", "x.csv", {"premise": ["a"], "hypothesis": ["b"], "label": ["0.5"]})
    >>> roles = assign_roles(table)
    >>> roles.texts, roles.score
    (('premise', 'hypothesis'), 'label')
    """
    named = Roles(tuple(text_columns), view_column, score_column, label_column)
    _check_named(named, table)
    texts = named.texts or _guess_texts(named, table)
    score = score_column or _guess_score(texts, named, table)
    taken = Roles(texts, view_column, score, label_column)
    label = label_column or _first_free(_LABELS, taken, table)
    roles = Roles(texts, view_column, score, label)
    return Roles(texts, view_column, score, label, _notes(roles, named, table))


def _check_named(named: Roles, table: RawTable) -> None:
    for name in named.all:
        if name in table.unreadable:
            raise UsageError(
                f"the column '{name}' of {table.place} holds {table.unreadable[name]}, not texts or numbers"
            )
        if name not in table.columns:
            raise UsageError(f"{table.place} has no column '{name}': {nearest(name, table.columns)}")
        if named.all.count(name) > 1:
            raise UsageError(
                f"the column '{name}' of {table.place} cannot be two things at once: name another"
            )
    if len(named.texts) > 3:
        raise UsageError(
            f"{len(named.texts)} text columns ({', '.join(named.texts)}): name one for texts, two for pairs, "
            "three for triplets"
        )
    if len(named.texts) > 1 and named.view is not None:
        raise UsageError("a view column goes with one text column, not with pairs: name one --text-column")


def _guess_texts(named: Roles, table: RawTable) -> tuple[str, ...]:
    free = _free(named, table)
    if named.view is None:
        for group in (*_TRIPLETS, *_PAIRS):
            if all(name in free for name in group):
                return tuple(free[name] for name in group)
    for name in _SINGLES:
        if name in free:
            return (free[name],)
    others = [column for name, column in free.items() if name not in (*_SCORES, *_LABELS, *_NEITHER)]
    words = [column for column in others if _holds_words(table.columns[column])]
    if len(words) != 1:
        raise UsageError(
            f"cannot tell which column of {table.place} holds the texts: name it with --text-column "
            f"(columns: {', '.join(table.columns)})"
        )
    return (words[0],)


def _free(taken: Roles, table: RawTable) -> dict[str, str]:
    """Plain names of the columns that have no role yet, and the columns."""
    free = [column for column in table.columns if column not in taken.all]
    return {_plain(column): column for column in reversed(free)}


def _first_free(names: Sequence[str], taken: Roles, table: RawTable) -> str | None:
    free = _free(taken, table)
    return next((free[name] for name in names if name in free), None)


def _guess_score(texts: tuple[str, ...], named: Roles, table: RawTable) -> str | None:
    taken = Roles(texts, named.view, None, named.label)
    score = _first_free(_SCORES, taken, table)
    label = _first_free(_LABELS[:1], taken, table)
    if score is None and label is not None and len(texts) == 2 and _holds_decimals(table.columns[label]):
        return label
    return score


def _holds_words(values: Sequence[object]) -> bool:
    return any(isinstance(value, str) and value.strip() and not is_number(value) for value in values)


def _holds_decimals(values: Sequence[object]) -> bool:
    """Whether all are numbers and some are written with a decimal point: grades rather than classes."""
    given = [value for value in values if not is_missing(value) and value != ""]
    decimals = [isinstance(value, float) or (isinstance(value, str) and "." in value) for value in given]
    return any(decimals) and all(not isinstance(value, bool) and _is_numeric(value) for value in given)


def _is_numeric(value: object) -> bool:
    return isinstance(value, int | float) or (isinstance(value, str) and is_number(value))


def _notes(roles: Roles, named: Roles, table: RawTable) -> tuple[str, ...]:
    if list(table.columns) == ["text"]:
        return ()
    kinds = (
        ("text columns" if len(roles.texts) > 1 else "text column", roles.texts, named.texts),
        ("score column", (roles.score,), (named.score,)),
        ("label column", (roles.label,), (named.label,)),
    )
    lines = [
        f"{kind}: {', '.join(str(name) for name in found)} (guessed)"
        for kind, found, asked in kinds
        if found not in (asked, (None,))
    ]
    unused = [name for name in (*table.columns, *table.unreadable) if name not in roles.all]
    return (*lines, *([f"columns not used: {', '.join(unused)}"] if unused else []))
