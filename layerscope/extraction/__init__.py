"""A model and a corpus in, a cache of every layer's embeddings out."""

from layerscope.extraction.plan import Listener, Plan
from layerscope.extraction.repair import repair
from layerscope.extraction.run import extract

__all__ = ["Listener", "Plan", "extract", "repair"]
