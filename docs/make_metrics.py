"""Write docs/metrics.md from the metric specs: python docs/make_metrics.py."""

from pathlib import Path

from layerscope.metrics import KINDS, LAYER_METRICS, METRICS, MetricSpec

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

Where *rows* says "at most", that many rows are drawn with a seed; `variant` and `n` say so. With fewer rows
than it needs, a metric is missing.

- `nesum` of the same rows is the same number as `stable_rank`. They differ in the rows: NESum is published
  for centred rows that keep their lengths, `stable_rank` takes the default recipe.
- `isoscore` is `(participation_ratio - 1) / (d - 1)` of centred rows that keep their lengths.
- `entropy_rank` is over eigenvalues, `effective_rank` over singular values; papers mix the two.
- `layerscope.metrics.alpha_req.power_law` gives the R² of the fit behind `alpha_req`.
- The intrinsic dimensions leave out rows that repeat an earlier one exactly;
  `layerscope.metrics.intrinsic_dimension.repeated_rows` counts them.
- `layerscope.compare_layers` (`analyze --cka`) compares all pairs of layers in mini-batches;
  `layer_similarity_to_last` is measured where asked for, and is no criterion to pick a layer by.
- Rows that do not fit in memory are streamed, but for the metrics that take a subsample.
"""


def page() -> str:
    """The whole page as Markdown."""
    parts = [HEAD]
    for spec in METRICS + LAYER_METRICS:
        parts.append(
            f"## `{spec.name}`\n\n"
            f"{spec.reads}\n\n"
            f"| | |\n|---|---|\n"
            f"| formula | {spec.formula.replace('|', chr(92) + '|')} |\n"
            f"| input | {KINDS[spec.kind]} |\n"
            f"| axis | {spec.label} |\n"
            f"| better | {spec.direction} |\n"
            f"| recipe | `{spec.variant}` |\n"
            f"| rows | {_rows(spec)} |\n"
            f"| source | {spec.source} |\n"
        )
    return "\n".join(parts)


def _rows(spec: MetricSpec) -> str:
    most = f", at most {spec.max_n}" if spec.max_n else ""
    return f"{'T' if spec.kind == 'tokens' else 'n'} at least {spec.minimum_n}{most}"


if __name__ == "__main__":
    Path(__file__).with_name("metrics.md").write_text(page(), encoding="utf-8")
