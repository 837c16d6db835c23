from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from layerscope.errors import UsageError
from layerscope.metrics import Undefined
from layerscope.metrics import hubness as module
from layerscope.metrics.hubness import hubness, k_occurrence
from tests.reference.hubness import k_occurrence as slow_k_occurrence


def wheel(n):
    """A hub and n - 1 spokes at right angles to one another, each of its own length."""
    spokes = np.hstack([np.full((n - 1, 1), 9.0), np.diag(np.linspace(1, 2, n - 1))])
    return np.vstack([np.eye(1, n), spokes])


@pytest.mark.parametrize("n", [4, 9, 30])
def test_a_wheel_has_the_greatest_skewness_there_can_be(n):
    """All spokes have the hub as their neighbour; the hub has the nearest spoke: n - 1, 1 and zeros."""
    counts = np.array([n - 1, 1] + [0] * (n - 2))
    apart = counts - 1
    assert k_occurrence(wheel(n), 1).tolist() == counts.tolist()
    expected = (apart**3).mean() / (apart**2).mean() ** 1.5
    assert hubness(wheel(n), 1) == pytest.approx(expected, rel=1e-13)
    assert hubness(wheel(n), 1) < math.sqrt(n)


def test_a_ring_has_no_hubs():
    angles = np.arange(12) * 2 * math.pi / 12
    with pytest.raises(Undefined, match="equally often a neighbour"):
        hubness(np.stack([np.cos(angles), np.sin(angles)], axis=1), 2)


@pytest.mark.parametrize("block", [1, 7, 40, 10**6])
def test_blocks_give_the_same_counts(monkeypatch, block):
    Z = np.random.default_rng(0).normal(size=(40, 5)) + 0.5
    monkeypatch.setattr(module, "_ENTRIES", block * len(Z))
    assert k_occurrence(Z).tolist() == slow_k_occurrence(Z.tolist())


def test_neighbours_are_by_cosine_not_by_distance():
    Z = np.array([[1.0, 0.0], [100.0, 1.0], [1.0, 0.9], [1.0, 1.0]])
    assert k_occurrence(Z, 1).tolist() == [1, 1, 1, 1]


def test_hubs_come_with_the_dimension_where_directions_have_a_mean():
    """Those near the mean direction are near everyone; evenly spread directions have no such place."""
    rng = np.random.default_rng(0)
    few, many = rng.normal(size=(1000, 3)), rng.normal(size=(1000, 100))
    assert hubness(many + 1) > hubness(few + 1) + 1
    assert hubness(many) < 0.5


def test_no_n_by_n_matrix_in_memory(monkeypatch):
    """n² float64 would be 128 MB."""
    monkeypatch.setattr(module, "_ENTRIES", 1 << 18)
    tracemalloc.start()
    hubness(np.random.default_rng(0).normal(size=(4000, 3)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16e6


def test_no_neighbour_asked_for():
    with pytest.raises(UsageError, match="k: expected at least 1"):
        hubness(np.eye(5), 0)


def test_as_many_neighbours_as_there_are_others_tell_nothing():
    with pytest.raises(Undefined, match="fewer than 6 samples"):
        hubness(np.eye(5), 4)
