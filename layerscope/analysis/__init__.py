"""Cache -> metrics frame: every metric for every layer and pooling, with intervals."""

from layerscope.analysis.run import analyze

__all__ = ["analyze"]
