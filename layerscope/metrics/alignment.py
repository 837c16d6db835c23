"""Alignment: how far apart two views of the same sample lie."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from layerscope.metrics.checks import check_pair, check_positive
from layerscope.metrics.rows import prepared_blocks
from layerscope.metrics.spec import MetricSpec
from layerscope.metrics.streams import Blocks, check_blocks


def alignment(X: npt.ArrayLike, Y: npt.ArrayLike, alpha: float = 2.0) -> float:
    """Mean distance of the two views on the unit sphere, ``mean ‖x_i - y_i‖^α``.

    Args:
        X: ``(n, d)`` first views; rows are L2-normalised.
        Y: ``(n, d)`` second views, row i of the same sample as row i of ``X``.
        alpha: power, above 0.

    Returns:
        In [0, 2^α]; 0 where the views coincide.

    Raises:
        Undefined: fewer than 2 samples, not finite, constant.

    Source: Wang & Isola 2020.

    >>> alignment([[1.0, 0.0], [0.0, 1.0]], [[2.0, 0.0], [0.0, -1.0]])
    2.0
    """
    X, Y = check_pair(X, Y)
    check_positive(alpha, "alpha")
    return _mean_distance(Blocks.of(X), Blocks.of(Y), alpha)


def alignment_of_blocks(X: Blocks, Y: Blocks) -> float:
    """``alignment`` (alpha = 2) of two streams of rows.

    Args:
        X: n first views of width d.
        Y: n second views, row i of the same sample as row i of ``X``.

    Raises:
        Undefined: as ``alignment``.
    """
    check_blocks(X)
    check_blocks(Y)
    return _mean_distance(X, Y, 2.0)


def _mean_distance(X: Blocks, Y: Blocks, alpha: float) -> float:
    total = 0.0
    firsts, seconds = (prepared_blocks(stream, "unit", block=X.block) for stream in (X, Y))
    for x, y in zip(firsts, seconds, strict=True):
        total += float((np.linalg.norm(x - y, axis=1) ** alpha).sum())
    return total / X.n


def _bounds(n: int, d: int) -> tuple[float, float]:
    return 0.0, 4.0


SPEC = MetricSpec(
    name="alignment",
    label="Alignment (mean squared distance)",
    function=alignment,
    kind="pair",
    direction="lower",
    variant="rows=unit;alpha=2",
    invariances=frozenset({"orthogonal", "scale", "row_scale", "permutation", "reversal", "swap"}),
    bounds=_bounds,
    minimum_n=2,
    formula="mean ‖x_i - y_i‖², rows of unit norm",
    reads="0 when the two views of every text coincide, 2 when they are unrelated.",
    source="Wang & Isola 2020",
    of_blocks=alignment_of_blocks,
)
