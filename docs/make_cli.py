"""Write docs/cli.md from the commands themselves: python docs/make_cli.py."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the commands of this checkout

from typer.main import get_command

from layerscope.cli import app

HEAD = """# Command line

<!-- written by docs/make_cli.py from the commands in layerscope/cli; do not edit -->

`layerscope COMMAND --help` prints the same. `layerscope --version` prints the version. A failure is one
line; `layerscope --debug COMMAND …` shows its traceback. `layerscope --install-completion` teaches the shell
to complete commands and options.

| exit code | means |
|---|---|
| 0 | done |
| 1 | something went wrong: a file is damaged, a model cannot be run, a check of `doctor` fails |
| 2 | the command was called in a wrong way: no such option, layer, metric or column |
| 130 | interrupted with Ctrl-C |
"""


def page() -> str:
    """The whole page as Markdown."""
    commands = list(_commands(get_command(app), "layerscope"))
    overview = "\n".join(
        f"| [`{name}`](#{name.replace(' ', '-')}) | {command.get_short_help_str(limit=200)} |"
        for name, command in commands
    )
    sections = [_section(name, command) for name, command in commands]
    return "\n".join([HEAD, f"| command | |\n|---|---|\n{overview}\n", *sections])


def _commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its full name, in the order of the help."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


def _section(name: str, command: Any) -> str:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [
        parameter
        for parameter in command.params
        if parameter.param_type_name == "option" and not parameter.hidden
    ]
    required = [f"{parameter.opts[0]} {parameter.metavar}" for parameter in options if parameter.required]
    words = [_usage_of(parameter) for parameter in arguments]
    usage = " ".join([name, *words, *required, "[OPTIONS]"])
    parts = [f"## `{name}` {{ #{name.replace(' ', '-')} }}", command.help, f"```bash\n{usage}\n```"]
    if arguments:
        rows = [f"| `{parameter.metavar}` | {_cell(parameter.help)} |" for parameter in arguments]
        parts.append("\n".join(["| argument | |", "|---|---|", *rows]))
    if options:
        rows = [_option(parameter) for parameter in options]
        parts.append("\n".join(["| option | | default |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _usage_of(argument: Any) -> str:
    return str(argument.metavar if argument.required else f"[{argument.metavar}]")


def _option(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    value = "" if option.is_flag else f" `{option.metavar}`"
    return f"| {names}{value} | {_cell(option.help)} | {_default(option)} |"


def _default(option: Any) -> str:
    """What holds where the option is not given, if its help does not say so in words."""
    if option.required:
        return "required"
    if not option.show_default or option.default in (None, "") or (option.is_flag and not option.default):
        return ""
    if option.is_flag:
        return f"`{option.opts[0]}`"
    return f"`{option.default}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    Path(__file__).with_name("cli.md").write_text(page(), encoding="utf-8")
