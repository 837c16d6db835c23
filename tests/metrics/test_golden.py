"""Values of the authors' released functions, wherever those compute what METRICS.md defines.

Left to the `published` recipe: everything that clamps the Gram matrix, pools centred unit tokens, uses
the (d, d) side for DiME, or takes angles between states (METRICS.md, last section).
"""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path

import numpy as np
import pytest

from layerscope.metrics.curvature import curvature
from layerscope.metrics.dime import difference_of_entropies
from layerscope.metrics.infonce import infonce
from layerscope.metrics.lidar import lidar_log
from layerscope.metrics.rows import prepare
from layerscope.metrics.spectral import gram_entropy, matrix_entropy

GOLDEN = Path(__file__).parents[3] / "shared" / "golden"
pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason=f"no golden values at {GOLDEN}")

LAYERS = range(3)
ALPHAS = ["0.5", "1", "2", "5"]
ROUND_OFF = {"0.5": 1e-6}
"""The released code counts round-off eigenvalues, which weigh most at alpha 0.5."""


@functools.cache
def inputs():
    with np.load(GOLDEN / "inputs.npz") as archive:
        return dict(archive)


@functools.cache
def outputs():
    return json.loads((GOLDEN / "outputs.json").read_text())


def close(expected, alpha="1", **tolerances):
    return pytest.approx(expected, **({"rel": ROUND_OFF.get(alpha, 1e-9), "abs": 1e-12} | tolerances))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("trace", ["", "trace1|"])
@pytest.mark.parametrize("side", ["gram", "cov"])
@pytest.mark.parametrize("kind", ["raw_input", "normalized_input"])
@pytest.mark.parametrize("name", ["NgtD", "NltD", "NeqD"])
def test_matrix_entropy_unclamped(name, kind, side, trace, alpha):
    expected = outputs()[f"matrixAlphaEntropy|{name}|{kind}|{side}|{trace}clamp=False|alpha={alpha}"]
    rows = "raw" if kind == "raw_input" else "center-unit"
    for layer in LAYERS:
        Z = inputs()[f"entropy_{name}_x"][layer]
        value = matrix_entropy(Z, float(alpha), rows)
        if alpha == "2":
            value += released_offset_at_2(Z, rows, side, trace)
        assert value == close(expected[layer], alpha)


def released_offset_at_2(Z, rows, side, trace):
    """The released code takes -ln(ΣK²/m²) for an (m, m) matrix, right only where the trace is m."""
    m = len(Z) if side == "gram" else Z.shape[1]
    total = 1.0 if trace else float(np.square(prepare(Z, rows)).sum())
    return 2 * math.log(m / total)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_matrix_entropy_at_2_is_the_released_one_where_its_trace_is_right(alpha):
    expected = outputs()[f"matrixAlphaEntropy|NltD|normalized_input|gram|clamp=False|alpha={alpha}"]
    values = [matrix_entropy(Z, float(alpha), "raw") for Z in inputs()["entropy_NltD_xnorm"]]
    assert values == close(expected, alpha)


@pytest.mark.parametrize("alpha", ["0.5", "1", "5"])
@pytest.mark.parametrize("name", ["NltD", "NeqD"])
def test_normalizations_where_the_clamp_changes_nothing(name, alpha):
    """Layer 2 has a large common offset: its raw Gram matrix has no negative entry."""
    expected = outputs()[f"compute_entropy|{name}|raw_input|alpha={alpha}"]
    Z = inputs()[f"entropy_{name}_x"][2]
    assert (Z @ Z.T).min() > 0
    for ours, theirs in {"raw": "raw", "logn": "logN", "logd": "logD", "max": "maxEntropy"}.items():
        assert matrix_entropy(Z, float(alpha), "raw", ours) == close(expected[theirs][2], alpha)


