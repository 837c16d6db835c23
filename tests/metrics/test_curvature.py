from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.metrics import Undefined
from layerscope.metrics.curvature import curvature, curvature_batch, zero_steps, zero_steps_batch
from tests.metrics.token_batches import draw_prompts, pad
from tests.reference.curvature import curvature as slow_curvature

LENGTHS = [5, 3, 17, 9, 4]


def both(prompt):
    """The value, after checking that the batch function has the same."""
    value = curvature(prompt)
    assert curvature_batch(*pad([prompt])).item() == pytest.approx(value, abs=1e-12)
    return value


@pytest.mark.parametrize("steps", [np.arange(9.0), np.array([0.0, 0.1, 5.0, 1e4, 1e5])])
def test_a_straight_line_has_none(steps):
    """arccos of a cosine one round-off below 1 would be 1e-8."""
    direction = np.random.default_rng(0).normal(size=40)
    assert both(np.outer(steps, direction) + 0.5) < 1e-10


def test_a_line_walked_back_and_forth_turns_by_pi():
    assert both(np.outer([0.0, 1.0, 0.0, 1.0], [1.0, 2.0, 2.0])) == pytest.approx(math.pi, abs=1e-12)


def test_a_right_angled_zigzag_turns_by_half_pi():
    zigzag = np.array([[0, 0], [1, 0], [1, 1], [2, 1], [2, 2]], dtype=float)
    assert both(zigzag) == pytest.approx(math.pi / 2, abs=1e-14)


def test_a_regular_polygon_turns_by_its_outer_angle():
    angles = np.arange(12) * 2 * math.pi / 7
    assert both(np.stack([np.cos(angles), np.sin(angles)], axis=1)) == pytest.approx(
        2 * math.pi / 7, abs=1e-12
    )


def test_tiny_angles_keep_their_digits():
    assert both(np.array([[0, 0], [1, 0], [2, 1e-9]])) == pytest.approx(1e-9, rel=1e-9)


def test_a_repeated_state_is_skipped_and_counted():
    path = draw_prompts([8], 4)[0]
    repeated = np.repeat(path, [1, 1, 3, 1, 1, 2, 1, 1], axis=0)
    assert both(repeated) == pytest.approx(curvature(path), abs=1e-14)
    assert curvature(repeated) == pytest.approx(slow_curvature(repeated), abs=1e-12)
    assert zero_steps(repeated) == 3
    assert zero_steps_batch(*pad([path, repeated])).tolist() == [0, 3]


def test_fewer_than_two_steps_that_move():
    prompt = np.array([[0.0, 1.0], [0.0, 1.0], [2.0, 1.0]])
    with pytest.raises(Undefined, match="fewer than 2 non-zero steps"):
        curvature(prompt)
    assert curvature_batch(*pad([prompt])).isnan().all()


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("d", [1, 3, 40])
def test_batch_is_single_whatever_the_padding_holds(d, left):
    prompts = draw_prompts(LENGTHS, d)
    expected = [curvature(prompt) for prompt in prompts]
    np.testing.assert_allclose(curvature_batch(*pad(prompts, left=left)), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_batch_upcasts_before_the_first_difference(dtype):
    states, mask = pad(draw_prompts(LENGTHS, 8), fill=(math.nan, math.inf), dtype=dtype)
    expected = [curvature(s[m].double().numpy()) for s, m in zip(states, mask, strict=True)]
    np.testing.assert_allclose(curvature_batch(states, mask), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("left_out", [[0], [4], [8], [0, 3, 4, 8]])
def test_batch_takes_tokens_out_before_it_forms_steps(left_out):
    (prompt,) = draw_prompts([9], 6)
    states, mask = pad([prompt, prompt[:4]])
    mask[0, left_out] = False
    states[0, left_out] = math.nan
    values = curvature_batch(states, mask)
    assert values[0].item() == pytest.approx(curvature(np.delete(prompt, left_out, axis=0)), abs=1e-12)
    assert values[1].item() == pytest.approx(curvature(prompt[:4]), abs=1e-12)


def test_batch_marks_undefined_prompts_only():
    good, short, broken = draw_prompts([4, 2, 4], 3)
    broken[1, 1] = math.nan
    values = curvature_batch(*pad([short, good, broken, np.full((4, 3), 0.1)]))
    assert torch.isnan(values).tolist() == [True, False, True, True]


@pytest.mark.parametrize("length", [0, 1, 2])
def test_batch_of_short_prompts(length):
    states = torch.zeros(2, length, 4)
    assert curvature_batch(states, torch.ones(2, length, dtype=torch.bool)).isnan().all()
    assert (
        zero_steps_batch(states, torch.ones(2, length, dtype=torch.bool)).tolist() == [max(0, length - 1)] * 2
    )


def test_batch_leaves_its_arguments_alone():
    states, mask = pad(draw_prompts(LENGTHS, 8), left=True)
    before, mask_before = states.clone(), mask.clone()
    curvature_batch(states, mask)
    np.testing.assert_array_equal(states, before)
    assert torch.equal(mask, mask_before)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.booleans(), min_size=5, max_size=12), st.integers(0, 10**6))
def test_any_mask_is_the_prompt_of_the_tokens_it_keeps(mask, seed):
    (prompt,) = draw_prompts([len(mask)], 4, seed)
    value = curvature_batch(torch.from_numpy(prompt)[None], torch.tensor([mask])).item()
    if sum(mask) < 3:
        assert math.isnan(value)
    else:
        assert value == pytest.approx(slow_curvature(prompt[mask]), abs=1e-7)
