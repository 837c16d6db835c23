"""Rules that pick a layer by its depth alone: what a criterion must beat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from layerscope.layers import as_layer_order

DEPTH_RULES: dict[str, float] = {"last layer": 1.0, "middle layer": 1 / 2, "2/3 depth": 2 / 3}


def rule_layer(rule: str, names: Sequence[str], depth_of: Mapping[str, float]) -> str:
    """The layer that a depth rule picks among ``names``.

    ``last layer`` is what the model returns: the final norm where there is one. The others take the
    block nearest to their share of the depth, the deeper of two that are equally near.

    >>> rule_layer("middle layer", ["block.1", "block.2"], {"block.1": 0.5, "block.2": 1.0})
    'block.1'
    """
    ordered = as_layer_order(names)
    if rule == "last layer":
        return ordered[-1]
    blocks = [name for name in ordered if name.startswith("block.")]
    blocks = blocks or [name for name in ordered if name.startswith("normed.")] or ordered
    return min(blocks, key=lambda name: (round(abs(depth_of[name] - DEPTH_RULES[rule]), 9), -depth_of[name]))
