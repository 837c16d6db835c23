"""A design of training in one small file: attention, layers, pooling, and the numbers that go with them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from layerscope.errors import UsageError, nearest
from layerscope.layer_pooling import LAYER_POOLINGS, find_kind
from layerscope.pooling import POOLINGS

_FOLDER = Path(__file__).with_name("design_files")
_MIXES = tuple(kind.name for kind in LAYER_POOLINGS)
_POOLINGS = ("latent", *_MIXES, *POOLINGS)


@dataclass(frozen=True)
class Design:
    """What is trained, and how.

    Attributes:
        name: of the file.
        description: one line.
        attention: ``own``, the model's; ``bidirectional``: every token sees every other.
        layers: ``last``, or ``all`` (those of ``hidden_states``, for a mix of layers).
        pooling: one of the tokens' poolings, ``latent`` (trainable, over tokens), or a mix of layers.
        token_poolings: for a mix, how the tokens of each layer are pooled, one an input.
        sizes: of the latents.
        lora_rank: of the adapters in all linear maps of the model; 0 trains the whole model.
        lora_alpha: their scale.
        scale: what cosines are multiplied by in the loss.
        learning_rate: of AdamW, after a linear warm-up over a tenth of the steps.
    """

    name: str
    description: str
    attention: Literal["own", "bidirectional"]
    layers: Literal["last", "all"]
    pooling: str
    token_poolings: tuple[str, ...] = ()
    sizes: dict[str, int] = field(default_factory=dict)
    lora_rank: int = 16
    lora_alpha: int = 32
    scale: float = 20.0
    learning_rate: float = 1e-4

    @property
    def is_mix(self) -> bool:
        """Whether it mixes layers."""
        return self.pooling in _MIXES


def design_names() -> list[str]:
    """The designs that come with layerscope."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def find_design(name: str | Path) -> Design:
    """The design called ``name``, or that of a file.

    Raises:
        UsageError: no such design, or a file that is not one; the message names the line or key.
    """
    path = _FOLDER / f"{name}.toml"
    if not path.is_file():
        path = Path(name)
        if path.suffix != ".toml" or not path.is_file():
            raise UsageError(
                f"no design is called '{name}', and no .toml file is there: "
                f"{nearest(str(name), design_names())}"
            )
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError(f"{path} is not a readable TOML file: {error}") from error
    return _checked(path, given)


def _checked(path: Path, given: dict[str, Any]) -> Design:
    known = [one.name for one in fields(Design) if one.name != "name"]
    for key in given:
        if key not in known:
            raise UsageError(f"{path}: no key is called '{key}': {nearest(key, known)}")
    for key in ("description", "attention", "layers", "pooling"):
        if not isinstance(given.get(key), str):
            raise UsageError(f"{path}: '{key}' is missing or no text")
    choices = {"attention": ("own", "bidirectional"), "layers": ("last", "all"), "pooling": _POOLINGS}
    for key, values in choices.items():
        if given[key] not in values:
            raise UsageError(f"{path}: {key} is '{given[key]}': {nearest(given[key], values)}")
    for key in ("lora_rank", "lora_alpha", "scale", "learning_rate"):
        value = given.get(key, 1)
        whole = key.startswith("lora")
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or value < 0:
            raise UsageError(
                f"{path}: {key} is {value!r}: it must be a {'whole ' if whole else ''}number, not negative"
            )
    poolings = tuple(given.get("token_poolings", ()))
    mixes = given["pooling"] in _MIXES
    needed = (2 if find_kind(given["pooling"]).needs_token else 1) if mixes else 0
    if len(poolings) != needed or any(name not in POOLINGS for name in poolings):
        raise UsageError(
            f"{path}: token_poolings is {list(poolings)}: {given['pooling']} takes {needed} "
            f"of {', '.join(POOLINGS)}"
        )
    if mixes != (given["layers"] == "all"):
        raise UsageError(
            f"{path}: layers = 'all' goes with a mix of layers ({', '.join(_MIXES)}), and only with one"
        )
    return Design(
        name=path.stem, **given | {"token_poolings": poolings, "sizes": dict(given.get("sizes", {}))}
    )
