"""The published recipe gives the numbers of the released code; every golden value is checked.

Relative tolerance 1e-6, and 1e-9 wherever the released code works in float64 throughout. Its LiDAR adds up in
float32, in an order of its own, so that only 1e-4 can be asked (the tolerance that the golden values'
README gives).
"""

from __future__ import annotations

import functools
import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from layerscope.analysis import analyze
from layerscope.errors import UsageError
from layerscope.metrics import METRICS, Undefined
from layerscope.metrics.curvature import curvature as right_curvature
from layerscope.metrics.lidar import lidar_log
from layerscope.metrics.published import PUBLISHED
from layerscope.metrics.published.curvature import curvature, mean_angle
from layerscope.metrics.published.dime import dime, dime_parts
from layerscope.metrics.published.entropy import divisor, entropy, itl_entropy, prompt_entropy
from layerscope.metrics.published.infonce import infonce
from layerscope.metrics.published.lidar import lidar, scatter
from layerscope.metrics.published.prompt_vectors import prompt_vector
from layerscope.pooling import prompt_vector as pooled_prompt_vectors
from tests.caches import make_cache
from tests.metrics.inputs import SHAPES, make_input, name_of, transformations_of

GOLDEN = Path(__file__).parents[3] / "shared" / "golden"
golden = pytest.mark.skipif(not GOLDEN.is_dir(), reason=f"no golden values at {GOLDEN}")
LAYERS = range(3)
SINGLE = 1e-4


@functools.cache
def inputs():
    with np.load(GOLDEN / "inputs.npz") as archive:
        return dict(archive)


@functools.cache
def outputs():
    return json.loads((GOLDEN / "outputs.json").read_text()) if GOLDEN.is_dir() else {}


def options_of(key):
    """``name=value`` parts of a key."""
    return dict(part.split("=") for part in key.split("|") if "=" in part and "(" not in part)


def rows_of(name, kind):
    stem = "tokens_x" if name == "tokens" else f"entropy_{name}_x"
    return inputs()[stem if kind == "raw_input" else f"{stem}norm"]


def pair_of(name, kind):
    views = inputs()[f"paired_{name}_{'x' if kind == 'raw_input' else 'xunit'}"]
    return [(views[layer, :, 0], views[layer, :, 1]) for layer in LAYERS]


def alpha_entropy(key):
    _, name, kind, side, *_ = key.split("|")
    options = options_of(key)
    found = []
    for Z in rows_of(name, kind):
        K = Z @ Z.T if side == "gram" else Z.T @ Z
        K = K / np.trace(K) if "trace1" in key.split("|") else K
        found.append(
            itl_entropy(np.maximum(K, 0) if options["clamp"] == "True" else K, float(options["alpha"]))
        )
    return found


def normalized_entropy(key):
    _, name, kind, _ = key.split("|")
    alpha = float(options_of(key)["alpha"])
    return {
        normalization: [entropy(Z, alpha, normalization) for Z in rows_of(name, kind)]
        for normalization in outputs()[key]
    }


def published_dime(key):
    _, name, kind, *_ = key.split("|")
    alpha = float(options_of(key)["alpha"])
    orders = inputs()[f"paired_{name}_perms"]
    pairs = pair_of(name, kind)
    parts = [dime_parts(X, Y, order, alpha)[0] for (X, Y), order in zip(pairs, orders, strict=True)]
    return {
        normalization: [value / divisor(normalization, *pairs[0][0].shape) for value in parts]
        for normalization in outputs()[key]
    }


def parts_of_dime(key):
    _, name, kind, alpha, side = key.split("|")
    power = float(alpha.split("=")[1])
    found = []
    for layer, (X, Y) in enumerate(pair_of(name, kind)):
        if side == "anchor_side":
            found.append(dime_parts(X, Y, inputs()[f"paired_{name}_perms"][layer], power))
            continue
        K_X, K_Y = X @ X.T, Y @ Y.T
        paired = itl_entropy(K_X * K_Y, power)
        orders = inputs()[f"paired_{name}_perms_gram"][layer]
        mixed = np.mean([itl_entropy(K_X * K_Y[np.ix_(order, order)], power) for order in orders])
        found.append((mixed - paired, paired, mixed))
    return [list(parts) for parts in found]


