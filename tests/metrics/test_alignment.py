from __future__ import annotations

import numpy as np
import pytest

from layerscope.errors import UsageError
from layerscope.metrics.alignment import alignment
from layerscope.metrics.rows import BLOCK
from tests.reference.alignment import alignment as slow_alignment


def draw(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def test_identical_views():
    assert alignment(draw(9, 4), draw(9, 4)) == 0.0


@pytest.mark.parametrize("alpha", [1.0, 2.0, 3.0])
def test_antipodal_views_are_as_far_as_can_be(alpha):
    assert alignment(draw(9, 4), -3 * draw(9, 4), alpha) == pytest.approx(2**alpha, rel=1e-14)


def test_orthogonal_views():
    assert alignment(np.eye(6)[:3], np.eye(6)[3:]) == pytest.approx(2.0, rel=1e-15)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 3.0])
def test_other_powers(alpha):
    X, Y = draw(5, 4), draw(5, 4, 1)
    assert alignment(X, Y, alpha) == pytest.approx(slow_alignment(X, Y, alpha), rel=1e-13)


def test_pairs_are_counted_over_all_blocks():
    X = np.tile(np.eye(2), (BLOCK, 1))
    Y = X.copy()
    Y[-4:] *= -1
    assert alignment(X, Y) == pytest.approx(4 * 4 / len(X), rel=1e-14)


def test_a_power_of_zero_makes_no_sense():
    with pytest.raises(UsageError, match="alpha"):
        alignment(draw(5, 4), draw(5, 4), alpha=0)
