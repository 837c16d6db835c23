"""export(): a layer or a learned mix in, a sentence-transformers folder out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from layerscope.backbone import Backbone
from layerscope.cache import LayerCache, as_cache
from layerscope.checkup import TEXTS
from layerscope.errors import CacheError, ModelError, UsageError, count_of, first_line, named
from layerscope.exporting.card import model_card, pick_lines
from layerscope.exporting.cutting import check_loaded, save_cut
from layerscope.exporting.folders import free_folder, put_in_place, quiet, scratch_folder
from layerscope.exporting.reading import PLAIN, TextReading
from layerscope.files import check_writable, write_text
from layerscope.layers import Layer, is_sublayer
from layerscope.learn import LearnedPooling, load_pooling
from layerscope.models import DType, LoadedModel, ModelSource, find_model, load_model
from layerscope.pooling import check_poolings
from layerscope.select import Correction, fit_correction

TOLERANCE = {"float32": 1e-5}
_HALF = 2e-2
_ROUNDS = 2


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        path: the folder.
        layer: name of the (deepest) layer.
        pooling: of its tokens, or the kind of a learned mix.
        plain: whether it loads where layerscope is not installed.
        blocks: how many blocks it holds.
        n_blocks: how many the full model has.
        parameters: of the model in it.
        full_parameters: of the full model.
        bytes: on disk.
        speed: time of a forward pass over that of the full model.
        error: largest difference to the full model's vectors, over their largest entry.
        alternative: a layer to take instead, where the folder is not plain because of its layer.
    """

    path: Path
    layer: str
    pooling: str
    plain: bool
    blocks: int
    n_blocks: int
    parameters: int
    full_parameters: int
    bytes: int
    speed: float
    error: float
    alternative: str | None = None


def export(
    model: Any,
    *,
    path: str | Path,
    layer: str | None = None,
    pooling: str | None = None,
    learned: LearnedPooling | str | Path | None = None,
    cache: LayerCache | str | Path | None = None,
    correct: str = "none",
    correct_count: int | None = None,
    normalize: bool = False,
    pick: Mapping[str, Any] | None = None,
    tokenizer: Any = None,
    max_length: int | None = None,
    dtype: DType = "auto",
    device: str = "auto",
    blocks: str | None = None,
    final_norm: str | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
) -> Exported:
    """Write a layer, or a learned mix of layers, as a sentence-transformers folder.

    The folder holds only the blocks that are needed. Where a cut Hugging Face model returns the layer anyway
    (``norm``, ``normed.k``, any layer of a model without a final norm) and the pooling is one that
    sentence-transformers has, it loads without layerscope; else it names modules of layerscope. Before it is
    put in place it is loaded and must give the full model's vectors.

    Args:
        model: a hub id, a folder, a .gguf file, or a loaded model (then ``tokenizer`` too).
        path: the folder to write, new or empty.
        layer: its name; not with ``learned``.
        pooling: of its tokens; where not given the cache's only one, ``mean-nosink`` where it has it, else
            ``mean``.
        learned: a fitted mix of layers, or its folder.
        cache: an extraction by this model whose texts were put to it as they shall be (special tokens,
            prompt, length, attention sinks).
        correct: which correction of the vectors is fitted on the cache and built in, one of
            ``layerscope.select.CORRECTIONS``.
        correct_count: how many components or dimensions it takes out.
        normalize: scale vectors to unit length at the end.
        pick: the row of a picks frame that chose the layer, for the model card.
        tokenizer: needed with a loaded model.
        max_length: a limit in tokens below that of the model; the cache's where not given.
        dtype: of the weights in the folder; ``auto`` is float32 on a CPU.
        device: where the check runs.
        blocks: module path of the block list, where it is not found.
        final_norm: module path of the final norm, or ``none``, where it is not found.
        revision: of the model on the hub.
        allow_pickle: also load weights from pickles.
        trust_remote_code: run Python code that comes with the model.

    Raises:
        UsageError: neither or both of layer and mix, or a pooling that needs a cache.
        CacheError: a cache or mix of another model, or a folder that is not empty.
        ModelError: a model that cannot be cut, or whose export would give other vectors.
    """
    target = free_folder(path)
    fitted = load_pooling(learned) if isinstance(learned, str | Path) else learned
    if (layer is None) == (fitted is None):
        raise UsageError("give either a layer or a learned pooling to export")
    given = None if cache is None else as_cache(cache)
    source = find_model(model, revision, trust_remote_code=trust_remote_code)
    reading = _reading(source, given, fitted)
    names = list(fitted.poolings_) if fitted else [_pooling(pooling, given, reading)]
    if fitted is not None and (pooling is not None or correct != "none"):
        raise UsageError("a learned pooling has poolings of its own and takes no correction")
    correction = None
    if correct != "none":
        if given is None:
            raise UsageError(
                f"the correction '{correct}' is fitted on the vectors of a corpus: give its --cache"
            )
        correction = fit_correction(given.layer(str(layer), names[0]), correct, correct_count)
    if layer is not None and is_sublayer(str(layer)):
        raise UsageError(
            f"{layer} is what a part of a block adds, at which no model can be cut: export a layer of the "
            "residual stream, as block.k"
        )
    limit = max_length or reading.max_length
    loaded = load_model(
        source, model, tokenizer=tokenizer, dtype=dtype, device=device, max_length=limit, revision=revision,
        allow_pickle=allow_pickle, trust_remote_code=trust_remote_code,
    )  # fmt: skip
    backbone = Backbone(loaded.model, blocks=blocks, final_norm=final_norm)
    layers = [backbone.layers([name])[0] for name in (fitted.layers_ if fitted else [str(layer)])]
    plan = _Plan(loaded, backbone, layers, names, reading, fitted, correction, normalize)
    check_writable(target)
    with scratch_folder(target) as scratch:
        try:
            with quiet():
                _write(plan, scratch)
                measured = _check(plan, scratch / "folder")
        except (OSError, ValueError, RuntimeError, AttributeError, KeyError, TypeError) as problem:
            if isinstance(problem, UsageError):
                raise
            raise ModelError(
                f"{source.name} cannot be exported at {layers[-1].name} "
                f"({type(problem).__name__}: {first_line(problem)})"
            ) from problem
        exported = plan.result(target, scratch / "folder", measured)
        base = source.name if source.identity.get("kind") == "hub" else None
        card = model_card(plan.facts(exported, source.name, base, pick))
        write_text(scratch / "folder" / "README.md", card)
        put_in_place(scratch / "folder", target)
    return exported


