"""Prompts of many lengths as one padded batch, with rubbish in the padding."""

from __future__ import annotations

import numpy as np
import torch


def pad(prompts, *, left=False, fill=(float("nan"), float("inf"), 1e30), dtype=torch.float64):
    """``(states, mask)``; the padding cycles through ``fill``."""
    longest, width = max(map(len, prompts)), prompts[0].shape[1]
    states = torch.tensor(fill, dtype=dtype).repeat(len(prompts) * longest * width)
    states = states[: len(prompts) * longest * width].reshape(len(prompts), longest, width)
    mask = torch.zeros(len(prompts), longest, dtype=torch.bool)
    for k, prompt in enumerate(prompts):
        place = slice(longest - len(prompt), None) if left else slice(len(prompt))
        states[k, place] = torch.as_tensor(np.asarray(prompt)).to(dtype)
        mask[k, place] = True
    return states, mask


def draw_prompts(lengths, d, seed=0, dtype=np.float64):
    """Random walks off the origin, the first token of each of norm 4000."""
    rng = np.random.default_rng(seed)
    prompts = [rng.normal(size=(length, d)).cumsum(axis=0) + 1 for length in lengths]
    for prompt in prompts:
        prompt[0] *= 4000 / np.linalg.norm(prompt[0])
    return [prompt.astype(dtype) for prompt in prompts]
