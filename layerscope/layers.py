"""What a layer is: its names, order and depth, and the parsing of ``--layers``.

Index and name agree with the ``hidden_states`` of Hugging Face models: ``embed`` is what the
first block receives, ``block.k`` what the k-th block returns (before any final norm), ``norm``
the final norm of the last block, ``normed.k`` the final norm of block k.

Within a block, ``attn.k`` and ``mlp.k`` are what the attention and the MLP of block k add to the
residual stream. They are sites to look at, and no layers that a model can be cut at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from layerscope.errors import UsageError, count_of, nearest

SUBLAYERS = ("attn", "mlp")
_NAME = re.compile(r"(?P<site>attn|mlp|block|normed)\.(?P<k>0|[1-9][0-9]*)")
_ORDER = {"attn": 0, "mlp": 1, "embed": 2, "block": 2, "normed": 3, "norm": 4}
SITES = ("block", "attn", "mlp")
"""Where a block can be watched: the residual stream behind it, its attention's output, its MLP's output."""
RESIDUAL = ("block",)
_SLICE = re.compile(r"(?P<start>-?[0-9]+)?:(?P<stop>-?[0-9]+)?(?::(?P<step>-?[0-9]+))?")


@dataclass(frozen=True)
class Layer:
    """One layer of a model with ``n_blocks`` blocks.

    Attributes:
        name: ``embed``, ``block.k``, ``norm`` or ``normed.k``; ``attn.k`` or ``mlp.k`` within block k.
        blocks: how many blocks have run when this layer is reached (0 for ``embed``), the block that it is
            within among them.
        n_blocks: how many blocks the model has.
    """

    name: str
    blocks: int
    n_blocks: int

    @property
    def depth(self) -> float:
        """Share of the blocks that have run, in [0, 1]."""
        return self.blocks / self.n_blocks

    @property
    def is_normed(self) -> bool:
        """Whether the final norm has been applied."""
        return self.name.startswith("norm")

    @property
    def sort_key(self) -> tuple[int, int]:
        """Position in the order of computation: a normed layer follows its block, ``norm`` is last."""
        return (self.blocks, _ORDER[self.name.partition(".")[0]])

    @property
    def site(self) -> str:
        """One of ``SITES``; see ``site_of``."""
        return site_of(self.name)


def site_of(name: str) -> str:
    """The site of the layer called ``name``: ``attn``, ``mlp``, or ``block`` for the residual stream.

    >>> site_of("attn.3"), site_of("block.3"), site_of("norm")
    ('attn', 'block', 'block')
    """
    kind = name.partition(".")[0]
    return kind if kind in SITES else "block"


def make_layer(name: str, n_blocks: int) -> Layer:
    """The layer called ``name`` in a model of ``n_blocks`` blocks.

    Raises:
        UsageError: the name is not that of a layer, or its number is out of range.

    >>> make_layer("block.3", 6).depth
    0.5
    """
    if name == "embed":
        return Layer(name, 0, n_blocks)
    if name == "norm":
        return Layer(name, n_blocks, n_blocks)
    match = _NAME.fullmatch(name)
    if match is None:
        raise UsageError(
            f"no layer is called '{name}': use embed, block.1 … block.{n_blocks}, norm, "
            f"normed.0 … normed.{n_blocks}, or attn.1 … and mlp.1 …"
        )
    blocks = int(match["k"])
    first = 0 if match["site"] == "normed" else 1
    if not first <= blocks <= n_blocks:
        raise UsageError(
            f"layer '{name}' does not exist: the model has {count_of(n_blocks, 'block')}, "
            f"so {match['site']}.{first} … {match['site']}.{n_blocks}"
        )
    return Layer(name, blocks, n_blocks)


def standard_layers(n_blocks: int, has_norm: bool) -> list[str]:
    """The names of ``embed``, every block and, where there is one, the final norm.

    >>> standard_layers(2, has_norm=True)
    ['embed', 'block.1', 'block.2', 'norm']
    """
    names = ["embed", *(f"block.{k}" for k in range(1, n_blocks + 1))]
    return [*names, "norm"] if has_norm else names


def parse_layers(
    selection: str | Iterable[str | int],
    n_blocks: int,
    has_norm: bool,
    sites: Sequence[str] = RESIDUAL,
) -> list[Layer]:
    """The layers that ``selection`` asks for, in order of depth, each once.

    Args:
        selection: ``"all"``; or items (a comma-separated string or an iterable), each a name, an
            index, or a Python slice into embed, block.1 … block.L, norm. ``"normed"`` asks for
            ``normed.k`` of every block but the last (whose final norm is ``norm``).
        n_blocks: number of blocks L, at least 1.
        has_norm: whether the model has a final norm.
        sites: of ``SITES``. With ``attn`` and ``mlp``, those of every block whose output (or final norm) is
            selected; without ``block``, the selected states of the residual stream themselves are left out.

    Raises:
        UsageError: an item selects nothing or is not understood.

    >>> [layer.name for layer in parse_layers("0,2:4,-1", 6, has_norm=True)]
    ['embed', 'block.2', 'block.3', 'norm']
    """
    names = standard_layers(n_blocks, has_norm)
    items = selection.split(",") if isinstance(selection, str) else list(selection)
    chosen: set[Layer] = set()
    for item in items:
        text = str(item).strip()
        found = _names_of(text, names, n_blocks)
        for name in found:
            layer = make_layer(name, n_blocks)
            if layer.is_normed and not has_norm:
                raise UsageError(
                    f"layer '{name}' does not exist: this model has no final norm "
                    f"(layers: {names[0]} … {names[-1]})"
                )
            chosen.add(layer)
    if not chosen:
        raise UsageError(f"no layer selected: choose from {', '.join(names)}, or 'all'")
    chosen = {layer for layer in chosen if layer.site != "block" or "block" in sites} | {
        make_layer(f"{site}.{layer.blocks}", n_blocks)
        for layer in chosen
        for site in sites
        if site != "block" and layer.site == "block" and layer.blocks
    }
    if not chosen:
        raise UsageError(f"--sites {','.join(sites)}: no block is selected with --layers that has them")
    return sorted(chosen, key=lambda layer: layer.sort_key)


def _names_of(item: str, names: list[str], n_blocks: int) -> list[str]:
    """The layer names that one item of a selection stands for."""
    if item == "all":
        return names
    if item == "normed":
        return [f"normed.{k}" for k in range(n_blocks)]
    if re.fullmatch(r"-?[0-9]+", item):
        index = int(item)
        if not -len(names) <= index < len(names):
            raise UsageError(
                f"layer {index} does not exist: the layers are 0 ({names[0]}) … "
                f"{len(names) - 1} ({names[-1]})"
            )
        return [names[index]]
    match = _SLICE.fullmatch(item)
    if match is not None:
        start, stop, step = (int(part) if part else None for part in match.group("start", "stop", "step"))
        if step == 0:
            raise UsageError(f"the slice '{item}' of --layers has step 0")
        found = names[start:stop:step]
        if not found:
            raise UsageError(
                f"the slice '{item}' selects none of the {len(names)} layers 0 … {len(names) - 1}"
            )
        return found
    if _NAME.fullmatch(item) or item in ("embed", "norm"):
        return [item]
    raise UsageError(f"no layer is called '{item}': {nearest(item, names)}")


def as_layer_order(names: Iterable[str]) -> list[str]:
    """``names`` in order of computation, whatever the number of blocks.

    >>> as_layer_order(["norm", "block.10", "normed.2", "embed", "block.2", "mlp.2"])
    ['embed', 'mlp.2', 'block.2', 'normed.2', 'block.10', 'norm']
    """
    return sorted(names, key=_order_key)


def is_sublayer(name: str) -> bool:
    """Whether a layer is what attention or MLP of a block adds to the residual stream.

    >>> is_sublayer("attn.3"), is_sublayer("block.3")
    (True, False)
    """
    return name.partition(".")[0] in SUBLAYERS


def _order_key(name: str) -> tuple[float, int]:
    match = _NAME.fullmatch(name)
    if match is None and name not in ("embed", "norm"):
        raise UsageError(f"no layer is called '{name}'")
    k = float(match["k"]) if match else {"embed": 0.0, "norm": float("inf")}[name]
    return (k, _ORDER[name.partition(".")[0]])
