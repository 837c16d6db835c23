from __future__ import annotations

import numpy as np
import pytest
from skdim.id import MLE, TwoNN

from layerscope.errors import UsageError
from layerscope.metrics import Undefined
from layerscope.metrics.intrinsic_dimension import (
    intrinsic_dimension_mle,
    intrinsic_dimension_twonn,
    repeated_rows,
)
from tests.reference.intrinsic_dimension import mle, twonn

BOTH = [intrinsic_dimension_twonn, intrinsic_dimension_mle]
both = pytest.mark.parametrize("estimate", BOTH, ids=["twonn", "mle"])


def cube(n, dimensions, d, seed=0):
    """Uniform in a cube of so many dimensions, turned into d."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0][:dimensions]
    return rng.uniform(size=(n, dimensions)) @ turn + 3.0


@both
@pytest.mark.parametrize("dimensions", [1, 2, 4])
@pytest.mark.parametrize("d", [5, 40])
def test_a_cube_has_its_own_dimension_wherever_it_lies(estimate, dimensions, d):
    assert estimate(cube(2000, dimensions, d)) == pytest.approx(dimensions, rel=0.12)


@both
def test_a_curved_sheet_has_two(estimate):
    rng = np.random.default_rng(0)
    angle, height = rng.uniform(1, 10, size=1500), rng.uniform(0, 5, size=1500)
    roll = np.stack([angle * np.cos(angle), angle * np.sin(angle), height], axis=1)
    assert estimate(roll) == pytest.approx(2, rel=0.1)


@both
def test_one_column_is_enough(estimate):
    assert estimate(cube(2000, 1, 5)[:, :1]) == pytest.approx(1, rel=0.1)


@both
@pytest.mark.parametrize("d", [3, 30])
def test_agrees_with_scikit_dimension_on_the_rows_themselves(estimate, d):
    Z = np.random.default_rng(0).normal(size=(120, d))
    expected = {intrinsic_dimension_twonn: TwoNN, intrinsic_dimension_mle: MLE}[estimate]().fit(Z).dimension_
    assert estimate(Z) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("discard", [0.01, 0.1, 0.5])
def test_share_of_ratios_discarded(discard):
    Z = np.random.default_rng(0).normal(size=(40, 4))
    expected = twonn(Z.tolist(), discard)
    assert intrinsic_dimension_twonn(Z, discard) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("neighbours", [2, 5, 39])
def test_number_of_neighbours(neighbours):
    Z = np.random.default_rng(0).normal(size=(40, 4))
    assert intrinsic_dimension_mle(Z, neighbours) == pytest.approx(mle(Z.tolist(), neighbours), rel=1e-10)


@both
def test_exact_repeats_change_nothing_and_are_counted(estimate):
    """Kept, they have a neighbour at distance 0 and no ratio."""
    Z = cube(60, 3, 5)
    repeated = np.vstack([Z, Z[:7], Z[:2]])
    assert estimate(repeated) == estimate(Z)
    assert (repeated_rows(Z), repeated_rows(repeated)) == (0, 9)


@both
def test_too_few_distinct_samples(estimate):
    with pytest.raises(Undefined, match=r"fewer than (3|21) distinct samples"):
        estimate(np.repeat(np.eye(2), 20, axis=0))


@both
def test_equal_distances_have_no_dimension(estimate):
    with pytest.raises(Undefined, match="equally far"):
        estimate(np.eye(25))


def test_one_sample_with_equal_distances_counts_as_infinitely_many_dimensions():
    """As an inverse, in the mean of inverses; no warning."""
    Z = np.vstack([np.zeros(3), np.eye(3), 5 * np.random.default_rng(0).normal(size=(9, 3)) + 20])
    value = intrinsic_dimension_mle(Z, 3)
    assert np.isfinite(value)
    assert value == pytest.approx(mle(Z.tolist(), 3), rel=1e-9)


def test_options_that_make_no_sense():
    for discard in (-0.1, 0.0, 1.0):
        with pytest.raises(UsageError, match="discard"):
            intrinsic_dimension_twonn(np.eye(5), discard)
    with pytest.raises(UsageError, match="neighbours: expected at least 2"):
        intrinsic_dimension_mle(np.eye(5), 1)


def test_everything_discarded():
    with pytest.raises(Undefined, match="fewer than 2 ratios"):
        intrinsic_dimension_twonn(np.random.default_rng(0).normal(size=(10, 2)), 0.9)
