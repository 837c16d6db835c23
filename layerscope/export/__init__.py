"""A layer, or a learned mix of layers, as a sentence-transformers folder with only the blocks it needs."""

from layerscope.export.run import Exported, export

__all__ = ["Exported", "export"]
