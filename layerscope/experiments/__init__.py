"""Published experiments: one extraction and one analysis for each of several texts or checkpoints."""

from layerscope.experiments.checkpoints import analyze_checkpoints
from layerscope.experiments.perturbed_texts import perturb

__all__ = ["analyze_checkpoints", "perturb"]
