"""Inputs for any metric, what may be done to them, and how a spec is called in a test's name."""

from __future__ import annotations

import numpy as np

from layerscope.metrics import MetricSpec
from layerscope.metrics.published import PUBLISHED

SHAPES = [(9, 4), (6, 6), (5, 11)]
FEWEST_COLUMNS = {"alpha_req": 13}


def make_input(spec: MetricSpec, n: int, d: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Rows off the origin, wider in some directions than in others; views are noisy copies of them.

    Two layers differ in width. Where there are too few rows or columns for the metric, there are more.
    """
    n = n if n >= spec.minimum_n else n + spec.minimum_n
    d = max(d, FEWEST_COLUMNS.get(spec.name, d))
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(n, d)) * np.linspace(1, 3, d) + 0.5
    if spec.kind == "pair":
        return base + 0.4 * rng.normal(size=(n, d)), base + 0.4 * rng.normal(size=(n, d))
    if spec.kind == "views":
        return (base[:, None] + 0.4 * rng.normal(size=(n, 3, d)),)
    if spec.kind == "layer_pair":
        return base, np.tanh(base @ rng.normal(size=(d, d + 2))) + 0.5
    return (base,)


def orthogonal(rng, *arrays):
    Q = random_rotation(rng, arrays[0].shape[-1])
    return [array @ Q for array in arrays]


def separate_orthogonal(rng, *arrays):
    return [array @ random_rotation(rng, array.shape[-1]) for array in arrays]


def scale(rng, *arrays):
    return [array * 3.7 for array in arrays]


def row_scale(rng, *arrays):
    return [array * rng.uniform(0.2, 5, size=(*array.shape[:-1], 1)) for array in arrays]


def translation(rng, *arrays):
    shift = rng.normal(size=arrays[0].shape[-1])
    return [array + shift for array in arrays]


def separate_translation(rng, *arrays):
    return [array + rng.normal(size=array.shape[-1]) for array in arrays]


def permutation(rng, *arrays):
    order = np.roll(np.arange(len(arrays[0])), 2)
    order[:2] = order[:2][::-1]
    return [array[order] for array in arrays]


def reversal(rng, *arrays):
    return [array[::-1] for array in arrays]


def swap(rng, *arrays):
    return arrays[::-1]


def view_permutation(rng, V):
    return [np.stack([rng.permutation(sample) for sample in V])]


def random_rotation(rng, d):
    return np.linalg.qr(rng.normal(size=(d, d)))[0]


TRANSFORMATIONS = {
    "orthogonal": orthogonal,
    "scale": scale,
    "row_scale": row_scale,
    "translation": translation,
    "permutation": permutation,
    "reversal": reversal,
}
PAIR_TRANSFORMATIONS = {"separate_orthogonal": separate_orthogonal, "swap": swap}
LAYER_TRANSFORMATIONS = {
    "separate_orthogonal": separate_orthogonal,
    "scale": scale,
    "row_scale": row_scale,
    "translation": separate_translation,
    "permutation": permutation,
    "reversal": reversal,
    "swap": swap,
}


def transformations_of(spec):
    if spec.kind == "pair":
        return TRANSFORMATIONS | PAIR_TRANSFORMATIONS
    if spec.kind == "views":
        return TRANSFORMATIONS | {"view_permutation": view_permutation}
    if spec.kind == "layer_pair":
        return LAYER_TRANSFORMATIONS
    return TRANSFORMATIONS


def name_of(value):
    """Of a spec its name, with the recipe where it is not ours."""
    if not isinstance(value, MetricSpec):
        return None
    return f"published.{value.name}" if value in PUBLISHED else value.name
