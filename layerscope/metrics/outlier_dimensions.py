"""Outlier dimensions: how much of the variance a few coordinates hold."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from layerscope.errors import UsageError
from layerscope.metrics.checks import check_rows
from layerscope.metrics.rows import binary_scale, power_of_two, prepared_blocks
from layerscope.metrics.spec import Invariance, MetricSpec
from layerscope.metrics.streams import Blocks, check_blocks

_INVARIANCES: frozenset[Invariance] = frozenset({"scale", "translation", "permutation", "reversal"})


def outlier_variance(Z: npt.ArrayLike, top: int = 1) -> float:
    """Share of the total variance in the ``top`` coordinates of largest variance.

    Args:
        Z: ``(n, d)``.
        top: how many coordinates.

    Returns:
        In [min(1, top / d), 1].

    Raises:
        UsageError: no coordinates asked for.
        Undefined: fewer than 2 samples, not finite, constant.

    Source: Timkey & van Schijndel 2021.

    >>> outlier_variance([[3.0, 1.0], [-3.0, 1.0], [0.0, 2.0], [0.0, 0.0]])
    0.9
    """
    array = check_rows(Z)
    if top < 1:
        raise UsageError(f"top: expected at least 1 dimension, got {top}")
    return _share(Blocks.of(array), binary_scale(array), top)


def outlier_variance_of_blocks(blocks: Blocks, top: int = 1) -> float:
    """``outlier_variance`` of a stream of rows.

    Args:
        blocks: n rows of width d.
        top: how many coordinates.

    Raises:
        Undefined: as ``outlier_variance``.
    """
    return _share(blocks, power_of_two(check_blocks(blocks)), top)


def _share(blocks: Blocks, scale: float, top: int) -> float:
    variances = np.zeros(blocks.d)
    for part in prepared_blocks(blocks, "center", scale=scale):
        variances += np.einsum("ij,ij->j", part, part)
    variances = np.sort(variances)[::-1]
    return float(variances[:top].sum() / variances.sum())


def _top1_bounds(n: int, d: int) -> tuple[float, float]:
    return 1.0 / d, 1.0


def _top3_bounds(n: int, d: int) -> tuple[float, float]:
    return min(1.0, 3.0 / d), 1.0


TOP1_SPEC = MetricSpec(
    name="outlier_variance_top1",
    label="Variance in the top dimension (share)",
    function=outlier_variance,
    kind="samples",
    direction="lower",
    variant="rows=center;top=1",
    invariances=_INVARIANCES,
    bounds=_top1_bounds,
    minimum_n=2,
    formula="max_k var_k / Σ_k var_k, var_k = variance of coordinate k of the pooled embeddings",
    reads="1/d when all coordinates vary alike, near 1 when one outlier dimension drowns the others.",
    source="Timkey & van Schijndel 2021",
    of_blocks=outlier_variance_of_blocks,
)
TOP3_SPEC = MetricSpec(
    name="outlier_variance_top3",
    label="Variance in the top 3 dimensions (share)",
    function=functools.partial(outlier_variance, top=3),
    kind="samples",
    direction="lower",
    variant="rows=center;top=3",
    invariances=_INVARIANCES,
    bounds=_top3_bounds,
    minimum_n=2,
    formula="the three largest var_k / Σ_k var_k, var_k = variance of coordinate k of the pooled embeddings",
    reads="3/d when all coordinates vary alike, near 1 when three outlier dimensions drown the others.",
    source="Timkey & van Schijndel 2021",
    of_blocks=functools.partial(outlier_variance_of_blocks, top=3),
)
