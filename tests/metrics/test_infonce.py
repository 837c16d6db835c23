from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from layerscope.errors import UsageError
from layerscope.metrics import infonce as module
from layerscope.metrics.infonce import infonce, infonce_bound
from tests.reference.infonce import infonce as slow_infonce


def draw(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


@pytest.mark.parametrize("n", [2, 3, 8])
@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_identical_orthonormal_views(n, temperature):
    """Score 1/τ with the partner and 0 with the other 2n - 2 rows."""
    expected = math.log(math.exp(1 / temperature) + 2 * n - 2) - 1 / temperature
    assert infonce(np.eye(8)[:n], np.eye(8)[:n], temperature) == pytest.approx(expected, rel=1e-9)


def test_rows_that_are_all_orthogonal_leave_it_to_chance():
    assert infonce(np.eye(8)[:4], np.eye(8)[4:]) == pytest.approx(math.log(7), rel=1e-14)
    assert infonce_bound(np.eye(8)[:4], np.eye(8)[4:]) == pytest.approx(0.0, abs=1e-14)


@pytest.mark.parametrize("temperature", [0.05, 0.5])
def test_temperature(temperature):
    X, Y = draw(6, 3), draw(6, 3, 1)
    assert infonce(X, Y, temperature) == pytest.approx(slow_infonce(X, Y, temperature), rel=1e-12)


def test_low_temperatures_do_not_overflow():
    """exp(1 / 0.001) is not a float64."""
    X = draw(6, 3)
    assert infonce(X, X + 1e-3, temperature=1e-3) == pytest.approx(0.0, abs=1e-6)
    assert infonce(X, -X, temperature=1e-3) > 1000


@pytest.mark.parametrize("block", [1, 4, 6, 10_000])
def test_blocks_give_the_same_value(monkeypatch, block):
    X, Y = draw(6, 3), draw(6, 3, 1)
    monkeypatch.setattr(module, "_BLOCK", block)
    assert infonce(X, Y) == pytest.approx(slow_infonce(X, Y), rel=1e-12)


def test_no_n_by_n_matrix_in_memory():
    """The (2n, 2n) scores would be 512 MB."""
    X = draw(4000, 2)
    tracemalloc.start()
    infonce(X, X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 250e6


def test_a_temperature_of_zero_makes_no_sense():
    with pytest.raises(UsageError, match="temperature"):
        infonce(np.eye(2), np.eye(2), temperature=0)
