"""A model whose layers can be watched: its blocks and final norm found, its states captured by hooks.

Nothing of the model is changed for good: hooks are removed, training flags are put back, and no
attribute is set. ``embed`` is what the first block receives, ``block.k`` what the k-th call of a
block returns, ``norm`` what the final norm returns for the last block, ``attn.k`` and ``mlp.k`` what the
attention and the MLP of the k-th block add to the residual stream.
"""

from __future__ import annotations

import contextlib
import difflib
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.errors import LayerscopeError, ModelError, UsageError, count_of, first_line
from layerscope.layers import RESIDUAL, Layer, parse_layers
from layerscope.sublayers import FLAGS, Recording

Visit = Callable[[Layer, Tensor], None]


class _LastLayerReached(Exception):  # noqa: N818  (control flow, not an error)
    """Raised by a hook to leave the forward pass once every wanted layer has been seen."""


@dataclass(frozen=True)
class Structure:
    """Where the layers of a model are.

    Attributes:
        blocks_path: module path of the block list, as ``encoder.layer``.
        norm_path: module path of the final norm, or ``None`` where there is none.
        n_blocks: number of blocks that run.
        widths: width of ``embed`` and of each block's output, (n_blocks + 1) numbers.
    """

    blocks_path: str
    norm_path: str | None
    n_blocks: int
    widths: tuple[int, ...]

    @property
    def has_norm(self) -> bool:
        """Whether the model has a final norm."""
        return self.norm_path is not None


