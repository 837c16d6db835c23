from __future__ import annotations

import numpy as np
import pytest

from layerscope.metrics import neighbours as module
from layerscope.metrics.neighbours import distinct_rows, nearest_distances


def exact(Z, k):
    apart = np.linalg.norm(Z[:, None] - Z[None], axis=-1)
    return np.sort(apart, axis=1)[:, 1 : k + 1]


@pytest.mark.parametrize("entries", [1, 30, 10**7])
@pytest.mark.parametrize("d", [1, 3, 40])
def test_distances_up_to_one_factor(monkeypatch, entries, d):
    monkeypatch.setattr(module, "_ENTRIES", entries)
    Z = np.random.default_rng(0).normal(size=(30, d))
    found = nearest_distances(Z, 5)
    factor = found[0, 0] / exact(Z, 5)[0, 0]
    assert np.log2(factor) == pytest.approx(round(np.log2(factor)), abs=1e-12)
    np.testing.assert_allclose(found, factor * exact(Z, 5), rtol=1e-12)


def test_near_neighbours_far_from_the_origin_keep_their_digits():
    """By ‖x‖² + ‖y‖² - 2 x·y, a distance of 1e-9 between rows of norm 1 would be 0 or 1e-8."""
    Z = np.random.default_rng(0).normal(size=(20, 30))
    twins = np.vstack([Z, Z + 1e-9 * np.eye(30)[:20]])
    found = nearest_distances(twins, 2)
    factor = found[0, 1] / exact(Z, 1)[0, 0]
    np.testing.assert_allclose(found[:, 0], 1e-9 * factor, rtol=1e-5)


def test_distinct_rows_keep_their_order_and_their_dtype():
    Z = np.array([[3.0, 1.0], [0.0, 2.0], [3.0, 1.0], [-0.0, 2.0], [3.0, 1.5]], dtype=np.float16)
    found = distinct_rows(Z)
    assert found.tolist() == [[3.0, 1.0], [0.0, 2.0], [3.0, 1.5]]
    assert found.dtype == np.float16
