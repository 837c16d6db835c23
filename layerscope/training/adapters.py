"""LoRA adapters put into a model, and merged into its weights afterwards."""

from __future__ import annotations

import importlib.util
from typing import Any

from torch import nn

from layerscope.errors import ModelError


def add_lora(model: Any, rank: int, alpha: int) -> None:
    """Put LoRA adapters beside all linear maps of ``model``, in place; nothing else of it is trained then.

    Raises:
        ModelError: peft is not installed.

    Source: Hu et al. 2021.
    """
    if importlib.util.find_spec("peft") is None:
        raise ModelError("training with LoRA needs peft: pip install 'layerscope[train]'")
    from peft import LoraConfig, inject_adapter_in_model

    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise ModelError(
            f"{type(model).__name__} has no linear maps for LoRA: set lora_rank = 0 in the design"
        )
    inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=alpha, target_modules=linear), model)


def merge_lora(model: Any) -> None:
    """Add the adapters to the weights that they adapt, and take them out, in place."""
    from peft.tuners.lora import LoraLayer

    for path, module in list(model.named_modules()):
        if isinstance(module, LoraLayer):
            module.merge()
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, module.get_base_layer())
    for leftover in ("peft_config", "_hf_peft_config_loaded"):
        model.__dict__.pop(leftover, None)
