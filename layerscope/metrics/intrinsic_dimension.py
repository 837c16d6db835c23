"""Intrinsic dimension: how many coordinates the samples need near one another."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from layerscope.errors import UsageError
from layerscope.metrics.checks import Array, check_rows
from layerscope.metrics.neighbours import distinct_rows, nearest_distances
from layerscope.metrics.rows import EPS
from layerscope.metrics.spec import Invariance, MetricSpec, Undefined

_NEIGHBOURS = 20
_INVARIANCES: frozenset[Invariance] = frozenset(
    {"orthogonal", "scale", "translation", "permutation", "reversal"}
)


def intrinsic_dimension_twonn(Z: npt.ArrayLike, discard: float = 0.1) -> float:
    """TwoNN: slope of ``-ln(1 - F(μ))`` against ``ln μ`` through the origin.

    ``μ = r_2 / r_1`` is the ratio of the distances to the second and the first neighbour, ``F`` its empirical
    distribution. Rows that repeat an earlier one exactly are left out; ``repeated_rows`` counts them.

    Args:
        Z: ``(n, d)``.
        discard: share of the largest ratios that is left out of the fit; the largest one always has to be.

    Returns:
        A number of dimensions above 0, not bounded by d in small samples.

    Raises:
        UsageError: a share that is not between 0 and 1.
        Undefined: fewer than 3 distinct samples, not finite, constant, fewer than 2 ratios left, or second
            neighbours no farther than first ones.

    Source: Facco et al. 2017, by scikit-dimension.

    >>> grid = np.random.default_rng(0).uniform(size=(1000, 2)) @ np.ones((2, 5))
    >>> round(intrinsic_dimension_twonn(grid))
    1
    """
    from skdim.id import TwoNN

    if not 0 < discard < 1:
        raise UsageError(f"discard: expected a share between 0 and 1, got {discard}")
    distances = nearest_distances(_distinct(Z, 3), 2)
    kept = int(len(distances) * (1 - discard))
    if kept < 2:
        raise Undefined("fewer than 2 ratios left to fit")
    ratios = np.sort(distances[:, 1] / distances[:, 0])[:kept]
    if ratios[-1] - 1 <= len(ratios) * EPS:
        raise Undefined("all neighbours are equally far")
    return float(TwoNN(discard_fraction=discard, dist=True).fit(distances).dimension_)


def intrinsic_dimension_mle(Z: npt.ArrayLike, neighbours: int = _NEIGHBOURS) -> float:
    """Levina and Bickel's maximum likelihood: ``1 / mean_i mean_{j<k} ln(r_k / r_j)``.

    ``r_j`` is the distance to the j-th neighbour and k the number of neighbours; the local estimates are
    averaged as inverses, as their joint likelihood has it (MacKay & Ghahramani 2005). Rows that repeat an
    earlier one exactly are left out; ``repeated_rows`` counts them.

    Args:
        Z: ``(n, d)``.
        neighbours: k, at least 2.

    Returns:
        A number of dimensions above 0, not bounded by d in small samples.

    Raises:
        UsageError: fewer than 2 neighbours asked for.
        Undefined: fewer than k + 1 distinct samples, not finite, constant, or all neighbours equally far.

    Source: Levina & Bickel 2004, by scikit-dimension.

    >>> line = np.random.default_rng(0).uniform(size=(500, 1)) @ np.ones((1, 5))
    >>> round(intrinsic_dimension_mle(line))
    1
    """
    from skdim.id import MLE

    if neighbours < 2:
        raise UsageError(f"neighbours: expected at least 2, got {neighbours}")
    distances = nearest_distances(_distinct(Z, neighbours + 1), neighbours)
    if (np.ptp(distances, axis=1) <= neighbours * EPS * distances[:, -1]).all():
        raise Undefined("all neighbours are equally far")
    # The estimator asks for samples even where it is given their distances, and takes no others from them.
    known = (distances, np.zeros(distances.shape, dtype=np.int64))
    with np.errstate(divide="ignore"):  # one sample with all neighbours equally far has infinite dimension
        estimate = MLE(K=1).fit(distances, precomputed_knn_arrays=known, n_neighbors=neighbours)
    return float(estimate.dimension_)


def repeated_rows(Z: npt.ArrayLike) -> int:
    """How many rows both estimators leave out because they repeat an earlier one exactly.

    Args:
        Z: ``(n, d)``.

    Raises:
        Undefined: fewer than 2 samples, not finite, constant.

    >>> repeated_rows([[1.0], [2.0], [1.0], [1.0]])
    2
    """
    array = check_rows(Z)
    return len(array) - len(distinct_rows(array))


def _note(Z: npt.ArrayLike) -> str:
    repeated = repeated_rows(Z)
    return f"repeated rows left out: {repeated}" if repeated else ""


def _distinct(Z: npt.ArrayLike, minimum: int) -> Array:
    distinct = distinct_rows(check_rows(Z, minimum=minimum))
    if len(distinct) < minimum:
        raise Undefined(f"fewer than {minimum} distinct samples")
    return distinct


def _bounds(n: int, d: int) -> tuple[float, float]:
    return 0.0, math.inf


TWONN_SPEC = MetricSpec(
    name="intrinsic_dimension_twonn",
    label="Intrinsic dimension, TwoNN (dimensions)",
    function=intrinsic_dimension_twonn,
    kind="samples",
    direction="higher",
    variant="rows=raw;discard=0.1",
    invariances=_INVARIANCES,
    bounds=_bounds,
    minimum_n=3,
    max_n=1024,
    note=_note,
    formula="slope of -ln(1 - F(μ)) against ln μ, μ = r_2 / r_1 of the two nearest distinct texts",
    reads="About how many coordinates tell a text from its nearest ones, on the finest scale.",
    source="Facco et al. 2017",
)
MLE_SPEC = MetricSpec(
    name="intrinsic_dimension_mle",
    label="Intrinsic dimension, MLE (dimensions)",
    function=intrinsic_dimension_mle,
    kind="samples",
    direction="higher",
    variant="rows=raw;neighbours=20",
    invariances=_INVARIANCES,
    bounds=_bounds,
    minimum_n=_NEIGHBOURS + 1,
    max_n=1024,
    note=_note,
    formula="1 / mean_i mean_{j<k} ln(r_k / r_j), r_j = distance to the j-th nearest distinct text, k = 20",
    reads="About how many coordinates tell a text from its 20 nearest ones.",
    source="Levina & Bickel 2004",
)
