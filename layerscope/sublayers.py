"""Where a block adds to the residual stream: its attention's output and its MLP's, found by what adds up.

One pass over a few tokens is recorded: the states that every module within a block takes and returns. A
block is then a chain of additions from the states that it takes to those that it returns, each possibly
followed by a norm (as in BERT), or one addition of two terms (as in GPT-NeoX). A term is the output of some
module, to the last bit; of several modules that return the same, the one that runs last counts, which stands
next to the addition (behind dropout and behind a norm of the branch's own). The term that an attention
module ran for is the attention's, the other is the MLP's.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.errors import ModelError

_ATTENTION = re.compile(r"attn|attention", re.IGNORECASE)
_NO_ATTENTION = re.compile(r"norm|dropout|rotary", re.IGNORECASE)
FLAGS = {"attn": "--attention", "mlp": "--mlp"}


@dataclass(frozen=True)
class _Event:
    """What a module within the block took or returned, (b, t, width), in the order of the pass."""

    path: str
    states: Tensor
    is_output: bool
    bits: bytes


@dataclass
class Recording:
    """One call of a block.

    Attributes:
        block: the module.
        taken: states that the block took.
        returned: states that it returned.
    """

    block: nn.Module
    taken: Tensor | None = None
    returned: Tensor | None = None
    _events: list[_Event] = field(default_factory=list)
    _steps: list[tuple[str, bool]] = field(default_factory=list)  # modules as they begin (false) and end
    _done: bool = False

    def start(self, states: Tensor) -> None:
        """Note what the block takes; of a block that runs several times only the first call counts."""
        if self.taken is None:
            self.taken = states.clone()

    def stop(self, states: Tensor) -> None:
        """Note what the block returns."""
        if not self._done:
            self.returned, self._done = states.clone(), True

    def hooks(self) -> Iterator[Any]:
        """Hooks on every module within the block, as handles to be removed."""
        for path, module in self.block.named_modules():
            if path:
                yield module.register_forward_pre_hook(self._entering(path), with_kwargs=True)
                yield module.register_forward_hook(self._leaving(path))

    def _entering(self, path: str) -> Any:
        def seen(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._note(path, args[0] if args else kwargs.get("hidden_states"), is_output=False)

        return seen

    def _leaving(self, path: str) -> Any:
        def seen(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
            self._note(path, output[0] if isinstance(output, tuple) else output, is_output=True)

        return seen

    def _note(self, path: str, states: Any, *, is_output: bool) -> None:
        if self._done or self.taken is None:
            return
        self._steps.append((path, is_output))
        if not isinstance(states, Tensor):
            return
        if states.numel() == self.taken.numel() and states.shape[-1] == self.taken.shape[-1]:
            kept = states.reshape_as(self.taken).clone()
            self._events.append(_Event(path, kept, is_output, _bits(kept)))

    # What was recorded, read

    def find(self) -> dict[str, str]:
        """Paths within the block of the modules that return ``attn`` and ``mlp``.

        Raises:
            ModelError: the block is not made of one attention and one MLP; its children are named.
        """
        if self.taken is None or self.returned is None:
            raise ModelError("a block did not run, so that its attention and MLP cannot be found")
        terms = next(self._chains(self.taken, 0), None) or self._parallel()
        found = self._by_kind(terms) if terms else None
        if found is None:
            children = ", ".join(
                f"{name} ({type(module).__name__})" for name, module in self.block.named_children()
            )
            raise ModelError(
                f"cannot tell the attention and the MLP of a {type(self.block).__name__} apart "
                f"(its children: {children}): leave --sites away, or name the modules whose outputs are "
                "added to the residual stream with --attention PATH and --mlp PATH"
            )
        return found

    def _chains(self, residual: Tensor, after: int) -> Iterator[list[_Event]]:
        """The terms that are added one after the other to make what the block returns."""
        if after and _bits(residual) == self._end:
            yield []
            return
        tried: set[bytes] = set()
        for at, term in enumerate(self._events[after:], start=after):
            if not term.is_output or term.bits in tried or not term.states.any():
                continue
            tried.add(term.bits)
            for then, following in self._continuations(residual + term.states, at + 1):
                for rest in self._chains(following, then):
                    yield [self._nearest(term, at, then), *rest]

    @cached_property
    def _end(self) -> bytes:
        assert self.returned is not None
        return _bits(self.returned)

    def _continuations(self, total: Tensor, after: int) -> Iterator[tuple[int, Tensor]]:
        """Where the sum is met again: as it is, or as what a norm makes of it."""
        bits = _bits(total)
        if bits == self._end:
            yield len(self._events), total
            return
        for at, event in enumerate(self._events[after:], start=after):
            if event.bits == bits:
                yield at, total
                if not event.is_output:
                    yield from self._after_norm(event, at)
                return

    def _after_norm(self, taking: _Event, at: int) -> Iterator[tuple[int, Tensor]]:
        for then, event in enumerate(self._events[at + 1 :], start=at + 1):
            if event.is_output and event.path == taking.path:
                yield then, event.states
                return

    def _nearest(self, term: _Event, first: int, then: int) -> _Event:
        """Of the modules that return the same before the addition, the last one that runs once."""
        same = [
            event
            for event in self._events[first:then]
            if event.is_output and self._runs_once(event.path) and event.bits == term.bits
        ]
        return same[-1] if same else term

    def _parallel(self) -> list[_Event] | None:
        """Two terms that are added at once to what the block took."""
        assert self.taken is not None
        places: dict[bytes, tuple[int, _Event]] = {}
        for at, event in enumerate(self._events):
            if event.is_output:
                places.setdefault(event.bits, (at, event))
        outputs = list(places.values())
        for place, (at, one) in enumerate(outputs):
            for then, other in outputs[place + 1 :]:
                if self._add_up(one.states, other.states):
                    end = len(self._events)
                    return [self._nearest(one, at, end), self._nearest(other, then, end)]
        return None

    def _add_up(self, one: Tensor, other: Tensor) -> bool:
        """Whether both and what the block took make what it returned, added in any order."""
        taken = self.taken
        assert taken is not None
        sums = ((taken + one) + other, (taken + other) + one, taken + (one + other))
        return any(_bits(total) == self._end for total in sums)

    def _by_kind(self, terms: list[_Event]) -> dict[str, str] | None:
        """The attention's term and the MLP's; ``None`` where they are not one each."""
        found: dict[str, str] = {}
        for term in terms:
            kind = "attn" if self._attends(term, terms) else "mlp"
            if kind in found or not self._runs_once(term.path):
                return None
            found[kind] = term.path
        return found if len(found) == len(FLAGS) else None

    def _attends(self, term: _Event, terms: list[_Event]) -> bool:
        """Whether an attention module ran for the term: it is within one, or one ran just before it."""
        if any(self._is_attention(path) for path in _with_parents(term.path)):
            return True
        ends = [self._steps.index((one.path, True)) for one in terms]
        end = self._steps.index((term.path, True))
        start = max((other for other in ends if other < end), default=-1)
        begun = [path for path, has_ended in self._steps[start + 1 : end] if not has_ended]
        return any(self._is_attention(path) for path in begun)

    def _runs_once(self, path: str) -> bool:
        return self._steps.count((path, True)) == 1

    def _is_attention(self, path: str) -> bool:
        name = f"{path.rpartition('.')[2]} {type(self.block.get_submodule(path)).__name__}"
        return bool(_ATTENTION.search(name)) and not _NO_ATTENTION.search(name)


def _with_parents(path: str) -> list[str]:
    """A module path and those of the modules that it is within.

    >>> _with_parents("attention.output.dense")
    ['attention', 'attention.output', 'attention.output.dense']
    """
    parts = path.split(".")
    return [".".join(parts[: end + 1]) for end in range(len(parts))]


def _bits(states: Tensor) -> bytes:
    """What tells states from all others, the type of their numbers included."""
    raw = states.contiguous().cpu().view(torch.uint8).numpy().tobytes()
    return hashlib.blake2b(raw, digest_size=16, person=str(states.dtype).encode()[-16:]).digest()
