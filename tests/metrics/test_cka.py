from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from layerscope.errors import UsageError
from layerscope.metrics import Undefined
from layerscope.metrics.cka import cka_linear, cka_matrix
from tests.reference.cka import cka as slow_cka
from tests.reference.cka import cka_in_batches

WIDTHS = [3, 5, 11]


def layers(n, seed=0):
    """Three layers of the same samples, each of its own width, each a little farther from the first."""
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(n, 4))
    mixes = [np.random.default_rng(k).normal(size=(4, width)) for k, width in enumerate(WIDTHS)]
    return [np.tanh((k + 1) * base @ mix) + k for k, mix in enumerate(mixes)]


def batches(stack, size):
    return [[layer[start : start + size] for layer in stack] for start in range(0, len(stack[0]), size)]


@pytest.mark.parametrize("n", [4, 5, 30])
def test_a_rotation_a_factor_and_a_shift_are_one_layer(n):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 6))
    Q = np.linalg.qr(rng.normal(size=(9, 6)))[0]
    assert cka_linear(X, 3.7 * X @ Q.T + rng.normal(size=9)) == pytest.approx(1, rel=1e-12)


def test_a_linear_map_is_not():
    X = np.random.default_rng(0).normal(size=(50, 2))
    assert cka_linear(X, X * [1.0, 30.0]) < 0.8


def test_unrelated_layers_have_none_however_wide_they_are():
    """The biased estimator would say more than 0.8 here."""
    rng = np.random.default_rng(0)
    values = [cka_linear(rng.normal(size=(40, 300)), rng.normal(size=(40, 300))) for _ in range(20)]
    assert abs(np.mean(values)) < 0.02


def test_closed_form_of_two_lines():
    """For one feature each and n large, CKA is the squared correlation."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=2000)
    y = x + rng.normal(size=2000)
    assert cka_linear(x[:, None], y[:, None]) == pytest.approx(np.corrcoef(x, y)[0, 1] ** 2, abs=2e-3)


@pytest.mark.parametrize("n", [4, 7, 12])
def test_agrees_with_song_and_others(n):
    X, Y, _ = layers(n)
    assert cka_linear(X, Y) == pytest.approx(slow_cka(X.tolist(), Y.tolist()), rel=1e-9)


def test_a_far_mean_costs_no_digits():
    X, Y, _ = layers(30)
    assert cka_linear(X + 2.0**20, Y) == pytest.approx(cka_linear(X, Y), rel=1e-8)


@pytest.mark.parametrize("n", [4, 9])
def test_samples_that_are_all_equally_alike_have_no_geometry(n):
    with pytest.raises(Undefined, match="equally alike"):
        cka_linear(np.eye(n), np.random.default_rng(0).normal(size=(n, 3)))


def test_all_samples_in_one_batch_are_cka_itself():
    stack = layers(20)
    expected = [[cka_linear(X, Y) for Y in stack] for X in stack]
    np.testing.assert_allclose(cka_matrix([stack]), expected, rtol=0, atol=1e-13)


def test_batches_average_each_hsic_before_the_ratio():
    stack = layers(21)  # the last batch has 5 rows, and each HSIC is over its own number of pairs
    found = cka_matrix(batches(stack, 8))
    for i in range(3):
        for j in range(3):
            pairs = [(batch[i].tolist(), batch[j].tolist()) for batch in batches(stack, 8)]
            assert found[i, j] == pytest.approx(cka_in_batches(pairs), abs=1e-11)


def test_batches_estimate_the_value_of_all_samples():
    stack = layers(3000)
    np.testing.assert_allclose(cka_matrix(batches(stack, 100)), cka_matrix([stack]), rtol=0, atol=0.01)


def test_the_matrix_is_symmetric_with_ones():
    found = cka_matrix(batches(layers(30), 10))
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_array_equal(np.diag(found), 1.0)


def test_batches_too_small_to_count_are_left_out():
    stack = layers(23)
    whole = [layer[:20] for layer in stack]
    np.testing.assert_array_equal(cka_matrix(batches(stack, 10)), cka_matrix(batches(whole, 10)))
    with pytest.raises(Undefined, match="no batch of at least 4 samples"):
        cka_matrix(batches(stack, 3))
    with pytest.raises(Undefined, match="no batch"):
        cka_matrix([])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_layer_that_is_not_finite_takes_its_row_and_column_only(bad):
    stack = layers(20)
    expected = cka_matrix(batches(stack, 10))
    stack[1][13, 2] = bad
    found = cka_matrix(batches(stack, 10))
    assert np.isnan(found).sum(axis=1).tolist() == [1, 3, 1]
    assert found[0, 2] == pytest.approx(expected[0, 2], rel=1e-13)


def test_a_constant_layer_takes_its_row_and_column_only():
    stack = layers(20)
    stack[2] = np.full((20, 4), 0.1)
    assert np.isnan(cka_matrix(batches(stack, 10))).sum(axis=1).tolist() == [1, 1, 3]


@pytest.mark.parametrize("factor", [1e-300, 1e300])
def test_layers_of_any_magnitude(factor):
    stack = layers(20)
    scaled = [stack[0] * factor, stack[1], stack[2] / factor]
    np.testing.assert_allclose(
        cka_matrix(batches(scaled, 10)), cka_matrix(batches(stack, 10)), rtol=0, atol=1e-12
    )


def test_batches_are_read_one_at_a_time_and_left_alone():
    """Ten thousand rows of three layers would be 4.5 MB, their Gram matrices 2.4 GB."""

    def stream():
        for seed in range(100):
            batch = layers(100, seed)
            for layer in batch:
                layer.setflags(write=False)
            yield batch

    tracemalloc.start()
    cka_matrix(stream())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5e6


def test_half_precision_is_upcast_first():
    stack = [(1000 * layer).astype(np.float16) for layer in layers(20)]
    wide = [layer.astype(np.float64) for layer in stack]
    np.testing.assert_array_equal(cka_matrix([stack]), cka_matrix([wide]))


def test_batches_that_do_not_fit():
    X, Y, Z = layers(8)
    with pytest.raises(UsageError, match="as many rows"):
        cka_matrix([[X, Y[:7]]])
    with pytest.raises(UsageError, match="expected 3 layers in each, got 2"):
        cka_matrix([[X, Y, Z], [X, Y]])
    with pytest.raises(UsageError, match="matrices"):
        cka_matrix([[]])
    with pytest.raises(UsageError, match="layer 1 of the batch: expected real numbers"):
        cka_matrix([[X, Y.astype(str)]])
