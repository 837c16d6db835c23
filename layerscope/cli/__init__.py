"""The command line: parse, call, print. No logic, and no heavy import before a command runs."""

from layerscope.cli.main import app, main

__all__ = ["app", "main"]
