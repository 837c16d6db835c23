"""From a metrics frame to a decision: which layer, by what, and how sure."""

from layerscope.select.aggregate import RankAggregateSelector
from layerscope.select.corrections import CORRECTIONS, Correction, correction_hint, fit_correction
from layerscope.select.costs import with_costs
from layerscope.select.picks import pick_layers
from layerscope.select.selector import LayerSelector
from layerscope.select.stability import pick_shares

__all__ = [
    "CORRECTIONS",
    "Correction",
    "LayerSelector",
    "RankAggregateSelector",
    "correction_hint",
    "fit_correction",
    "pick_layers",
    "pick_shares",
    "with_costs",
]
