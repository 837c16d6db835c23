"""Padded batches of token states: which tokens count, in float64 and with the rest selected away."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from layerscope.errors import UsageError
from layerscope.metrics.spec import Undefined

if TYPE_CHECKING:
    import torch

_CACHED = 2**19  # numbers that the caches of a processor hold


def measure_prompts(
    measure: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], states: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """Measure every prompt of a padded batch, on a processor a few at a time.

    Args:
        measure: takes ``(b, t, d)`` float64 states, those that do not count being zero, and their mask, no
            token of which is left in a prompt that has a NaN or infinity. May write into both; gives
            ``(b,)``.
        states: ``(b, t, d)`` of any float dtype; positions outside the mask may be NaN.
        mask: ``(b, t)``, true where a token counts.

    Returns:
        ``(b,)``, on the device of ``states``, or on the CPU if that has no float64.

    Raises:
        UsageError: shapes that do not fit, or a mask that is not boolean.

    >>> import torch
    >>> states = torch.tensor([[[1.0, 2.0], [float("nan"), 0.0]]])
    >>> measure_prompts(lambda x, keep: x.sum(dim=(1, 2)), states, torch.tensor([[True, False]]))
    tensor([3.], dtype=torch.float64)
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
    few = max(1, _CACHED // max(1, states.shape[1:].numel())) if states.device.type == "cpu" else len(states)
    if len(states) <= few:
        return measure(*_select(states, mask))
    parts = zip(torch.split(states, few), torch.split(mask, few), strict=True)
    return torch.cat([measure(*_select(*part)) for part in parts])


def prompt_by_prompt(
    function: Callable[[npt.NDArray[np.float64]], float],
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """A function of padded batches from one of a single prompt.

    Args:
        function: ``(T, d)`` token states in, a number out; raises ``Undefined``.

    Returns:
        Takes states ``(b, t, d)`` and mask ``(b, t)``; gives ``(b,)`` float64, NaN where undefined.

    >>> import torch
    >>> batch = prompt_by_prompt(lambda states: states.sum())
    >>> batch(torch.ones(1, 3, 2), torch.tensor([[True, False, True]]))
    tensor([4.], dtype=torch.float64)
    """

    def batch(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        import torch

        values = torch.full((len(states),), math.nan, dtype=torch.float64)
        for number, (prompt, counts) in enumerate(zip(states.detach().cpu(), mask.cpu(), strict=True)):
            with suppress(Undefined):
                values[number] = function(prompt[counts].to(torch.float64).numpy())
        return values

    return batch


def _select(states: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The tokens that count in float64, with zeros for the others, and which these are.

    float64 prompts are divided by their largest magnitude, so that squares stay within range; those of the
    shorter types do.
    """
    import torch

    if states.numel() == 0:
        return states.to(torch.float64), torch.zeros_like(mask)
    peaks = torch.linalg.vector_norm(states, ord=math.inf, dim=-1)
    broken = ~torch.isfinite(peaks) & mask
    keep = mask & ~broken.any(dim=1, keepdim=True)
    x = states.to(torch.float64, copy=True)
    if not bool(keep.all()):
        x[~keep] = 0
    if states.dtype == torch.float64:
        most = torch.where(keep, peaks, 0).amax(dim=1)[:, None, None]
        x /= torch.where(most > 0, most, 1)
    return x, keep


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
