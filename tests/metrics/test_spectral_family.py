"""All metrics that are read from one spectrum, on spectra that are known in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from layerscope.metrics import METRICS, Undefined, get_metric
from layerscope.metrics.spectral import decompose
from tests.metrics.test_common import REFERENCES, make_input

FAMILY = [spec for spec in METRICS if spec.of_spectrum is not None]
COUNTS = ["effective_rank", "entropy_rank", "stable_rank", "participation_ratio", "nesum"]
every_member = pytest.mark.parametrize("spec", FAMILY, ids=lambda spec: spec.name)
every_count = pytest.mark.parametrize("name", COUNTS)


def of(name, Z, rows="raw"):
    """The value by the function, after checking that the shared spectrum gives the same."""
    spec = get_metric(name)
    value = spec.function(Z, rows=rows)
    assert spec.of_spectrum(decompose(Z, rows)) == pytest.approx(value, rel=1e-9, abs=1e-12)
    return value


def rotated(singular_values, n, d, seed=0):
    """``(n, d)`` rows with these singular values in random directions."""
    rng = np.random.default_rng(seed)
    m = len(singular_values)
    U, V = (np.linalg.qr(rng.normal(size=(size, m)))[0] for size in (n, d))
    return U * np.asarray(singular_values) @ V.T


def closed_forms(squares):
    """What each metric is for eigenvalues ``squares``."""
    values = np.sort(np.asarray(squares, dtype=float))[::-1]
    p, q = values / values.sum(), np.sqrt(values) / np.sqrt(values).sum()
    entropy = -(p * np.log(p)).sum()
    return {
        "dataset_entropy": entropy,
        "entropy_rank": math.exp(entropy),
        "effective_rank": math.exp(-(q * np.log(q)).sum()),
        "stable_rank": values.sum() / values[0],
        "nesum": values.sum() / values[0],
        "participation_ratio": values.sum() ** 2 / np.square(values).sum(),
    }


def test_the_family_is_complete():
    assert {spec.name for spec in FAMILY} == {*COUNTS, "dataset_entropy", "alpha_req", "isoscore"}


@pytest.mark.parametrize("n", [2, 3, 17])
def test_orthonormal_rows_count_one_each(n):
    Q = rotated(np.ones(n), n, 20)
    assert of("dataset_entropy", Q) == pytest.approx(math.log(n), abs=1e-13)
    for name in COUNTS:
        assert of(name, Q) == pytest.approx(n, rel=1e-12)
    assert of("isoscore", Q) == pytest.approx((n - 1) / 19, rel=1e-11)


@pytest.mark.parametrize("shape", [(7, 3), (4, 4), (3, 90), (2, 5)])
@pytest.mark.parametrize("rows", ["raw", "center", "unit", "center-unit"])
def test_rank_one_is_one_direction(shape, rows):
    rng = np.random.default_rng(1)
    Z = np.outer(rng.normal(size=shape[0]), rng.normal(size=shape[1]))
    assert of("dataset_entropy", Z, rows) == pytest.approx(0, abs=1e-12)
    for name in COUNTS:
        assert of(name, Z, rows) == pytest.approx(1, abs=1e-12)
    assert of("isoscore", Z, rows) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("shape", [(5, 12), (5, 5), (40, 5)])
@pytest.mark.parametrize(
    "squares",
    [[5, 4, 3, 2, 1], [2, 1, 1, 1, 1], [3, 3, 1, 1, 1], [1e6, 1e3, 1, 1, 1e-2]],
    ids=["distinct", "repeated", "repeated twice", "steep"],
)
def test_any_spectrum_in_any_shape(shape, squares):
    Z = rotated(np.sqrt(squares), *shape)
    for name, expected in closed_forms(squares).items():
        assert of(name, Z) == pytest.approx(expected, rel=1e-9)
    expected = (closed_forms(squares)["participation_ratio"] - 1) / (shape[1] - 1)
    assert of("isoscore", Z) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("cosine", [0.0, 0.3, -0.6, 0.999])
def test_two_rows_have_the_eigenvalues_of_their_cosine(cosine):
    Z = np.array([[2.0, 0.0, 0.0], [3 * cosine, 3 * math.sqrt(1 - cosine**2), 0.0]])
    for name, expected in closed_forms([1 + cosine, 1 - cosine]).items():
        assert of(name, Z, "unit") == pytest.approx(expected, rel=1e-12)
        assert of(name, Z, "center") == pytest.approx(0 if name == "dataset_entropy" else 1, abs=1e-12)


def test_an_isotropic_cloud_uses_all_dimensions():
    Z = np.random.default_rng(0).normal(size=(20_000, 8))
    assert of("dataset_entropy", Z, "center-unit") == pytest.approx(math.log(8), abs=1e-3)
    for name in COUNTS:
        assert of(name, Z, "center-unit") == pytest.approx(8, rel=0.03)
    assert of("isoscore", Z, "center") > 0.99


@every_count
def test_many_dimensions_hold_few_samples_at_right_angles(name):
    assert of(name, np.random.default_rng(0).normal(size=(8, 20_000))) == pytest.approx(8, rel=0.06)


def test_half_as_many_dimensions_as_samples_follow_marchenko_and_pastur():
    d, ratio = 300, 0.5
    Z = np.random.default_rng(0).normal(size=(600, d))
    assert of("participation_ratio", Z) == pytest.approx(d / (1 + ratio), rel=0.01)
    for name in ("stable_rank", "nesum"):
        assert of(name, Z) == pytest.approx(d / (1 + math.sqrt(ratio)) ** 2, rel=0.03)


@every_member
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(16, 30), (16, 16), (30, 14)])
def test_rows_of_norm_4000_in_low_precision(spec, dtype, shape):
    """Products of such rows in their own precision would keep two or three digits."""
    Z = make_input(spec, *shape)[0]
    Z = Z * (4000 / np.linalg.norm(Z, axis=1, keepdims=True))
    Z = torch.from_numpy(Z).to(getattr(torch, dtype)).float().numpy()
    expected = REFERENCES[spec.name](Z.tolist())
    assert spec.function(Z) == pytest.approx(expected, rel=1e-8)
    assert spec.of_spectrum(decompose(Z, spec.rows)) == pytest.approx(expected, rel=1e-8)


@every_count
def test_one_row_that_dominates_counts_alone_unless_rows_are_of_unit_norm(name):
    Z = np.random.default_rng(0).normal(size=(50, 30)).astype(np.float32)
    Z[0] *= 4000 / np.linalg.norm(Z[0])
    assert of(name, Z) < (1.5 if name == "effective_rank" else 1.02)
    assert of(name, Z, "unit") > 5


@every_count
def test_one_row_that_dominates_reaches_unit_rows_through_the_mean(name):
    """It moves the mean by 80, against lengths of 5: once centred, all others point the other way."""
    Z = np.random.default_rng(0).normal(size=(50, 30)).astype(np.float32)
    Z[0] *= 4000 / np.linalg.norm(Z[0])
    limit = 4 if name == "effective_rank" else 1.1
    assert of(name, Z, "center") < limit
    assert of(name, Z, "center-unit") < limit


@every_member
def test_eigenvalues_that_do_not_converge_come_from_singular_values(spec, monkeypatch):
    (Z,) = make_input(spec, 20, 14)
    expected = spec.function(Z)
    monkeypatch.setattr(np.linalg, "eigvalsh", no_convergence)
    assert spec.function(Z) == pytest.approx(expected, rel=1e-9)
    assert spec.of_spectrum(decompose(Z, spec.rows)) == pytest.approx(expected, rel=1e-9)


@every_member
def test_nothing_that_converges_is_a_missing_value_with_a_reason(spec, monkeypatch):
    (Z,) = make_input(spec, 20, 14)
    monkeypatch.setattr(np.linalg, "eigvalsh", no_convergence)
    monkeypatch.setattr(np.linalg, "svd", no_convergence)
    with pytest.raises(Undefined, match="no convergence"):
        spec.of_spectrum(decompose(Z, spec.rows))
    if spec.name != "participation_ratio":  # the only one that needs no decomposition
        with pytest.raises(Undefined, match="no convergence"):
            spec.function(Z)


def no_convergence(*args, **kwargs):
    raise np.linalg.LinAlgError("did not converge")
