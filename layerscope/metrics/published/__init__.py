"""The metrics as the released code of Skean et al. 2025 computes them, quirks included.

For parity with published numbers only: each quirk is described in docs/metrics.md. Sets of samples are the
prompt vectors of ``prompt_vectors``, which ``extract --pooling prompt-vector`` stores.

Source: OFSkean/information_flow (commit a6ad5086) on uk-cliplab/representation-itl (commit fd0da54).
"""

from layerscope.metrics.published import curvature, dime, entropy, infonce, lidar
from layerscope.metrics.spec import MetricSpec

PUBLISHED: tuple[MetricSpec, ...] = (
    entropy.PROMPT_SPEC,
    entropy.DATASET_SPEC,
    curvature.SPEC,
    infonce.SPEC,
    lidar.SPEC,
    dime.SPEC,
)

PROMPT_VECTOR = "prompt-vector"  # the pooling that its sets of samples come from
# What the table of token metrics in a cache calls those that need token states.
TOKEN_COLUMNS: dict[str, MetricSpec] = {
    f"published.{spec.name}": spec for spec in PUBLISHED if spec.kind == "tokens"
}

__all__ = ["PROMPT_VECTOR", "PUBLISHED", "TOKEN_COLUMNS"]
