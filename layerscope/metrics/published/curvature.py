"""Curvature as released: the angle between successive centred unit states, not between steps."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from layerscope.errors import UsageError
from layerscope.metrics.checks import check_rows
from layerscope.metrics.published.entropy import centred_unit
from layerscope.metrics.spec import MetricSpec, Undefined
from layerscope.metrics.token_batch import prompt_by_prompt


def curvature(states: npt.ArrayLike, lag: int = 1) -> float:
    """Mean angle between the centred unit states of tokens ``lag`` apart; the cosine is not clipped.

    Args:
        states: ``(T, d)``, one row a token, as the model gives them.
        lag: how many tokens apart.

    Returns:
        Radians in [0, π].

    Raises:
        UsageError: a lag below 1.
        Undefined: not more than ``lag`` tokens, not finite, constant, a token that equals the mean, or a
            cosine that rounding takes beyond 1 (NaN in the released code).

    >>> round(curvature([[0.0, 0.0], [1.0, 1.0]]), 6) == round(math.pi, 6)
    True
    """
    return mean_angle(centred_unit(states), lag)


def mean_angle(Z: npt.ArrayLike, lag: int = 1) -> float:
    """``mean_k arccos(z_k·z_{k+lag})`` of rows that are taken to have unit norm.

    Args:
        Z: ``(T, d)``.
        lag: how many rows apart.

    Raises:
        UsageError: a lag below 1.
        Undefined: not more than ``lag`` rows, not finite, constant, or a product beyond 1.

    >>> mean_angle([[1.0, 0.0], [0.0, 1.0]]) == math.pi / 2
    True
    """
    if lag < 1:
        raise UsageError(f"lag: expected at least 1, got {lag}")
    array = np.asarray(check_rows(Z, "Z", minimum=lag + 1, unit="tokens"), dtype=np.float64)
    products = np.einsum("ij,ij->i", array[:-lag], array[lag:])
    if np.abs(products).max() > 1:
        raise Undefined("a cosine beyond 1")
    return float(np.arccos(products).mean())


def _bounds(n: int, d: int) -> tuple[float, float]:
    return 0.0, math.pi


SPEC = MetricSpec(
    name="curvature",
    label="Curvature as published (radians)",
    function=curvature,
    batch=prompt_by_prompt(curvature),
    kind="tokens",
    direction="lower",
    variant="recipe=published;lag=1",
    invariances=frozenset({"orthogonal", "scale", "translation", "reversal"}),
    bounds=_bounds,
    minimum_n=2,
    formula="mean_k arccos(z_k·z_{k+1}), z = centred unit token states",
    reads="Comparable with published numbers only.",
    source="Skean et al. 2025, released code",
)
