from __future__ import annotations

import math

import numpy as np
import pytest

from layerscope.errors import UsageError
from layerscope.metrics import Undefined
from layerscope.metrics.dime import difference_of_entropies, dime


def draw(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def clusters(count, size):
    return np.repeat(np.eye(count), size, axis=0)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0, 5.0])
def test_two_clusters_and_one_order_that_crosses_them(alpha):
    """Right pairs: two blocks of two, entropy ln 2. Wrong pairs: four samples apart, ln 4."""
    K = clusters(2, 2) @ clusters(2, 2).T
    kept, crossed = np.array([[1, 0, 3, 2]]), np.array([[0, 2, 1, 3]])
    assert difference_of_entropies(K, K, kept, alpha) == pytest.approx(0.0, abs=1e-14)
    assert difference_of_entropies(K, K, crossed, alpha) == pytest.approx(math.log(2), rel=1e-12)
    both = np.vstack([kept, crossed])
    assert difference_of_entropies(K, K, both, alpha) == pytest.approx(math.log(2) / 2, rel=1e-12)


def test_order_is_of_samples_on_both_axes():
    X, Y, order = draw(6, 4), draw(6, 4, 1), np.array([[2, 0, 1, 5, 3, 4]])
    K_X, K_Y, K_P = X @ X.T, Y @ Y.T, Y[order[0]] @ Y[order[0]].T
    same = np.arange(6)[None]
    expected = difference_of_entropies(K_X, K_Y, order) + difference_of_entropies(K_X, K_P, np.argsort(order))
    assert expected == pytest.approx(0.0, abs=1e-12)
    assert difference_of_entropies(K_X, K_Y, same) == pytest.approx(0.0, abs=1e-12)


def test_identical_views_share_and_independent_views_do_not():
    X, Y = draw(60, 4), draw(60, 4, 1)
    assert dime(X, X) > 0.3
    assert abs(dime(X, Y)) < 0.05
    assert dime(X, X) > dime(X, X + 0.5 * Y) > dime(X, Y)


def test_orthonormal_views_hide_the_pairing():
    """K = I / n is the same in every order."""
    assert dime(np.eye(6), np.eye(6)) == pytest.approx(0.0, abs=1e-14)


@pytest.mark.parametrize("shape", [(20, 5), (5, 20)])
def test_closed_form_at_2_is_that_of_the_eigenvalues(shape):
    X, Y = draw(*shape), draw(*shape) + 0.5 * draw(*shape, 1)
    assert dime(X, Y, alpha=2) == pytest.approx(dime(X, Y, alpha=2 + 1e-9), rel=1e-6)


def test_always_the_side_of_the_samples():
    """Features of zeros take n from above d to below d; no side of another kind may be taken there."""
    X, Y = draw(30, 3), draw(30, 3) + 0.5 * draw(30, 3, 1)
    wide = np.hstack([X, np.zeros((30, 40))])
    assert dime(wide, np.hstack([Y, np.zeros((30, 40))])) == pytest.approx(dime(X, Y), rel=1e-10)


def test_more_permutations_settle_the_value():
    X, Y = draw(12, 3), draw(12, 3) + 0.5 * draw(12, 3, 1)
    few = np.std([dime(X, Y, permutations=2, seed=seed) for seed in range(12)])
    many = np.std([dime(X, Y, permutations=40, seed=seed) for seed in range(12)])
    assert many < few / 2


def test_zero_rows_that_never_meet_have_no_trace():
    X, Y = np.diag([1.0, 0.0]), np.diag([0.0, 1.0])
    with pytest.raises(Undefined, match="zero trace"):
        dime(X, Y)


def test_no_permutations_make_no_sense():
    with pytest.raises(UsageError, match="permutations"):
        dime(draw(5, 3), draw(5, 3), permutations=0)
