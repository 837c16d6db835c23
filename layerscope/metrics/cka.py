"""CKA: how alike two layers see the same samples, whatever their widths and axes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from layerscope.errors import UsageError
from layerscope.metrics.checks import Array, check_layers, check_numbers, largest_entry
from layerscope.metrics.rows import EPS, binary_scale, prepared_blocks
from layerscope.metrics.spec import Invariance, MetricSpec, Undefined
from layerscope.metrics.streams import FloatArray

_FEWEST = 4
_INVARIANCES: frozenset[Invariance] = frozenset(
    {"separate_orthogonal", "scale", "translation", "permutation", "reversal", "swap"}
)


def cka_linear(X: npt.ArrayLike, Y: npt.ArrayLike) -> float:
    """``HSIC(X, Y) / √(HSIC(X, X) HSIC(Y, Y))`` with the unbiased estimator and linear kernels.

    ``HSIC = (tr K̃L̃ + 1ᵀK̃1 1ᵀL̃1 / ((n-1)(n-2)) - 2 1ᵀK̃L̃1 / (n-2)) / (n (n-3))``, ``K̃`` and ``L̃`` the
    Gram matrices ``X Xᵀ`` and ``Y Yᵀ`` with zeros on the diagonal. Computed as the product of both after
    U-centring, which is the same and cancels nothing.

    Args:
        X: ``(n, d)`` the samples at one layer.
        Y: ``(n, e)`` the same samples at another layer, of any width.

    Returns:
        In [-1, 1]; 1 for layers that differ by a rotation and a factor, about 0 for unrelated ones.

    Raises:
        UsageError: not two matrices of as many rows.
        Undefined: fewer than 4 samples, not finite, constant, or all pairs of samples equally alike.

    Source: Kornblith et al. 2019; Song et al. 2012; Nguyen et al. 2021.

    >>> square = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -2.0]])
    >>> round(cka_linear(square, 5 * square[:, ::-1]), 12)
    1.0
    """
    layers = check_layers(X, Y, minimum=_FEWEST)
    centred = np.stack([_u_centred_gram(layer, binary_scale(layer)).ravel() for layer in layers])
    value = _normalized(centred @ centred.T)[0, 1]
    if math.isnan(value):
        raise Undefined("all pairs of samples are equally alike")
    return float(value)


def cka_matrix(batches: Iterable[Sequence[npt.ArrayLike]]) -> FloatArray:
    """``cka_linear`` of all pairs of layers, each HSIC averaged over mini-batches.

    One batch of all samples gives ``cka_linear`` itself, smaller ones an estimate of it. Memory for l layers
    is O(l b² + l²). A batch of fewer than 4 rows, as the last one may be, cannot count and is left out.

    Args:
        batches: each a list of ``(b, d_l)`` arrays, one a layer, row i of all of them the same sample.

    Returns:
        ``(l, l)``, symmetric, 1 on the diagonal; NaN in the row and column of a layer that has a NaN or
        infinity, or no variance.

    Raises:
        UsageError: batches that differ in their number of layers, layers that differ in rows, or not numbers.
        Undefined: no batch of at least 4 rows.

    Source: Nguyen, Raghu & Kornblith 2021.

    >>> Z = np.random.default_rng(0).normal(size=(20, 3))
    >>> np.round(cka_matrix([[Z[:10], 2 * Z[:10]], [Z[10:], 2 * Z[10:]]]), 12)
    array([[1., 1.],
           [1., 1.]])
    """
    total: FloatArray | None = None
    scales: list[float] = []
    for batch in batches:
        layers = _check_batch(batch)
        if len(layers[0]) < _FEWEST:
            continue
        if total is None:
            total = np.zeros((len(layers), len(layers)))
            scales = [_finite_scale(layer) for layer in layers]
        elif len(layers) != len(total):
            raise UsageError(f"batches: expected {len(total)} layers in each, got {len(layers)}")
        b = len(layers[0])
        centred = np.stack([_u_centred_gram(*pair).ravel() for pair in zip(layers, scales, strict=True)])
        total += centred @ centred.T / (b * (b - 3))
    if total is None:
        raise Undefined(f"no batch of at least {_FEWEST} samples")
    return _normalized(total)


def _check_batch(batch: Sequence[npt.ArrayLike]) -> list[Array]:
    layers = [np.asarray(layer) for layer in batch]
    shapes = [layer.shape for layer in layers]
    if (
        not layers
        or any(len(shape) != 2 or 0 in shape[1:] for shape in shapes)
        or len(set(map(len, layers))) > 1
    ):
        raise UsageError(f"batch: expected matrices (b, d) of as many rows, one a layer, got shapes {shapes}")
    for number, layer in enumerate(layers):
        check_numbers(layer, f"layer {number} of the batch")
    return layers


def _finite_scale(layer: Array) -> float:
    return binary_scale(layer) if math.isfinite(largest_entry(layer)) else 1.0


def _u_centred_gram(Z: Array, scale: float) -> FloatArray:
    """``(n, n)`` with zero diagonal and row sums; all zero if only round-off is left, NaN if Z is not finite.

    The product of two of them, over ``n (n - 3)``, is the unbiased HSIC (Székely & Rizzo 2014).
    """
    n = len(Z)
    if not math.isfinite(largest_entry(Z)):
        return np.full((n, n), math.nan)
    (rows,) = prepared_blocks(Z, "center", scale=scale, block=n)
    gram = rows @ rows.T
    roundoff = n * EPS * float(np.abs(gram).max())
    np.fill_diagonal(gram, 0.0)
    sums = gram.sum(axis=1) / (n - 2)
    gram += sums.sum() / (n - 1) - sums - sums[:, None]
    np.fill_diagonal(gram, 0.0)
    return gram if float(np.abs(gram).max()) > roundoff else np.zeros((n, n))


def _normalized(hsic: FloatArray) -> FloatArray:
    """HSIC of each pair over the root of both with themselves; NaN where one of these is not positive."""
    own = np.sqrt(np.diag(hsic))
    own[~(own > 0)] = math.nan
    cka = np.clip(hsic / np.outer(own, own), -1.0, 1.0)
    np.fill_diagonal(cka, np.where(np.isnan(own), math.nan, 1.0))
    return np.asarray(cka)


def _bounds(n: int, d: int) -> tuple[float, float]:
    return -1.0, 1.0


SPEC = MetricSpec(
    name="cka_linear",
    label="Linear CKA of two layers",
    function=cka_linear,
    kind="layer_pair",
    direction="higher",
    variant="rows=center",
    invariances=_INVARIANCES,
    bounds=_bounds,
    minimum_n=_FEWEST,
    max_n=2048,
    formula="HSIC(X, Y) / √(HSIC(X, X) HSIC(Y, Y)), linear kernels, unbiased",
    reads="1 when two layers differ by a rotation and a factor only, about 0 when they are unrelated.",
    source="Kornblith et al. 2019; Nguyen et al. 2021",
)
LAST_SPEC = MetricSpec(
    name="layer_similarity_to_last",
    label="Linear CKA with the last layer",
    function=cka_linear,
    kind="layer_pair",
    direction="higher",
    variant="rows=center",
    invariances=_INVARIANCES,
    bounds=_bounds,
    minimum_n=_FEWEST,
    max_n=2048,
    formula="cka_linear of the layer and the last one",
    reads="How much of the last layer's picture of the texts is already there; 1 at the last layer itself.",
    source="Kornblith et al. 2019",
)
