from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.errors import UsageError
from layerscope.metrics import Undefined
from layerscope.metrics.rows import BLOCK
from layerscope.metrics.spectral import (
    dataset_entropy,
    gram_entropy,
    matrix_entropy,
    singular_spectrum,
    spectrum,
    spectrum_entropy,
)
from tests.reference.matrix_entropy import matrix_entropy as slow_matrix_entropy

ALPHAS = [0.5, 1.0, 1.5, 2.0, 5.0]
RECIPES = ["raw", "center", "unit", "center-unit"]


def draw(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)) + 1.0


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("n", [2, 3, 17])
def test_orthonormal_rows_reach_ln_n(alpha, n):
    Q = np.linalg.qr(draw(20, 20))[0][:n]
    assert matrix_entropy(Q, alpha, rows="raw") == pytest.approx(math.log(n), abs=1e-13)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("rows", RECIPES)
@pytest.mark.parametrize("shape", [(7, 3), (4, 4), (3, 90)])
def test_rows_on_one_line_have_none(alpha, rows, shape):
    """Round-off eigenvalues that are kept would give about 1e-14, at alpha 0.5 about 1e-7."""
    rng = np.random.default_rng(1)
    Z = np.outer(rng.normal(size=shape[0]), rng.normal(size=shape[1]))
    assert 0.0 <= matrix_entropy(Z, alpha, rows) < 1e-13


@pytest.mark.parametrize("shape", [(9, 4), (6, 6), (5, 11), (2, 3)])
@pytest.mark.parametrize("rows", RECIPES)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_agrees_with_the_slow_reference(shape, rows, alpha):
    Z = draw(*shape)
    expected = slow_matrix_entropy(Z.tolist(), alpha, rows)
    assert matrix_entropy(Z, alpha, rows) == pytest.approx(
        expected, rel=1e-7 if alpha < 1 else 1e-10, abs=1e-12
    )


def test_repeated_eigenvalues():
    """Four rows, eigenvalues 2, 1, 1 of 4."""
    Z = np.diag([math.sqrt(2), 1.0, 1.0, 0.0])
    np.testing.assert_allclose(spectrum(Z, "raw"), [0.5, 0.25, 0.25, 0.0], rtol=0, atol=1e-15)
    assert matrix_entropy(Z, rows="raw") == pytest.approx(1.5 * math.log(2), abs=1e-14)


@pytest.mark.parametrize("shape", [(30, 7), (7, 7), (7, 30)])
@pytest.mark.parametrize("rows", RECIPES)
def test_closed_form_at_2_is_that_of_the_eigenvalues(shape, rows):
    Z = draw(*shape)
    expected = -math.log(np.square(spectrum(Z, rows)).sum())
    assert matrix_entropy(Z, 2, rows) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("shape", [(30, 7), (7, 30)])
def test_both_sides_have_one_spectrum(shape):
    p, q = spectrum(draw(*shape), "raw"), spectrum(draw(*shape).T, "raw")
    np.testing.assert_allclose(p, q, rtol=0, atol=1e-14)
    assert p.shape == (7,)
    assert p.sum() == pytest.approx(1, abs=1e-14)
    assert (np.diff(p) <= 0).all()


def test_one_row_of_norm_4000_takes_the_spectrum_of_raw_rows_only():
    Z = draw(50, 30)
    Z[0] *= 4000 / np.linalg.norm(Z[0])
    assert matrix_entropy(Z, rows="raw") < 0.01
    assert matrix_entropy(Z, rows="raw") == pytest.approx(
        slow_matrix_entropy(Z[:, :].tolist(), rows="raw"), rel=1e-9
    )
    assert matrix_entropy(Z, rows="unit") > 1.0


def test_below_order_1_small_singular_values_are_not_lost():
    """p = 1 and 1e-18: to a Gram matrix the second is nothing, at alpha 0.5 it weighs 1e-9."""
    Z = np.diag([1.0, 1e-9])
    assert matrix_entropy(Z, 0.5, rows="raw") == pytest.approx(2e-9, rel=1e-6, abs=0)


def test_many_rows_are_read_in_blocks():
    """One pass over more than a block, never an (n, n) matrix (700 MB here)."""
    Z = draw(BLOCK + 1200, 3).astype(np.float32)
    tracemalloc.start()
    value = dataset_entropy(Z)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4e6
    centred = Z.astype(float) - Z.astype(float).mean(axis=0)
    unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    expected = np.linalg.eigvalsh(unit.T @ unit / len(Z))
    assert value == pytest.approx(-(expected * np.log(expected)).sum(), rel=1e-12)


