"""What ``layerscope metrics`` prints: all metrics in a table, or all about one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from layerscope.metrics import MetricSpec

_N, _D = 1000, 768


def list_metrics(specs: Sequence[MetricSpec]) -> Table:
    """One metric a line: name, input, direction, range, formula and source."""
    made = Table(
        title="Metrics (↑ higher, ↓ lower is better unless told otherwise)",
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
    )
    made.add_column("name", no_wrap=True)
    for heading in ("input", "", f"range at n={_N}, d={_D}", "formula", "source"):
        made.add_column(heading)
    for spec in specs:
        arrow = {"higher": "↑", "lower": "↓"}[spec.direction]
        cells = (spec.kind, arrow, _range(spec), spec.formula, spec.source)
        made.add_row(spec.name, *map(escape, cells))
    return made


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
