"""What ``layerscope metrics`` prints: all metrics in a table, or all about one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from layerscope.metrics import MetricSpec

_N, _D = 1000, 768
_HEAD = f"""name, input, better unless told otherwise (↑ higher, ↓ lower), range at n={_N}
and d={_D}, source; below it the formula
"""


def list_metrics(specs: Sequence[MetricSpec]) -> Group:
    """Of each metric name, input, direction, range and source in one line, and its formula below."""
    parts = [Text(_HEAD, style="bold")]
    for spec in specs:
        arrow = {"higher": "↑", "lower": "↓"}[spec.direction]
        line = Text(f"{spec.name:<27}{spec.kind:<11}{arrow} {_range(spec):<15} ")
        line.stylize("bold", 0, len(spec.name))
        line.append(spec.source, style="dim")
        parts += [line, Text(f"    {spec.formula}")]
    return Group(*parts)


def metric_facts(spec: MetricSpec) -> dict[str, Any]:
    """What a spec says, for machines; bounds that are infinite are None."""
    low, high = (None if math.isinf(end) else end for end in spec.bounds(_N, _D))
    return {
        "name": spec.name,
        "label": spec.label,
        "kind": spec.kind,
        "direction": spec.direction,
        "variant": spec.variant,
        "reads": spec.reads,
        "formula": spec.formula,
        "range": {"n": _N, "d": _D, "low": low, "high": high},
        "minimum_n": spec.minimum_n,
        "max_n": spec.max_n,
        "invariances": sorted(spec.invariances),
        "source": spec.source,
    }


def explain_metric(spec: MetricSpec) -> Table:
    """Everything a spec says, a fact a line."""
    facts = {
        "what it says": spec.reads,
        "formula": spec.formula,
        "input": spec.input,
        "axis": spec.label,
        "better": f"{spec.direction}, unless told otherwise",
        "recipe": spec.variant,
        "range": f"{_range(spec)} for {_N:,} rows of width {_D}",
        "fewest rows": str(spec.minimum_n),
        "most rows": "no limit" if spec.max_n is None else f"{spec.max_n:,}, a seeded subsample beyond that",
        "unchanged by": ", ".join(sorted(name.replace("_", " ") for name in spec.invariances)) or "nothing",
        "source": spec.source,
    }
    made = Table(show_header=False, title=spec.name, title_justify="left", title_style="bold")
    for name, fact in facts.items():
        made.add_row(name, escape(fact))
    return made


def _range(spec: MetricSpec) -> str:
    """The bounds at a usual size.

    >>> from layerscope.metrics import get_metric
    >>> _range(get_metric("curvature"))
    '0 … 3.142'
    """
    return " … ".join(_bound(end) for end in spec.bounds(_N, _D))


def _bound(end: float) -> str:
    if math.isinf(end):
        return "∞" if end > 0 else "-∞"
    return f"{end:.4g}"