def published_infonce(key):
    _, name, kind, _ = key.split("|")
    temperature = float(options_of(key)["temperature"])
    return {"raw": [or_none(infonce, X, Y, temperature) for X, Y in pair_of(name, kind)]}


def or_none(function, *arguments):
    try:
        return function(*arguments)
    except Undefined:
        return None


def published_lidar(key):
    name = key.split("|")[1]
    alpha = float(options_of(key)["alpha"])
    views = inputs()[f"lidar_{name}_x"]
    if "return_within_scatter" in key:
        n, _, d = views[0].shape
        values = [itl_entropy(scatter(V)[1].astype(np.float64), alpha) for V in views]
        return {norm: [value / divisor(norm, n, d) for value in values] for norm in outputs()[key]}
    return {norm: [lidar(V, alpha, norm) for V in views] for norm in outputs()[key]}


def published_curvature(key):
    _, kind, lag = key.split("|")
    Z = rows_of("tokens", kind)
    raw = [or_none(mean_angle, layer, int(lag.split("=")[1])) for layer in Z]
    width = math.log(Z.shape[2])
    return {"raw": raw, "logD": [value if value is None else value / width for value in raw]}


def prompts(layer):
    return [inputs()[f"pipe_prompt{number}"][layer] for number in range(8)]


def pipeline_sentence_entropy(key):
    alpha = float(options_of(key)["alpha"])
    most = int(options_of(key).get("max_samples", 8))
    return {
        norm: [np.mean([prompt_entropy(Z, alpha, norm) for Z in prompts(layer)[:most]]) for layer in LAYERS]
        for norm in outputs()[key]
    }


def vectors(layer):
    return np.stack([prompt_vector(Z) for Z in prompts(layer)])


def pipeline_dataset_entropy(key):
    alpha = float(options_of(key)["alpha"])
    return {norm: [entropy(vectors(layer), alpha, norm) for layer in LAYERS] for norm in outputs()[key]}


def pipeline_curvature(key):
    raw = [np.mean([curvature(Z) for Z in prompts(layer)]) for layer in LAYERS]
    width = math.log(prompts(0)[0].shape[1])
    return {"raw": raw, "logD": [value / width for value in raw]}


def pipeline_infonce(key):
    return {"raw": [infonce(vectors(layer)[0::2], vectors(layer)[1::2]) for layer in LAYERS]}


def pipeline_lidar(key):
    pairs = [np.stack([vectors(layer)[0::2], vectors(layer)[1::2]], axis=1) for layer in LAYERS]
    return {norm: [lidar(V, 1.0, norm) for V in pairs] for norm in outputs()[key]}


def pipeline_dime(key):
    """The permutations are those that torch draws from the seed, layer by layer."""
    torch.manual_seed(int(options_of(key)["manual_seed"]))
    found = []
    for layer in LAYERS:
        X, Y = vectors(layer)[0::2], vectors(layer)[1::2]
        orders = np.stack([torch.randperm(len(X)).numpy() for _ in range(10)])
        found.append(dime_parts(X, Y, orders)[0])
    return {norm: [value / divisor(norm, *X.shape) for value in found] for norm in outputs()[key]}


