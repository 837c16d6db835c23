"""Cache -> metrics frame: every metric for every layer and pooling, with intervals; and layers compared."""

from layerscope.analysis.between import compare_layers
from layerscope.analysis.projection import project_layers
from layerscope.analysis.run import analyze

__all__ = ["analyze", "compare_layers", "project_layers"]
