from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import entr

from layerscope.resampling import bootstrap_means, half_samples, interval, subsample_spread

UNITS = st.lists(st.integers(0, 9), min_size=1, max_size=30).map(np.array)
NAN = float("nan")


def entropies(samples):
    """Entropy of the covariance spectrum of many samples (b, n, d) at once; (b,)."""
    centred = samples - samples.mean(axis=1, keepdims=True)
    values = np.clip(np.linalg.eigvalsh(centred.transpose(0, 2, 1) @ centred), 0, None)
    return entr(values / values.sum(axis=1, keepdims=True)).sum(axis=1)


# half_samples


@settings(deadline=None, max_examples=60)
@given(units=UNITS, seed=st.integers(0, 5))
def test_half_of_the_units_are_drawn_whole_and_once(units, seed):
    for part in half_samples(units, draws=3, seed=seed):
        assert np.all(np.diff(part) > 0)
        drawn = set(units[part])
        assert len(drawn) == len(set(units)) // 2
        assert part.tolist() == [i for i, unit in enumerate(units) if unit in drawn]


def test_every_unit_is_drawn_equally_often_and_with_every_other():
    inside = np.zeros((4000, 8))
    for row, part in zip(inside, half_samples(np.arange(8), draws=4000, seed=3), strict=True):
        row[part] = 1
    together = inside.T @ inside / len(inside)
    np.testing.assert_allclose(np.diag(together), 1 / 2, atol=0.03)
    np.testing.assert_allclose(together[~np.eye(8, dtype=bool)], (4 / 8) * (3 / 7), atol=0.03)


def test_the_seed_decides_the_draws():
    def draw(seed):
        return [part.tolist() for part in half_samples(np.arange(40), draws=5, seed=seed)]

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)
    assert len({tuple(part) for part in draw(1)}) == 5


def test_more_draws_go_on_from_the_same_ones():
    few, many = (half_samples(np.arange(20), draws, seed=0) for draws in (3, 6))
    for first, second in zip(few, many, strict=False):
        np.testing.assert_array_equal(first, second)
    assert (len(few), len(many)) == (3, 6)


# bootstrap_means


def test_each_mean_is_over_rows_drawn_with_replacement():
    values = np.random.default_rng(0).normal(size=(12, 3))
    values[[0, 3, 4], 1] = NAN
    means = bootstrap_means(values, draws=20, seed=5)
    rng = np.random.default_rng(5)
    for mean in means:
        drawn = values[rng.integers(12, size=12)]
        np.testing.assert_allclose(mean, np.nanmean(drawn, axis=0), rtol=1e-12)


def test_columns_share_their_resamples():
    column = np.random.default_rng(0).normal(size=(30, 1))
    means = bootstrap_means(np.hstack([column, column + 1]), draws=10, seed=0)
    np.testing.assert_allclose(means[:, 1] - means[:, 0], 1)
    assert np.ptp(means[:, 0]) > 0


def test_a_column_without_a_drawn_value_has_no_mean():
    values = np.array([[1.0, NAN, 5.0], [1.0, NAN, NAN]])
    means = bootstrap_means(values, draws=50, seed=0)
    assert np.all(means[:, 0] == 1)
    assert np.all(np.isnan(means[:, 1]))
    assert 0 < np.isnan(means[:, 2]).sum() < 30
    assert np.nanmin(means[:, 2]) == np.nanmax(means[:, 2]) == 5


def test_bootstrap_means_spread_like_the_standard_error():
    values = np.random.default_rng(0).normal(size=(100, 1))
    means = bootstrap_means(values, draws=2000, seed=1)
    assert np.std(means) == pytest.approx(np.std(values) / 10, rel=0.06)
    assert np.mean(means) == pytest.approx(np.mean(values), abs=0.01)


def test_arguments_of_bootstrap_means_stay_as_they_are():
    values = np.array([[1.0, NAN], [2.0, 3.0]])
    before = values.copy()
    bootstrap_means(values, draws=2, seed=0)
    np.testing.assert_array_equal(values, before)


# interval


