"""Figures of the frames: a frame in, a matplotlib Axes (or, for grids, a Figure) out.

Nothing is computed here that is not in the frame, and nothing touches pyplot's global state:
in a notebook ``ax.figure`` as the last line of a cell shows it, :func:`save_figure` writes it.
"""

from __future__ import annotations

from layerscope.plots.correlations import plot_correlations
from layerscope.plots.curves import plot_metric, plot_metrics
from layerscope.plots.embeddings import plot_embeddings
from layerscope.plots.heatmap import plot_heatmap
from layerscope.plots.layer_pairs import plot_layer_pairs, plot_layer_pairs_grid
from layerscope.plots.layer_weights import plot_layer_weights
from layerscope.plots.model_curves import plot_models, plot_models_grid
from layerscope.plots.perturbation import plot_perturbation
from layerscope.plots.saving import figure_svg, save_figure
from layerscope.plots.scatter import plot_metric_against_score, plot_metrics_against_score
from layerscope.plots.scores import plot_scores
from layerscope.plots.sites import plot_sites
from layerscope.plots.stability import plot_selection_stability
from layerscope.plots.training_curves import plot_training

__all__ = [
    "figure_svg",
    "plot_correlations",
    "plot_embeddings",
    "plot_heatmap",
    "plot_layer_pairs",
    "plot_layer_pairs_grid",
    "plot_layer_weights",
    "plot_metric",
    "plot_metric_against_score",
    "plot_metrics",
    "plot_metrics_against_score",
    "plot_models",
    "plot_models_grid",
    "plot_perturbation",
    "plot_scores",
    "plot_selection_stability",
    "plot_sites",
    "plot_training",
    "save_figure",
]