CHECKS = {
    "matrixAlphaEntropy": (alpha_entropy, 1e-6),
    "compute_entropy": (normalized_entropy, 1e-6),
    "compute_dime": (published_dime, 1e-6),
    "doe_components[doe,H,Hperm]": (parts_of_dime, 1e-6),
    "compute_infonce": (published_infonce, 1e-9),
    "compute_lidar": (published_lidar, SINGLE),
    "compute_curvature": (published_curvature, 1e-9),
    "pipeline_sentence_entropy": (pipeline_sentence_entropy, 1e-9),
    "pipeline_dataset_entropy": (pipeline_dataset_entropy, 1e-9),
    "pipeline_curvature": (pipeline_curvature, 1e-9),
    "pipeline_infonce": (pipeline_infonce, 1e-9),
    "pipeline_dime": (pipeline_dime, 1e-6),
    "pipeline_lidar": (pipeline_lidar, SINGLE),
    "LDA_dtype": (lambda key: str(torch.from_numpy(scatter(inputs()["lidar_NltD_x"][0])[0]).dtype), 0),
    "float64_reference_lidar_raw_alpha1(not anchor)": (
        lambda key: [lidar_log(V, rows="raw") for V in inputs()[f"lidar_{key.split('|')[1]}_x"]],
        1e-9,
    ),
    "paper_curvature_difference_vectors(not anchor)": (
        lambda key: [right_curvature(Z) for Z in rows_of("tokens", key.split("|")[1])],
        1e-9,
    ),
}


@golden
def test_every_golden_value_is_checked():
    assert {key.split("|")[0] for key in outputs()} == set(CHECKS)
    assert len(outputs()) == 259


@golden
@pytest.mark.parametrize("key", outputs())
def test_golden_value(key):
    check, tolerance = CHECKS[key.split("|")[0]]
    found, expected = check(key), outputs()[key]
    if isinstance(expected, dict):
        assert set(found) == set(expected)
        for name in expected:
            assert_close(found[name], expected[name], tolerance)
    else:
        assert_close(found, expected, tolerance)


def assert_close(found, expected, tolerance):
    if isinstance(expected, str):
        assert found == expected
        return
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        if isinstance(other, list):
            assert_close(one, other, tolerance)
        elif other is None:
            assert one is None
        else:
            assert one == pytest.approx(other, rel=tolerance, abs=1e-9)


# Beyond the golden values


def test_the_recipe_is_told_and_its_metrics_have_the_names_of_ours():
    ours = {spec.name: spec.kind for spec in METRICS}
    assert {spec.name: ours[spec.name] for spec in PUBLISHED} == {spec.name: spec.kind for spec in PUBLISHED}
    assert all(spec.variant.startswith("recipe=published;") for spec in PUBLISHED)
    assert len({spec.label for spec in PUBLISHED + METRICS}) == len(PUBLISHED + METRICS)


def test_prompt_vectors_of_a_batch_are_those_of_the_prompts_alone():
    rng = np.random.default_rng(0)
    states = torch.from_numpy(rng.normal(size=(3, 6, 4)).astype(np.float32))
    mask = torch.tensor([[True] * 6, [False, True, True, True, False, False], [True] + [False] * 5])
    states[1, 0] = torch.nan
    found = pooled_prompt_vectors(states, mask)
    for row in (0, 1):
        expected = prompt_vector(states[row][mask[row]].numpy())
        np.testing.assert_allclose(found[row].numpy(), expected, rtol=1e-6)
    assert found[2].isnan().all()


def test_the_clamp_makes_the_value_jump_where_n_passes_d():
    Z = np.random.default_rng(0).normal(size=(25, 24)) * np.geomspace(1, 0.01, 24)
    values = [entropy(Z[:n], normalization="raw") for n in (23, 24, 25)]
    right = [itl_entropy(Z[:n] @ Z[:n].T, 1.0) for n in (23, 24, 25)]
    jumps, steps = np.abs(np.diff(values)), np.abs(np.diff(right))
    assert jumps[1] > 5 * max(jumps[0], *steps)


@pytest.mark.parametrize("spec", PUBLISHED, ids=name_of)
def test_invariances_hold_for_all_shapes_and_no_others_do(spec):
    """InfoNCE gets short rows, since it overflows on long ones; LiDAR is exact to float32 only."""
    near, far = (1e-3, 3e-3) if spec.name == "lidar" else (1e-7, 1e-5)
    size = 0.05 if spec.name == "infonce" else 1.0
    for name, transform in transformations_of(spec).items():
        holds = []
        for shape in SHAPES:
            arguments = [size * array for array in make_input(spec, *shape)]
            before = spec.function(*arguments)
            after = spec.function(*transform(np.random.default_rng(1), *arguments))
            if name in spec.invariances:
                assert after == pytest.approx(before, rel=near), (name, shape)
            holds.append(after == pytest.approx(before, rel=far))
        assert name in spec.invariances or not all(holds), name


