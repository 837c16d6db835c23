"""Defaults as readers need them: the number or word, not the name of the constant that holds it."""

import ast
from typing import Any

from griffe import Extension, Function


class PlainDefaults(Extension):
    """Puts the value of a module's constant in place of its name in signatures."""

    def on_function(self, *, func: Function, **_: Any) -> None:
        """Change the defaults of one function."""
        for parameter in func.parameters:
            constant = func.module.members.get(str(parameter.default))
            value = str(getattr(constant, "value", ""))
            if _is_short(value):
                parameter.default = value


def _is_short(value: str) -> bool:
    """Whether ``value`` is the source of a number or a word."""
    try:
        return isinstance(ast.literal_eval(value), int | float | str)
    except (ValueError, SyntaxError):
        return False
