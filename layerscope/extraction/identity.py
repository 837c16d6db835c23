"""What decides that two extractions are the same."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from layerscope.cache import LayerCache
from layerscope.files import json_sha256
from layerscope.manifest import DamagedManifestError, find_manifest


def finished_cache(path: Path, request: dict[str, Any]) -> LayerCache | None:
    """The cache at ``path`` where it is complete and whole and answers this very request, else ``None``.

    Every checksum is checked, so that asking again mends what is damaged.
    """
    try:
        manifest = find_manifest(path)
    except DamagedManifestError:  # told, or replaced, by the writer
        return None
    if manifest is None or manifest["status"] != "complete":
        return None
    if manifest["request_sha256"] != json_sha256(request):
        return None
    return None if LayerCache(path, allow_partial=True).verify() else LayerCache(path)


def tokenizer_identity(tokenizer: Any) -> str:
    """A hash of what a tokenizer does; its state from earlier calls (padding, truncation) is left out."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        content = repr(sorted(tokenizer.get_vocab().items()))
    else:
        state = json.loads(backend.to_str())
        content = json.dumps(
            {key: state[key] for key in state if key not in ("padding", "truncation")}, sort_keys=True
        )
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


def versions() -> dict[str, str]:
    """Versions of what computed the numbers."""
    from importlib.metadata import version

    return {name: version(name) for name in ("layerscope", "torch", "transformers", "numpy")}
