from __future__ import annotations

import numpy as np
import pytest

from layerscope.errors import UsageError
from layerscope.metrics.checks import is_constant
from layerscope.metrics.rows import BLOCK, check_recipe, prepare, prepared_blocks, unit_rows
from tests.reference.rows import prepared

RECIPES = ["raw", "center", "unit", "center-unit"]


def draw(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)) + 2.0


@pytest.mark.parametrize("rows", RECIPES)
def test_recipes_do_what_the_table_says(rows):
    Z = draw(6, 4)
    np.testing.assert_allclose(prepare(Z, rows), prepared(Z, rows), rtol=0, atol=1e-14)


@pytest.mark.parametrize("rows", RECIPES)
@pytest.mark.parametrize("block", [1, 4, 6])
def test_blocks_give_the_same_rows(rows, block):
    Z = draw(6, 4)
    blocks = np.vstack(list(prepared_blocks(Z, rows, block=block)))
    np.testing.assert_allclose(blocks, prepare(Z, rows), rtol=0, atol=1e-14)


@pytest.mark.parametrize("rows", RECIPES)
def test_the_prepared_rows_are_the_callers_to_change(rows):
    Z = draw(6, 4)
    before = Z.copy()
    prepare(Z, rows)[:] = 0
    np.testing.assert_array_equal(Z, before)


def test_a_row_at_the_mean_stays_zero_and_does_not_become_a_direction_of_round_off():
    """The mean of three rows is not exact: what is left of a row at the mean is about 1e-17."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        a, b = rng.normal(size=(2, 5))
        Z = np.stack([a, b, (a + b) / 2])
        np.testing.assert_array_equal(prepare(Z, "center-unit")[2], 0.0)


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e17, 12345.678])
def test_centred_identical_rows_are_exactly_zero(value):
    Z = np.full((1000, 3), value)
    np.testing.assert_array_equal(prepare(Z, "center"), 0.0)


@pytest.mark.parametrize("rows", ["center", "center-unit"])
def test_a_large_common_offset_is_taken_off_exactly(rows):
    """The mean itself rounds to 1e-4 here; differences to the first row do not."""
    Z = np.random.default_rng(0).integers(-50, 50, size=(7, 4)).astype(float)
    np.testing.assert_allclose(prepare(Z + 2.0**40, rows), prepare(Z, rows), rtol=0, atol=1e-13)


def test_a_small_row_beside_one_of_norm_4000_keeps_its_direction():
    Z = draw(5, 8)
    Z[0] *= 4000 / np.linalg.norm(Z[0])
    np.testing.assert_allclose(prepare(Z, "center-unit"), prepared(Z, "center-unit"), rtol=0, atol=1e-12)


@pytest.mark.parametrize("magnitude", [5e-324, 1e-200, 1e200, 1.7e308])
def test_unit_rows_of_any_magnitude(magnitude):
    np.testing.assert_array_equal(unit_rows(np.array([[0.0, magnitude], [0.0, 0.0]])), [[0, 1], [0, 0]])


def test_constant_is_found_beyond_the_first_block():
    Z = np.ones((BLOCK + 3, 2), dtype=np.float32)
    assert is_constant(Z)
    Z[-1, -1] = 2
    assert not is_constant(Z)


def test_unknown_recipe():
    with pytest.raises(UsageError, match="did you mean 'center-unit'"):
        check_recipe("centerunit")
