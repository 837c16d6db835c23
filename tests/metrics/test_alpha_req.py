from __future__ import annotations

import math

import numpy as np
import pytest

from layerscope.errors import UsageError
from layerscope.metrics import Undefined
from layerscope.metrics.alpha_req import alpha_req, power_law
from tests.reference.spectral_ranks import alpha_req as slow_alpha_req


def decaying(alpha, m, n, d, seed=0):
    """Rows with the eigenvalues i^-alpha, i = 1 … m."""
    rng = np.random.default_rng(seed)
    U, V = (np.linalg.qr(rng.normal(size=(size, m)))[0] for size in (n, d))
    return U * np.arange(1, m + 1) ** (-alpha / 2) @ V.T


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 2.5])
@pytest.mark.parametrize("shape", [(40, 30), (30, 30), (30, 70)])
def test_a_power_law_gives_its_exponent(alpha, shape):
    fit = power_law(decaying(alpha, 30, *shape), rows="raw")
    assert fit.alpha == pytest.approx(alpha, abs=1e-11)
    assert (fit.first, fit.last) == (11, 30)
    if alpha > 0:
        assert fit.r_squared == pytest.approx(1, abs=1e-12)


def test_a_power_law_too_steep_for_a_gram_matrix():
    """The last eigenvalue is 30^-15 = 1e-22 of the first."""
    assert alpha_req(decaying(15, 30, 40, 30), rows="raw") == pytest.approx(15, rel=1e-4)


def test_the_range_is_that_of_the_indices_counted_from_1():
    Z = np.diag(np.sqrt([100.0, 8.0, 4.0, 1.0, 0.01]))
    fit = power_law(Z, rows="raw", first=2, last=3)
    assert fit.alpha == pytest.approx(math.log(2) / math.log(3 / 2), rel=1e-12)
    assert (fit.first, fit.last) == (2, 3)


def test_the_range_ends_at_100():
    values = np.arange(1, 151.0) ** -1
    values[100:] *= 1e-4
    assert alpha_req(np.diag(np.sqrt(values)), rows="raw") == pytest.approx(1, rel=1e-10)


@pytest.mark.parametrize("first", [1, 2, 3])
@pytest.mark.parametrize("rows", ["raw", "center", "unit", "center-unit"])
def test_ranges_and_recipes_agree_with_the_slow_reference(first, rows):
    Z = np.random.default_rng(0).normal(size=(9, 7)) + 1
    expected = slow_alpha_req(Z.tolist(), rows, first, 6)
    assert alpha_req(Z, rows, first, 6) == pytest.approx(expected, rel=1e-8)


def test_r_squared_is_the_squared_correlation_of_the_logarithms():
    values = np.array([9.0, 5.0, 4.0, 1.0, 0.3])
    expected = np.corrcoef(np.log(values), np.log(np.arange(1, 6)))[0, 1] ** 2
    fit = power_law(np.diag(np.sqrt(values)), rows="raw", first=1, last=5)
    assert fit.r_squared == pytest.approx(expected, rel=1e-12)


def test_a_flat_spectrum_has_exponent_0_and_nothing_to_explain():
    fit = power_law(np.eye(20), rows="raw")
    assert fit.alpha == pytest.approx(0, abs=1e-12)
    assert math.isnan(fit.r_squared)


@pytest.mark.parametrize("shape", [(13, 40), (13, 13), (60, 12)])
def test_the_zero_eigenvalue_that_centring_leaves_is_not_fitted(shape):
    """Its round-off would enter as the logarithm of 1e-17."""
    assert power_law(np.random.default_rng(0).normal(size=shape)).last == 12


def test_too_few_directions_are_a_missing_value():
    with pytest.raises(Undefined, match="fewer than 2 eigenvalues from number 11 on"):
        alpha_req(np.random.default_rng(0).normal(size=(50, 11)))
    with pytest.raises(Undefined, match="fewer than 13 samples"):
        alpha_req(np.random.default_rng(0).normal(size=(12, 50)))


@pytest.mark.parametrize(("first", "last"), [(0, 5), (3, 3), (4, 2)])
def test_ranges_that_hold_no_line(first, last):
    with pytest.raises(UsageError, match="expected 1 <= first < last"):
        alpha_req(np.eye(5), first=first, last=last)
