"""Checks of a model on a handful of texts: are its layers found, right, finite and worth measuring?"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from layerscope.backbone import Backbone, in_eval_mode
from layerscope.errors import ModelError, UsageError, count_of, named
from layerscope.files import human_bytes
from layerscope.metrics import Undefined
from layerscope.metrics.first_token_norm_ratio import first_token_norm_ratio
from layerscope.metrics.outlier_dimensions import outlier_variance
from layerscope.models import DType, LoadedModel, Part, find_model, load_model
from layerscope.sinks import RATIO
from layerscope.tokens import TokenTable, make_batch, tokenize, unknown_tokens_note

TEXTS = (
    "The ferry leaves the island every morning before the fog has lifted from the harbour.",
    "Interest rates rose for the third time this year, and the bank expects another rise in spring.",
    "Rain.",
    "She planted two rows of beans along the fence and waited for the first warm week of May.",
    "A proof by contradiction assumes the opposite of what is to be shown and ends in something absurd.",
    "def area(r): return 3.14159 * r ** 2",
    "The jury found that the contract had been broken twice; it awarded damages of 40,000 dollars.",
    "Why do cats land on their feet?",
)
Status = Literal["pass", "warn", "fail"]
States = dict[str, list[NDArray[np.float32]]]
_CLOSE = {"float32": 1e-4, "float64": 1e-6}  # of the largest entry of a layer; half precision has 3 digits
_ROUGH = 5e-2
_DOMINATES = 0.5
_TIMED_TOKENS = 1024
_NO_LIMIT = 10**6


@dataclass(frozen=True)
class Check:
    """What one check found.

    Attributes:
        name: of the check.
        status: ``pass``, ``warn`` (usable, but mind this) or ``fail``.
        says: one sentence.
    """

    name: str
    status: Status
    says: str


def doctor(
    model: Any,
    texts: Sequence[str] = TEXTS,
    *,
    tokenizer: Any = None,
    n_texts: int = 10_000,
    max_length: int | None = None,
    dtype: DType = "auto",
    device: str = "auto",
    blocks: str | None = None,
    final_norm: str | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
    part: Part = "encoder",
) -> list[Check]:
    """Run a handful of texts through ``model`` and say whether its layers can be trusted.

    Args:
        model: as in ``extract``.
        texts: at least two different ones.
        tokenizer: needed with a loaded model.
        n_texts: how many texts the estimate of time and space is for.
        max_length: as in ``extract``, like all that follow.
        dtype: of the weights.
        device: where to run.
        blocks: module path of the block list, where it is not found.
        final_norm: module path of the final norm, or ``none``.
        revision: of the model on the hub.
        allow_pickle: also load weights from pickles.
        trust_remote_code: run Python code that comes with the model.
        part: of an encoder-decoder, ``encoder`` or ``decoder``.

    Raises:
        LayerscopeError: the model cannot be loaded at all, or there are too few texts.
    """
    if len(set(texts)) < 2:
        raise UsageError("texts: give at least two different ones")
    source = find_model(model, revision, trust_remote_code=trust_remote_code)
    loaded = load_model(
        source, model, tokenizer=tokenizer, dtype=dtype, device=device, max_length=max_length,
        revision=revision, allow_pickle=allow_pickle, trust_remote_code=trust_remote_code, part=part,
    )  # fmt: skip
    try:
        backbone = Backbone(loaded.model, blocks=blocks, final_norm=final_norm)
    except ModelError as error:
        return [Check("layers", "fail", str(error))]
    table = tokenize(loaded.tokenizer, list(texts), loaded.max_length)
    patient = _Patient(loaded, backbone, table)
    return [
        patient.layers(),
        patient.final_norm(),
        patient.finite(),
        patient.constant(),
        patient.transformers(),
        patient.neighbours(),
        patient.padding(),
        patient.special_tokens(),
        patient.vocabulary(),
        patient.first_token(),
        patient.outlier_dimensions(),
        patient.length(),
        patient.cost(n_texts),
    ]


class _Patient:
    """A model, its texts, and the states of every layer for each text alone."""

    def __init__(self, loaded: LoadedModel, backbone: Backbone, table: TokenTable) -> None:
        self._loaded = loaded
        self._backbone = backbone
        self._table = table
        self._chosen = backbone.layers("all")
        self._tolerance = _CLOSE.get(loaded.dtype, _ROUGH)
        texts = np.flatnonzero(table.lengths > 0)
        self._texts = texts
        self._alone: States = {layer.name: [] for layer in self._chosen}
        for text in texts:
            for name, states in self._run(texts=np.array([text])).items():
                self._alone[name] += states
        self._broken = [
            name for name, states in self._alone.items() if not all(np.isfinite(one).all() for one in states)
        ]

    def _run(self, texts: NDArray[np.int64], left: bool = False) -> States:
        """States of every layer and text in one padded batch, without the padding."""
        batch = make_batch(self._table, {}, texts, pad_id=0)
        ids, real = batch.ids, batch.real
        if left:
            order = np.argsort(real, axis=1, kind="stable")
            ids, real = np.take_along_axis(ids, order, axis=1), np.take_along_axis(real, order, axis=1)
        found: States = {}

        def keep(layer: Any, states: torch.Tensor) -> None:
            values = states.float().cpu().numpy()
            found[layer.name] = [values[row, real[row]] for row in range(len(texts))]

        device = self._backbone.device
        self._backbone.run(
            torch.as_tensor(ids, device=device).long(),
            torch.as_tensor(real, device=device),
            self._chosen,
            keep,
        )
        return found

    def _farthest(self, other: States) -> tuple[float, str]:
        """The largest difference to the texts alone over finite layers, and the layer where it is."""
        worst, where = 0.0, self._chosen[0].name
        for name, states in self._alone.items():
            if name in self._broken:
                continue
            size = max(float(np.abs(one).max()) for one in states) or 1.0
            apart = max(
                float(np.abs(one - two).max()) / size for one, two in zip(states, other[name], strict=True)
            )
            if not apart <= worst:  # a NaN is the worst
                worst, where = apart, name
        return worst, where

    def layers(self) -> Check:
        structure = self._backbone.structure
        widths = sorted(set(structure.widths))
        wide = f"width {widths[0]}" if len(widths) == 1 else f"widths {widths[0]} to {widths[-1]}"
        names = f"{self._chosen[0].name} … {self._chosen[-1].name}"
        blocks = f"{count_of(structure.n_blocks, 'block')} at {structure.blocks_path}"
        return Check("layers", "pass", f"{names}: {blocks}, {wide}")

    def final_norm(self) -> Check:
        path = self._backbone.structure.norm_path
        if path is None:
            return Check("final norm", "pass", "none follows the last block")
        last = f"block.{self._backbone.structure.n_blocks}"
        return Check("final norm", "pass", f"{path}; {last} is before it, norm after it")

    def finite(self) -> Check:
        if self._broken:
            return Check("finite", "fail", f"NaN or infinity at {named(self._broken, most=4)}")
        return Check("finite", "pass", f"every state of {count_of(len(self._texts), 'text')} is finite")

    def constant(self) -> Check:
        flat = [
            name
            for name, states in self._alone.items()
            if name not in self._broken and len({one.mean(axis=0).tobytes() for one in states}) == 1
        ]
        if flat:
            return Check("constant", "fail", f"all texts have the same states at {named(flat, most=4)}")
        return Check("constant", "pass", "texts differ at every layer that is finite")

    def transformers(self) -> Check:
        """Compare with ``output_hidden_states``."""
        name = "against transformers"
        expected = self._hidden_states()
        if expected is None:
            return Check(name, "warn", "the model does not give its hidden_states: not compared")
        names = [layer.name for layer in self._chosen]
        if "norm" in names:
            names.remove(f"block.{self._backbone.structure.n_blocks}")
        if len(names) != len(expected):
            says = f"{len(expected)} hidden_states for {count_of(len(names), 'layer')}: not compared"
            return Check(name, "warn", says)
        shifts = [names, [layer.name for layer in self._chosen if layer.name != "embed"]]
        worst = min(
            (
                max(self._apart(layer, states) for layer, states in zip(order, expected, strict=True))
                for order in shifts
                if len(order) == len(expected)
            ),
        )
        if worst > self._tolerance:
            says = f"layers differ from hidden_states by {worst:.1g} of their largest entry"
            return Check(name, "fail", says)
        return Check(name, "pass", f"layers equal hidden_states ({worst:.1g} of the largest entry)")

    def _hidden_states(self) -> list[NDArray[np.float32]] | None:
        ids = torch.as_tensor(self._table.ids[self._table.span(int(self._texts[0]))][None]).long()
        ids = ids.to(self._backbone.device)
        model = self._backbone.model
        with torch.inference_mode(), in_eval_mode(model), contextlib.suppress(TypeError):
            output = getattr(model, "whole", model)(
                **({"decoder_input_ids": ids} if hasattr(model, "whole") else {}),
                input_ids=ids,
                output_hidden_states=True,
            )
            found = getattr(output, "decoder_hidden_states", None) or getattr(output, "hidden_states", None)
            return [states[0].float().cpu().numpy() for states in found] if found else None
        return None

    def _apart(self, name: str, states: NDArray[np.float32]) -> float:
        ours = self._alone[name][0]
        if name in self._broken:
            return 0.0
        return (
            float(np.abs(ours - states).max() / (np.abs(ours).max() or 1.0))
            if ours.shape == states.shape
            else 1.0
        )

    def neighbours(self) -> Check:
        worst, where = self._farthest(self._run(self._texts))
        name = "batch and neighbours"
        if not worst <= self._tolerance:
            says = (
                f"padding and neighbours change states by {worst:.1g} of the largest entry, most at {where}"
            )
            return Check(name, "fail", f"{says}: run with --batch-tokens 1")
        says = f"a text has the same states alone and among others ({worst:.1g} of the largest entry)"
        return Check(name, "pass", says)

    def padding(self) -> Check:
        worst, where = self._farthest(self._run(self._texts, left=True))
        side = str(getattr(self._loaded.tokenizer, "padding_side", "right"))
        if worst <= self._tolerance:
            return Check("padding side", "pass", f"left and right give the same states (tokenizer: {side})")
        says = f"left padding changes states by {worst:.1g} of the largest entry, most at {where}"
        if side == "left":
            says += ", and the tokenizer pads on the left: layerscope pads on the right, other code may not"
            return Check("padding side", "warn", says)
        return Check("padding side", "pass", f"{says}; layerscope and the tokenizer pad on the right")

    def special_tokens(self) -> Check:
        span = self._table.span(int(self._texts[0]))
        ids, special = self._table.ids[span], self._table.special[span]
        begin = int(np.argmin(special)) if not special.all() else len(special)
        end = int(np.argmin(special[::-1])) if not special.all() else 0
        first = self._loaded.tokenizer.convert_ids_to_tokens(ids[:begin].tolist())
        last = self._loaded.tokenizer.convert_ids_to_tokens(ids[len(ids) - end :].tolist())
        says = f"a text begins with {_tokens(first)} and ends with {_tokens(last)}"
        if len(set(first)) < len(first):
            return Check("special tokens", "warn", f"{says}: one of them twice")
        return Check("special tokens", "pass", says)

    def vocabulary(self) -> Check:
        notes = unknown_tokens_note(self._table, self._loaded.tokenizer)
        if notes:
            return Check("vocabulary", "warn", notes[0])
        return Check("vocabulary", "pass", "the tokenizer knows the words of these texts")

    def first_token(self) -> Check:
        ratios = self._by_layer(lambda states: max(map(_ratio, states)))
        large = [name for name, ratio in ratios.items() if ratio > RATIO]
        most = max(ratios, key=lambda name: ratios[name]) if ratios else ""
        if not large:
            says = (
                f"its norm is at most {ratios[most]:.1f} times the median token's" if most else "not measured"
            )
            return Check("first token", "pass", says)
        says = (
            f"its norm is up to {ratios[most]:.0f} times the median token's ({most}), above {RATIO:.0f} at "
        )
        return Check("first token", "warn", f"{says}{named(large, most=4)}: use mean-nosink")

    def outlier_dimensions(self) -> Check:
        shares = self._by_layer(lambda states: outlier_variance(np.concatenate([one[1:] for one in states])))
        large = [name for name, share in shares.items() if share > _DOMINATES]
        most = max(shares, key=lambda name: shares[name]) if shares else ""
        if not most:
            return Check("outlier dimensions", "warn", "not measured: no layer varies")
        says = f"one dimension holds up to {shares[most]:.0%} of the variance of tokens ({most})"
        if large:
            return Check("outlier dimensions", "warn", f"{says}; more than half at {named(large, most=4)}")
        return Check("outlier dimensions", "pass", says)

    def _by_layer(self, measure: Callable[[list[NDArray[np.float32]]], float]) -> dict[str, float]:
        """A number for every finite layer that has one, before the final norm."""
        found = {}
        for layer in self._chosen:
            if layer.name in self._broken or layer.is_normed:
                continue
            with contextlib.suppress(Undefined):
                found[layer.name] = measure(self._alone[layer.name])
        return found

    def length(self) -> Check:
        limit = self._loaded.max_length
        if limit > _NO_LIMIT:
            return Check("length limit", "warn", "neither model nor tokenizer has one: give --max-length")
        return Check("length limit", "pass", f"{count_of(limit, 'token')}; longer texts are cut and flagged")

    def cost(self, n_texts: int) -> Check:
        lengths = self._table.lengths[self._texts]
        times = max(1, _TIMED_TOKENS // (len(lengths) * int(lengths.max())))
        repeated = np.repeat(self._texts, times)
        start = time.perf_counter()
        self._run(repeated)
        speed = float(self._table.lengths[repeated].sum()) / (time.perf_counter() - start)
        seconds = n_texts * float(lengths.mean()) / speed
        space = 4 * n_texts * sum(self._backbone.width(layer) for layer in self._chosen)
        says = (
            f"{speed:,.0f} tokens a second on {self._backbone.device}: {n_texts:,} texts such as these take "
            f"about {_duration(seconds)} and {human_bytes(space)} a pooling"
        )
        return Check("speed and space", "pass", says)


def _ratio(states: NDArray[np.float32]) -> float:
    """``first_token_norm_ratio``, 1 where a text has none."""
    try:
        return first_token_norm_ratio(states)
    except Undefined:
        return 1.0


def _tokens(tokens: Sequence[str]) -> str:
    return " ".join(tokens) if tokens else "none"


def _duration(seconds: float) -> str:
    """A time in words.

    >>> _duration(42.0), _duration(600.0), _duration(9000.0)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
