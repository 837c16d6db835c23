"""Modules for sentence-transformers folders, where its own cannot do what a layer or a mix of layers needs.

A folder that names one of them loads with ``SentenceTransformer(folder, trust_remote_code=True)`` where
layerscope is installed: sentence-transformers asks for that consent before it imports any other package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import torch
from sentence_transformers.sentence_transformer.modules import Module, Transformer
from torch import Tensor

from layerscope.backbone import Backbone
from layerscope.errors import UsageError
from layerscope.layer_pooling import LatentAttention, make_layer_pooling
from layerscope.layers import make_layer
from layerscope.pooling import TokenMasks, pool

Attention = Literal["own", "bidirectional"]


class LayerStates(Transformer):
    """A transformer that gives the states of chosen layers, raw blocks of pre-norm decoders among them.

    Args:
        model_name_or_path: as for ``Transformer``.
        layers: names of the layers, in order of computation; the forward pass stops after the last.
        blocks: module path of the block list.
        final_norm: module path of the final norm, ``none`` where there is none.
        attention: ``own``: the model's; ``bidirectional``: every token sees every other, in a decoder too.
        options: of ``Transformer``.

    Adds ``layer_states``, a tuple of (b, t, width) a layer, to the features; ``token_embeddings``: the last.
    """

    config_keys = [*Transformer.config_keys, "layers", "blocks", "final_norm", "attention"]  # noqa: RUF012

    def __init__(
        self,
        model_name_or_path: str,
        *,
        layers: Sequence[str],
        blocks: str,
        final_norm: str = "none",
        attention: Attention = "own",
        **options: Any,
    ) -> None:
        super().__init__(model_name_or_path, **options)
        self.layers = list(layers)
        self.blocks = blocks
        self.final_norm = final_norm
        self.attention = attention
        self._backbone: Backbone | None = None

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Run the model and add its states."""
        if self._backbone is None:
            self._backbone = Backbone(self.model, blocks=self.blocks, final_norm=self.final_norm)
        n_blocks = self._backbone.structure.n_blocks
        mask = features["attention_mask"]
        arguments: dict[str, Any] = {"input_ids": features["input_ids"], "attention_mask": mask}
        if self.attention == "bidirectional":
            arguments["attention_mask"] = everyone_sees_everyone(mask, self._backbone.dtype)
        if "use_cache" in self._declared_forward_params or hasattr(self.model.config, "use_cache"):
            arguments["use_cache"] = False
        states = self._backbone.states([make_layer(name, n_blocks) for name in self.layers], **arguments)
        features["layer_states"] = tuple(states[name] for name in self.layers)
        features["token_embeddings"] = features["layer_states"][-1]
        return features


