from __future__ import annotations

import math

import numpy as np
import pytest

from layerscope.errors import UsageError
from layerscope.metrics import Undefined
from layerscope.metrics.lidar import lidar, lidar_log


def draw(n, a, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 1, d)) + 0.3 * rng.normal(size=(n, a, d))


@pytest.mark.parametrize(("n", "d"), [(3, 8), (8, 8), (2, 5)])
def test_identical_views_of_orthonormal_samples_use_n_minus_1_directions(n, d):
    V = np.repeat(np.eye(d)[:n, None], 3, axis=1)
    assert lidar(V) == pytest.approx(n - 1, rel=1e-9)


@pytest.mark.parametrize("delta", [1e-4, 0.1])
def test_closed_form_in_two_dimensions(delta):
    """Means at (±2, 0) and (0, ±1), views at (±0.5, ±0.2) about each."""
    means = np.array([[2, 0], [-2, 0], [0, 1], [0, -1]], dtype=float)
    views = np.array([[0.5, 0.2], [0.5, -0.2], [-0.5, 0.2], [-0.5, -0.2]])
    values = [(4 * 2 / 4) / (0.25 + delta), (1 * 2 / 4) / (0.04 + delta)]
    p = [value / sum(values) for value in values]
    expected = -sum(share * math.log(share) for share in p)
    V = means[:, None] + views + 7.0
    assert lidar_log(V, delta, rows="raw") == pytest.approx(expected, rel=1e-12)
    assert lidar(V, delta, rows="raw") == pytest.approx(math.exp(expected), rel=1e-12)


@pytest.mark.parametrize("shape", [(9, 3, 4), (4, 3, 9), (4, 2, 40)])
def test_raw_rows_agree_with_the_matrix_written_out(shape):
    V = draw(*shape)
    means = V.mean(axis=1)
    between = np.cov(means.T, bias=True)
    within = sum(np.cov(sample.T, bias=True) for sample in V) / len(V) + 1e-4 * np.eye(shape[2])
    values = np.linalg.eigvals(np.linalg.solve(within, between)).real
    p = values[values > 1e-10 * values.max()] / values.sum()
    assert lidar_log(V, rows="raw") == pytest.approx(-(p * np.log(p)).sum(), rel=1e-8)


def test_one_direction_between_samples():
    V = np.array([[[1.0, 0.1], [1.0, -0.1]], [[3.0, 0.1], [3.0, -0.1]], [[4.0, 0.1], [4.0, -0.1]]])
    assert lidar(V, rows="raw") == pytest.approx(1.0, abs=1e-12)


def test_samples_with_the_same_views_have_nothing_between_them():
    views = draw(1, 7, 5)[0]
    rng = np.random.default_rng(0)
    for same in (np.stack([views] * 4), np.stack([rng.permutation(views) for _ in range(4)])):
        with pytest.raises(Undefined, match="zero trace"):
            lidar(same)


def test_one_view_has_no_within_class_covariance():
    with pytest.raises(Undefined, match="fewer than 2 views"):
        lidar(draw(5, 1, 3))


def test_without_delta_a_singular_covariance_is_undefined():
    V = np.repeat(draw(5, 1, 3), 2, axis=1)
    with pytest.raises(Undefined, match="singular within-class covariance"):
        lidar(V, delta=0)


@pytest.mark.parametrize("delta", [-1e-4, math.nan])
def test_delta_is_checked(delta):
    with pytest.raises(UsageError, match="delta"):
        lidar(draw(5, 2, 3), delta=delta)