def _reading(source: ModelSource, cache: LayerCache | None, fitted: LearnedPooling | None) -> TextReading:
    """How texts were put to the model, which must be this one."""
    for what, identity in (
        ("cache", cache.manifest["identity"] if cache else None),
        ("learned pooling", fitted.made_of_["identity"] if fitted else None),
    ):
        if identity is not None and identity["model"] != source.identity:
            raise CacheError(
                f"the {what} is of another model than {source.name}, or of other weights: give the same one"
            )
        if identity is not None and identity.get("part", "encoder") != "encoder":
            raise UsageError("the decoder of an encoder-decoder cannot be exported")
    if fitted is not None:
        return TextReading.of_identity(fitted.made_of_["identity"])
    return TextReading.of_identity(cache.manifest["identity"]) if cache else TextReading()


def _pooling(pooling: str | None, cache: LayerCache | None, reading: TextReading) -> str:
    if pooling is None:
        stored = cache.poolings if cache else ["mean"]
        pooling = next((name for name in ("mean-nosink", "mean") if name in stored), stored[0])
    name = check_poolings([pooling])[0]
    if name == "mean-nosink" and reading.sinks is None:
        raise UsageError(
            "pooling mean-nosink leaves out the attention sinks that an extraction found: give its --cache"
        )
    if cache is not None and name not in cache.poolings:
        raise UsageError(f"the cache {cache.path} holds the pooling {named(cache.poolings)}, not {name}")
    return name


