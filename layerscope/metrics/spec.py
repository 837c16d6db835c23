"""What is known about a metric, as data: drivers, plots, docs and tests read it from here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from layerscope.errors import UsageError, nearest

if TYPE_CHECKING:
    from layerscope.metrics.rows import RowRecipe
    from layerscope.metrics.spectral import Spectrum

Kind = Literal["tokens", "samples", "pair", "views", "layer_pair"]
KINDS: dict[Kind, str] = {
    "tokens": "token states of one text (T, d)",
    "samples": "pooled embeddings (n, d)",
    "pair": "two views of each sample, each (n, d)",
    "views": "all views of each sample (n, views, d)",
    "layer_pair": "the same samples at two layers, (n, d) and (n, d')",
}
Direction = Literal["higher", "lower"]
OverTexts = Literal["mean", "largest"]
_OVER_TEXTS: dict[OverTexts, str] = {"mean": "averaged over texts", "largest": "the largest over texts"}
Invariance = Literal[
    "orthogonal",  # one rotation or reflection of all rows
    "separate_orthogonal",  # a rotation of X and another one of Y (pairs, and pairs of layers)
    "scale",  # one positive factor for all rows
    "row_scale",  # a positive factor of its own for each row
    "translation",  # one vector added to all rows (pairs of layers: one of its own for each)
    "permutation",  # another order of the samples (for tokens: of the tokens)
    "reversal",  # the samples, or tokens, from last to first
    "swap",  # X and Y exchanged (pairs, and pairs of layers)
    "view_permutation",  # another order of the views of each sample (views)
]


class Undefined(ValueError):  # noqa: N818 - a missing value with a reason, not a failure
    """The metric has no value on this input. ``reason`` says why, in a few words.

    The driver writes NaN and the reason; it never stops a run.

    >>> Undefined("constant").reason
    'constant'
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class MetricSpec:
    """One metric: its function and what holds of every number that the function returns.

    Attributes:
        name: what the command line and the frames call it.
        label: axis label with the unit.
        function: numpy arrays in, one float out; raises ``Undefined``. Takes ``(T, d)`` token states of
            one prompt, ``(n, d)`` samples, two ``(n, d)`` views, ``(n, a, d)`` views, or ``(n, d)`` and
            ``(n, e)`` samples at two layers, as ``kind`` says.
        kind: which of these it takes.
        direction: which end is taken to be better when nothing else is said.
        variant: the recipe that every result row carries.
        invariances: what may be done to the input without changing the value.
        bounds: ``(n, d)`` to the least and greatest value that can occur.
        minimum_n: the fewest rows that give a value.
        formula: one line.
        reads: how to read it, in one sentence.
        source: authors and year.
        max_n: rows above which the driver takes a stated, seeded subsample; None where there is no limit.
        seeded: whether the function draws random numbers and takes ``seed=``.
        batch: for tokens, the same metric over a padded batch of torch tensors, ``(states, mask)``.
        of_spectrum: for samples, the same value from a decomposition that several metrics share, and that
            can be made of a stream; it may raise ``Undefined`` too.
        rows: the recipe whose spectrum ``of_spectrum`` takes; None where there is no ``of_spectrum``.
        of_blocks: the same value from streams of blocks of rows (``layerscope.metrics.streams.Blocks``), one
            stream for samples, two for a pair, one of ``(b, a, d)`` blocks for views; None where there
            is ``of_spectrum``, or the metric needs all rows at once.
        note: what the value of these samples rests on besides, in a few words, empty where there is nothing
            to say; takes what ``of_spectrum`` does, and where there is none, what the function does.
        over_texts: for tokens, what a layer gets of the values of its texts. A mean has an interval, from the
            bootstrap over texts; a largest value has none, since no bootstrap finds one.
        derived_from: the metric that this one is a function of, so that the work is done once.
        derive: its value from that metric's value and n.
    """

    name: str
    label: str
    function: Callable[..., float]
    kind: Kind
    direction: Direction
    variant: str
    invariances: frozenset[Invariance]
    bounds: Callable[[int, int], tuple[float, float]]
    minimum_n: int
    formula: str
    reads: str
    source: str
    max_n: int | None = None
    seeded: bool = False
    batch: Callable[..., Any] | None = None
    of_spectrum: Callable[[Spectrum], float] | None = None
    rows: RowRecipe | None = None
    of_blocks: Callable[..., float] | None = None
    note: Callable[..., str] | None = None
    over_texts: OverTexts = "mean"
    derived_from: str | None = None
    derive: Callable[[float, int], float] | None = None

    @property
    def input(self) -> str:
        """What the function takes, in words."""
        return KINDS[self.kind] + (f", {_OVER_TEXTS[self.over_texts]}" if self.kind == "tokens" else "")

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise UsageError(f"the name of a metric is {self.name!r}: give it a name")
        for what, known in (("kind", Kind), ("direction", Direction), ("over_texts", OverTexts)):
            value = getattr(self, what)
            if value not in get_args(known):
                raise UsageError(
                    f"metric '{self.name}': {what} is {value!r} ({nearest(str(value), get_args(known))})"
                )
        if not callable(self.function):
            raise UsageError(
                f"metric '{self.name}': its function is {self.function!r}, which cannot be called"
            )
