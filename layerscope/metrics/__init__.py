"""Label-free metrics of a layer: pure functions on arrays, and the table that names them.

Adding one: a function in a file of its own with its ``SPEC`` at the bottom, a row in ``METRICS``, a slow
reference and a case in the tests.
"""

from __future__ import annotations

from layerscope.errors import UsageError, nearest
from layerscope.metrics import (
    alignment,
    alpha_req,
    anisotropy,
    cka,
    curvature,
    dime,
    effective_rank,
    entropy_rank,
    first_token_norm_ratio,
    hubness,
    infonce,
    intrinsic_dimension,
    isoscore,
    lidar,
    nesum,
    outlier_dimensions,
    participation_ratio,
    prompt_entropy,
    spectral,
    stable_rank,
    uniformity,
)
from layerscope.metrics.spec import KINDS, MetricSpec, Undefined

METRICS: tuple[MetricSpec, ...] = (
    prompt_entropy.SPEC,
    spectral.SPEC,
    effective_rank.SPEC,
    curvature.SPEC,
    alignment.SPEC,
    uniformity.SPEC,
    infonce.SPEC,
    infonce.BOUND_SPEC,
    lidar.SPEC,
    dime.SPEC,
    entropy_rank.SPEC,
    stable_rank.SPEC,
    participation_ratio.SPEC,
    alpha_req.SPEC,
    nesum.SPEC,
    anisotropy.SPEC,
    isoscore.SPEC,
    intrinsic_dimension.TWONN_SPEC,
    intrinsic_dimension.MLE_SPEC,
    outlier_dimensions.TOP1_SPEC,
    outlier_dimensions.TOP3_SPEC,
    first_token_norm_ratio.SPEC,
    hubness.SPEC,
)
# Of two layers, and so no criteria to pick one by; measured where asked for.
LAYER_METRICS: tuple[MetricSpec, ...] = (cka.SPEC, cka.LAST_SPEC)

__all__ = ["KINDS", "LAYER_METRICS", "METRICS", "MetricSpec", "Undefined", "get_metric"]


def get_metric(name: str) -> MetricSpec:
    """The metric of a layer called ``name``.

    Raises:
        UsageError: no such metric; the message names the nearest ones.

    >>> get_metric("dime").label
    'DiME (nats)'
    >>> get_metric("effective_rnk")
    Traceback (most recent call last):
    layerscope.errors.UsageError: no metric 'effective_rnk': did you mean 'effective_rank'? ...
    """
    every = METRICS + LAYER_METRICS
    for spec in every:
        if spec.name == name:
            return spec
    raise UsageError(f"no metric {name!r}: {nearest(name, (spec.name for spec in every))}")
