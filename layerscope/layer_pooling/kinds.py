"""The table of learned layer poolings, and the module that scales layers before one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.errors import UsageError, check_whole, nearest
from layerscope.layer_pooling.layer_attention import LayerAttention
from layerscope.layer_pooling.multi_layer import MultiLayer
from layerscope.layer_pooling.scalar_mix import ScalarMix


@dataclass(frozen=True)
class Kind:
    """One way to mix layers.

    Attributes:
        name: as ``--pooling-model`` takes it.
        make: the module, from number of layers, width and sizes.
        sizes: names of the sizes that may be given.
        needs_token: whether it reads the state of one token of each layer besides the pooled one.
        takes_embed: whether the embedding output is among its layers by default.
        source: where it was published.
    """

    name: str
    make: Callable[..., nn.Module]
    sizes: tuple[str, ...]
    needs_token: bool
    takes_embed: bool
    source: str


LAYER_POOLINGS = (
    Kind("scalar-mix", ScalarMix, (), False, True, "Peters et al. 2018"),
    Kind("layer-attention", LayerAttention, (), True, True, "Oh et al. 2022"),
    Kind("multi-layer", MultiLayer, ("latents", "heads", "head_width"), False, False, "Tang & Yang 2024"),
)


def find_kind(name: str) -> Kind:
    """The kind called ``name``.

    Raises:
        UsageError: there is none.
    """
    for kind in LAYER_POOLINGS:
        if kind.name == name:
            return kind
    raise UsageError(
        f"no pooling model is called '{name}': {nearest(str(name), [kind.name for kind in LAYER_POOLINGS])}"
    )


class ScaledLayers(nn.Module):
    """Layers centred and brought to one size, then mixed.

    The states of raw layers differ in size by orders of magnitude, and most of each is one vector that all
    texts share; a mix of them as they are is a mix of the largest.

    Args:
        mix: the module of a kind.
        n_inputs: how many stacks of states it takes (1, or 2 with a token's).
        n_layers: l.
        width: d.
    """

    def __init__(self, mix: nn.Module, n_inputs: int, n_layers: int, width: int) -> None:
        super().__init__()
        self.mix = mix
        self.width = width
        self.centre: Tensor
        self.size: Tensor
        self.register_buffer("centre", torch.zeros(n_inputs, n_layers, width))
        self.register_buffer("size", torch.ones(n_inputs, n_layers))

    @torch.no_grad()
    def measure(self, states: Sequence[Tensor]) -> None:
        """Set centre and size from the states of n texts, one (n, l, d) an input.

        The size of a layer is the root mean square of its centred entries; 1 where that is 0.
        """
        for at, stack in enumerate(states):
            for layer in range(stack.shape[1]):
                values = stack[:, layer].double()
                centre = values.mean(dim=0)
                size = (values - centre).square().mean().sqrt()
                self.centre[at, layer] = centre
                self.size[at, layer] = torch.where(size > 0, size, torch.ones_like(size))

    def forward(self, *states: Tensor) -> Tensor:
        """The vectors of b texts, (b, d), from stacks of states (b, l, d)."""
        vectors: Tensor = self.mix(*self._scaled(states))
        return vectors

    def layer_weights(self, *states: Tensor) -> Tensor:
        """How much each layer counts in each text, (b, l); rows sum to 1."""
        weights: Tensor = self.mix.layer_weights(*self._scaled(states))  # type: ignore[operator]
        return weights

    def _scaled(self, states: Sequence[Tensor]) -> list[Tensor]:
        return [
            (stack - centre) / size[:, None]
            for stack, centre, size in zip(states, self.centre, self.size, strict=True)
        ]


def make_layer_pooling(
    name: str, n_layers: int, width: int, sizes: Mapping[str, Any] | None = None
) -> ScaledLayers:
    """A new module of one kind, with layers left as they are until ``measure`` is called.

    Args:
        name: of the kind.
        n_layers: how many layers it mixes.
        width: d, of every layer.
        sizes: those of the kind that shall not be its defaults, each 1 or more.

    Raises:
        UsageError: no such kind or size, or a size that cannot be.
    """
    kind = find_kind(name)
    for size, value in (sizes or {}).items():
        if size not in kind.sizes:
            known = nearest(size, kind.sizes) if kind.sizes else "it has none"
            raise UsageError(f"{name} has no size '{size}': {known}")
        check_whole(size, value, 1)
    mix = kind.make(n_layers, width, **(sizes or {}))
    return ScaledLayers(mix, 2 if kind.needs_token else 1, n_layers, width)
