"""Prompt vectors as released: the mean of the token states after these were centred and scaled."""

from __future__ import annotations

import numpy.typing as npt

from layerscope.metrics.published.entropy import centred_unit
from layerscope.metrics.streams import FloatArray


def prompt_vector(states: npt.ArrayLike) -> FloatArray:
    """Mean of the centred, unit-norm token states: a small residue, nearly orthogonal to their plain mean.

    ``layerscope.pooling`` has the same for batches.

    Args:
        states: ``(T, d)``, one row a token.

    Returns:
        ``(d,)``.

    Raises:
        Undefined: fewer than 2 tokens, not finite, constant, or a token that equals the mean.

    >>> prompt_vector([[0.0, 3.0], [0.0, 0.0], [0.0, 0.0]]).round(3).tolist()
    [0.0, -0.333]
    """
    mean: FloatArray = centred_unit(states).mean(axis=0)
    return mean
