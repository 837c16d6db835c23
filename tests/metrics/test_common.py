"""Every metric of the table, through what its spec says of it."""

from __future__ import annotations

import inspect
import math
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.errors import UsageError
from layerscope.metrics import LAYER_METRICS, METRICS, Undefined, get_metric
from layerscope.metrics.published import PUBLISHED
from layerscope.metrics.spectral import decompose, spectrum_of_blocks
from layerscope.metrics.streams import Blocks
from tests.metrics.inputs import SHAPES, make_input, name_of, transformations_of
from tests.reference.alignment import alignment
from tests.reference.anisotropy import anisotropy
from tests.reference.cka import cka
from tests.reference.curvature import curvature
from tests.reference.dime import dime
from tests.reference.effective_rank import effective_rank
from tests.reference.first_token_norm_ratio import first_token_norm_ratio
from tests.reference.hubness import hubness
from tests.reference.infonce import infonce, infonce_bound
from tests.reference.intrinsic_dimension import mle, twonn
from tests.reference.lidar import lidar
from tests.reference.matrix_entropy import matrix_entropy
from tests.reference.outlier_dimensions import outlier_variance_top1, outlier_variance_top3
from tests.reference.spectral_ranks import (
    alpha_req,
    entropy_rank,
    isoscore,
    nesum,
    participation_ratio,
    stable_rank,
)
from tests.reference.uniformity import uniformity

REFERENCES = {
    "prompt_entropy": matrix_entropy,
    "dataset_entropy": matrix_entropy,
    "effective_rank": effective_rank,
    "curvature": curvature,
    "alignment": alignment,
    "uniformity": uniformity,
    "infonce": infonce,
    "infonce_bound": infonce_bound,
    "lidar": lidar,
    "dime": dime,
    "entropy_rank": entropy_rank,
    "stable_rank": stable_rank,
    "participation_ratio": participation_ratio,
    "alpha_req": alpha_req,
    "nesum": nesum,
    "anisotropy": anisotropy,
    "isoscore": isoscore,
    "intrinsic_dimension_twonn": twonn,
    "intrinsic_dimension_mle": mle,
    "outlier_variance_top1": outlier_variance_top1,
    "outlier_variance_top3": outlier_variance_top3,
    "first_token_norm_ratio": first_token_norm_ratio,
    "hubness": hubness,
    "cka_linear": cka,
    "layer_similarity_to_last": cka,
}
OURS = METRICS + LAYER_METRICS
ALL = OURS + PUBLISHED
our_metric = pytest.mark.parametrize("spec", OURS, ids=name_of)
every_metric = pytest.mark.parametrize("spec", ALL, ids=name_of)


def test_no_metric_was_forgotten():
    assert set(REFERENCES) == {spec.name for spec in OURS}
    assert len(REFERENCES) == len(OURS)
    assert len({spec.label for spec in ALL}) == len(ALL)


def test_only_metrics_of_one_layer_are_measured_layer_by_layer():
    """A driver that gives views of one layer to a metric of two layers would mislabel the number."""
    assert {spec.kind for spec in LAYER_METRICS} == {"layer_pair"}
    assert "layer_pair" not in {spec.kind for spec in METRICS}


