"""A fitted pooling in a folder: config.json, model.safetensors, and two tables for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from layerscope.errors import CacheError, FrameError
from layerscope.files import check_writable, make_folder, write_atomic, write_bytes, write_json
from layerscope.layer_pooling import make_layer_pooling
from layerscope.learn.fitting import LearnedPooling

FORMAT = "layerscope-pooling"
SCHEMA = 1
_CONFIG, _WEIGHTS = "config.json", "model.safetensors"
_SHARES, _HISTORY = "layer_weights.csv", "history.csv"


def save_pooling(fitted: LearnedPooling, folder: str | Path) -> Path:
    """Write a fitted pooling; ``config.json`` comes last, so that a folder with one is whole.

    Args:
        fitted: a mix that ``fit`` was called on.
        folder: where to; it is made.

    Returns:
        The folder. It holds ``model.safetensors``, ``config.json``, the layer weights and the history.

    Raises:
        CacheError: the folder cannot be written.
    """
    from safetensors.torch import save

    target = Path(folder)
    make_folder(target)
    (target / _CONFIG).unlink(missing_ok=True)
    content = save({name: value.cpu().contiguous() for name, value in fitted.module_.state_dict().items()})
    write_bytes(target / _WEIGHTS, content)
    write_atomic(target / _SHARES, lambda path: fitted.layer_weights_.to_csv(path, index=False))
    write_atomic(target / _HISTORY, lambda path: fitted.history_.to_csv(path, index=False))
    write_json(target / _CONFIG, describe(fitted))
    return target


def check_folder(folder: str | Path) -> None:
    """Refuse a folder that holds anything but an earlier fitted pooling, before any fitting.

    Raises:
        CacheError: it does, or it cannot be written.
    """
    target = Path(folder)
    entries = list(target.iterdir()) if target.is_dir() else []
    is_own = (target / _WEIGHTS).is_file() and (target / _SHARES).is_file()
    if (target.exists() and not target.is_dir()) or (entries and not is_own):
        raise CacheError(f"{target} is there already and no fitted pooling: choose another folder with -o")
    check_writable(target)


def describe(fitted: LearnedPooling) -> dict[str, Any]:
    """All but the weights, as plain JSON."""
    return {
        "format": FORMAT,
        "schema": SCHEMA,
        "options": fitted.get_params(),
        "width": fitted.module_.width,
        "layers": fitted.layers_,
        "poolings": list(fitted.poolings_),
        "objective": fitted.objective_,
        "best_epoch": fitted.best_epoch_,
        "dev_metric": fitted.dev_metric_,
        "dev": float(fitted.history_["dev"].iloc[fitted.best_epoch_]),
        "n_examples": fitted.n_examples_,
        "made_of": fitted.made_of_,
    }


def load_pooling(folder: str | Path) -> LearnedPooling:
    """Read a fitted pooling.

    Args:
        folder: one that ``save_pooling`` or ``layerscope fit`` wrote.

    Raises:
        FrameError: no such folder, or not a whole one.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    source = Path(folder)
    path = source / _CONFIG
    if not path.is_file():
        raise FrameError(f"no fitted pooling at {source}: make one with 'layerscope fit CACHE -o {source}'")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        if config.get("format") != FORMAT:
            raise FrameError(
                f"{path} does not describe a fitted pooling: give the folder of 'layerscope fit'"
            )
        if config["schema"] > SCHEMA:
            raise FrameError(
                f"{source} was written by a newer layerscope (schema {config['schema']}): upgrade"
            )
        fitted = LearnedPooling(**config["options"])
        module = make_layer_pooling(fitted.kind, len(config["layers"]), config["width"], fitted.sizes)
        module.load_state_dict(load_file(source / _WEIGHTS))
        history = pd.read_csv(source / _HISTORY)
        shares = pd.read_csv(source / _SHARES)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise FrameError(f"the fitted pooling in {source} is damaged: fit it again") from error
    fitted.module_ = module.eval()
    fitted.layers_ = config["layers"]
    fitted.poolings_ = tuple(config["poolings"])
    fitted.objective_ = config["objective"]
    fitted.layer_weights_ = shares
    fitted.best_epoch_ = config["best_epoch"]
    fitted.dev_metric_ = config["dev_metric"]
    fitted.n_examples_ = config["n_examples"]
    fitted.made_of_ = config["made_of"]
    fitted.history_ = history
    return fitted
