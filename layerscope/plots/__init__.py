"""Figures of the frames: a frame in, a matplotlib Axes (or, for grids, a Figure) out.

Nothing is computed here that is not in the frame, and nothing touches pyplot's global state:
in a notebook ``ax.figure`` as the last line of a cell shows it, :func:`save_figure` writes it.
"""

from __future__ import annotations

from layerscope.plots.correlations import plot_correlations
from layerscope.plots.curves import plot_metric, plot_metrics
from layerscope.plots.heatmap import plot_heatmap
from layerscope.plots.layer_weights import plot_layer_weights
from layerscope.plots.model_curves import plot_models
from layerscope.plots.saving import figure_svg, save_figure
from layerscope.plots.scatter import plot_metric_against_score, plot_metrics_against_score
from layerscope.plots.scores import plot_scores

__all__ = [
    "figure_svg",
    "plot_correlations",
    "plot_heatmap",
    "plot_layer_weights",
    "plot_metric",
    "plot_metric_against_score",
    "plot_metrics",
    "plot_metrics_against_score",
    "plot_models",
    "plot_scores",
    "save_figure",
]
