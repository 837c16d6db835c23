"""The model card of an exported folder: what it is, how it was picked, how to load it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from layerscope.errors import count_of
from layerscope.files import human_bytes


def model_card(facts: Mapping[str, Any]) -> str:
    """Markdown with the metadata that model hubs read.

    Args:
        facts: ``title``, ``base`` (or None), ``what``, ``blocks``, ``n_blocks``, ``parameters``,
            ``full_parameters``, ``bytes``, ``speed`` (or None), ``error``, ``plain``, ``steps`` (lines),
            ``picked`` (lines), ``folder``.
    """
    metadata = ["---", "library_name: sentence-transformers", "pipeline_tag: sentence-similarity", "tags:"]
    metadata += [f"- {tag}" for tag in ("sentence-transformers", "feature-extraction", "layerscope")]
    if facts["base"]:
        metadata.append(f"base_model: {facts['base']}")
    consent = "" if facts["plain"] else ", trust_remote_code=True"
    needs = (
        "It loads with sentence-transformers alone."
        if facts["plain"]
        else "It needs layerscope to be installed, whose modules it names; sentence-transformers asks for "
        "`trust_remote_code=True` before it imports them."
    )
    speed = facts["speed"]
    share = facts["parameters"] / facts["full_parameters"]
    lines = [
        *metadata,
        "---",
        "",
        f"# {facts['title']}",
        "",
        f"{facts['what']} Exported by layerscope {version('layerscope')}. {needs}",
        "",
        "```python",
        "from sentence_transformers import SentenceTransformer",
        "",
        f'model = SentenceTransformer("{facts["folder"]}"{consent})',
        'vectors = model.encode(["A text.", "Another one."])',
        "```",
        "",
        "## What is in it",
        "",
        f"- {count_of(facts['blocks'], 'block')} of {facts['n_blocks']}; {facts['parameters']:,} parameters "
        f"({share:.0%} of the full model's {facts['full_parameters']:,}); "
        f"{human_bytes(facts['bytes'])} on disk",
        *(f"- {step}" for step in facts["steps"]),
        f"- vectors agree with those of the full model to {facts['error']:.1e} of the largest entry, on "
        "eight sentences, checked when it was written",
    ]
    if speed is not None:
        lines.append(
            f"- a forward pass took {speed:.2f} of the full model's time, on the machine that wrote it"
        )
    if facts["picked"]:
        lines += ["", "## How it was picked", "", *(f"- {line}" for line in facts["picked"])]
    return "\n".join(lines) + "\n"


def pick_lines(pick: Mapping[str, Any]) -> list[str]:
    """What a row of a picks frame says, line by line."""

    def known(name: str) -> Any:
        value = pick.get(name)
        return None if value is None or value != value else value  # noqa: PLR0124 - NaN is not itself

    lines = [f"by {pick['criterion']}" + (f", {known('direction')} is better" if known("direction") else "")]
    if known("corpus"):
        n = known("n")
        lines.append(f"on {known('corpus')}" + (f", {count_of(int(n), 'text')}" if n else ""))
    if known("value") is not None:
        lines.append(f"its value there: {float(pick['value']):.4g}")
    if known("runner_up"):
        lines.append(f"runner-up: {pick['runner_up']}")
    if known("support") is not None:
        lines.append(f"share of subsamples that pick the same layer: {float(pick['support']):.0%}")
    if known("clear") is not None and pick.get("kind") == "criterion":
        lines.append("a clear winner" if pick["clear"] else "no clear winner: other layers may be as good")
    if known("score") is not None:
        lines.append(
            f"score {float(pick['score']):.4f}; the best layer is {known('best_layer_name')} with "
            f"{float(pick['best_score']):.4f}"
        )
    return lines
