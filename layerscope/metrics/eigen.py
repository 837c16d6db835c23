"""Where eigenvalues are computed: with LAPACK on the processor, or in float64 on a GPU."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from layerscope.errors import UsageError
from layerscope.metrics.streams import FloatArray

_WORTH_THE_TRIP = 256  # rows below which moving a matrix to a GPU costs more than it gains
_device: ContextVar[str] = ContextVar("device", default="cpu")


def eigvalsh(K: FloatArray) -> FloatArray:
    """Eigenvalues of a symmetric matrix on the device of ``decomposing_on``.

    Args:
        K: ``(m, m)`` float64.

    Returns:
        ``(m,)`` float64, ascending.

    Raises:
        numpy.linalg.LinAlgError: no convergence.

    >>> eigvalsh(np.diag([2.0, 1.0]))
    array([1., 2.])
    """
    device = _device.get()
    if device == "cpu" or len(K) < _WORTH_THE_TRIP:
        return np.asarray(np.linalg.eigvalsh(K))
    import torch
    from torch.linalg import LinAlgError  # type: ignore[attr-defined]

    try:
        values = torch.linalg.eigvalsh(torch.from_numpy(np.ascontiguousarray(K)).to(device))
    except LinAlgError as error:
        raise np.linalg.LinAlgError(str(error)) from error
    return np.asarray(values.cpu().numpy())


@contextmanager
def decomposing_on(device: str) -> Iterator[None]:
    """Compute eigenvalues on this device inside the block.

    Args:
        device: ``cpu``, or what torch calls a device that has float64, such as ``cuda``.
    """
    token = _device.set(device)
    try:
        yield
    finally:
        _device.reset(token)


def find_device(wanted: str = "auto") -> str:
    """The device to decompose on.

    Args:
        wanted: ``auto`` (a CUDA GPU where there is one), ``cpu``, or ``cuda`` with or without a number.

    Raises:
        UsageError: another name, or a GPU that is not there.

    >>> find_device("cpu")
    'cpu'
    """
    if wanted == "cpu":
        return wanted
    kind, _, number = wanted.partition(":")
    if wanted != "auto" and not (kind == "cuda" and (number.isdigit() or wanted == "cuda")):
        raise UsageError(f"--device {wanted}: choose auto, cpu or cuda (or cuda:0, cuda:1, …)")
    found = _cuda_devices()
    if wanted == "auto":
        return "cuda" if found else "cpu"
    if int(number or 0) >= found:
        raise UsageError(f"--device {wanted}: torch sees {found} CUDA devices here; choose auto or cpu")
    return wanted


def _cuda_devices() -> int:
    """How many GPUs torch can use; where there is no driver, torch is not even imported."""
    if shutil.which("nvidia-smi") is None:
        return 0
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0
