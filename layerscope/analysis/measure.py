"""Many metrics of the same rows, with the work that they have in common done once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerscope.errors import MetricError
from layerscope.metrics import METRICS, MetricSpec, Undefined
from layerscope.metrics.rows import RowRecipe
from layerscope.metrics.spectral import Spectrum, decompose, spectrum_of_blocks
from layerscope.metrics.streams import Blocks, stack_blocks

Part = NDArray[np.float64] | Blocks


@dataclass(frozen=True)
class Value:
    """A metric's value, or NaN and the reason why there is none."""

    value: float
    reason: str = ""


@dataclass
class Sample:
    """Rows that several metrics are computed from, and what has been worked out of them so far.

    Attributes:
        parts: ``(n, d)`` arrays or streams, row i of each of the same text: one for samples, two for a pair,
            one a view for views.
        n: how many rows.
        place: where they come from, for messages.
    """

    parts: Sequence[Part]
    n: int
    place: str
    _spectra: dict[RowRecipe, Spectrum | Undefined] = field(default_factory=dict, repr=False)
    _values: dict[MetricSpec, Value] = field(default_factory=dict, repr=False)

    def take(self, rows: NDArray[np.int64]) -> Sample:
        """The sample of some of the rows, in ascending order."""
        parts = [part.take(rows) if isinstance(part, Blocks) else part[rows] for part in self.parts]
        return Sample(parts, len(rows), self.place)

    def value(self, spec: MetricSpec, seed: int) -> Value:
        """The metric of these rows; asked for again, the same value without the work.

        Raises:
            MetricError: the function fails with anything but ``Undefined``.
        """
        if spec not in self._values:
            self._values[spec] = self._evaluate(spec, seed)
        return self._values[spec]

    def note(self, spec: MetricSpec) -> str:
        """What the metric's value of these rows rests on besides, for a spec that says so."""
        if spec.note is None or not _belongs(spec.note, spec):
            return ""
        return spec.note(*([self._spectrum(spec.rows)] if spec.rows is not None else self._arrays(spec)))

    def _evaluate(self, spec: MetricSpec, seed: int) -> Value:
        if self.n < spec.minimum_n:
            return Value(float("nan"), f"fewer than {spec.minimum_n} samples")
        try:
            value = float(self._compute(spec, seed))
        except Undefined as undefined:
            return Value(float("nan"), undefined.reason)
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise MetricError(f"metric '{spec.name}' failed at {self.place}: {what}") from error
        return Value(value) if np.isfinite(value) else Value(float("nan"), "the value is not finite")

    def _compute(self, spec: MetricSpec, seed: int) -> float:
        if spec.derived_from is not None and spec.derive is not None and _belongs(spec.derive, spec):
            base = self.value(next(other for other in METRICS if other.name == spec.derived_from), seed)
            if base.reason:
                raise Undefined(base.reason)
            return spec.derive(base.value, self.n)
        if spec.of_spectrum is not None and spec.rows is not None and _belongs(spec.of_spectrum, spec):
            return spec.of_spectrum(self._spectrum(spec.rows))
        streamed = any(isinstance(part, Blocks) for part in self.parts)
        if streamed and spec.of_blocks is not None and _belongs(spec.of_blocks, spec):
            return spec.of_blocks(*self._streams(spec))
        more = {"seed": seed} if spec.seeded else {}
        return spec.function(*self._arrays(spec), **more)

    def _spectrum(self, rows: RowRecipe) -> Spectrum:
        """One decomposition a recipe; where it has none, the reason is kept too."""
        if rows not in self._spectra:
            (part,) = self.parts
            try:
                self._spectra[rows] = (
                    spectrum_of_blocks(part, rows) if isinstance(part, Blocks) else decompose(part, rows)
                )
            except Undefined as undefined:
                self._spectra[rows] = undefined
        found = self._spectra[rows]
        if isinstance(found, Undefined):
            raise found
        return found

    def _arrays(self, spec: MetricSpec) -> list[NDArray[np.float64]]:
        """The function's arguments, which it may write into."""
        arrays = [part.joined() if isinstance(part, Blocks) else part for part in self.parts]
        return [np.stack(arrays, axis=1)] if spec.kind == "views" else [array.copy() for array in arrays]

    def _streams(self, spec: MetricSpec) -> list[Blocks]:
        parts = [part for part in self.parts if isinstance(part, Blocks)]
        return [stack_blocks(parts)] if spec.kind == "views" else parts


def _belongs(shortcut: Callable[..., Any], spec: MetricSpec) -> bool:
    """Whether a shortcut was written with the spec's function, and not left over from a spec it replaced."""
    return _module(shortcut) == _module(spec.function)


def _module(function: Callable[..., Any]) -> str:
    return str(getattr(function, "func", function).__module__)  # of a partial, that of what it calls
