from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from layerscope.metrics.anisotropy import anisotropy
from layerscope.metrics.rows import BLOCK
from tests.reference.anisotropy import anisotropy as slow_anisotropy


@pytest.mark.parametrize("n", [2, 3, 8])
def test_a_regular_simplex_is_as_spread_out_as_can_be(n):
    assert anisotropy(np.eye(n) - 1 / n) == pytest.approx(-1 / (n - 1), rel=1e-13)


@pytest.mark.parametrize("n", [2, 3, 8])
def test_right_angles_are_0_and_one_direction_is_1(n):
    assert anisotropy(np.eye(n)) == 0
    assert anisotropy(np.outer(np.arange(1.0, n + 1), [1.0, 2.0, 3.0])) == pytest.approx(1, rel=1e-14)


def test_pairs_with_itself_do_not_count():
    """With them the mean over n² would be 0.75."""
    assert anisotropy([[1.0, 0.0], [1.0, np.sqrt(3)]]) == pytest.approx(0.5, rel=1e-14)


def test_a_cone_of_known_angle():
    """Unit vectors with a common part c have pairwise cosine c² + (1 - c²) cos of the rest, here 0."""
    Z = np.hstack([np.full((6, 1), 0.6), 0.8 * np.eye(6)])
    assert anisotropy(Z) == pytest.approx(0.36, rel=1e-14)


def test_a_zero_row_has_cosine_0():
    Z = np.vstack([np.random.default_rng(0).normal(size=(5, 3)) + 1, np.zeros(3)])
    assert anisotropy(Z) == pytest.approx(slow_anisotropy(Z.tolist()), rel=1e-13)


def test_many_rows_are_read_in_blocks():
    Z = np.random.default_rng(0).normal(size=(BLOCK + 100, 4)).astype(np.float32) + 1
    tracemalloc.start()
    value = anisotropy(Z)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4e6
    unit = Z.astype(float) / np.linalg.norm(Z.astype(float), axis=1, keepdims=True)
    assert value == pytest.approx((np.square(unit.sum(axis=0)).sum() / len(Z) - 1) / (len(Z) - 1), rel=1e-10)
