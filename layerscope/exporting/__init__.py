"""A layer, or a learned mix of layers, as a sentence-transformers folder with only the blocks it needs."""

from layerscope.exporting.run import Exported, export

__all__ = ["Exported", "export"]
