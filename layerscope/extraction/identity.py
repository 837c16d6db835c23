"""What decides that two extractions are the same."""

from __future__ import annotations

import hashlib
from typing import Any


def tokenizer_identity(tokenizer: Any) -> str:
    """A hash of what a tokenizer does; its state from earlier calls (padding, truncation) is left out."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        content = repr(sorted(tokenizer.get_vocab().items()))
    else:
        _, _, content = backend.to_str().partition('"added_tokens"')  # after truncation and padding
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


def versions() -> dict[str, str]:
    """Versions of what computed the numbers."""
    from importlib.metadata import version

    return {name: version(name) for name in ("layerscope", "torch", "transformers", "numpy")}
