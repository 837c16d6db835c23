from __future__ import annotations

import math

import numpy as np
import pytest

from layerscope.metrics.effective_rank import effective_rank
from tests.reference.effective_rank import effective_rank as slow_effective_rank


@pytest.mark.parametrize("n", [2, 5, 12])
def test_orthonormal_rows_count_one_each(n):
    assert effective_rank(np.eye(12)[:n], rows="raw") == pytest.approx(n, rel=1e-13)


@pytest.mark.parametrize("shape", [(7, 3), (3, 90)])
@pytest.mark.parametrize("rows", ["raw", "center", "unit", "center-unit"])
def test_rows_on_one_line_count_one(shape, rows):
    rng = np.random.default_rng(1)
    Z = np.outer(rng.normal(size=shape[0]), rng.normal(size=shape[1]))
    assert effective_rank(Z, rows) == pytest.approx(1.0, abs=1e-12)


def test_shares_are_of_singular_values_not_of_their_squares():
    Z = np.diag([3.0, 1.0])
    q = [0.75, 0.25]
    assert effective_rank(Z, rows="raw") == pytest.approx(
        math.exp(-sum(x * math.log(x) for x in q)), rel=1e-13
    )


@pytest.mark.parametrize("rows", ["raw", "center", "unit", "center-unit"])
def test_recipes_agree_with_the_slow_reference(rows):
    Z = np.random.default_rng(0).normal(size=(8, 5)) + 1
    assert effective_rank(Z, rows) == pytest.approx(slow_effective_rank(Z, rows), rel=1e-8)


def test_an_exactly_dependent_column_does_not_count():
    """sqrt of a round-off eigenvalue is 1e-8: a thousand of those would show."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(400, 2)) @ rng.normal(size=(2, 300))
    values = np.linalg.svd(Z, compute_uv=False)[:2]
    q = values / values.sum()
    assert effective_rank(Z, rows="raw") == pytest.approx(math.exp(-(q * np.log(q)).sum()), rel=1e-12)
