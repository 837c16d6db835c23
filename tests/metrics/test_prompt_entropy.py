from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from layerscope.errors import UsageError
from layerscope.metrics import Undefined
from layerscope.metrics.prompt_entropy import prompt_entropy, prompt_entropy_batch
from tests.metrics.token_batches import draw_prompts, pad

LENGTHS = [5, 2, 17, 9, 3]
RECIPES = ["raw", "center", "unit", "center-unit"]


@pytest.mark.parametrize("rows", RECIPES)
@pytest.mark.parametrize("d", [3, 17, 40])
@pytest.mark.parametrize("left", [False, True])
def test_batch_is_single_whatever_the_padding_holds(rows, d, left):
    prompts = draw_prompts(LENGTHS, d)
    expected = [prompt_entropy(prompt, rows=rows) for prompt in prompts]
    values = prompt_entropy_batch(*pad(prompts, left=left), rows=rows)
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_batch_upcasts_before_the_first_product(dtype):
    states, mask = pad(draw_prompts(LENGTHS, 8), fill=(math.nan, math.inf), dtype=dtype)
    expected = [prompt_entropy(s[m].double().numpy()) for s, m in zip(states, mask, strict=True)]
    values = prompt_entropy_batch(states, mask)
    assert values.dtype == torch.float64
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-10)


def test_batch_does_not_depend_on_neighbours():
    prompts = draw_prompts(LENGTHS, 8)
    together = prompt_entropy_batch(*pad(prompts))
    for k, prompt in enumerate(prompts):
        assert prompt_entropy_batch(*pad([prompt])).item() == pytest.approx(together[k].item(), abs=1e-12)


def test_batch_leaves_out_tokens_inside_the_prompt():
    (prompt,) = draw_prompts([9], 6)
    states, mask = pad([prompt])
    mask[0, [0, 4]] = False
    states[0, 4] = math.nan
    expected = prompt_entropy(np.delete(prompt, [0, 4], axis=0))
    assert prompt_entropy_batch(states, mask).item() == pytest.approx(expected, abs=1e-12)


def test_batch_marks_undefined_prompts_only():
    good, short, broken, infinite = draw_prompts([4, 1, 4, 4], 3)
    broken[1, 1], infinite[3, 2] = math.nan, -math.inf
    prompts = [short, good, broken, np.full((4, 3), 0.1), infinite, np.zeros((3, 3))]
    values = prompt_entropy_batch(*pad(prompts))
    assert torch.isnan(values).tolist() == [True, False, True, True, True, True]
    assert values[1].item() == pytest.approx(prompt_entropy(good), abs=1e-12)


@pytest.mark.parametrize("rows", RECIPES)
def test_constant_tokens_are_undefined_in_both_faces(rows):
    prompt = np.full((5, 4), 1 / 3)
    with pytest.raises(Undefined, match="constant"):
        prompt_entropy(prompt, rows=rows)
    assert prompt_entropy_batch(*pad([prompt]), rows=rows).isnan().all()


def test_batch_of_empty_prompts():
    assert prompt_entropy_batch(torch.zeros(2, 0, 4), torch.zeros(2, 0, dtype=torch.bool)).isnan().all()
    assert prompt_entropy_batch(torch.zeros(2, 3, 4), torch.zeros(2, 3, dtype=torch.bool)).isnan().all()
    assert prompt_entropy_batch(torch.zeros(0, 3, 4), torch.zeros(0, 3, dtype=torch.bool)).shape == (0,)


@pytest.mark.parametrize("factor", [1e-300, 1e300])
def test_batch_magnitude_does_not_overflow(factor):
    prompts = draw_prompts([4, 6], 5)
    expected = prompt_entropy_batch(*pad(prompts))
    values = prompt_entropy_batch(*pad([prompt / 4000 * factor for prompt in prompts]))
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-10)


def test_batch_leaves_its_arguments_alone_and_makes_no_graph():
    states, mask = pad(draw_prompts(LENGTHS, 8))
    before, mask_before = states.clone(), mask.clone()
    assert not prompt_entropy_batch(states.requires_grad_(), mask).requires_grad
    np.testing.assert_array_equal(states.detach(), before)
    assert torch.equal(mask, mask_before)


def test_tokens_on_one_line_have_none():
    prompt = np.outer(np.arange(6.0), [1.0, 2.0, 3.0])
    assert prompt_entropy(prompt) == 0.0
    assert prompt_entropy_batch(*pad([prompt])).item() == 0.0


def test_one_token_of_norm_4000_does_not_swamp_the_others():
    """center-unit: the sink is one row among T; raw rows: it is everything."""
    (prompt,) = draw_prompts([20], 50)
    assert prompt_entropy(prompt, rows="raw") < 0.1
    assert prompt_entropy(prompt, rows="unit") > 0.3


def test_batch_falls_back_when_eigenvalues_do_not_converge(monkeypatch):
    states, mask = pad(draw_prompts(LENGTHS, 8))
    expected = prompt_entropy_batch(states, mask)
    monkeypatch.setattr(torch.linalg, "eigvalsh", no_convergence)
    np.testing.assert_allclose(prompt_entropy_batch(states, mask), expected, rtol=0, atol=1e-10)
    monkeypatch.setattr(torch.linalg, "svdvals", no_convergence)
    assert prompt_entropy_batch(states, mask).isnan().all()


def no_convergence(*args):
    raise torch.linalg.LinAlgError("did not converge")


def test_batch_refuses_what_does_not_fit():
    states, mask = pad(draw_prompts(LENGTHS, 8))
    with pytest.raises(UsageError, match="states and mask"):
        prompt_entropy_batch(states, mask.float())
    with pytest.raises(UsageError, match="states and mask"):
        prompt_entropy_batch(states, mask[:, 1:])
    with pytest.raises(UsageError, match="no rows recipe"):
        prompt_entropy_batch(states, mask, rows="centre")
