from __future__ import annotations

import numpy as np
import pytest

from layerscope.errors import UsageError
from layerscope.metrics import get_metric
from layerscope.metrics.outlier_dimensions import outlier_variance


def with_variances(values):
    return np.vstack([np.diag(np.sqrt(values)), -np.diag(np.sqrt(values))]) + 7.0


def test_shares_of_known_variances():
    Z = with_variances([1.0, 10.0, 2.0, 4.0, 3.0])
    assert get_metric("outlier_variance_top1").function(Z) == pytest.approx(10 / 20, rel=1e-13)
    assert get_metric("outlier_variance_top3").function(Z) == pytest.approx(17 / 20, rel=1e-13)


def test_equal_variances_reach_the_lower_bounds():
    Z = with_variances(np.ones(12))
    for top in (1, 3):
        spec = get_metric(f"outlier_variance_top{top}")
        assert spec.function(Z) == pytest.approx(spec.bounds(24, 12)[0], rel=1e-13)


@pytest.mark.parametrize("top", [3, 4, 9])
def test_fewer_dimensions_than_are_asked_for_hold_everything(top):
    assert outlier_variance(with_variances([1.0, 2.0, 3.0]), top) == pytest.approx(1, rel=1e-14)


def test_a_large_mean_is_no_variance():
    """Residual streams have coordinates that are large and constant; squares about 0 would name these."""
    Z = np.random.default_rng(0).normal(size=(500, 4))
    Z[:, 2] += 1e6
    assert outlier_variance(Z) < 0.3


def test_no_dimension_asked_for():
    with pytest.raises(UsageError, match="top: expected at least 1"):
        outlier_variance(np.eye(3), 0)
