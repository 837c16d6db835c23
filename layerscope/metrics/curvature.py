"""Curvature: how sharply the path of the token states of one prompt turns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from layerscope.metrics.checks import check_rows
from layerscope.metrics.rows import binary_scale, unit_rows
from layerscope.metrics.spec import MetricSpec, Undefined
from layerscope.metrics.streams import FloatArray
from layerscope.metrics.token_batch import compact_tokens, measure_prompts

if TYPE_CHECKING:
    import torch


def curvature(states: npt.ArrayLike) -> float:
    """Mean angle between successive steps ``v_k = z_{k+1} - z_k``.

    ``mean_k arccos(v_k·v_{k+1} / (‖v_k‖ ‖v_{k+1}‖))``. A zero step is skipped: a token state that repeats
    the one before it does not count as a point of the path.

    Args:
        states: ``(T, d)``, one row a token, in order.

    Returns:
        Radians in [0, π]; 0 is a straight line.

    Raises:
        Undefined: fewer than 3 tokens, not finite, constant, fewer than 2 non-zero steps.

    Source: Hosseini & Fedorenko 2023.

    >>> round(curvature([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]), 12) == round(math.pi / 2, 12)
    True
    """
    directions = unit_rows(_steps(check_rows(states, "states", minimum=3, unit="tokens")))
    directions = directions[directions.any(axis=1)]
    if len(directions) < 2:
        raise Undefined("fewer than 2 non-zero steps")
    before, after = directions[:-1], directions[1:]
    # The arccos of the cosine, without its loss of half the digits near 0 and π.
    apart, along = np.linalg.norm(before - after, axis=1), np.linalg.norm(before + after, axis=1)
    return float(np.mean(2 * np.arctan2(apart, along)))


def zero_steps(states: npt.ArrayLike) -> int:
    """How many steps ``curvature`` skips because a token state repeats the one before it.

    Args:
        states: ``(T, d)``, one row a token, in order.

    Raises:
        Undefined: fewer than 2 tokens, not finite, constant.

    >>> zero_steps([[0.0], [1.0], [1.0], [2.0]])
    1
    """
    return int((~_steps(check_rows(states, "states", unit="tokens")).any(axis=1)).sum())


def curvature_batch(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """``curvature`` of every prompt of a padded batch.

    Tokens outside the mask are taken out before steps are formed, wherever they stand.

    Args:
        states: ``(b, t, d)`` of any float dtype and on any device; masked positions may hold anything.
        mask: ``(b, t)`` bool, true where a token counts.

    Returns:
        ``(b,)`` float64, radians; NaN where there are fewer than 3 tokens or 2 non-zero steps, or a token
        that counts is not finite.

    Raises:
        UsageError: shapes that do not fit.

    Source: Hosseini & Fedorenko 2023.

    >>> import torch
    >>> states = torch.tensor([[[9.0], [0.0], [1.0], [3.0]]])
    >>> curvature_batch(states, torch.tensor([[False, True, True, True]]))
    tensor([0.], dtype=torch.float64)
    """
    return measure_prompts(_turns, states, mask)


def _turns(x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    import torch

    steps, moving, norms = _batch_steps(x, keep)
    if steps.shape[1] < 2:
        return steps.new_full((len(steps),), math.nan)
    steps /= torch.where(moving, norms, 1)[..., None]
    directions, moving = compact_tokens(steps, moving)
    before, after = directions[:, :-1], directions[:, 1:]
    apart = torch.linalg.vector_norm(before - after, dim=-1)
    along = torch.linalg.vector_norm(before + after, dim=-1)
    turns = moving[:, 1:].sum(dim=1)
    total = torch.where(moving[:, 1:], 2 * torch.atan2(apart, along), 0).sum(dim=1)
    return torch.where(turns > 0, total / turns.clamp(min=1), math.nan)


def zero_steps_batch(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """``zero_steps`` of every prompt of a padded batch.

    Args:
        states: ``(b, t, d)``.
        mask: ``(b, t)`` bool, true where a token counts.

    Returns:
        ``(b,)`` int64; 0 where a token that counts is not finite.

    >>> import torch
    >>> zero_steps_batch(torch.tensor([[[0.0], [1.0], [1.0]]]), torch.ones(1, 3, dtype=torch.bool))
    tensor([1])
    """

    def count(x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        return (keep.sum(dim=1) - 1).clamp(min=0) - _batch_steps(x, keep)[1].sum(dim=1)

    return measure_prompts(count, states, mask)


def _steps(states: npt.NDArray[np.generic]) -> FloatArray:
    return np.diff(np.divide(states, binary_scale(states), dtype=np.float64), axis=0)


def _batch_steps(x: torch.Tensor, keep: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Steps ``(b, t - 1, d)`` between successive tokens, which of them move, and their norms."""
    import torch

    x, keep = compact_tokens(x, keep)
    steps = x[:, 1:] - x[:, :-1]
    norms = torch.linalg.vector_norm(steps, dim=-1)
    return steps, keep[:, 1:] & (norms > 0), norms


def _bounds(n: int, d: int) -> tuple[float, float]:
    return 0.0, math.pi


SPEC = MetricSpec(
    name="curvature",
    label="Curvature (radians)",
    function=curvature,
    batch=curvature_batch,
    kind="tokens",
    direction="lower",
    variant="steps=difference",
    invariances=frozenset({"orthogonal", "scale", "translation", "reversal"}),
    bounds=_bounds,
    minimum_n=3,
    formula="mean_k arccos(v_k·v_{k+1} / (‖v_k‖ ‖v_{k+1}‖)), v_k = z_{k+1} - z_k",
    reads="0 when the token states run along a straight line, π/2 when every step turns at a right angle.",
    source="Hosseini & Fedorenko 2023",
)