@dataclass(frozen=True)
class _Plan:
    """All that a folder is made from."""

    loaded: LoadedModel
    backbone: Backbone
    layers: list[Layer]
    poolings: list[str]
    reading: TextReading
    fitted: LearnedPooling | None
    correction: Correction | None
    normalize: bool

    @property
    def blocks(self) -> int:
        """How many to keep; one at least where they are watched, since watching starts at the first."""
        deepest = max(layer.blocks for layer in self.layers)
        return deepest if self.has_plain_model else max(1, deepest)

    @property
    def has_plain_model(self) -> bool:
        """Whether the cut model returns the layer as it is."""
        last = self.layers[-1]
        return self.fitted is None and (last.is_normed or not self.backbone.structure.has_norm)

    @property
    def is_plain(self) -> bool:
        return self.has_plain_model and self.reading.is_plain(self.poolings[0])

    def modules(self, folder: Path) -> list[Any]:
        """The sentence-transformers modules around the cut model in ``folder``."""
        from sentence_transformers.sentence_transformer.modules import (
            Dense,
            Normalize,
            Pooling,
            Transformer,
        )

        from layerscope.exporting.modules import LayerMix, LayerStates, TokenPooling

        structure, tokenizer = self.backbone.structure, self.loaded.tokenizer
        width = self.backbone.width(self.layers[-1])
        options: dict[str, Any] = {
            "max_seq_length": self.loaded.max_length,
            "model_kwargs": {"dtype": self.loaded.model.dtype},
        }
        modules: list[Any]
        if self.has_plain_model:
            modules = [Transformer(str(folder), **options)]
        else:
            modules = [
                LayerStates(
                    str(folder),
                    layers=[layer.name for layer in self.layers],
                    blocks=structure.blocks_path,
                    final_norm=structure.norm_path or "none",
                    **options,
                )
            ]
        tokens = self.reading.token_options(tokenizer)
        if self.fitted is not None:
            kind = self.fitted
            mix = LayerMix(kind.kind, len(self.layers), width, self.poolings, kind.sizes, **tokens)
            mix.mix.load_state_dict(kind.module_.state_dict())
            modules.append(mix)
        elif self.reading.is_plain(self.poolings[0]):
            modules.append(Pooling(width, PLAIN[self.poolings[0]]))
        else:
            modules.append(TokenPooling(width, self.poolings[0], **tokens))
        if self.correction is not None:
            matrix, shift = self.correction.as_affine()
            modules.append(
                Dense(
                    width,
                    len(shift),
                    activation_function=torch.nn.Identity(),
                    init_weight=torch.from_numpy(matrix).float(),
                    init_bias=torch.from_numpy(shift).float(),
                )
            )
        return [*modules, Normalize()] if self.normalize else modules

    def expected(self) -> np.ndarray[Any, Any]:
        """The full model's vectors of the sentences that the folder is checked on, (n, d) float64."""
        stacks = self.reading.pooled(self.loaded, self.backbone, self.layers, self.poolings, TEXTS)
        inputs = [stacks[name] for name in self.poolings]
        vectors = inputs[0][:, 0]
        if self.fitted is not None:
            mix = self.fitted.module_
            with torch.inference_mode():
                vectors = mix(*(states.to(mix.centre.device) for states in inputs)).cpu()
        found = vectors.double().numpy()
        if self.correction is not None:
            found = self.correction.apply(found)
        return found / np.linalg.norm(found, axis=1, keepdims=True) if self.normalize else found

    def result(self, target: Path, folder: Path, measured: _Measured) -> Exported:
        structure = self.backbone.structure
        last = self.layers[-1]
        raw = self.fitted is None and not self.has_plain_model
        return Exported(
            path=target,
            layer=last.name,
            pooling=self.fitted.kind if self.fitted else self.poolings[0],
            plain=self.is_plain,
            blocks=self.blocks,
            n_blocks=structure.n_blocks,
            parameters=measured.parameters,
            full_parameters=_count(self.loaded.model),
            bytes=sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
            speed=measured.speed,
            error=measured.error,
            alternative=None if not raw else _normed(last, structure.n_blocks),
        )

    def facts(
        self, exported: Exported, name: str, base: str | None, pick: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """For the model card."""
        steps = [f"pooling: {named(self.poolings)}"]
        if self.reading.drop_first_token:
            steps.append("the first token of every text is left out")
        if self.reading.special_tokens == "drop":
            steps.append("special tokens are left out")
        if self.reading.prompt:
            steps.append(f"every text stands behind the prompt {self.reading.prompt!r}")
        if self.correction is not None:
            steps.append(f"correction: {self.correction.describe()}")
        if self.normalize:
            steps.append("vectors have unit length")
        picked = pick_lines(pick) if pick else []
        if self.fitted is not None:
            what = f"A learned mix ({self.fitted.kind}) of {count_of(len(self.layers), 'layer')} of {name}."
            shares = self.fitted.layer_weights_.nlargest(3, "weight")
            picked = [
                f"fitted on {count_of(self.fitted.n_examples_, 'example')} for the objective "
                f"'{self.fitted.objective_}', the model frozen",
                f"epoch {self.fitted.best_epoch_} was best by {self.fitted.dev_metric_}",
                "largest layer weights: "
                + ", ".join(
                    f"{name} {share:.2f}"
                    for name, share in zip(shares["layer_name"], shares["weight"], strict=True)
                ),
            ]
        else:
            what = f"The layer {exported.layer} of {name}."
        return {
            "title": f"{name}, {exported.layer if self.fitted is None else self.fitted.kind}",
            "base": base,
            "what": what,
            "blocks": exported.blocks,
            "n_blocks": exported.n_blocks,
            "parameters": exported.parameters,
            "full_parameters": exported.full_parameters,
            "bytes": exported.bytes,
            "speed": exported.speed,
            "error": exported.error,
            "plain": exported.plain,
            "steps": steps,
            "picked": picked,
            "folder": exported.path.name,
        }


def _normed(layer: Layer, n_blocks: int) -> str:
    return "norm" if layer.blocks == n_blocks else f"normed.{layer.blocks}"


def _count(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _write(plan: _Plan, scratch: Path) -> None:
    """The cut model in one folder, and the whole of it in another."""
    from sentence_transformers import SentenceTransformer

    cut, folder = scratch / "cut", scratch / "folder"
    save_cut(plan.loaded, plan.backbone.structure, plan.blocks, cut)
    modules = plan.modules(cut)
    check_loaded(plan.loaded, modules[0].model)
    prompts: dict[str, Any] = {"prompts": {"text": plan.reading.prompt}, "default_prompt_name": "text"}
    whole = SentenceTransformer(
        modules=modules,
        device="cpu",
        similarity_fn_name="cosine",
        **(prompts if plan.reading.prompt else {}),
    )
    whole.save(str(folder), create_model_card=False)


class _Measured(NamedTuple):
    """What is known of a folder once it was loaded: see ``Exported``."""

    error: float
    speed: float
    parameters: int


def _check(plan: _Plan, folder: Path) -> _Measured:
    """Load the folder and compare it with the full model.

    Raises:
        ModelError: the folder gives other vectors.
    """
    from sentence_transformers import SentenceTransformer

    device = str(plan.backbone.device)
    exported = SentenceTransformer(
        str(folder), device=device, trust_remote_code=not plan.is_plain, local_files_only=True
    )
    found = exported.encode(list(TEXTS), convert_to_numpy=True, show_progress_bar=False).astype(np.float64)
    expected = plan.expected()
    error = float(np.abs(found - expected).max() / np.abs(expected).max())
    if not error <= TOLERANCE.get(plan.loaded.dtype, _HALF):
        raise ModelError(
            f"the exported folder would give other vectors than {plan.layers[-1].name} (off by {error:.1e} "
            "of the largest entry): nothing was written"
        )
    first: Any = exported[0].model
    short = (
        Backbone(first, blocks=plan.backbone.structure.blocks_path, final_norm="none")
        if plan.blocks
        else None
    )
    return _Measured(error, _time_ratio(plan, short), _count(first))


def _time_ratio(plan: _Plan, short: Backbone | None) -> float:
    """Time of a forward pass of the cut model over that of the full one, the best of alternating rounds."""
    if short is None:
        return 0.0
    reading = replace(plan.reading, prompt="")
    long_texts = [" ".join(TEXTS)] * 2
    full = plan.backbone

    def run(backbone: Backbone, layers: Sequence[Layer]) -> float:
        start = time.perf_counter()
        reading.pooled(plan.loaded, backbone, layers, ["mean"], long_texts)
        return time.perf_counter() - start

    times: dict[str, list[float]] = {"short": [], "full": []}
    for _ in range(_ROUNDS + 1):  # the first round warms up
        times["full"].append(run(full, full.layers([-1])))
        times["short"].append(run(short, short.layers([-1])))
    return min(times["short"][1:]) / min(times["full"][1:])