@pytest.mark.parametrize("n", [4, 6])
def test_dime_is_seeded(n):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(n, 5)), rng.normal(size=(n, 5))
    assert dime(X, Y, seed=1) == dime(X, Y, seed=1) != dime(X, Y, seed=2)


def test_unknown_normalizations_and_lags_are_refused():
    with pytest.raises(UsageError, match="no published normalization 'logd'"):
        entropy(np.eye(3), normalization="logd")
    with pytest.raises(UsageError, match="lag"):
        mean_angle(np.eye(3), lag=0)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_is_refused_by_all(bad):
    for spec in PUBLISHED:
        arguments = {
            "tokens": [np.eye(4)], "samples": [np.eye(4)], "pair": [np.eye(4), np.eye(4)],
            "views": [np.stack([np.eye(4), 2 * np.eye(4)], axis=1)],
        }[spec.kind]  # fmt: skip
        arguments[-1] = arguments[-1].copy()
        arguments[-1][(-1,) * arguments[-1].ndim] = bad
        with pytest.raises(Undefined, match="not finite"):
            spec.function(*arguments)


def test_analyze_takes_the_recipe_on_stored_prompt_vectors(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {f"prompt-vector/{name}": rng.normal(size=(30, 6)) for name in ("embed", "block.1")}
    views = {
        name: {key: rows + 0.1 * rng.normal(size=rows.shape) for key, rows in arrays.items()} for name in "ab"
    }
    cache = make_cache(tmp_path / "c", arrays, n_blocks=1, views=views)
    sets = [spec for spec in PUBLISHED if spec.kind != "tokens"]
    frame = analyze(cache, sets, pooling="prompt-vector", draws=3)
    assert frame["value"].notna().all()
    for layer, spec in itertools.product(cache.layers, sets):
        row = frame[(frame["layer_name"] == layer) & (frame["metric"] == spec.name)].iloc[0]
        assert row["variant"].startswith("recipe=published;")
    Z = cache.layer("embed", "prompt-vector").astype(np.float64)
    assert frame["value"].iloc[0] == pytest.approx(entropy(Z))
    whole = analyze(cache, recipe="published", draws=0)
    assert list(dict.fromkeys(whole["metric"])) == [spec.name for spec in PUBLISHED]
    assert whole["variant"].str.startswith("recipe=published;").all()
    one = analyze(cache, "dime", recipe="published", draws=0)
    assert one["value"].tolist() == whole.loc[whole["metric"] == "dime", "value"].tolist()
    for options, says in [
        ({"recipe": "released"}, "recipe is 'released': it must be default or published"),
        ({"recipe": "published", "metrics": "uniformity"}, "the published recipe has no metric 'uniformity'"),
        ({"recipe": "published", "pooling": "mean"}, "one pooling, prompt-vector"),
    ]:
        with pytest.raises(UsageError, match=says):
            analyze(cache, **options)
    plain = make_cache(tmp_path / "plain", {"mean/embed": np.eye(4)}, n_blocks=1)
    with pytest.raises(UsageError, match="extract with --pooling prompt-vector"):
        analyze(plain, recipe="published")


def test_token_metrics_of_the_recipe_are_never_taken_from_those_of_ours(tmp_path):
    values = {"tokens": {"prompt_entropy": {"embed": np.ones(4)}, "curvature": {"embed": np.ones(4)}}}
    cache = make_cache(tmp_path / "c", {"mean/embed": np.eye(4)}, n_blocks=1, token_metrics=values)
    tokens = [spec for spec in PUBLISHED if spec.kind == "tokens"]
    frame = analyze(cache, tokens, draws=0)
    assert frame["value"].isna().all()
    assert set(frame["reason"]) == {"not computed during extraction"}
    assert analyze(cache, ["curvature"], draws=0)["value"].tolist() == [1.0]
