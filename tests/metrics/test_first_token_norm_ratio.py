from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from layerscope.metrics import Undefined
from layerscope.metrics.first_token_norm_ratio import first_token_norm_ratio, first_token_norm_ratio_batch
from tests.metrics.token_batches import draw_prompts, pad

LENGTHS = [5, 2, 17, 8, 3]


def both(prompt):
    """The value, after checking that the batch function has the same."""
    value = first_token_norm_ratio(prompt)
    assert first_token_norm_ratio_batch(*pad([prompt])).item() == pytest.approx(value, rel=1e-13)
    return value


@pytest.mark.parametrize("t", [2, 3, 4, 9])
def test_known_norms(t):
    """Norms t, t-1, …, 1: the median is (t + 1) / 2 for odd and for even t."""
    norms = np.arange(t, 0.0, -1)
    assert both(np.outer(norms, [0.6, -0.8])) == pytest.approx(t / ((t + 1) / 2), rel=1e-14)


def test_one_sink_hardly_moves_the_median():
    prompt = np.random.default_rng(0).normal(size=(11, 4))
    prompt /= np.linalg.norm(prompt, axis=1, keepdims=True)
    prompt[0] *= 4000
    assert both(prompt) == pytest.approx(4000, rel=1e-12)
    assert both(np.flip(prompt, axis=0).copy()) == pytest.approx(1, rel=1e-12)


def test_more_than_half_of_the_tokens_zero():
    prompt = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    with pytest.raises(Undefined, match="zero median norm"):
        first_token_norm_ratio(prompt)
    assert first_token_norm_ratio_batch(*pad([prompt])).isnan().all()


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("d", [1, 3, 40])
def test_batch_is_single_whatever_the_padding_holds(d, left):
    prompts = draw_prompts(LENGTHS, d)
    expected = [first_token_norm_ratio(prompt) for prompt in prompts]
    found = first_token_norm_ratio_batch(*pad(prompts, left=left))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_batch_upcasts_before_the_first_square(dtype):
    """The square of 4000 is not a float16."""
    states, mask = pad(draw_prompts(LENGTHS, 8), fill=(math.nan, math.inf), dtype=dtype)
    expected = [first_token_norm_ratio(s[m].double().numpy()) for s, m in zip(states, mask, strict=True)]
    np.testing.assert_allclose(first_token_norm_ratio_batch(states, mask), expected, rtol=1e-12)


@pytest.mark.parametrize("left_out", [[0], [3, 4], [0, 1, 8]])
def test_first_is_the_first_token_that_counts(left_out):
    (prompt,) = draw_prompts([9], 6)
    states, mask = pad([prompt])
    mask[0, left_out] = False
    expected = first_token_norm_ratio(np.delete(prompt, left_out, axis=0))
    assert first_token_norm_ratio_batch(states, mask).item() == pytest.approx(expected, rel=1e-12)


def test_batch_marks_undefined_prompts_only():
    good, short, broken = draw_prompts([4, 1, 4], 3)
    broken[1, 1] = math.nan
    values = first_token_norm_ratio_batch(*pad([short, good, broken, np.full((4, 3), 0.1)]))
    assert torch.isnan(values).tolist() == [True, False, True, True]


@pytest.mark.parametrize("length", [0, 1])
def test_batch_of_short_prompts(length):
    states = torch.ones(2, length, 4)
    assert first_token_norm_ratio_batch(states, torch.ones(2, length, dtype=torch.bool)).isnan().all()


def test_batch_without_a_token_that_counts():
    states = torch.ones(1, 3, 4)
    assert first_token_norm_ratio_batch(states, torch.zeros(1, 3, dtype=torch.bool)).isnan().all()


def test_batch_leaves_its_arguments_alone():
    states, mask = pad(draw_prompts(LENGTHS, 8), left=True)
    before, mask_before = states.clone(), mask.clone()
    first_token_norm_ratio_batch(states, mask)
    np.testing.assert_array_equal(states, before)
    assert torch.equal(mask, mask_before)
