"""Training a model end to end for a pooling over its tokens or layers, by sentence-transformers' trainer."""

from layerscope.training.designs import Design, design_names, find_design
from layerscope.training.run import Trained, train

__all__ = ["Design", "Trained", "design_names", "find_design", "train"]
