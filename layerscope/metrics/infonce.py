"""InfoNCE: how well one view of a sample picks out the other among all views of all samples."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt

from layerscope.metrics.checks import check_pair, check_positive
from layerscope.metrics.rows import RowRecipe, check_recipe, power_of_two, prepare, prepared_blocks
from layerscope.metrics.spec import Invariance, MetricSpec
from layerscope.metrics.streams import Blocks, FloatArray, check_blocks

_BLOCK = 1024
_TEMPERATURE = 0.1
_Start = Callable[[], Iterator[FloatArray]]
_INVARIANCES: frozenset[Invariance] = frozenset(
    {"orthogonal", "scale", "row_scale", "permutation", "reversal", "swap"}
)


def infonce(X: npt.ArrayLike, Y: npt.ArrayLike, temperature: float = 0.1, rows: RowRecipe = "unit") -> float:
    """Symmetric NT-Xent loss over the 2n rows of both views.

    ``mean_i ln Σ_{j≠i} exp(s_ij) - s_ip`` with ``s = z_i·z_j / τ`` and ``p`` the other view of i: one
    positive and 2n - 2 negatives a row. In blocks, by log-sum-exp.

    Args:
        X: ``(n, d)`` first views.
        Y: ``(n, d)`` second views, row i of the same sample as row i of ``X``.
        temperature: τ, above 0.
        rows: what is done to the rows of each view first.

    Returns:
        Nats in [0, ln(2n - 1) + 2/τ]; ln(2n - 1) is chance.

    Raises:
        Undefined: fewer than 2 samples, not finite, constant.

    Source: van den Oord et al. 2018; Chen et al. 2020.

    >>> two = np.eye(2)
    >>> loss = math.log(math.exp(10) + 2) - 10
    >>> math.isclose(infonce(two, two), loss, rel_tol=1e-9)
    True
    """
    X, Y = check_pair(X, Y)
    check_positive(temperature, "temperature")
    check_recipe(rows)
    first, second = (Blocks.of(prepare(views, rows), _BLOCK) for views in (X, Y))
    return _loss(lambda: iter(first), lambda: iter(second), (len(X), _BLOCK), temperature)


def infonce_of_blocks(X: Blocks, Y: Blocks) -> float:
    """``infonce`` (temperature 0.1) of two streams of rows, which are read once for each of their blocks.

    Args:
        X: n first views of width d.
        Y: n second views, row i of the same sample as row i of ``X``.

    Raises:
        Undefined: as ``infonce``.
    """
    scales = [power_of_two(check_blocks(views)) for views in (X, Y)]
    return _loss(
        lambda: prepared_blocks(X, "unit", scale=scales[0]),
        lambda: prepared_blocks(Y, "unit", scale=scales[1], block=X.block),
        (X.n, X.block),
        _TEMPERATURE,
    )


def _loss(first: _Start, second: _Start, shape: tuple[int, int], temperature: float) -> float:
    """From prepared rows, n of each view, which both yield anew in the same blocks each time."""
    n, block = shape
    count = -(-n // block)
    loss = sum(
        _losses(
            rows, (number, (number + count) % (2 * count)), itertools.chain(first(), second()), temperature
        )
        for number, rows in enumerate(itertools.chain(first(), second()))
    )
    return max(0.0, loss / (2 * n))


def _losses(
    rows: FloatArray, numbers: tuple[int, int], blocks: Iterable[FloatArray], temperature: float
) -> float:
    """The summed loss of the rows of one block; ``numbers`` are those of the block and of its partner."""
    own, partner = numbers
    largest = np.full(len(rows), -np.finfo(np.float64).max)
    total, positive = np.zeros(len(rows)), np.zeros(len(rows))
    for number, other in enumerate(blocks):
        scores = rows @ other.T
        scores /= temperature
        if number == own:
            np.fill_diagonal(scores, -np.inf)
        if number == partner:
            positive = scores.diagonal().copy()
        peak = np.maximum(largest, scores.max(axis=1))
        scores -= peak[:, None]
        total = total * np.exp(largest - peak) + np.exp(scores, out=scores).sum(axis=1)
        largest = peak
    return float((np.log(total) + largest - positive).sum())


def infonce_bound(
    X: npt.ArrayLike, Y: npt.ArrayLike, temperature: float = 0.1, rows: RowRecipe = "unit"
) -> float:
    """The lower bound on the mutual information of the views, ``ln(2n - 1) - infonce``.

    Args:
        X: ``(n, d)`` first views.
        Y: ``(n, d)`` second views, row i of the same sample as row i of ``X``.
        temperature: τ, above 0.
        rows: what is done to the rows of each view first.

    Returns:
        Nats in [-2/τ, ln(2n - 1)].

    Raises:
        Undefined: as ``infonce``.

    Source: van den Oord et al. 2018.

    >>> round(infonce_bound(np.eye(2), np.eye(2)), 3), round(math.log(3), 3)
    (1.099, 1.099)
    """
    return _bound(infonce(X, Y, temperature, rows), len(np.asarray(X)))


def infonce_bound_of_blocks(X: Blocks, Y: Blocks) -> float:
    """``infonce_bound`` (temperature 0.1) of two streams of rows.

    Args:
        X: n first views of width d.
        Y: n second views, row i of the same sample as row i of ``X``.

    Raises:
        Undefined: as ``infonce``.
    """
    return _bound(infonce_of_blocks(X, Y), X.n)


def _bound(loss: float, n: int) -> float:
    return math.log(2 * n - 1) - loss


def _loss_bounds(n: int, d: int) -> tuple[float, float]:
    return 0.0, math.log(2 * n - 1) + 20.0


def _bound_bounds(n: int, d: int) -> tuple[float, float]:
    return -20.0, math.log(2 * n - 1)


SPEC = MetricSpec(
    name="infonce",
    label="InfoNCE loss (nats)",
    function=infonce,
    kind="pair",
    direction="lower",
    variant="rows=unit;temperature=0.1;log=e",
    invariances=_INVARIANCES,
    bounds=_loss_bounds,
    minimum_n=2,
    formula="mean_i ln Σ_{j≠i} exp(s_ij) - s_ip, s = z_i·z_j / τ over the 2n unit rows",
    reads="0 when each view finds its partner without doubt, ln(2n - 1) when it only guesses.",
    source="van den Oord et al. 2018; Chen et al. 2020",
    of_blocks=infonce_of_blocks,
)
BOUND_SPEC = MetricSpec(
    name="infonce_bound",
    label="InfoNCE bound on mutual information (nats)",
    function=infonce_bound,
    kind="pair",
    direction="higher",
    variant="rows=unit;temperature=0.1;log=e",
    invariances=_INVARIANCES,
    bounds=_bound_bounds,
    minimum_n=2,
    formula="ln(2n - 1) - InfoNCE loss",
    reads="How much two views are known to share: 0 for chance, at most ln(2n - 1), so it grows with n.",
    source="van den Oord et al. 2018",
    of_blocks=infonce_bound_of_blocks,
    derived_from="infonce",
    derive=_bound,
)
