"""One layer as an mteb encoder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from layerscope.errors import UsageError
from layerscope.evaluate.mteb.texts import TextStore
from layerscope.files import json_sha256
from layerscope.frames import not_finite
from layerscope.layers import Layer

if TYPE_CHECKING:
    from mteb.models import ModelMeta

_EQUAL = 1e-6  # of the largest number: rows that differ by less are one vector, rounded
_ORGANISATION = "layerscope"


class NoScoreError(Exception):
    """A layer cannot be scored on a task; the message is the reason in the frame."""


@dataclass(frozen=True)
class Setting:
    """What, besides model and task, decides a layer's scores.

    Attributes:
        layer: which.
        pooling: of its token states.
        normalize: whether vectors are scaled to unit length.
        prompts: what stands before queries (``query``), documents (``document``) and other texts (``text``).
        options: of the extraction.
    """

    layer: Layer
    pooling: str
    normalize: bool
    prompts: Mapping[str, str]
    options: Mapping[str, Any]

    @property
    def variant(self) -> str:
        """As in the scores frame: ``unit`` vectors, or ``raw`` ones."""
        return "unit" if self.normalize else "raw"

    def identity(self, model: Mapping[str, Any]) -> dict[str, Any]:
        """All that decides the vectors, as plain JSON."""
        return {
            "model": dict(model),
            "layer": self.layer.name,
            "pooling": self.pooling,
            "normalize": self.normalize,
            "prompts": dict(self.prompts),
            "options": dict(self.options),
        }


def model_meta(name: str, identity: Mapping[str, Any], setting: Setting, max_tokens: int | None) -> ModelMeta:
    """The layer as mteb's results name it: layer and pooling in the name, all else hashed in the revision."""
    from mteb.models import ModelMeta

    organisation, _, own = name.rpartition("/")
    label = f"{_plain(own)}__{setting.layer.name}__{setting.pooling}"
    digest = json_sha256(setting.identity(identity))[:12]
    return ModelMeta.create_empty(
        {
            "name": f"{_plain(organisation) or _ORGANISATION}/{label}",
            "revision": f"{setting.layer.name}-{setting.pooling}-{setting.variant}-{digest}",
            "similarity_fn_name": "cosine",
            "framework": ["PyTorch"],
            "max_tokens": max_tokens,
            "use_instructions": any(setting.prompts.values()),
            "adapted_from": name,
        }
    )


def _plain(name: str) -> str:
    """A name without what a folder's name should not hold.

    >>> _plain("t5 (decoder)")
    't5-decoder'
    """
    return re.sub(r"[^\w.-]+", "-", name).strip("-")


class LayerEncoder:
    """Looks the vectors of one layer up; mteb's encoder protocol.

    Args:
        store: where vectors come from.
        setting: which.
        meta: what results are called.
    """

    def __init__(self, store: TextStore, setting: Setting, meta: ModelMeta) -> None:
        self._store = store
        self._setting = setting
        self.mteb_model_meta = meta

    def encode(
        self, inputs: Any, *, task_metadata: Any, prompt_type: Any = None, **_: Any
    ) -> NDArray[np.float32]:
        """The vectors of all texts in ``inputs``, (n, d) float32.

        Raises:
            UsageError: the task has inputs that are no texts.
            NoScoreError: they are not finite, or one and the same for different texts.
        """
        texts: list[str] = []
        for batch in inputs:
            if "text" not in batch:
                raise UsageError(
                    f"{task_metadata.name} has inputs that are no texts ({', '.join(batch)}): "
                    "choose tasks of texts"
                )
            texts += batch["text"]
        kind = getattr(prompt_type, "value", prompt_type) or "text"
        prompt = self._setting.prompts.get(str(kind), "")
        vectors = self._store.vectors(texts, self._setting.layer.name, self._setting.pooling, prompt)
        _refuse_nothing(vectors, texts)
        return _unit(vectors) if self._setting.normalize else vectors

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Cosine of every row of one with every row of the other."""
        from mteb.similarity_functions import cos_sim

        return cos_sim(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Cosine of each row of one with the same row of the other."""
        from mteb.similarity_functions import pairwise_cos_sim

        return pairwise_cos_sim(embeddings1, embeddings2)


def _refuse_nothing(vectors: NDArray[np.float32], texts: list[str]) -> None:
    broken = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if broken.size:
        raise NoScoreError(f"{not_finite(broken.tolist())} of {len(texts)} texts")
    if len(set(texts)) > 1 and np.abs(vectors - vectors[0]).max() <= _EQUAL * np.abs(vectors).max():
        raise NoScoreError("constant: all texts have the same vector")


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows of unit length; a row of zeros stays one."""
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return np.asarray(vectors / np.where(norms > 0, norms, 1.0), dtype=np.float32)
