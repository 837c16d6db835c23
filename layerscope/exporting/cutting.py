"""A model without the blocks that a layer does not need."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from torch import nn

from layerscope.backbone import Structure
from layerscope.errors import ModelError
from layerscope.files import make_folder
from layerscope.models import LoadedModel


def cut_model(model: Any, structure: Structure, blocks: int) -> Any:
    """A copy of ``model`` with its first blocks only; the weights are shared with the original.

    Args:
        model: the base model, as ``load_model`` gives it.
        structure: where its blocks are.
        blocks: how many to keep, 0 or more.

    Returns:
        A model whose config says how many blocks there are.

    Raises:
        ModelError: the config does not say how many blocks to build, or does not take another number.
    """
    if not all(parameter.is_floating_point() for parameter in model.parameters()):
        raise ModelError("a quantised model cannot be cut: load it in float32 or bfloat16")
    if hasattr(model, "peft_config"):
        raise ModelError("this model carries an adapter: merge it first (merge_and_unload), then export")
    whole = structure.n_blocks
    if getattr(model.config, "num_hidden_layers", None) != whole:
        raise ModelError(
            f"the config of {type(model).__name__} does not say that it has {whole} blocks "
            "(num_hidden_layers): it cannot be cut"
        )
    # Copied with its weights taken as they are: a deep copy would take the model's size once more.
    memo: dict[int, Any] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    short = copy.deepcopy(model, memo)
    short.config.num_hidden_layers = blocks
    if hasattr(short.config, "quantization_config"):  # of a GGUF file whose weights are plain numbers now
        del short.config.quantization_config
    for leftover in ("is_quantized", "hf_quantizer", "quantization_method"):
        short.__dict__.pop(leftover, None)
    for key, value in list(short.config.to_dict().items()):
        if isinstance(value, list) and len(value) == whole and _is_by_layer(key):
            setattr(short.config, key, value[:blocks])
    parent, _, name = structure.blocks_path.rpartition(".")
    holder = short.get_submodule(parent) if parent else short
    members = getattr(holder, name)
    if isinstance(members, nn.ModuleList) and len(members) == whole:
        setattr(holder, name, members[:blocks])
    return short


def save_cut(loaded: LoadedModel, structure: Structure, blocks: int, folder: Path) -> None:
    """Write the first blocks of a model and its tokenizer, as ``from_pretrained`` reads them.

    Texts are padded on the right, and the chat template is left out: sentence-transformers would make every
    text a turn in it.

    Raises:
        ModelError: as for ``cut_model``.
    """
    make_folder(folder)
    cut_model(loaded.model, structure, blocks).save_pretrained(folder)
    tokenizer = copy.deepcopy(loaded.tokenizer)
    tokenizer.padding_side = "right"
    tokenizer.model_max_length = loaded.max_length
    tokenizer.chat_template = None
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    tokenizer.save_pretrained(folder)


def check_loaded(loaded: LoadedModel, model: Any) -> None:
    """Refuse a model that transformers loads as another kind than it was, as the encoder of T5.

    Raises:
        ModelError: it does.
    """
    if type(model) is not type(loaded.model):
        raise ModelError(
            f"{type(loaded.model).__name__} cannot be exported: transformers loads its weights as "
            f"{type(model).__name__}"
        )


def _is_by_layer(key: str) -> bool:
    """Whether a list of the config has an entry a block.

    >>> _is_by_layer("layer_types"), _is_by_layer("architectures")
    (True, False)
    """
    return "layer" in key or "block" in key or "pattern" in key
