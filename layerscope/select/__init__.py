"""From a metrics frame to a decision: which layer, by what, and how sure."""

from layerscope.select.costs import with_costs
from layerscope.select.picks import pick_layers
from layerscope.select.selector import LayerSelector

__all__ = ["LayerSelector", "pick_layers", "with_costs"]