def test_the_interval_is_reflected():
    # Draws with a long tail upwards say that the value may be far above the truth, so the tail points down.
    draws = np.array([0.0, 0.0, 0.0, 4.0])
    low, high = interval(10.0, draws, level=1.0)
    assert (low, high) == (10 - 3, 10 + 1)


def test_the_interval_follows_from_quantiles_of_the_deviations():
    draws = np.random.default_rng(0).exponential(size=200)
    low, high = interval(2.0, draws, spread=3.0, level=0.8)
    deviations = 3 * (draws - draws.mean())
    assert low == pytest.approx(2 - np.quantile(deviations, 0.9))
    assert high == pytest.approx(2 - np.quantile(deviations, 0.1))


def test_a_bias_of_all_draws_does_not_move_the_interval():
    draws = np.random.default_rng(0).normal(size=100)
    assert interval(0.5, draws) == pytest.approx(interval(0.5, draws - 7))


def test_the_default_level_is_95_percent():
    draws = np.random.default_rng(0).normal(size=50)
    assert interval(0.0, draws) == interval(0.0, draws, level=0.95)
    assert interval(0.0, draws)[0] < interval(0.0, draws, level=0.9)[0]


@pytest.mark.parametrize(
    ("value", "draws"),
    [(1.0, []), (1.0, [1.0]), (1.0, [1.0, 2.0, NAN, NAN, NAN]), (1.0, [NAN, NAN]), (NAN, [1.0, 2.0])],
)
def test_too_few_draws_or_no_value_give_no_interval(value, draws):
    assert np.isnan(interval(value, np.array(draws))).all()


def test_undefined_draws_are_left_out_up_to_a_half():
    assert interval(1.0, np.array([0.0, NAN, 2.0, NAN])) == interval(1.0, np.array([0.0, 2.0]))


# What the intervals promise


@pytest.mark.parametrize(("n", "m"), [(100, 50), (101, 50), (100, 20), (100, 80)])
def test_the_spread_of_subsamples_is_turned_into_that_of_the_sample(n, m):
    values = np.random.default_rng(0).normal(size=n)
    rng = np.random.default_rng(1)
    means = [values[rng.permutation(n)[:m]].mean() for _ in range(3000)]
    assert subsample_spread(n, m) * np.std(means) == pytest.approx(np.std(values) / np.sqrt(n), rel=0.06)


def share_covered(draw, statistic, truth, n):
    """How often the interval from half-samples holds the truth, over 200 samples."""
    covered = []
    for repetition in range(200):
        sample = draw(np.random.default_rng(repetition))
        parts = half_samples(np.arange(n), draws=100, seed=repetition)
        value = statistic(sample[None])[0]
        drawn = statistic(np.stack([sample[part] for part in parts]))
        low, high = interval(value, drawn, subsample_spread(n, n // 2))
        covered.append(low <= truth <= high)
    return np.mean(covered)


def test_intervals_of_a_mean_hold_the_truth_as_often_as_they_say():
    def means(samples):
        return samples.mean(axis=1)

    assert 0.88 < share_covered(lambda rng: rng.normal(size=60), means, 0.0, 60) < 0.99


def test_intervals_of_an_entropy_hold_the_truth_as_often_as_they_say():
    scales = np.array([1.0, 0.6, 0.3])
    truth = entr(scales**2 / np.sum(scales**2)).sum()
    share = share_covered(lambda rng: scales * rng.normal(size=(120, 3)), entropies, truth, 120)
    assert 0.88 < share < 0.99


def test_repeated_rows_lower_an_entropy_and_half_samples_are_centred_on_the_value():
    rng = np.random.default_rng(0)
    sample = rng.normal(size=(40, 60))
    value = entropies(sample[None])[0]
    repeated = entropies(sample[rng.integers(40, size=(200, 40))])
    assert np.quantile(repeated, 0.975) < value - 0.2
    drawn = entropies(np.stack([sample[part] for part in half_samples(np.arange(40), draws=200, seed=0)]))
    low, high = interval(value, drawn, subsample_spread(40, 20))
    assert low < value < high
    assert high - low < 0.2
