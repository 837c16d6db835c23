"""Where eigenvalues are computed, and that it makes no difference."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from layerscope.errors import UsageError
from layerscope.metrics import Undefined, eigen
from layerscope.metrics.eigen import decomposing_on, eigvalsh, find_device
from layerscope.metrics.spectral import decompose


def symmetric(m):
    Z = np.random.default_rng(0).normal(size=(m, m))
    return Z @ Z.T


@pytest.mark.parametrize("m", [1, 5, 300])
def test_torch_gives_what_lapack_gives(monkeypatch, m):
    monkeypatch.setattr(eigen, "_WORTH_THE_TRIP", 1)
    K = symmetric(m)
    with decomposing_on("cpu:0"):  # torch's own, on the processor
        values = eigvalsh(K)
    assert values.dtype == np.float64
    np.testing.assert_allclose(values, np.linalg.eigvalsh(K), rtol=1e-9, atol=1e-9 * np.trace(K))


def test_small_matrices_stay_where_they_are(monkeypatch):
    monkeypatch.setattr(torch.linalg, "eigvalsh", lambda _: pytest.fail("moved"))
    with decomposing_on("cpu:0"):
        assert eigvalsh(np.eye(3)).tolist() == [1, 1, 1]


def test_the_device_is_put_back(monkeypatch):
    monkeypatch.setattr(eigen, "_WORTH_THE_TRIP", 1)
    with pytest.raises(KeyError), decomposing_on("cpu:0"):
        raise KeyError
    monkeypatch.setattr(torch.linalg, "eigvalsh", lambda _: pytest.fail("still there"))
    eigvalsh(np.eye(3))


def test_no_convergence_on_the_device_falls_back_to_singular_values_and_then_to_a_reason(monkeypatch):
    def fail(*_, **__):
        raise torch.linalg.LinAlgError("no convergence")

    monkeypatch.setattr(eigen, "_WORTH_THE_TRIP", 1)
    Z = np.random.default_rng(0).normal(size=(7, 4))
    expected = decompose(Z).p
    monkeypatch.setattr(torch.linalg, "eigvalsh", fail)
    with decomposing_on("cpu:0"):
        np.testing.assert_allclose(decompose(Z).p, expected, rtol=1e-9)

        def numpy_fails(*_, **__):
            raise np.linalg.LinAlgError

        monkeypatch.setattr(np.linalg, "svd", numpy_fails)
        with pytest.raises(Undefined, match="no convergence"):
            decompose(Z)


def test_which_devices_there_are(monkeypatch):
    monkeypatch.setattr(eigen, "_cuda_devices", lambda: 0)
    assert find_device("auto") == "cpu"
    with pytest.raises(UsageError, match="--device cuda: torch sees 0 CUDA devices"):
        find_device("cuda")
    monkeypatch.setattr(eigen, "_cuda_devices", lambda: 2)
    assert [find_device(name) for name in ("auto", "cpu", "cuda", "cuda:1")] == [
        "cuda",
        "cpu",
        "cuda",
        "cuda:1",
    ]
    for name in ("cuda:2", "cuda:x", "tpu", ""):
        with pytest.raises(UsageError, match=f"--device {name}"):
            find_device(name)
