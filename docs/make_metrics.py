"""Write docs/metrics.md from the metric specs: python docs/make_metrics.py."""

from pathlib import Path

from layerscope.metrics import METRICS

HEAD = """# Metrics

<!-- written by docs/make_metrics.py from the specs in layerscope/metrics; do not edit -->

Everything is computed in float64 on values upcast before the first product, with natural logarithms.
`n` samples, `d` width, `T` tokens. `rows=center-unit`: the mean row is subtracted, then each row is
divided by its norm. A value that is not defined (constant rows, too few of them, a NaN in the input) is
missing, with a reason.

Intervals (95 %) come from 100 half-samples drawn without replacement, the same for every layer: a
bootstrap would repeat rows, which lowers the rank and biases spectral metrics. Means over prompts use
the bootstrap over prompts. *Better* is the end that a selector takes unless told otherwise; for entropies,
effective rank and curvature it is a choice, not a law, and papers have taken either.

DiME uses at most 512 rows, drawn with a seed; `variant` and `n` say so.
"""

KINDS = {
    "tokens": "token states of one text (T, d), averaged over texts",
    "samples": "pooled embeddings (n, d)",
    "pair": "two views of each sample, each (n, d)",
    "views": "all views of each sample (n, views, d)",
}


def page() -> str:
    """The whole page as Markdown."""
    parts = [HEAD]
    for spec in METRICS:
        parts.append(
            f"## `{spec.name}`\n\n"
            f"{spec.reads}\n\n"
            f"| | |\n|---|---|\n"
            f"| formula | {spec.formula.replace('|', chr(92) + '|')} |\n"
            f"| input | {KINDS[spec.kind]} |\n"
            f"| axis | {spec.label} |\n"
            f"| better | {spec.direction} |\n"
            f"| recipe | `{spec.variant}` |\n"
            f"| source | {spec.source} |\n"
        )
    return "\n".join(parts)


if __name__ == "__main__":
    Path(__file__).with_name("metrics.md").write_text(page(), encoding="utf-8")
