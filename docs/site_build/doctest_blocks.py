"""Doctests of docstrings as code blocks: without a heading of their own they would be quoted text."""

import re
from typing import Any

from griffe import Extension, Object

_DOCTEST = re.compile(r"^>>> .*(?:\n(?!$).*)*", flags=re.MULTILINE)


class DoctestBlocks(Extension):
    """Fences every run of doctest lines."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change the docstring of one object, before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """``text`` with doctests, which start at the margin, between fences."""
    return _DOCTEST.sub(lambda block: f"```pycon\n{block[0]}\n```", text)
