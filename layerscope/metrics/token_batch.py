"""Padded batches of token states: which tokens count, in float64 and with the rest selected away."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from layerscope.errors import UsageError

if TYPE_CHECKING:
    import torch


def select_tokens(states: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Upcast the tokens that count and put zeros in place of the others, whatever these hold.

    Args:
        states: ``(b, t, d)`` of any float dtype; positions outside the mask may be NaN.
        mask: ``(b, t)``, true where a token counts.

    Returns:
        ``(b, t, d)`` float64, and the mask ``(b, t)`` with no token left in a prompt that has a NaN or
        infinity among those that count. On the device of ``states``, or on the CPU if that has no float64.

    Raises:
        UsageError: shapes that do not fit, or a mask that is not boolean.

    >>> import torch
    >>> states = torch.tensor([[[1.0, 2.0], [float("nan"), 0.0]]])
    >>> select_tokens(states, torch.tensor([[True, False]]))[0].tolist()
    [[[1.0, 2.0], [0.0, 0.0]]]
    """
    import torch

    if states.ndim != 3 or mask.shape != states.shape[:2] or mask.dtype != torch.bool:
        raise UsageError(
            "states and mask: expected (b, t, d) floats and (b, t) booleans, "
            f"got {tuple(states.shape)} {states.dtype} and {tuple(mask.shape)} {mask.dtype}"
        )
    states = states.detach()
    if states.device.type == "mps":
        states = states.cpu()
    mask = mask.to(states.device)
    broken = ~torch.isfinite(states).all(dim=-1) & mask
    keep = mask & ~broken.any(dim=1, keepdim=True)
    return torch.where(keep[..., None], states, 0).to(torch.float64), keep


def scale_prompts(x: torch.Tensor) -> torch.Tensor:
    """Divide each prompt by its largest magnitude, so that squares stay within range.

    Args:
        x: ``(b, t, d)`` float64.

    Returns:
        ``(b, t, d)`` with entries in [-1, 1]; a prompt of zeros stays zero.

    >>> import torch
    >>> scale_prompts(torch.tensor([[[4.0, -8.0]], [[0.0, 0.0]]])).tolist()
    [[[0.5, -1.0]], [[0.0, 0.0]]]
    """
    import torch

    if x.numel() == 0:
        return x
    peaks = torch.linalg.vector_norm(x, ord=math.inf, dim=(1, 2), keepdim=True)
    return x / torch.where(peaks > 0, peaks, 1)


def compact_tokens(x: torch.Tensor, keep: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Move the tokens that count to the front, in their order.

    Args:
        x: ``(b, t, d)``.
        keep: ``(b, t)``, true where a token counts.

    Returns:
        ``(b, t, d)`` and its mask ``(b, t)``, true for the first tokens of each prompt.

    >>> import torch
    >>> x, keep = torch.tensor([[[7.0], [8.0], [9.0]]]), torch.tensor([[False, True, True]])
    >>> [part.tolist() for part in compact_tokens(x, keep)]
    [[[[8.0], [9.0], [7.0]]], [[True, True, False]]]
    """
    import torch

    if bool((keep[:, 1:] <= keep[:, :-1]).all()):
        return x, keep
    order = torch.argsort((~keep).to(torch.uint8), dim=1, stable=True)
    return torch.take_along_dim(x, order[..., None], dim=1), torch.take_along_dim(keep, order, dim=1)
