"""How much longer the state of the first token is than those of its prompt."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from layerscope.metrics.checks import check_rows
from layerscope.metrics.rows import binary_scale
from layerscope.metrics.spec import MetricSpec, Undefined
from layerscope.metrics.token_batch import compact_tokens, measure_prompts

if TYPE_CHECKING:
    import torch


def first_token_norm_ratio(states: npt.ArrayLike) -> float:
    """``‖z_1‖ / median_k ‖z_k‖``, the median over all tokens of the prompt, the first included.

    The first token is the first of those given: where attention sinks are left out, so are their norms.

    Args:
        states: ``(T, d)``, one row a token, in order.

    Returns:
        At least 0; 1 where the first token is like the others, thousands where it is an attention sink.

    Raises:
        Undefined: fewer than 2 tokens, not finite, constant, or half of the tokens zero.

    Source: Sun et al. 2024; Xiao et al. 2024.

    >>> first_token_norm_ratio([[30.0, 40.0], [1.0, 0.0], [0.0, 1.0]])
    50.0
    """
    array = check_rows(states, "states", unit="tokens")
    norms = np.linalg.norm(np.divide(array, binary_scale(array), dtype=np.float64), axis=1)
    median = float(np.median(norms))
    if median == 0:
        raise Undefined("zero median norm")
    return float(norms[0]) / median


def first_token_norm_ratio_batch(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """``first_token_norm_ratio`` of every prompt of a padded batch.

    Args:
        states: ``(b, t, d)`` of any float dtype and on any device; masked positions may hold anything.
        mask: ``(b, t)`` bool, true where a token counts.

    Returns:
        ``(b,)`` float64; NaN where there are fewer than 2 tokens, all tokens are identical, half of them are
        zero, or a token that counts is not finite.

    Raises:
        UsageError: shapes that do not fit.

    Source: Sun et al. 2024; Xiao et al. 2024.

    >>> import torch
    >>> states = torch.tensor([[[9.0], [6.0], [3.0], [2.0]]])
    >>> first_token_norm_ratio_batch(states, torch.tensor([[False, True, True, True]]))
    tensor([2.], dtype=torch.float64)
    """
    return measure_prompts(_ratios, states, mask)


def _ratios(x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    import torch

    x, keep = compact_tokens(x, keep)
    if x.shape[1] < 2:
        return x.new_full((len(x),), math.nan)
    norms = torch.linalg.vector_norm(x, dim=-1)
    counts = keep.sum(dim=1)
    ordered = torch.where(keep, norms, math.inf).sort(dim=1).values
    middle = torch.stack([(counts - 1).clamp(min=0) // 2, counts // 2], dim=1).clamp(max=x.shape[1] - 1)
    median = torch.take_along_dim(ordered, middle, dim=1).mean(dim=1)
    varies = ((x != x[:, :1]).any(dim=-1) & keep).any(dim=1)
    return torch.where(varies & (median > 0), norms[:, 0] / median, math.nan)


def _bounds(n: int, d: int) -> tuple[float, float]:
    return 0.0, math.inf if n > 2 else 2.0


SPEC = MetricSpec(
    name="first_token_norm_ratio",
    label="Largest norm of a first token (median token = 1)",
    function=first_token_norm_ratio,
    batch=first_token_norm_ratio_batch,
    kind="tokens",
    direction="lower",
    variant="rows=raw;texts=largest",
    over_texts="largest",
    invariances=frozenset({"orthogonal", "scale"}),
    bounds=_bounds,
    minimum_n=2,
    formula="‖z_1‖ / median_k ‖z_k‖ of the token states of one prompt",
    reads="About 1 in most layers, hundreds where the first token has become an attention sink.",
    source="Sun et al. 2024; Xiao et al. 2024",
)
