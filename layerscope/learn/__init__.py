"""Learned layer pooling: fitted from a cache with the model frozen, saved, loaded and applied."""

from layerscope.learn.fitting import LearnedPooling
from layerscope.learn.objectives import OBJECTIVES, contrastive_loss, cosent_loss
from layerscope.learn.saving import load_pooling, save_pooling

__all__ = ["OBJECTIVES", "LearnedPooling", "contrastive_loss", "cosent_loss", "load_pooling", "save_pooling"]
