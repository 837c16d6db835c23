"""How good each layer is, measured with labels: STS."""

from layerscope.evaluate.sts import evaluate_sts

__all__ = ["evaluate_sts"]