def everyone_sees_everyone(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """An additive attention mask (b, 1, t, t) that hides padding only, from a mask (b, t) of real tokens."""
    hidden = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    hidden = hidden.masked_fill(mask == 0, torch.finfo(dtype).min)
    return hidden[:, None, None, :].expand(-1, 1, mask.shape[1], -1)


class _Pooled(Module):
    """What modules that pool tokens as layerscope does share: which tokens count.

    Args:
        width: d, of the vectors.
        special_ids: token ids that do not count.
        drop_first_token: whether the first token does not count.
        sink_positions: places of attention sinks, which ``mean-nosink`` leaves out.
        sink_ids: token ids of attention sinks.
        cls_id: of the classification token.
    """

    def __init__(
        self,
        width: int,
        *,
        special_ids: Sequence[int] = (),
        drop_first_token: bool = False,
        sink_positions: Sequence[int] = (),
        sink_ids: Sequence[int] = (),
        cls_id: int | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.width: int = width
        self.special_ids = list(special_ids)
        self.drop_first_token = drop_first_token
        self.sink_positions = list(sink_positions)
        self.sink_ids = list(sink_ids)
        self.cls_id = cls_id

    def get_embedding_dimension(self) -> int:
        """The width d of the vectors."""
        return self.width

    get_sentence_embedding_dimension = get_embedding_dimension

    token_keys = ("special_ids", "drop_first_token", "sink_positions", "sink_ids", "cls_id")

    def masks(self, features: Mapping[str, Any]) -> TokenMasks:
        """Which tokens of the batch belong to which set."""
        ids, real = features["input_ids"], features["attention_mask"].bool()
        position = real.cumsum(dim=1) - 1  # of either padding side
        kept = real & ~_among(ids, self.special_ids)
        if self.drop_first_token:
            kept &= position > 0
        nosink = kept & ~_among(position, self.sink_positions) & ~_among(ids, self.sink_ids)
        cls = real & (ids == self.cls_id if self.cls_id is not None else torch.zeros_like(real))
        return TokenMasks(kept, nosink, cls)


def _among(values: Tensor, chosen: Sequence[int]) -> Tensor:
    return torch.isin(values, torch.tensor(list(chosen), dtype=values.dtype, device=values.device))


class TokenPooling(_Pooled):
    """Any of layerscope's poolings of the token states, those without attention sinks among them.

    Args:
        width: d.
        pooling: its name.
        tokens: as for ``_Pooled``.
    """

    config_keys = ["width", "pooling", *_Pooled.token_keys]  # noqa: RUF012

    def __init__(self, width: int, pooling: str, **tokens: Any) -> None:
        super().__init__(width, **tokens)
        self.pooling = pooling

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add ``sentence_embedding``, (b, d); zeros for a text without a token that counts."""
        pooled = pool(self.pooling, features["token_embeddings"], self.masks(features))
        features["sentence_embedding"] = pooled.nan_to_num(0.0) if not self.training else pooled
        return features

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Write the configuration."""
        self.save_config(output_path)


class _Trained(_Pooled):
    """What modules with weights share: how these are written and read."""

    def save(self, output_path: str, *_: Any, safe_serialization: bool = True, **__: Any) -> None:
        """Write configuration and weights."""
        self.save_config(output_path)
        self.save_torch_weights(output_path, safe_serialization=safe_serialization)

    @classmethod
    def load(  # type: ignore[override]
        cls, model_name_or_path: str, subfolder: str = "", **options: Any
    ) -> Self:
        """Read configuration and weights."""
        known = ("token", "cache_folder", "revision", "local_files_only")
        hub = {name: options[name] for name in known if name in options}
        config = cls.load_config(model_name_or_path, subfolder=subfolder, **hub)
        module: Self = cls.load_torch_weights(
            model_name_or_path, subfolder=subfolder, model=cls(**config), **hub
        )
        return module


class LatentPooling(_Trained):
    """Trainable last-layer pooling: learned latents attend over the tokens.

    Args:
        width: d.
        sizes: ``latents``, ``heads``, ``head_width`` where they shall not be the defaults.
        tokens: as for ``_Pooled``.

    Source: Tang & Yang 2024, "Pooling and Attention".
    """

    config_keys = ["width", "sizes", *_Pooled.token_keys]  # noqa: RUF012

    def __init__(self, width: int, sizes: Mapping[str, int] | None = None, **tokens: Any) -> None:
        super().__init__(width, **tokens)
        self.sizes = dict(sizes or {})
        self.attention = LatentAttention(width, **self.sizes)

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add ``sentence_embedding``, (b, d), of unit length."""
        states = features["token_embeddings"]
        features["sentence_embedding"] = self.attention(states, self.masks(features).kept)
        return features


class LayerMix(_Trained):
    """A learned mix of the pooled states of several layers.

    Args:
        kind: as ``layerscope.layer_pooling`` names it.
        n_layers: how many layers ``LayerStates`` gives.
        width: d.
        poolings: of the mix's inputs.
        sizes: of the kind.
        tokens: as for ``_Pooled``.
    """

    config_keys = ["kind", "n_layers", "width", "poolings", "sizes", *_Pooled.token_keys]  # noqa: RUF012

    def __init__(
        self,
        kind: str,
        n_layers: int,
        width: int,
        poolings: Sequence[str],
        sizes: Mapping[str, int] | None = None,
        **tokens: Any,
    ) -> None:
        super().__init__(width, **tokens)
        self.kind = kind
        self.n_layers = n_layers
        self.poolings = list(poolings)
        self.sizes = dict(sizes or {})
        self.mix = make_layer_pooling(kind, n_layers, width, self.sizes)

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add ``sentence_embedding``, (b, d)."""
        states = features["layer_states"]
        if len(states) != self.n_layers:
            raise UsageError(f"the mix takes {self.n_layers} layers, and the model gives {len(states)}")
        masks = self.masks(features)
        stacks = [
            torch.stack([pool(name, layer, masks) for layer in states], dim=1) for name in self.poolings
        ]
        features["sentence_embedding"] = self.mix(*stacks)
        return features
