"""Poolings pick the tokens that the mask names, and nothing else."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.errors import UsageError
from layerscope.pooling import POOLINGS, TokenMasks, check_poolings, pool, token_set_of

STATES = torch.tensor([[[1.0, -1.0], [2.0, 5.0], [6.0, 2.0], [float("nan"), float("inf")]]])
KEPT = torch.tensor([[True, True, True, False]])
MASKS = TokenMasks(
    kept=KEPT,
    nosink=torch.tensor([[False, True, True, False]]),
    cls=torch.tensor([[False, True, False, False]]),
)

EXPECTED = {
    "mean": [3.0, 2.0],
    "mean-nosink": [4.0, 3.5],
    "last": [6.0, 2.0],
    "first": [1.0, -1.0],
    "cls": [2.0, 5.0],
    "max": [6.0, 5.0],
    "weighted-mean": [(1 + 4 + 18) / 6, (-1 + 10 + 6) / 6],
    "prompt-vector": [(-2 / 13**0.5 - 1 / 10**0.5 + 1) / 3, (-3 / 13**0.5 + 3 / 10**0.5) / 3],
}


@pytest.mark.parametrize("name", POOLINGS)
def test_closed_form(name):
    torch.testing.assert_close(pool(name, STATES, MASKS), torch.tensor([EXPECTED[name]]))


@pytest.mark.parametrize("name", POOLINGS)
def test_states_are_not_written_into(name):
    before = STATES.clone()
    pool(name, STATES, MASKS)
    assert torch.equal(STATES, before) or torch.equal(STATES.isnan(), before.isnan())
    assert torch.equal(STATES[:, :3], before[:, :3])


@pytest.mark.parametrize("name", POOLINGS)
def test_no_token_left_is_missing_not_zero(name):
    none = torch.zeros_like(KEPT)
    pooled = pool(name, STATES, TokenMasks(none, none, none))
    assert pooled.isnan().all()


@pytest.mark.parametrize("name", [name for name in POOLINGS if name != "prompt-vector"])
def test_half_precision_states_with_a_huge_token_are_summed_in_float32(name):
    states = torch.full((1, 3000, 2), 40.0, dtype=torch.bfloat16)
    mask = torch.ones(1, 3000, dtype=torch.bool)
    pooled = pool(name, states, TokenMasks(mask, mask, mask))
    assert pooled.dtype == torch.float32
    torch.testing.assert_close(pooled, torch.full((1, 2), 40.0))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(POOLINGS), st.integers(1, 6), st.integers(0, 5), st.randoms(use_true_random=False))
def test_padding_never_matters(name, tokens, padding, random):
    states = torch.tensor([[[random.uniform(-9, 9) for _ in range(3)] for _ in range(tokens)]])
    mask = torch.ones(1, tokens, dtype=torch.bool)
    padded = torch.cat([states, torch.full((1, padding, 3), math.nan)], dim=1)
    padded_mask = torch.cat([mask, torch.zeros(1, padding, dtype=torch.bool)], dim=1)
    one = pool(name, states, TokenMasks(mask, mask, mask))
    other = pool(name, padded, TokenMasks(padded_mask, padded_mask, padded_mask))
    torch.testing.assert_close(one, other, equal_nan=True)  # one token has no prompt vector


def test_tokens_that_do_not_differ_have_no_prompt_vector():
    same, one = torch.ones(1, 3, 2), torch.tensor([[True, False, False]])
    every = torch.ones(1, 3, dtype=torch.bool)
    assert pool("prompt-vector", same, TokenMasks(every, every, every)).isnan().all()
    assert pool("prompt-vector", STATES[:, :3], TokenMasks(one, one, one)).isnan().all()


def test_names_are_checked_with_the_nearest_first():
    assert check_poolings(["mean", "last", "mean"]) == ["mean", "last"]
    with pytest.raises(UsageError, match="did you mean 'weighted-mean'"):
        check_poolings(["weighted_mean"])
    with pytest.raises(UsageError, match="no pooling selected"):
        check_poolings([])
    assert token_set_of("mean-nosink") == "nosink"
