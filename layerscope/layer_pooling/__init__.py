"""Learned mixes of layers, as torch modules: pooled vectors of every layer in, one vector a text out."""

from layerscope.layer_pooling.kinds import LAYER_POOLINGS, Kind, ScaledLayers, find_kind, make_layer_pooling
from layerscope.layer_pooling.latent_attention import LatentAttention
from layerscope.layer_pooling.layer_attention import LayerAttention
from layerscope.layer_pooling.multi_layer import MultiLayer
from layerscope.layer_pooling.scalar_mix import ScalarMix

__all__ = [
    "LAYER_POOLINGS",
    "Kind",
    "LatentAttention",
    "LayerAttention",
    "MultiLayer",
    "ScalarMix",
    "ScaledLayers",
    "find_kind",
    "make_layer_pooling",
]
