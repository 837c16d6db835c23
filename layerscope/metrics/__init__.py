"""Label-free metrics of a layer: pure functions on arrays, and the table that names them.

Adding one: a function in a file of its own with its ``SPEC`` at the bottom, a row in ``METRICS``, a slow
reference and a case in the tests.
"""

from __future__ import annotations

from layerscope.errors import UsageError, nearest
from layerscope.metrics import (
    alignment,
    curvature,
    dime,
    effective_rank,
    infonce,
    lidar,
    prompt_entropy,
    spectral,
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
)

__all__ = ["KINDS", "METRICS", "MetricSpec", "Undefined", "get_metric"]


def get_metric(name: str) -> MetricSpec:
    """The metric called ``name``.

    Raises:
        UsageError: no such metric; the message names the nearest ones.

    >>> get_metric("dime").label
    'DiME (nats)'
    >>> get_metric("effective_rnk")
    Traceback (most recent call last):
    layerscope.errors.UsageError: no metric 'effective_rnk': did you mean 'effective_rank'? ...
    """
    for spec in METRICS:
        if spec.name == name:
            return spec
    raise UsageError(f"no metric {name!r}: {nearest(name, (spec.name for spec in METRICS))}")
