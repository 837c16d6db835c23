"""layerscope: what each layer of a language model represents, and which one to use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from layerscope.analysis import analyze, compare_layers
    from layerscope.cache import LayerCache
    from layerscope.checkup import doctor
    from layerscope.corpus import Corpus, read_corpus
    from layerscope.errors import LayerscopeError
    from layerscope.evaluate.mteb.run import evaluate_mteb
    from layerscope.evaluate.sts import evaluate_sts
    from layerscope.experiments import analyze_checkpoints, perturb
    from layerscope.exporting import export
    from layerscope.extraction import extract, repair
    from layerscope.frames import read_frame, write_frame
    from layerscope.learn import LearnedPooling, load_pooling, save_pooling
    from layerscope.metrics import METRICS, MetricSpec
    from layerscope.report import write_report
    from layerscope.select import (
        LayerSelector,
        RankAggregateSelector,
        fit_correction,
        pick_layers,
        with_costs,
    )
    from layerscope.training import train

# Where each public name lives. Imported on first use: `import layerscope` stays free of torch.
_HOMES = {
    "METRICS": "layerscope.metrics",
    "Corpus": "layerscope.corpus",
    "LayerCache": "layerscope.cache",
    "LayerSelector": "layerscope.select",
    "LayerscopeError": "layerscope.errors",
    "LearnedPooling": "layerscope.learn",
    "MetricSpec": "layerscope.metrics",
    "RankAggregateSelector": "layerscope.select",
    "analyze": "layerscope.analysis",
    "analyze_checkpoints": "layerscope.experiments",
    "compare_layers": "layerscope.analysis",
    "doctor": "layerscope.checkup",
    "evaluate_mteb": "layerscope.evaluate.mteb.run",
    "evaluate_sts": "layerscope.evaluate.sts",
    "export": "layerscope.exporting",
    "extract": "layerscope.extraction",
    "fit_correction": "layerscope.select",
    "load_pooling": "layerscope.learn",
    "perturb": "layerscope.experiments",
    "pick_layers": "layerscope.select",
    "read_corpus": "layerscope.corpus",
    "read_frame": "layerscope.frames",
    "repair": "layerscope.extraction",
    "save_pooling": "layerscope.learn",
    "train": "layerscope.training",
    "with_costs": "layerscope.select",
    "write_frame": "layerscope.frames",
    "write_report": "layerscope.report",
}

__all__ = [
    "METRICS",
    "Corpus",
    "LayerCache",
    "LayerSelector",
    "LayerscopeError",
    "LearnedPooling",
    "MetricSpec",
    "RankAggregateSelector",
    "analyze",
    "analyze_checkpoints",
    "compare_layers",
    "doctor",
    "evaluate_mteb",
    "evaluate_sts",
    "export",
    "extract",
    "fit_correction",
    "load_pooling",
    "perturb",
    "pick_layers",
    "read_corpus",
    "read_frame",
    "repair",
    "save_pooling",
    "train",
    "with_costs",
    "write_frame",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'layerscope' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