def test_normalizations():
    Z = draw(9, 5)
    raw = matrix_entropy(Z)
    assert matrix_entropy(Z, normalization="logn") == pytest.approx(raw / math.log(9))
    assert matrix_entropy(Z, normalization="logd") == pytest.approx(raw / math.log(5))
    assert matrix_entropy(Z, normalization="max") == pytest.approx(raw / math.log(5))
    assert matrix_entropy(Z.T, normalization="max") == pytest.approx(matrix_entropy(Z.T) / math.log(5))


def test_a_normalization_by_ln_1_is_undefined():
    with pytest.raises(Undefined, match="fewer than 2 dimensions"):
        matrix_entropy([[1.0], [2.0]], normalization="logd")


@pytest.mark.parametrize("alpha", [0.0, -1.0, math.nan, math.inf])
def test_orders_that_make_no_sense(alpha):
    with pytest.raises(UsageError, match="alpha: expected a number above 0"):
        matrix_entropy(draw(4, 3), alpha)


def test_unknown_names():
    with pytest.raises(UsageError, match="did you mean 'logn'"):
        matrix_entropy(draw(4, 3), normalization="lognlogd")
    with pytest.raises(UsageError, match="did you mean 'center'"):
        matrix_entropy(draw(4, 3), rows="centre")


def test_constant_rows_are_undefined_under_every_recipe():
    for rows in RECIPES:
        with pytest.raises(Undefined, match="constant"):
            matrix_entropy(np.full((5, 3), 0.1), rows=rows)


def test_zero_trace():
    with pytest.raises(Undefined, match="zero trace"):
        gram_entropy(np.zeros((3, 3)))


def test_falls_back_to_singular_values_when_eigenvalues_do_not_converge(monkeypatch):
    Z = draw(8, 5)
    expected = matrix_entropy(Z)
    monkeypatch.setattr(np.linalg, "eigvalsh", no_convergence)
    assert matrix_entropy(Z) == pytest.approx(expected, rel=1e-12)
    monkeypatch.setattr(np.linalg, "svd", no_convergence)
    with pytest.raises(Undefined, match="no convergence"):
        matrix_entropy(Z)
    with pytest.raises(Undefined, match="no convergence"):
        gram_entropy(Z.T @ Z)


def no_convergence(*args, **kwargs):
    raise np.linalg.LinAlgError("did not converge")


@pytest.mark.parametrize("shape", [(2000, 3), (3, 50)])
def test_singular_values_far_below_the_largest_are_kept(shape):
    """Through a Gram matrix, 1e-10 would drown in round-off of 1e-8."""
    rng = np.random.default_rng(0)
    U, V = (np.linalg.qr(rng.normal(size=(size, 3)))[0] for size in shape)
    Z = U @ np.diag([1.0, 1e-5, 1e-10]) @ V.T
    np.testing.assert_allclose(
        singular_spectrum(Z, "raw"), np.array([1, 1e-5, 1e-10]) / 1.0000100001, rtol=1e-4
    )


def test_singular_values_of_more_than_one_block():
    Z = draw(2 * BLOCK + 5, 3)
    expected = np.linalg.svd(Z - Z.mean(axis=0), compute_uv=False)
    np.testing.assert_allclose(singular_spectrum(Z, "center"), expected / expected.sum(), rtol=1e-12)


shares = st.lists(st.floats(0, 1), min_size=1, max_size=12).filter(lambda p: sum(p) > 1e-3)


@settings(max_examples=60, deadline=None)
@given(shares, st.floats(0.05, 20))
def test_entropy_falls_with_its_order_and_stays_within_bounds(values, alpha):
    p = np.array(values) / sum(values)
    lower, higher = spectrum_entropy(p, alpha), spectrum_entropy(p, alpha + 0.5)
    assert -1e-12 <= higher <= lower + 1e-9
    assert lower <= math.log(len(p)) + 1e-9


@settings(max_examples=40, deadline=None)
@given(shares, st.sampled_from([1e-5, 1e-9, 1e-13]))
def test_entropy_is_continuous_at_order_1(values, step):
    """ln(Σ p^α) / (1 - α) as it stands loses a digit for every digit of α - 1."""
    p = np.array(values) / sum(values)
    for alpha in (1 - step, 1 + step):
        assert spectrum_entropy(p, alpha) == pytest.approx(spectrum_entropy(p, 1), abs=1e3 * step + 1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 12), st.integers(1, 12), st.integers(0, 10**6))
def test_repeating_every_row_changes_nothing(n, d, seed):
    """Hence the bias of the naive bootstrap: a resample has the spectrum of fewer rows."""
    Z = draw(n, d, seed)
    assert matrix_entropy(np.vstack([Z, Z])) == pytest.approx(matrix_entropy(Z), abs=1e-11)
