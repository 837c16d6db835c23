"""Options of an extraction, checked before a model is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral
from pathlib import Path
from typing import Any, get_args

from layerscope.errors import CacheError, UsageError, nearest
from layerscope.extraction.content import TOKEN_METRICS
from layerscope.extraction.plan import Listener
from layerscope.files import check_writable, explained
from layerscope.layers import SITES
from layerscope.manifest import DamagedManifestError, find_manifest
from layerscope.models import DTYPES, PARTS
from layerscope.perturbation import Perturbation
from layerscope.pooling import check_poolings
from layerscope.tokens import OnTruncate, SpecialTokens
from layerscope.views import ViewKind

MOST_VIEWS = 64


def check_target(path: Any, *, overwrite: bool) -> Path:
    """The cache folder, which must be a cache, or empty, or not there yet and possible to make.

    Raises:
        UsageError: not a path.
        CacheError: a file, a folder with something else in it, or one that cannot be written.
    """
    if not isinstance(path, str | Path) or not str(path).strip() or "\0" in str(path):
        raise UsageError(f"path must be the folder of the cache, not {path!r}")
    target = Path(path)
    with explained(target):
        if target.is_dir() and _is_cache(target, overwrite=overwrite):
            return target  # and if it is this very extraction, nothing need be written
        _check_free(target)
    check_writable(target)
    return target


def _check_free(target: Path) -> None:
    """Refuse a file, and a folder with anything in it."""
    if target.exists() and not target.is_dir():
        raise CacheError(f"{target} is a file: give a folder for the cache with -o")
    entries = target.iterdir() if target.is_dir() else ()
    others = sorted(entry.name for entry in entries if not entry.name.endswith(".tmp"))
    if others:
        raise CacheError(
            f"the folder {target} is not empty and not a cache (it holds {others[0]}): choose another with -o"
        )


def _is_cache(folder: Path, *, overwrite: bool) -> bool:
    try:
        return find_manifest(folder) is not None
    except DamagedManifestError:
        if not overwrite:
            raise
        return True


def check_layers(layers: Any) -> list[str]:
    """The items of the selection.

    Raises:
        UsageError: empty, or neither text nor numbers.
    """
    if _is_whole(layers):
        return [str(int(layers))]
    if isinstance(layers, str) and layers.strip():
        return layers.split(",")
    if isinstance(layers, Iterable) and not isinstance(layers, str | bytes | Mapping):
        items = [str(layer).strip() for layer in layers]
        if items and all(items):
            return items
    raise UsageError(f"--layers {layers!r} selects nothing: say all, or a list such as 0,4:8,-1,norm")


def wanted_sites(sites: Any) -> tuple[str, ...]:
    """Names of sites, each once.

    Raises:
        UsageError: not known, or none.
    """
    if not isinstance(sites, Iterable) or isinstance(sites, bytes | Mapping):
        raise UsageError(f"sites must be a name or a list of names, not {sites!r}: {', '.join(SITES)}")
    names = sites.split(",") if isinstance(sites, str) else map(str, sites)
    chosen = tuple(dict.fromkeys(name.strip() for name in names))
    for name in chosen:
        if name not in SITES:
            raise UsageError(f"--sites: no site is called '{name}': {nearest(name, SITES)}")
    if not chosen:
        raise UsageError(f"--sites names none: choose from {', '.join(SITES)}")
    return chosen


def wanted_poolings(pooling: Any) -> list[str]:
    """Names of poolings, each once; ``["auto"]`` where the model shall decide.

    Raises:
        UsageError: not known, or none.
    """
    if pooling == "auto":
        return ["auto"]
    if not isinstance(pooling, Iterable) or isinstance(pooling, bytes | Mapping):
        raise UsageError(f"pooling must be auto, a name or a list of names, not {pooling!r}")
    return check_poolings([pooling] if isinstance(pooling, str) else [str(name) for name in pooling])


def wanted_token_metrics(names: Any) -> tuple[str, ...]:
    """Names of token metrics; none will do.

    Raises:
        UsageError: not known.
    """
    if not isinstance(names, Iterable) or isinstance(names, bytes | Mapping):
        raise UsageError(f"token_metrics must be a name or a list of names, () for none, not {names!r}")
    chosen = (names,) if isinstance(names, str) else tuple(map(str, names))
    for name in chosen:
        if name not in TOKEN_METRICS:
            raise UsageError(f"no token metric is called '{name}': {nearest(name, TOKEN_METRICS)}")
    return tuple(dict.fromkeys(chosen))


def check_number(name: str, value: Any, low: int, high: int | None = None) -> int:
    """``value``, which must be a whole number (of Python or numpy) from ``low`` to ``high``.

    Raises:
        UsageError: names the option.
    """
    if not _is_whole(value):
        raise UsageError(f"--{name} is {value!r}: it must be a whole number")
    if value < low or (high is not None and value > high):
        limit = f"{low} or more" if high is None else f"from {low} to {high}"
        raise UsageError(f"--{name} is {value}: it must be {limit}")
    return int(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_texts(**options: Any) -> None:
    """Refuse options that must be text, where they are given, and are something else.

    Raises:
        UsageError: names the option.
    """
    for name, value in options.items():
        if value is not None and (not isinstance(value, str) or not value.strip()):
            raise UsageError(f"{name} is {value!r}: give a name as text, or leave it away")


def check_switches(**options: Any) -> None:
    """Refuse options that must be true or false and are something else (``"no"`` counts as true).

    Raises:
        UsageError: names the option.
    """
    for name, value in options.items():
        if not isinstance(value, bool):
            raise UsageError(f"{name} is {value!r}: it must be True or False")


def check_prompt(prompt: Any) -> str:
    """The prompt, which must be text.

    Raises:
        UsageError: it is not.
    """
    if not isinstance(prompt, str):
        raise UsageError(f"prompt is {prompt!r}: give a text that stands before every other")
    return prompt


def check_perturbation(perturbation: Any, *, with_views: bool) -> None:
    """Refuse something else than a perturbation, and one together with views.

    Raises:
        UsageError: says which.
    """
    if perturbation is None:
        return
    if not isinstance(perturbation, Perturbation):
        raise UsageError(
            f"perturbation is {perturbation!r}: give a layerscope.perturbation.Perturbation, or leave it away"
        )
    if with_views:
        raise UsageError("perturbed texts have no views: leave views away")


def check_choices(
    *,
    view_kind: str,
    special_tokens: str,
    prompt_tokens: str,
    on_truncate: str,
    dtype: str,
    part: str,
    tokenizer: Any,
) -> None:
    """Refuse a policy, dtype or part that is not known, and a tokenizer that is not loaded.

    Raises:
        UsageError: names the choices.
    """
    if view_kind == "column" or view_kind not in get_args(ViewKind):
        raise UsageError(f"--view-kind {view_kind}: choose augment, crop or dropout")
    for flag, value, known in (
        ("--special-tokens", special_tokens, SpecialTokens),
        ("--prompt-tokens", prompt_tokens, SpecialTokens),
        ("--on-truncate", on_truncate, OnTruncate),
    ):
        if value not in get_args(known):
            *others, last = get_args(known)
            raise UsageError(f"{flag} {value}: choose {', '.join(others)} or {last}")
    if dtype not in DTYPES:
        raise UsageError(f"--dtype {dtype}: choose {', '.join(DTYPES[:-1])} or {DTYPES[-1]}")
    if part not in PARTS:
        raise UsageError(f"--part {part}: choose {' or '.join(PARTS)}")
    if tokenizer is not None and not hasattr(tokenizer, "num_special_tokens_to_add"):
        raise UsageError(
            f"tokenizer must be a loaded Hugging Face tokenizer, not {type(tokenizer).__name__}: "
            "load it with AutoTokenizer.from_pretrained"
        )


def check_listener(listener: Any) -> Listener:
    """The listener, or a silent one where there is none.

    Raises:
        UsageError: something else, as a function.
    """
    if listener is not None and not isinstance(listener, Listener):
        raise UsageError(
            f"listener must be a layerscope.extraction.Listener, not {type(listener).__name__}: "
            "derive a class from it"
        )
    return listener or Listener()
