"""Metrics of the user's own, named on the command line as ``module:object``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from layerscope.errors import UsageError
from layerscope.metrics import MetricSpec, get_metric


def find_metric(name: str) -> MetricSpec:
    """The metric of that name, or the user's own at ``module:object``.

    Raises:
        UsageError: no such metric.

    >>> find_metric("dime") is find_metric("layerscope.metrics.dime:SPEC")
    True
    """
    return load_metric(name) if ":" in name else get_metric(name)


def load_metric(name: str) -> MetricSpec:
    """The ``MetricSpec`` at ``module:object``, the module being importable from here or from the folder.

    Raises:
        UsageError: no such module or object, or it is something else.

    >>> load_metric("layerscope.metrics.dime:SPEC").name
    'dime'
    """
    module_name, _, path = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        found = importlib.import_module(module_name)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"--metric {name}: {error}; write it as module:object, as in my_metrics:SPEC"
        ) from error
    if not isinstance(found, MetricSpec):
        raise UsageError(f"--metric {name} is a {type(found).__name__}, not a layerscope.MetricSpec")
    return found
