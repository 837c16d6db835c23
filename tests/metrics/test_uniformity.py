from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from layerscope.metrics import uniformity as module
from layerscope.metrics.uniformity import uniformity
from tests.reference.uniformity import uniformity as slow_uniformity


def draw(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def test_known_points():
    assert uniformity(np.eye(5)) == pytest.approx(-2 * 2, rel=1e-14)
    assert uniformity(np.array([[1.0, 0], [-1, 0]])) == pytest.approx(-2 * 4, rel=1e-14)
    square = np.array([[1.0, 0], [0, 1], [-1, 0], [0, -1]])
    expected = math.log((4 * math.exp(-4) + 2 * math.exp(-8)) / 6)
    assert uniformity(square) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("n", [2, 3, 6])
def test_a_regular_simplex_reaches_the_lower_bound(n):
    simplex = np.eye(n) - 1 / n
    assert uniformity(simplex) == pytest.approx(module.SPEC.bounds(n, n)[0], rel=1e-13)


@pytest.mark.parametrize("t", [0.5, 2.0, 10.0])
def test_sharpness(t):
    assert uniformity(draw(7, 3), t) == pytest.approx(slow_uniformity(draw(7, 3), t), rel=1e-12)


def test_far_too_sharp_does_not_underflow():
    assert uniformity(np.eye(3), t=1e6) == pytest.approx(-2e6, rel=1e-12)


@pytest.mark.parametrize("block", [1, 2, 3, 7, 8])
def test_blocks_give_the_same_value(monkeypatch, block):
    expected = slow_uniformity(draw(7, 3))
    monkeypatch.setattr(module, "_BLOCK", block)
    assert uniformity(draw(7, 3)) == pytest.approx(expected, rel=1e-13)


def test_no_n_by_n_matrix_in_memory():
    """n² float64 would be 128 MB."""
    Z = draw(4000, 3)
    tracemalloc.start()
    uniformity(Z)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64e6
