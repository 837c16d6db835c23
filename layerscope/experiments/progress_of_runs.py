"""Progress of several extractions as that of one."""

from __future__ import annotations

from collections.abc import Callable

from layerscope.extraction import Listener, Plan

Progress = Callable[[int, int], None]
Tell = Callable[[str], None]
_STEPS = 1000  # of one run: their numbers of tokens differ, and are not known before they start


class RunListener(Listener):
    """Forwards the progress of run number ``nth`` of ``total``, and what people should know of it.

    Args:
        nth: from 0.
        total: how many runs there are.
        name: of this run, before what is told of it.
        progress: called with steps done and to do, of all runs together.
        tell: called with a line for people.
    """

    def __init__(
        self, nth: int, total: int, name: str, progress: Progress | None = None, tell: Tell | None = None
    ) -> None:
        self._nth, self._total, self._name = nth, total, name
        self._progress, self._tell = progress, tell

    def remote(self, name: str) -> None:
        """The hub is asked."""
        self._say(f"{name} is no local folder: asking the Hugging Face hub")

    def plan(self, plan: Plan) -> None:
        """What is worth knowing of a run."""
        for note in plan.notes:
            self._say(note)
        if plan.truncated:
            self._say(f"{plan.truncated:,} of {plan.rows:,} texts are cut at {plan.max_length:,} tokens")

    def hit(self, _: object) -> None:
        """Nothing is run."""
        self._say("is there already")
        self.progress(1, 1)

    def progress(self, done: int, total: int) -> None:
        """Tokens of this run."""
        if self._progress is not None:
            self._progress(self._nth * _STEPS + _STEPS * done // max(total, 1), self._total * _STEPS)

    def _say(self, text: str) -> None:
        if self._tell is not None:
            self._tell(f"{self._name}: {text}")
