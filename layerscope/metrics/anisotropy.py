"""Anisotropy: how far the samples point the same way."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from layerscope.metrics.checks import check_rows
from layerscope.metrics.rows import binary_scale, power_of_two, prepared_blocks
from layerscope.metrics.spec import MetricSpec
from layerscope.metrics.streams import Blocks, check_blocks


def anisotropy(Z: npt.ArrayLike) -> float:
    """Mean cosine over distinct pairs, ``(n ‖ū‖² - 1) / (n - 1)`` with ``ū`` the mean unit vector.

    In one pass over the rows, never over pairs. A row of zeros has the cosine 0 with every other.

    Args:
        Z: ``(n, d)``; rows are L2-normalised.

    Returns:
        In [-1 / (n - 1), 1]; about 0 for directions drawn evenly from the sphere.

    Raises:
        Undefined: fewer than 2 samples, not finite, constant.

    Source: Ethayarajh 2019.

    >>> anisotropy([[1.0, 0.0], [0.0, 3.0]])
    0.0
    """
    array = check_rows(Z)
    return _mean_cosine(Blocks.of(array), binary_scale(array))


def anisotropy_of_blocks(blocks: Blocks) -> float:
    """``anisotropy`` of a stream of rows.

    Args:
        blocks: n rows of width d.

    Raises:
        Undefined: as ``anisotropy``.
    """
    return _mean_cosine(blocks, power_of_two(check_blocks(blocks)))


def _mean_cosine(blocks: Blocks, scale: float) -> float:
    total, pointing = np.zeros(blocks.d), 0
    for part in prepared_blocks(blocks, "unit", scale=scale):
        total += part.sum(axis=0)
        pointing += int(part.any(axis=1).sum())
    return (float(total @ total) - pointing) / (blocks.n * (blocks.n - 1))


def _bounds(n: int, d: int) -> tuple[float, float]:
    return -1.0 / (n - 1), 1.0


SPEC = MetricSpec(
    name="anisotropy",
    label="Anisotropy (mean cosine)",
    function=anisotropy,
    kind="samples",
    direction="lower",
    variant="rows=unit",
    invariances=frozenset({"orthogonal", "scale", "row_scale", "permutation", "reversal"}),
    bounds=_bounds,
    minimum_n=2,
    formula="(n ‖ū‖² - 1) / (n - 1), ū = mean of the unit rows",
    reads="0 when texts point in all directions alike, 1 when all point one way.",
    source="Ethayarajh 2019",
    of_blocks=anisotropy_of_blocks,
)
