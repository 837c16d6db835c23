"""Getting a model and its tokenizer, and knowing exactly which model it is.

A model is a hub id, a folder, a GGUF file, or an object that is already loaded. Its identity is a
content hash of the weights (for the hub: the commit), so that retrained weights under the same
name are another model.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from layerscope.decoders import decoder_of
from layerscope.errors import ModelError, UsageError, count_of, first_line
from layerscope.files import file_sha256, json_sha256
from layerscope.quieting import quiet_loggers

DType = Literal["auto", "float32", "bfloat16"]
Part = Literal["encoder", "decoder"]
PARTS = ("encoder", "decoder")
DTYPES = ("auto", "float32", "bfloat16")
_ADAPTER = "adapter_config.json"
_LEAST_VOCABULARY = 0.5  # share of the model's vocabulary; padding to a round size is far less
_OWN_TOKENIZER = (
    "put the model's own tokenizer (tokenizer.json, or the vocabulary) into its folder, or pass tokenizer="
)
_WEIGHTS = ("*.safetensors", "*.gguf", "*.bin", "*.pt", "*.pth")


@dataclass(frozen=True)
class ModelSource:
    """Where a model comes from, and what identifies it.

    Attributes:
        name: what to call it in frames and reports.
        identity: what decides that two models are the same: kind, and commit or content hash.
        location: hub id or folder to load from; ``None`` for an object.
        gguf_file: file name inside the folder, for GGUF.
    """

    name: str
    identity: dict[str, Any]
    location: str | None = None
    gguf_file: str | None = None


@dataclass(frozen=True)
class LoadedModel:
    """A base model and a copy of its tokenizer.

    Attributes:
        model: the model without a task head.
        tokenizer: a private copy; the caller's is left alone.
        max_length: the most tokens that the model takes, special tokens included.
        dtype: of the weights, as ``float32``.
    """

    model: Any
    tokenizer: Any
    max_length: int
    dtype: str


class OpenedModel:
    """A model that is found once and loaded at most once, for several extractions.

    Args:
        model: a hub id, a folder, a .gguf file, or a loaded model.
        tokenizer: as for ``load_model``.
        loading: options of ``load_model``.
    """

    def __init__(self, model: Any, *, tokenizer: Any = None, **loading: Any) -> None:
        trust = bool(loading.get("trust_remote_code"))
        self.source = find_model(model, loading.get("revision"), trust_remote_code=trust)
        self.given = model
        self._options = loading | {"tokenizer": tokenizer}

    @cached_property
    def loaded(self) -> LoadedModel:
        """The model and its tokenizer, loaded when first asked for."""
        return load_model(self.source, self.given, **self._options)


def find_model(model: Any, revision: str | None = None, *, trust_remote_code: bool = False) -> ModelSource:
    """Say which model ``model`` is, without loading its weights into memory.

    Raises:
        ModelError: no such folder, no weights in it, or a hub id that cannot be reached.
        UsageError: nothing that could be a model, or a revision of a local one.
    """
    if isinstance(model, OpenedModel):
        return model.source
    if revision is not None and not isinstance(revision, str):
        raise UsageError(f"revision is {revision!r}: give a branch, tag or commit as text")
    if not isinstance(model, str | Path):
        if revision is not None:
            raise UsageError(
                "revision is for models on the hub, and this one is loaded already: leave it away"
            )
        return _object_source(model)
    if not str(model).strip():
        raise UsageError("the model has no name: give a hub id, a model folder or a .gguf file")
    if revision is not None and not is_hub_id(model):
        raise UsageError(f"--revision is for models on the hub, and {model} is a path: leave it away")
    path = Path(model).expanduser()
    if path.is_file():
        if path.suffix != ".gguf":
            raise ModelError(f"{path} is a file: give a model folder, a .gguf file or a hub id")
        return _folder_source(path.parent, [path], gguf_file=path.name)
    if path.is_dir() and (path / _ADAPTER).is_file():
        return _adapter_source(path)
    if path.is_dir():
        return _folder_source(path, _weights_in(path), gguf_file=_gguf_in(path))
    if not is_hub_id(model):
        raise ModelError(f"no model folder at {path}: give an existing folder, a .gguf file or a hub id")
    return _hub_source(str(model), revision, trust_remote_code)


def is_hub_id(model: Any) -> bool:
    """Whether ``model`` names something on the hub: a string that is no file here and not written as a path.

    >>> is_hub_id("owner/name"), is_hub_id("./folder")
    (True, False)
    """
    if not isinstance(model, str) or Path(model).expanduser().exists():
        return False
    return not (model.startswith(("/", ".", "~")) or model.count("/") > 1 or "\\" in model)


def _weights_in(folder: Path) -> list[Path]:
    weights = sorted(file for pattern in _WEIGHTS for file in folder.glob(pattern))
    if not weights:
        raise ModelError(
            f"the model folder {folder} holds no weights (looked for {', '.join(_WEIGHTS)}): "
            "give the folder that from_pretrained would load"
        )
    return weights


def _gguf_in(folder: Path) -> str | None:
    """The GGUF file to load where a folder has no config of its own."""
    if (folder / "config.json").is_file():
        return None
    files = sorted(folder.glob("*.gguf"))
    if len(files) != 1:
        raise ModelError(
            f"the model folder {folder} has no config.json: give a folder saved by save_pretrained, "
            "or the path of one .gguf file"
        )
    return files[0].name


def _folder_source(folder: Path, weights: list[Path], gguf_file: str | None) -> ModelSource:
    described = [
        *weights,
        *sorted(folder.glob("*.json")),
        *sorted(folder.glob("*.txt")),
        *sorted(folder.glob("*.model")),
        *sorted(folder.glob("*.py")),
    ]
    digest = json_sha256([[file.name, file_sha256(file)] for file in dict.fromkeys(described)])
    name = _folder_name(folder) if gguf_file is None else Path(gguf_file).stem
    return ModelSource(name, {"kind": "folder", "content": digest}, str(folder), gguf_file)


def _adapter_source(folder: Path) -> ModelSource:
    """A PEFT adapter, which is another model as soon as its base model is."""
    _require("a PEFT adapter", "peft")
    settings = json.loads((folder / _ADAPTER).read_text(encoding="utf-8"))
    named = settings.get("base_model_name_or_path")
    if not isinstance(named, str) or not named:
        raise ModelError(f"{folder / _ADAPTER} does not say which model it adapts (base_model_name_or_path)")
    try:
        base = find_model(named, settings.get("revision"))
    except ModelError as error:
        raise ModelError(f"the adapter {folder} needs its base model: {error}") from error
    source = _folder_source(folder, _weights_in(folder), gguf_file=None)
    return replace(source, identity=source.identity | {"base": base.identity})


def _folder_name(folder: Path) -> str:
    """A telling name: the folder's, or its parent's where the folder is just called 'model'."""
    resolved = folder.resolve()
    return resolved.parent.name if resolved.name in ("model", "checkpoint") else resolved.name


def _hub_source(name: str, revision: str | None, trust_remote_code: bool) -> ModelSource:
    with quiet_transformers(), _hub_errors(name):
        from transformers import AutoConfig

        config = AutoConfig.from_pretrained(name, revision=revision, trust_remote_code=trust_remote_code)
    commit = getattr(config, "_commit_hash", None)
    return ModelSource(name, {"kind": "hub", "repo": name, "commit": commit or revision or "unknown"}, name)


def _object_source(model: Any) -> ModelSource:
    if not hasattr(model, "state_dict") or not hasattr(model, "config"):
        raise UsageError(
            f"a model must be a hub id, a folder or a loaded transformers model, not {type(model).__name__}"
        )
    settings = json.dumps(model.config.to_dict(), sort_keys=True, default=str)
    with ThreadPoolExecutor() as pool:  # hashing leaves the interpreter's lock to others
        weights = list(pool.map(_weight_identity, *zip(*sorted(model.state_dict().items()), strict=True)))
    name = getattr(model.config, "_name_or_path", "") or type(model).__name__
    return ModelSource(Path(name).name, {"kind": "object", "content": json_sha256([settings, weights])})


def _weight_identity(name: str, weight: Any) -> list[str]:
    import torch

    flat = weight.detach().cpu().contiguous().view(-1)
    content = memoryview(flat.view(torch.uint8).numpy()) if flat.numel() else b""
    return [name, str(weight.dtype), str(tuple(weight.shape)), hashlib.sha256(content).hexdigest()]


def load_model(
    source: ModelSource,
    model: Any = None,
    *,
    tokenizer: Any = None,
    dtype: DType = "auto",
    device: str = "auto",
    max_length: int | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
    part: Part = "encoder",
) -> LoadedModel:
    """Load the model that ``source`` describes; a model that is already loaded is used as it is.

    Args:
        source: from ``find_model``.
        model: the loaded model, where ``source`` is one.
        tokenizer: needed with a loaded model; otherwise the model's own.
        dtype: ``auto`` is float32 on a CPU and bfloat16 on a GPU where the checkpoint is in half precision.
        device: ``auto`` takes a GPU where there is one; a loaded model stays where it is.
        max_length: the user's limit in tokens.
        revision: branch, tag or commit on the hub.
        allow_pickle: also load weights that are not safetensors or GGUF.
        trust_remote_code: run Python code that comes with the model.
        part: of an encoder-decoder, ``encoder`` or ``decoder``.

    Raises:
        ModelError: weights missing or unreadable, no tokenizer, or one that is not the model's.
        UsageError: a limit, dtype or device that cannot be.
    """
    if isinstance(model, OpenedModel):
        return model.loaded
    if source.location is None:
        if dtype != "auto" or device != "auto":
            raise UsageError("a loaded model keeps its own dtype and device: convert it with model.to()")
        if tokenizer is None:
            raise UsageError("a loaded model needs its tokenizer too: pass tokenizer=")
        base, own = without_head(model, part), copy.deepcopy(tokenizer)
    else:
        options = {"revision": revision, "trust_remote_code": trust_remote_code}
        place = usable_device(device)
        loaded = _load_weights(source, dtype, place, allow_pickle, options)
        base = without_head(loaded, part).to(place)
        own = copy.deepcopy(tokenizer) if tokenizer is not None else _load_tokenizer(source, options)
    _check_vocabulary(source.name, base, own)
    limit = _length_limit(base, own, source.location)
    added = own.num_special_tokens_to_add(pair=False)
    if max_length is not None and max_length <= added:
        raise UsageError(
            f"--max-length is {max_length}: it must be more than the {added} tokens that the tokenizer adds"
        )
    return LoadedModel(base, own, min(limit, max_length or limit), str(base.dtype).removeprefix("torch."))


def _check_vocabulary(name: str, model: Any, tokenizer: Any) -> None:
    """Refuse a tokenizer with nothing but special tokens, or far fewer tokens than the model.

    Both are what transformers builds for a folder without the tokenizer's files.
    """
    size, expected = len(tokenizer), getattr(model.config, "vocab_size", None)
    if size <= len(set(tokenizer.all_special_ids)):
        raise ModelError(f"{name}: the tokenizer knows no words at all: {_OWN_TOKENIZER}")
    if isinstance(expected, int) and size < expected * _LEAST_VOCABULARY:
        sizes = f"the tokenizer has {count_of(size, 'token')} and the model {expected:,}"
        raise ModelError(f"{name}: {sizes}: {_OWN_TOKENIZER}")


def without_head(model: Any, part: Part = "encoder") -> Any:
    """The base model; of an encoder-decoder the part asked for.

    Args:
        model: a transformers model, with or without a head.
        part: ``encoder`` or ``decoder``; the decoder reads the text that the encoder reads, token for token,
            and attends to the encoder's states of it.

    Raises:
        UsageError: the decoder of a model that is no encoder-decoder.
    """
    base = getattr(model, "base_model", model)
    if getattr(base.config, "is_encoder_decoder", False):
        return base.get_encoder() if part == "encoder" else decoder_of(base)
    if part == "decoder":
        raise UsageError(
            f"--part decoder: {type(base).__name__} is no encoder-decoder and has one stack of blocks only: "
            "leave --part away"
        )
    return base


def usable_device(name: str) -> str:
    """The device called ``name``; for ``auto`` a GPU where there is one.

    Raises:
        UsageError: it cannot be used here.
    """
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=name).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        others = ", cuda" if torch.cuda.is_available() else ""
        raise UsageError(f"--device {name} cannot be used here: choose auto, cpu{others}") from error
    return name


def _load_weights(
    source: ModelSource, dtype: DType, device: str, allow_pickle: bool, options: dict[str, Any]
) -> Any:
    import torch

    options = options | {"dtype": torch.float32 if dtype == "auto" and device == "cpu" else dtype}
    if source.gguf_file is None:
        options["use_safetensors"] = None if allow_pickle else True
    else:
        _require("a GGUF file", "gguf", "accelerate")
        options["gguf_file"] = source.gguf_file
    with quiet_transformers(), _hub_errors(str(source.location)):
        from transformers import AutoModel

        model, report = AutoModel.from_pretrained(str(source.location), output_loading_info=True, **options)
    missing = [key for key in report["missing_keys"] if "pooler" not in key]
    if missing:
        raise ModelError(
            f"{source.name}: {len(missing)} weights are not in the checkpoint (first: {sorted(missing)[0]}), "
            "so they would be random; check that the folder is complete"
        )
    return model.to(torch.bfloat16) if dtype == "auto" and model.dtype == torch.float16 else model


def _require(what: str, *packages: str) -> None:
    """Refuse what cannot be loaded without packages that are not installed.

    Raises:
        ModelError: names them.
    """
    import importlib.util

    absent = [name for name in packages if importlib.util.find_spec(name) is None]
    if absent:
        raise ModelError(f"{what} needs {' and '.join(absent)}: pip install {' '.join(absent)}")


def _load_tokenizer(source: ModelSource, options: dict[str, Any]) -> Any:
    if source.gguf_file is not None:
        options = options | {"gguf_file": source.gguf_file}
    with quiet_transformers():
        from transformers import AutoTokenizer

        try:
            return AutoTokenizer.from_pretrained(source.location, **options)
        except Exception as error:  # loaders raise whatever their formats raise
            raise ModelError(
                f"cannot load a tokenizer from {source.location} ({_reason(error)}): {_OWN_TOKENIZER}"
            ) from error


def _length_limit(model: Any, tokenizer: Any, location: str | None) -> int:
    """The least of what tokenizer, position embeddings and a sentence-transformers config allow."""
    limits = [int(tokenizer.model_max_length)]
    positions = getattr(model.config, "max_position_embeddings", None)
    if isinstance(positions, int) and positions > 0:
        limits.append(positions - _position_offset(model))
    settings = Path(location or "") / "sentence_bert_config.json"
    if location and settings.is_file():
        declared = json.loads(settings.read_text(encoding="utf-8")).get("max_seq_length")
        limits += [declared] if isinstance(declared, int) else []
    return min(limits)


def _position_offset(model: Any) -> int:
    """How many positions are lost because counting starts after the padding index (RoBERTa's way)."""
    for path, module in model.named_modules():
        if path.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return int(module.padding_idx) + 1
    return 0


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep progress bars, advice and the hub client's retries off the terminal while something loads."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with quiet_loggers("huggingface_hub", "bitsandbytes"):
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def _hub_errors(name: str) -> Iterator[None]:
    """Turn what transformers, safetensors and the hub client raise into one line."""
    try:
        yield
    except Exception as error:  # loaders raise whatever their formats raise
        if "trust_remote_code" in str(error):
            raise ModelError(
                f"'{name}' comes with Python code of its own, which is not run unasked: "
                "read it, and give --trust-remote-code if you trust it"
            ) from error
        if Path(name).exists():
            raise ModelError(f"cannot load the model in {name}: {_reason(error)}") from error
        raise ModelError(
            f"cannot load '{name}': it is no local folder, and the Hugging Face hub was tried in vain "
            f"({_reason(error)}); check the id and the network, or give the path of a model folder"
        ) from error


def _reason(error: BaseException) -> str:
    """What a loader says, without its closing mark."""
    return first_line(error).rstrip(".: ")