@our_metric
@pytest.mark.parametrize("shape", SHAPES)
def test_agrees_with_the_slow_reference(spec, shape):
    arguments = make_input(spec, *shape)
    expected = REFERENCES[spec.name](*(array.tolist() for array in arguments))
    assert spec.function(*arguments) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("spec", "name"), [(spec, name) for spec in OURS for name in transformations_of(spec)], ids=name_of
)
@pytest.mark.parametrize("shape", SHAPES)
def test_invariances_hold_and_no_others(spec, name, shape):
    arguments = make_input(spec, *shape)
    before = spec.function(*arguments)
    after = spec.function(*transformations_of(spec)[name](np.random.default_rng(1), *arguments))
    if name in spec.invariances:
        assert after == pytest.approx(before, rel=1e-9, abs=1e-11)
    else:
        assert after != pytest.approx(before, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize(
    ("spec", "name"), [(spec, name) for spec in OURS for name in sorted(spec.invariances)], ids=name_of
)
@settings(max_examples=20, deadline=None)
@given(n=st.integers(4, 16), d=st.integers(3, 16), seed=st.integers(0, 2**32 - 1))
def test_declared_invariances_hold_whatever_the_rows(spec, name, n, d, seed):
    arguments = make_input(spec, n, d, seed)
    before = spec.function(*arguments)
    after = spec.function(*transformations_of(spec)[name](np.random.default_rng(seed), *arguments))
    assert after == pytest.approx(before, rel=1e-7, abs=1e-9)


@our_metric
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_norms_of_4000_and_one_row_that_dominates(spec, shape, dtype):
    """What real decoders produce in the middle; the reference works on the very same numbers."""
    arguments = [4000 * array / np.linalg.norm(array[-1]) for array in make_input(spec, *shape)]
    for array in arguments:
        array[0] *= 300
    stored = [torch.from_numpy(array).to(dtype) for array in arguments]
    wide = [array.double().numpy() for array in stored]
    expected = REFERENCES[spec.name](*(array.tolist() for array in wide))
    assert spec.function(*(array.float().numpy() for array in stored)) == pytest.approx(expected, rel=1e-7)
    if spec.batch is not None:
        value = spec.batch(stored[0][None], torch.ones(1, len(wide[0]), dtype=torch.bool)).item()
        assert value == pytest.approx(expected, rel=1e-7)


@every_metric
def test_declares_only_invariances_that_are_tested(spec):
    assert spec.invariances <= set(transformations_of(spec))


@our_metric
@pytest.mark.parametrize("shape", [*SHAPES, (3, 2), (40, 3), (3, 40)])
@pytest.mark.parametrize("noise", [1e-12, 1e-3, 1.0])
def test_stays_within_bounds(spec, shape, noise):
    arguments = make_input(spec, *shape)
    low, high = spec.bounds(len(arguments[0]), arguments[0].shape[-1])
    value = spec.function(*(1 + noise * array for array in arguments))
    assert low - 1e-9 <= value <= high + 1e-9


@our_metric
@pytest.mark.parametrize("shape", [*SHAPES, (3, 2), (40, 3), (3, 40)])
@pytest.mark.parametrize("noise", [1e-9, 1.0])
def test_the_shared_spectrum_gives_the_same_value(spec, shape, noise):
    assert (spec.of_spectrum is None) == (spec.rows is None)
    if spec.of_spectrum is not None:
        (Z,) = make_input(spec, *shape)
        Z = Z @ np.diag(np.geomspace(1, noise, Z.shape[1]))
        assert spec.of_spectrum(decompose(Z, spec.rows)) == pytest.approx(spec.function(Z), rel=1e-9)


NEEDS_ALL_ROWS = {"dime", "hubness", "intrinsic_dimension_twonn", "intrinsic_dimension_mle"}
STREAMED = [spec for spec in METRICS if spec.kind != "tokens" and spec.name not in NEEDS_ALL_ROWS]
streamed = pytest.mark.parametrize("spec", STREAMED, ids=lambda spec: spec.name)


def of_blocks(spec, *streams):
    """The metric of streams of rows, as the driver takes it."""
    if spec.of_spectrum is not None:
        return spec.of_spectrum(spectrum_of_blocks(*streams, spec.rows))
    return spec.of_blocks(*streams)


def test_what_cannot_be_streamed_takes_a_subsample_that_is_told():
    for spec in METRICS:
        can = spec.of_blocks is not None or spec.of_spectrum is not None
        assert can == (spec in STREAMED)
        assert (spec.max_n is not None) == (spec.name in NEEDS_ALL_ROWS)


@streamed
@pytest.mark.parametrize("shape", [*SHAPES, (40, 3), (2, 3)])
@pytest.mark.parametrize("block", [1, 3, 100])
@pytest.mark.parametrize("factor", [1.0, 1e-200, 1e200])
def test_chunked_equals_one_shot(spec, shape, block, factor):
    arguments = [array * factor for array in make_input(spec, *shape)]
    value = of_blocks(spec, *(Blocks.of(array, block) for array in arguments))
    assert value == pytest.approx(spec.function(*arguments), rel=1e-9, abs=1e-12)


@streamed
@pytest.mark.parametrize("reason", ["not finite", "constant", "fewer than 2 samples"])
def test_streams_are_undefined_for_the_same_reasons(spec, reason):
    arguments = make_input(spec, 7, 4)
    if reason == "not finite":
        arguments[-1][(-1,) * arguments[-1].ndim] = math.nan
    elif reason == "constant":
        arguments = [np.full_like(array, 0.1) for array in arguments]
    else:
        arguments = [array[:1] for array in arguments]
    for blocks in (2, 100):
        with pytest.raises(Undefined, match=reason):
            of_blocks(spec, *(Blocks.of(array, blocks) for array in arguments))


@streamed
def test_streams_need_little_memory(spec):
    """Rows are made anew in every reading; what is held is a few blocks, or a square of them."""
    is_square = spec.name in {"uniformity", "infonce", "infonce_bound"}
    n, d, block = (4000, 8, 200) if is_square else (100_000, 16, 1000)
    shape = {"views": (3, d)}.get(spec.kind, (d,))

    def start():
        rng = np.random.default_rng(0)
        for _ in range(n // block):
            yield rng.normal(size=(block, *shape))

    count = 2 if spec.kind == "pair" else 1
    streams = [Blocks(start, n, d, block=block) for _ in range(count)]
    tracemalloc.start()
    of_blocks(spec, *streams)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    whole = 8 * n * n if is_square else 8 * n * math.prod(shape)
    assert peak < whole / 8


@our_metric
def test_a_derived_metric_follows_from_the_other(spec):
    assert (spec.derived_from is None) == (spec.derive is None)
    if spec.derived_from is not None:
        base = get_metric(spec.derived_from)
        arguments = make_input(spec, 7, 5)
        assert spec.derive(base.function(*arguments), 7) == spec.function(*arguments)


@every_metric
def test_minimum_n(spec):
    value = spec.function(*make_input(spec, spec.minimum_n, 5))
    assert math.isfinite(value)
    for fewer in range(spec.minimum_n):
        with pytest.raises(Undefined, match=f"fewer than {spec.minimum_n} "):
            spec.function(*(array[:fewer] for array in make_input(spec, 5, 5)))


@every_metric
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_value_that_is_not_finite_is_refused_in_every_argument(spec, bad, dtype):
    arguments = make_input(spec, 6, 5)
    for k in range(len(arguments)):
        broken = [array.astype(dtype) for array in arguments]
        broken[k][(-1,) * broken[k].ndim] = bad
        with pytest.raises(Undefined, match="not finite"):
            spec.function(*broken)


@every_metric
@pytest.mark.parametrize("value", [0.0, 0.1, 1e30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_identical_rows_are_constant(spec, value, dtype):
    arguments = [np.full_like(array, value, dtype=dtype) for array in make_input(spec, 7, 5)]
    with pytest.raises(Undefined, match="constant"):
        spec.function(*arguments)


@every_metric
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_upcasts_before_the_first_product(spec, dtype):
    narrow = [array.astype(dtype) for array in make_input(spec, 8, 5)]
    wide = [array.astype(np.float64) for array in narrow]
    assert spec.function(*narrow) == spec.function(*wide)


@every_metric
def test_takes_read_only_arguments_and_leaves_them_alone(spec):
    arguments = make_input(spec, 8, 5)
    copies = [array.copy() for array in arguments]
    for array in arguments:
        array.setflags(write=False)
    value = spec.function(*arguments)
    for array, copy in zip(arguments, copies, strict=True):
        np.testing.assert_array_equal(array, copy)
    writable = spec.function(*copies)
    for array, copy in zip(arguments, copies, strict=True):
        np.testing.assert_array_equal(array, copy)
    assert value == writable


@every_metric
def test_memory_layout_does_not_matter(spec):
    arguments = make_input(spec, 8, 5)
    spread = [np.repeat(np.asfortranarray(array), 2, axis=-1)[..., ::2] for array in arguments]
    assert spec.function(*spread) == pytest.approx(spec.function(*arguments), rel=1e-12)


@our_metric
@pytest.mark.parametrize("factor", [1e-300, 1e-160, 1e160, 1e300])
def test_magnitude_of_the_input_does_not_overflow(spec, factor):
    arguments = make_input(spec, 6, 5)
    value = spec.function(*(array * factor for array in arguments))
    assert value == pytest.approx(spec.function(*arguments), rel=1e-9)


@every_metric
def test_wrong_shapes_and_types_are_a_usage_error(spec):
    arguments = make_input(spec, 6, 5)
    with pytest.raises(UsageError, match="expected"):
        spec.function(*(array[0, ..., 0] for array in arguments))
    with pytest.raises(UsageError, match="expected"):
        spec.function(*(array[..., :0] for array in arguments))
    with pytest.raises(UsageError, match="expected real numbers"):
        spec.function(*(array.astype(complex) for array in arguments))


@every_metric
def test_pairs_must_fit(spec):
    if spec.kind in ("pair", "layer_pair"):
        X, Y = make_input(spec, 6, 5)
        with pytest.raises(UsageError, match=rf"\(6, 5\) and \(5, {Y.shape[1]}\)"):
            spec.function(X, Y[:5])


@every_metric
def test_variant_tells_the_defaults_of_the_function(spec):
    """An option whose default was changed in one of the two places only would be mislabelled in results."""
    parameters = inspect.signature(spec.function).parameters
    told = dict(part.split("=") for part in spec.variant.split(";"))
    defaults = {name: p.default for name, p in parameters.items() if p.default is not inspect.Parameter.empty}
    for name, default in defaults.items():
        if name == "normalization" and spec in OURS:
            assert default == "raw"
        else:
            assert told[name] == default or float(told[name]) == default
    assert set(told) - set(defaults) <= {"log", "recipe", "rows", "steps", "texts"}


@every_metric
def test_seeded_tells_whether_there_is_a_seed(spec):
    assert spec.seeded == ("seed" in inspect.signature(spec.function).parameters)
    if spec.seeded:
        arguments = make_input(spec, 8, 5)
        assert spec.function(*arguments, seed=3) == spec.function(*arguments, seed=3)
        assert spec.function(*arguments, seed=3) != spec.function(*arguments, seed=4)


@every_metric
def test_token_metrics_come_with_a_batch_function_of_the_same_value(spec):
    assert (spec.batch is not None) == (spec.kind == "tokens")
    if spec.batch is not None:
        (states,) = make_input(spec, 9, 4)
        value = spec.batch(torch.from_numpy(states)[None], torch.ones(1, 9, dtype=torch.bool))
        assert value.dtype == torch.float64
        assert value.item() == pytest.approx(spec.function(states), abs=1e-12)


@every_metric
def test_texts_of_a_spec_fit_a_table(spec):
    for text in (spec.label, spec.variant, spec.formula, spec.reads, spec.source):
        assert text
        assert "\n" not in text
    assert spec.reads.endswith(".")
    if spec in METRICS:
        assert get_metric(spec.name) is spec


def test_unknown_names_get_the_nearest_one():
    with pytest.raises(UsageError, match="did you mean 'curvature'"):
        get_metric("curvture")


def test_importing_the_metrics_imports_neither_torch_nor_scikit_dimension():
    code = "import sys, layerscope.metrics; sys.exit(not {'torch', 'skdim'}.isdisjoint(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