@pytest.mark.parametrize("name", ["NgtD", "NltD", "NeqD"])
def test_center_unit_rows(name):
    for raw, prepared in zip(inputs()[f"entropy_{name}_x"], inputs()[f"entropy_{name}_xnorm"], strict=True):
        np.testing.assert_allclose(prepare(raw, "center-unit"), prepared, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", ["NgtD", "NltD"])
def test_center_unit_rows_of_views(name):
    for layer in LAYERS:
        for view in range(2):
            raw = inputs()[f"paired_{name}_x"][layer, :, view]
            prepared = inputs()[f"paired_{name}_xunit"][layer, :, view]
            np.testing.assert_allclose(prepare(raw, "center-unit"), prepared, rtol=0, atol=1e-13)


GRAM_SIDE = [("unit_input", alpha) for alpha in ALPHAS] + [("raw_input", a) for a in ("0.5", "1", "5")]
"""Not raw rows at alpha 2: there the released code needs a trace of n, which they do not have."""


@pytest.mark.parametrize(("kind", "alpha"), GRAM_SIDE)
@pytest.mark.parametrize("name", ["NgtD", "NltD"])
def test_difference_of_entropies_on_the_gram_side(name, kind, alpha):
    side = "gram_NxN_side(not anchor when N>D)"
    expected = outputs()[f"doe_components[doe,H,Hperm]|{name}|{kind}|alpha={alpha}|{side}"]
    views = inputs()[f"paired_{name}_{'x' if kind == 'raw_input' else 'xunit'}"]
    for layer in LAYERS:
        K_X, K_Y = (views[layer, :, view] @ views[layer, :, view].T for view in range(2))
        orders = inputs()[f"paired_{name}_perms_gram"][layer]
        doe, joint, shuffled = expected[layer]
        value = difference_of_entropies(K_X, K_Y, orders, float(alpha))
        assert value == close(doe, alpha, abs=1e-8 if alpha == "0.5" else 1e-9)
        assert gram_entropy(K_X * K_Y, float(alpha)) == close(joint, alpha)
        assert value + gram_entropy(K_X * K_Y, float(alpha)) == close(shuffled, alpha)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_compute_dime_where_n_is_below_d(alpha):
    expected = outputs()[f"compute_dime|NltD|unit_input|alpha={alpha}|manual_seed=11"]["raw"]
    for layer, views in enumerate(inputs()["paired_NltD_xunit"]):
        K_X, K_Y = (views[:, view] @ views[:, view].T for view in range(2))
        value = difference_of_entropies(K_X, K_Y, inputs()["paired_NltD_perms"][layer], float(alpha))
        assert value == close(expected[layer], alpha, abs=1e-9)


@pytest.mark.parametrize("temperature", ["0.1", "0.5"])
@pytest.mark.parametrize("kind", ["raw_input", "unit_input"])
@pytest.mark.parametrize("name", ["NgtD", "NltD"])
def test_infonce(name, kind, temperature):
    expected = outputs()[f"compute_infonce|{name}|{kind}|temperature={temperature}"]["raw"]
    views = inputs()[f"paired_{name}_{'x' if kind == 'raw_input' else 'xunit'}"]
    for layer in LAYERS:
        X, Y = views[layer, :, 0], views[layer, :, 1]
        value = infonce(X, Y, float(temperature), rows="raw")
        if expected[layer] is None:
            assert math.isfinite(value)
        else:
            assert value == pytest.approx(expected[layer], rel=1e-10, abs=1e-14)
        if kind == "unit_input":
            assert infonce(X, Y, float(temperature)) == pytest.approx(value, rel=1e-10)


@pytest.mark.parametrize("name", ["NgtD", "NltD"])
def test_lidar(name):
    reference = outputs()[f"float64_reference_lidar_raw_alpha1(not anchor)|{name}"]
    released = outputs()[f"compute_lidar|{name}|alpha=1"]["raw"]
    values = [lidar_log(V, rows="raw") for V in inputs()[f"lidar_{name}_x"]]
    assert values == pytest.approx(reference, rel=1e-9)
    assert values == pytest.approx(released, rel=1e-4)


@pytest.mark.parametrize(("kind", "array"), [("raw_input", "tokens_x"), ("normalized_input", "tokens_xnorm")])
def test_curvature(kind, array):
    expected = outputs()[f"paper_curvature_difference_vectors(not anchor)|{kind}"]
    values = [curvature(states) for states in inputs()[array]]
    assert values == pytest.approx(expected, rel=1e-10)