class Backbone:
    """A model ready to be run with its layers watched.

    Args:
        model: a ``torch.nn.Module`` that takes ``input_ids`` and ``attention_mask``, as the base
            models of transformers do; on the device where it shall run.
        blocks: module path of the block list, where finding it by structure fails.
        final_norm: module path of the final norm, or ``"none"``, where finding it fails.
        attention: module path, within a block, of what returns ``attn.k``, where finding it fails.
        mlp: the same of ``mlp.k``.

    Raises:
        ModelError: the block list cannot be found. The message lists the candidates.
        UsageError: a path that was given does not exist.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        blocks: str | None = None,
        final_norm: str | None = None,
        attention: str | None = None,
        mlp: str | None = None,
    ) -> None:
        self.model = model
        self.structure = _find_structure(model, blocks, final_norm)
        self._blocks = _blocks_at(model, self.structure.blocks_path)
        path = self.structure.norm_path
        self._norm = None if path is None else model.get_submodule(path)
        self._named = {site: given for site, given in (("attn", attention), ("mlp", mlp)) if given}
        self._found: dict[nn.Module, dict[str, str]] = {}
        self._paths: dict[str, dict[str, list[str]]] = {}
        for site in self._named:
            self.sublayers(site)

    @property
    def device(self) -> torch.device:
        """Where the model's first parameter lives."""
        return next(self.model.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """Of the model's first parameter."""
        return next(self.model.parameters()).dtype

    @property
    def is_quantized(self) -> bool:
        """Whether the weights are of a quantised type, which cannot be widened."""
        return bool(getattr(self.model, "is_quantized", False))

    def layers(self, selection: str | Sequence[str | int], sites: Sequence[str] = RESIDUAL) -> list[Layer]:
        """The layers that ``selection`` asks for; see ``layerscope.layers.parse_layers``.

        Raises:
            UsageError: the selection is empty or not understood.
            ModelError: ``attn`` or ``mlp`` is asked for, and the blocks have no such part that can be told.
        """
        chosen = parse_layers(selection, self.structure.n_blocks, self.structure.has_norm, sites)
        for site in dict.fromkeys(layer.site for layer in chosen if layer.site != "block"):
            self.sublayers(site)
        return chosen

    def sublayers(self, site: str) -> dict[str, list[str]]:
        """Which modules within the blocks return ``attn.k`` or ``mlp.k``.

        Args:
            site: ``attn`` or ``mlp``.

        Returns:
            By path within a block, the paths of the blocks where it is that; mostly the same for all.

        Raises:
            ModelError: they cannot be told, or the modules do not return one vector a token.
            UsageError: a path that was given does not exist.
        """
        if site in self._paths:
            return self._paths[site]
        if site not in self._named and not self._found:
            self._found = _find_sublayers(self.model, self._blocks)
        found: dict[str, list[str]] = {}
        names = {module: name for name, module in self.model.named_modules()}
        for block in dict.fromkeys(self._blocks):
            path = self._named.get(site) or self._found[block][site]
            _check_sublayer(block, path, site)
            found.setdefault(path, []).append(names[block])
        self._paths[site] = found
        return found

    def _sublayers(self, layers: Sequence[Layer]) -> list[tuple[nn.Module, str]]:
        """The modules to watch for the wanted attention and MLP outputs, with their sites."""
        return [
            (self.model.get_submodule(f"{block}.{path}"), site)
            for site in dict.fromkeys(layer.site for layer in layers if layer.site != "block")
            for path, blocks in self.sublayers(site).items()
            for block in blocks
        ]

    def width(self, layer: Layer) -> int:
        """Width of a layer's states."""
        return self.structure.widths[layer.blocks]

    @property
    def has_dropout(self) -> bool:
        """Whether a dropout module of the model drops anything."""
        return any(module.p > 0 for module in _dropouts(self.model))

    def run(
        self,
        input_ids: Tensor,
        mask: Tensor,
        layers: Sequence[Layer],
        visit: Visit,
        *,
        dropout_seed: int | None = None,
    ) -> None:
        """Run one batch and hand each wanted layer's states to ``visit`` as they are produced.

        Args:
            input_ids: (b, t) token ids, right-padded.
            mask: (b, t) true for real tokens.
            layers: what to capture. The forward pass stops after the last of them.
            visit: called with the layer and its states (b, t, width), which it must not keep or change.
            dropout_seed: run with the model's dropout on, and nothing else of its training mode.
        """
        watcher = _Watcher(layers, self._norm, visit, self._sublayers(layers))
        with torch.inference_mode(), in_eval_mode(self.model), watcher.hooked(self._blocks):
            arguments = _forward_arguments(self.model, input_ids, mask)
            with _dropping(self.model, dropout_seed), contextlib.suppress(_LastLayerReached):
                self._forward(arguments, watcher)
        watcher.check()

    def states(self, layers: Sequence[Layer], **arguments: Any) -> dict[str, Tensor]:
        """States of several layers at once, with gradients, in whatever mode the model is in.

        Args:
            layers: what to capture. The forward pass stops after the last of them.
            arguments: of the model: ``input_ids`` (b, t), ``attention_mask`` …

        Returns:
            By layer name, (b, t, width).
        """
        found: dict[str, Tensor] = {}
        watcher = _Watcher(
            layers,
            self._norm,
            lambda layer, states: found.update({layer.name: states}),
            self._sublayers(layers),
        )
        with watcher.hooked(self._blocks), contextlib.suppress(_LastLayerReached):
            self._forward(arguments, watcher)
        watcher.check()
        return found

    def _forward(self, arguments: dict[str, Any], watcher: _Watcher) -> None:
        """One forward pass; what the model raises becomes one line, save for running out of memory."""
        try:
            self.model(**arguments)
        except (LayerscopeError, _LastLayerReached, torch.OutOfMemoryError, MemoryError):
            raise
        except Exception as error:  # models raise whatever they like
            if watcher.visit_failed:
                raise
            texts, tokens = arguments["input_ids"].shape
            raise ModelError(
                f"{type(self.model).__name__} failed on a batch of {count_of(texts, 'text')} of up to "
                f"{count_of(tokens, 'token')} ({type(error).__name__}: {first_line(error)}): "
                "try --max-length, or --deterministic where it cannot take padding"
            ) from error


class _Watcher:
    """The hooks of one forward pass."""

    def __init__(
        self,
        layers: Sequence[Layer],
        norm: nn.Module | None,
        visit: Visit,
        sublayers: Sequence[tuple[nn.Module, str]] = (),
    ) -> None:
        self.missing = sorted(layers, key=lambda layer: layer.sort_key)
        self._norm = norm
        self._visit = visit
        self._sublayers = sublayers
        self._tokens: torch.Size = torch.Size()
        self.visit_failed = False
        self._calls = 0
        self._normalising = False

    def check(self) -> None:
        """Refuse a forward pass that did not come by every layer."""
        if self.missing:
            names = ", ".join(layer.name for layer in self.missing)
            raise ModelError(f"the forward pass ended without reaching the layer(s) {names}")

    @contextlib.contextmanager
    def hooked(self, blocks: Sequence[nn.Module]) -> Iterator[None]:
        """Hooks on every distinct block and on the final norm, removed on the way out."""
        handles = []
        try:
            for block in dict.fromkeys(blocks):
                handles.append(block.register_forward_pre_hook(self._before_block, with_kwargs=True))
                handles.append(block.register_forward_hook(self._after_block))
            if self._norm is not None:
                handles.append(self._norm.register_forward_hook(self._after_norm))
            for module, site in self._sublayers:
                handles.append(module.register_forward_hook(partial(self._after_sublayer, site)))
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _before_block(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._calls == 0:
            self._see(0, _states_in(args, kwargs))
        if self._sublayers:
            self._tokens = _states_in(args, kwargs).shape[:-1]

    def _after_block(self, _: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        self._calls += 1
        self._see(self._calls, _states_out(output))

    def _after_sublayer(self, site: str, _: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        name = f"{site}.{self._calls + 1}"
        for place, layer in enumerate(self.missing):
            if layer.name == name:
                self._deliver(_states_out(output).reshape(*self._tokens, -1), place)
                return

    def _after_norm(self, _: nn.Module, __: tuple[Any, ...], output: Tensor) -> None:
        if not self._normalising and self._next_is(self._calls, "norm"):
            self._deliver(output)

    def _see(self, blocks: int, states: Tensor) -> None:
        if self._next_is(blocks, "embed") or self._next_is(blocks, "block."):
            self._deliver(states)
        if self._next_is(blocks, "normed.") and self._norm is not None:
            self._normalising = True
            normed = self._norm(states)
            self._normalising = False
            self._deliver(normed)

    def _next_is(self, blocks: int, prefix: str) -> bool:
        if not self.missing or self.missing[0].blocks != blocks:
            return False
        return self.missing[0].name == prefix or (
            prefix.endswith(".") and self.missing[0].name.startswith(prefix)
        )

    def _deliver(self, states: Tensor, place: int = 0) -> None:
        layer = self.missing.pop(place)
        self.visit_failed = True
        self._visit(layer, states)
        self.visit_failed = False
        if not self.missing:
            raise _LastLayerReached


def _states_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The hidden states among the arguments of a block."""
    states = args[0] if args else kwargs.get("hidden_states")
    if not isinstance(states, Tensor):
        raise ModelError(
            "the first block does not receive a tensor of hidden states: name the block list with --blocks"
        )
    return states


def _states_out(output: Any) -> Tensor:
    """The hidden states among what a block returns."""
    states = output[0] if isinstance(output, tuple) else output
    if not isinstance(states, Tensor):
        raise ModelError(
            "a block does not return a tensor of hidden states: name the block list with --blocks"
        )
    return states


@contextlib.contextmanager
def in_eval_mode(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside, every module's own flag put back afterwards."""
    flags = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, flag in flags:
            module.training = flag


def _dropouts(model: nn.Module) -> list[nn.modules.dropout._DropoutNd]:
    return [module for module in model.modules() if isinstance(module, nn.modules.dropout._DropoutNd)]


@contextlib.contextmanager
def _dropping(model: nn.Module, seed: int | None) -> Iterator[None]:
    """Dropout on inside, from a seed, for a model in evaluation mode; the caller's draws are undisturbed."""
    if seed is None:
        yield
        return
    modules = _dropouts(model)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        try:
            for module in modules:
                module.train()
            yield
        finally:
            for module in modules:
                module.eval()


@contextlib.contextmanager
def in_float32(model: nn.Module) -> Iterator[None]:
    """Half-precision weights as float32 inside, the very same tensors put back afterwards."""
    halves = [
        (tensor, tensor.data)
        for tensor in (*model.parameters(), *model.buffers())
        if tensor.dtype in (torch.float16, torch.bfloat16)
    ]
    try:
        for tensor, data in halves:
            tensor.data = data.float()
        yield
    finally:
        for tensor, data in halves:
            tensor.data = data


def _forward_arguments(model: nn.Module, input_ids: Tensor, mask: Tensor) -> dict[str, Any]:
    """What to call ``model`` with: no cache, and the mask where the model takes one."""
    known = inspect.signature(model.forward).parameters
    arguments: dict[str, Any] = {"input_ids": input_ids}
    if "attention_mask" in known:
        arguments["attention_mask"] = mask.to(torch.int64)
    if "use_cache" in known:
        arguments["use_cache"] = False
    return arguments


# Finding the layers


_PROBE_WORDS = 13  # fewer than any model knows
_PROBE = (2, 8)  # texts and tokens of the pass that finds the structure; unequal, to tell the axes apart


def _find_structure(model: nn.Module, blocks: str | None, final_norm: str | None) -> Structure:
    path = _find_blocks(model) if blocks is None else _checked_path(model, blocks, "--blocks")
    modules = _blocks_at(model, path)
    probe = _probe(model, modules, _norm_candidates(model, path))
    norm_path = probe.norm_path if final_norm is None else _checked_norm(model, final_norm, probe.last_states)
    return Structure(path, norm_path, len(probe.widths) - 1, tuple(probe.widths))


def _blocks_at(model: nn.Module, path: str) -> list[nn.Module]:
    """The blocks at ``path``: a list's members, or one block that runs several times."""
    module = model.get_submodule(path)
    return list(module) if isinstance(module, nn.ModuleList | nn.Sequential) else [module]


def _checked_path(model: nn.Module, path: str, flag: str) -> str:
    known = [name for name, _ in model.named_modules() if name]
    if path not in known:
        named = [name for name in known if not name.rpartition(".")[2].isdigit()]
        close = difflib.get_close_matches(path, named, n=5, cutoff=0.3) or named[:5]
        raise UsageError(f"{flag}: the model has no module '{path}'; the nearest are {', '.join(close)}")
    return path


def _checked_norm(model: nn.Module, path: str, states: Tensor | None) -> str | None:
    """The path of a final norm named by hand, which must take hidden states and keep their shape."""
    if path == "none":
        return None
    module = model.get_submodule(_checked_path(model, path, "--final-norm"))
    try:
        with torch.inference_mode(), in_eval_mode(module):
            kept = states is None or module(states).shape == states.shape
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):  # made for something else
        kept = False
    if not kept:
        raise UsageError(
            f"--final-norm: '{path}' ({type(module).__name__}) does not take the hidden states of a block"
        )
    return path


def _find_blocks(model: nn.Module) -> str:
    """Path of the one module list that holds, or runs, as many alike modules as the config has layers."""
    lists = {
        path: module
        for path, module in model.named_modules()
        if isinstance(module, nn.ModuleList)
        and len(module) > 0
        and len({type(block) for block in module}) == 1
    }
    outer = {path: m for path, m in lists.items() if not any(path.startswith(f"{other}.") for other in lists)}
    within = getattr(model, "blocks_within", "")
    outer = {path: members for path, members in outer.items() if path.startswith(within)}
    expected = None if within else _configured_blocks(model)
    fitting = [path for path, module in outer.items() if expected is None or len(module) == expected]
    if not fitting and expected is not None:  # blocks that run several times, as those of ALBERT
        calls = _count_calls(model, outer)
        fitting = [path for path in outer if calls[path] == expected]
    if len(fitting) == 1:
        return str(fitting[0])
    listing = ", ".join(f"{path} ({len(module)})" for path, module in lists.items()) or "none"
    raise ModelError(
        f"cannot tell which module list holds the blocks of {type(model).__name__} "
        f"(the config says {expected} layers; candidates: {listing}): name it with --blocks PATH"
    )


def _configured_blocks(model: nn.Module) -> int | None:
    config = getattr(model, "config", None)
    count = getattr(config, "num_hidden_layers", None)
    return count if isinstance(count, int) else None


def _norm_candidates(model: nn.Module, blocks_path: str) -> dict[str, nn.Module]:
    """Normalisation modules outside the blocks."""
    return {
        path: module
        for path, module in model.named_modules()
        if "norm" in type(module).__name__.lower()
        and not path.startswith(f"{blocks_path}.")
        and not list(module.children())
    }


def _count_calls(model: nn.Module, lists: dict[str, nn.ModuleList]) -> dict[str, int]:
    """How often the members of each list run in one forward pass."""
    calls = dict.fromkeys(lists, 0)

    def count(path: str) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
        def seen(_: nn.Module, __: tuple[Any, ...], ___: Any) -> None:
            calls[path] += 1

        return seen

    handles = [
        member.register_forward_hook(count(path)) for path, members in lists.items() for member in members
    ]
    _probe_forward(model, handles)
    return calls


def _probe_forward(model: nn.Module, handles: list[Any], *, distinct: bool = False) -> None:
    """Run a few tokens through the model, and take the hooks off again.

    Args:
        model: the model.
        handles: of the hooks.
        distinct: run different tokens, so that not all of them can be padding, whose states may be zero.

    Raises:
        ModelError: the model cannot run them.
    """
    try:
        ids = mask = torch.ones(_PROBE, dtype=torch.int64, device=next(model.parameters()).device)
        if distinct:
            ids = (mask.flatten().cumsum(0) % _PROBE_WORDS).reshape(_PROBE)
        with torch.inference_mode(), in_eval_mode(model):
            model(**_forward_arguments(model, ids, mask))
    except ModelError:
        raise
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise ModelError(
            f"{type(model).__name__} runs out of memory on {_PROBE[0]} texts of {_PROBE[1]} tokens: "
            "take --device cpu, or --dtype bfloat16"
        ) from error
    except Exception as error:  # models raise whatever they like
        raise ModelError(
            f"{type(model).__name__} cannot run {_PROBE[0]} texts of {_PROBE[1]} tokens "
            f"({type(error).__name__}: {first_line(error)}): "
            "it is of no kind that layerscope knows how to call"
        ) from error
    finally:
        for handle in handles:
            handle.remove()


def _check_axes(model: nn.Module, states: Tensor, what: str) -> None:
    """Refuse states that are not one vector a token, text by text: pooling would take the wrong axis.

    Raises:
        ModelError: names the model and the shape.
    """
    if states.ndim != 3 or tuple(states.shape[:2]) != _PROBE:
        raise ModelError(
            f"{type(model).__name__}: {what} has the shape {tuple(states.shape)} for {_PROBE[0]} texts of "
            f"{_PROBE[1]} tokens, and not ({_PROBE[0]}, {_PROBE[1]}, width): "
            "without one state for every token, text by text, layers cannot be pooled"
        )


def _find_sublayers(model: nn.Module, blocks: list[nn.Module]) -> dict[nn.Module, dict[str, str]]:
    """By block, the paths within it of what returns its attention's output and its MLP's.

    Raises:
        ModelError: they cannot be told.
    """
    recordings = {block: Recording(block) for block in dict.fromkeys(blocks)}
    handles = []
    for block, recording in recordings.items():
        handles.append(
            block.register_forward_pre_hook(partial(_start_recording, recording), with_kwargs=True)
        )
        handles += recording.hooks()
        handles.append(block.register_forward_hook(partial(_stop_recording, recording)))
    _probe_forward(model, handles, distinct=True)
    return {block: recording.find() for block, recording in recordings.items()}


def _start_recording(
    recording: Recording, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    recording.start(_states_in(args, kwargs))


def _stop_recording(recording: Recording, _: nn.Module, __: tuple[Any, ...], output: Any) -> None:
    recording.stop(_states_out(output))


def _check_sublayer(block: nn.Module, path: str, site: str) -> None:
    """Refuse a path within a block that is not there.

    Raises:
        UsageError: names the block's modules.
    """
    known = [name for name, _ in block.named_modules() if name]
    if path not in known:
        close = difflib.get_close_matches(path, known, n=5, cutoff=0.3) or known[:5]
        raise UsageError(
            f"{FLAGS[site]}: a {type(block).__name__} has no module '{path}'; the nearest are "
            f"{', '.join(close)}"
        )


@dataclass
class _Probe:
    """What a forward pass over a few tokens shows."""

    widths: list[int]
    last_states: Tensor | None = None
    norm_path: str | None = None


def _probe(model: nn.Module, blocks: list[nn.Module], norms: dict[str, nn.Module]) -> _Probe:
    """Run a few tokens: count block calls, note widths, see which norm receives the last block's output."""
    probe = _Probe(widths=[])

    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not probe.widths:
            states = _states_in(args, kwargs)
            _check_axes(model, states, "what the first block receives")
            probe.widths.append(states.shape[-1])

    def after(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        probe.last_states = _states_out(output)
        _check_axes(model, probe.last_states, f"what block {len(probe.widths)} returns")
        probe.widths.append(probe.last_states.shape[-1])
        probe.norm_path = None

    def watch_norm(path: str) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
        def seen(_: nn.Module, args: tuple[Any, ...], __: Any) -> None:
            if probe.last_states is not None and args and _same(args[0], probe.last_states):
                probe.norm_path = probe.norm_path or path

        return seen

    handles = [norm.register_forward_hook(watch_norm(path)) for path, norm in norms.items()]
    for block in dict.fromkeys(blocks):
        handles.append(block.register_forward_pre_hook(before, with_kwargs=True))
        handles.append(block.register_forward_hook(after))
    _probe_forward(model, handles)
    if len(probe.widths) < 2:
        raise ModelError("the blocks did not run in a forward pass: name the block list with --blocks PATH")
    return probe


def _same(received: Any, states: Tensor) -> bool:
    return received is states or (isinstance(received, Tensor) and torch.equal(received, states))
