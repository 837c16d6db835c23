from __future__ import annotations

import numpy as np
import pytest

from layerscope.metrics import Undefined
from layerscope.metrics.isoscore import isoscore
from layerscope.metrics.participation_ratio import participation_ratio
from tests.reference.spectral_ranks import isoscore as slow_isoscore


def cross(lengths):
    """Two opposite points on each axis."""
    return np.vstack([np.diag(lengths), -np.diag(lengths)]).astype(float)


@pytest.mark.parametrize("d", [2, 5, 30])
def test_equal_variances_score_1_and_a_line_0(d):
    assert isoscore(cross(np.ones(d))) == pytest.approx(1, rel=1e-12)
    assert isoscore(cross(np.eye(d)[0])) == 0


@pytest.mark.parametrize("k", [2, 3, 7])
def test_k_of_d_dimensions_used_alike(k):
    """The paper's example: the score is the share of dimensions used, counted beyond the first."""
    assert isoscore(cross([1.0] * k + [0.0] * (8 - k))) == pytest.approx((k - 1) / 7, rel=1e-12)


@pytest.mark.parametrize("shape", [(9, 4), (6, 6), (5, 11)])
def test_the_published_steps_and_the_participation_ratio_agree(shape):
    Z = np.random.default_rng(0).normal(size=shape) * np.linspace(1, 9, shape[1]) + 5
    expected = (participation_ratio(Z, "center") - 1) / (shape[1] - 1)
    assert slow_isoscore(Z.tolist()) == pytest.approx(expected, rel=1e-10)
    assert isoscore(Z) == pytest.approx(expected, rel=1e-12)


def test_rows_keep_their_lengths():
    """Unit rows would make both axes of this cross alike."""
    assert isoscore(cross([3.0, 1.0])) == pytest.approx(100 / 82 - 1, rel=1e-12)


def test_one_dimension_is_neither_even_nor_uneven():
    with pytest.raises(Undefined, match="fewer than 2 dimensions"):
        isoscore([[1.0], [2.0]])
