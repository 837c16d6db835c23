"""Write docs/metrics.md from the metric specs: python docs/make_metrics.py."""

from pathlib import Path

from layerscope.metrics import LAYER_METRICS, METRICS, MetricSpec

HEAD = """# Metrics

<!-- written by docs/make_metrics.py from the specs in layerscope/metrics; do not edit -->

Everything is computed in float64 on values upcast before the first product, with natural logarithms.
`n` samples, `d` width, `T` tokens. `rows=center-unit`: the mean row is subtracted, then each row is
divided by its norm. A value that is not defined (constant rows, too few of them, a NaN in the input) is
missing, with a reason.

Intervals (95 %) come from 100 half-samples drawn without replacement, the same for every layer: a
bootstrap would repeat rows, which lowers the rank and biases spectral metrics. Means over prompts use
the bootstrap over prompts; a largest value over prompts has no interval.
*Better* is the end that a selector takes unless told otherwise; for entropies, effective rank and curvature
it is a choice, not a law, and papers have taken either.

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

The curves are of MiniLM (an encoder trained for sentence similarity, 6 blocks) and SmolLM2-135M (a decoder,
30 blocks) on the first 300 texts of the Lee background corpus, cut to 64 tokens, with 2 views, pooled by
`mean-nosink`; bands are the 95 % intervals. `python docs/make_curves.py` draws them again.
"""


PUBLISHED = """## The published recipe

`analyze --recipe published` computes what the released code of Skean et al. 2025 computes
(OFSkean/information_flow a6ad5086 on uk-cliplab/representation-itl fd0da54), for parity with published
numbers only. It reproduces the values of that code: to 1e-6, but for LiDAR, which the code adds up in float32
(1e-4). Extract with `--pooling prompt-vector`, which computes its prompt entropy and curvature on the way.
What it does differently, and by how much in [quirks.md](quirks.md):

1. A prompt is the mean of token states that were centred by their own mean and scaled to unit norm first: a
   small residue, nearly orthogonal to the mean-pooled embedding. `prompt-vector` is this pooling.
2. For entropies, negative entries of the Gram matrix are set to 0, which makes it another matrix.
3. `Zᵀ Z` takes the place of `Z Zᵀ` where n > d. Their spectra agree, but not after the clamp: values jump
   where n passes d.
4. For α = 2, `-ln(Σ K² / m²)` of an (m, m) matrix, right only where its trace is m.
5. Entropies are divided by min(ln n, ln d); `raw`, `logN`, `logD` and `logNlogD` are there too.
6. DiME, for n > d, multiplies (d, d) covariances and permutes features instead of samples. Rows have no unit
   norm. Ours are seeded; the released ones are not.
7. InfoNCE takes rows of any length and plain exponentials, which overflow: a missing value here, NaN there.
8. LiDAR adds up in float32 and gives the entropy, divided by min(ln n, ln d), not its exponential.
9. Curvature is the mean angle between centred unit states, not between steps; a cosine that rounding takes
   beyond 1 gives no value.
10. Every positive eigenvalue counts, however small.
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
            f"| input | {spec.input} |\n"
            f"| axis | {spec.label} |\n"
            f"| better | {spec.direction} |\n"
            f"| recipe | `{spec.variant}` |\n"
            f"| rows | {_rows(spec)} |\n"
            f"| source | {spec.source} |\n"
            f"{_curve(spec)}"
        )
    return "\n".join([*parts, PUBLISHED])


def _curve(spec: MetricSpec) -> str:
    if spec.name == LAYER_METRICS[0].name:
        return ""  # of all pairs: a heat map, not a curve
    return f"\n![{spec.label}, layer by layer](curves/{spec.name}.png)\n"


def _rows(spec: MetricSpec) -> str:
    most = f", at most {spec.max_n}" if spec.max_n else ""
    return f"{'T' if spec.kind == 'tokens' else 'n'} at least {spec.minimum_n}{most}"


if __name__ == "__main__":
    Path(__file__).with_name("metrics.md").write_text(page(), encoding="utf-8")
