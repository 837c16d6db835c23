"""Write docs/models.md from tiny random models of every family: python docs/make_models.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the families are in tests/

from tests.families import FAMILIES, Family, Reading, read

HEAD = """# Models

<!-- written by docs/make_models.py from tests/families.py; do not edit -->

Any model of these families works by its hub id, its folder, or as an object; other families mostly do,
since blocks and final norm are found by running a few tokens through the model. Where they are not found, the
message lists the candidates, and `--blocks` and `--final-norm` name them. `layerscope doctor MODEL` checks
yours.

Each row is a tiny random model built from its configuration. *Layers*: the largest difference between a
layer and `hidden_states` of transformers, over the largest entry of the layer (passes below 1e-5). *In a
batch*: the largest difference that padding and a longer neighbour make (passes below 1e-4).

| family | blocks | final norm | layers | in a batch | |
|---|---|---|---|---|---|
"""
TAIL = """
- `hidden_states` of a model with a final norm ends with `norm`; `block.L`, before that norm, is in no output.
- Mamba does not list what the first block receives; `embed` is it all the same.
- ALBERT runs one block many times; `block.k` is its k-th call.
- Of an encoder-decoder the encoder is read, with `--part decoder` the decoder. The decoder gets the same
  tokens and attends to the encoder's states of them.
- OPT-350m projects its last block's states to another width; `block.24` is before that projection.
- sentence-transformers folders, GGUF files and PEFT adapters are loaded by transformers (the latter two need
  `gguf` and `accelerate`, or `peft`), quantised models where their library is installed.
- Refused by name: models whose states are not one vector for every token, text by text (XLNet, CANINE,
  Funnel).
"""
NEAR, STILL = 1e-5, 1e-4


def row(family: Family, reading: Reading) -> str:
    """One line of the table."""
    verdict = "pass" if reading.difference < NEAR and reading.in_a_batch < STILL else "FAIL"
    norm = f"`{reading.final_norm}`" if reading.final_norm else "none"
    numbers = f"{reading.difference:.0e} | {reading.in_a_batch:.0e}"
    return f"| {family.name} | `{reading.blocks}` | {norm} | {numbers} | {verdict} |"


if __name__ == "__main__":
    rows = [row(family, read(family)) for family in FAMILIES]
    page = HEAD + "\n".join(rows) + "\n" + TAIL
    Path(__file__).with_name("models.md").write_text(page, encoding="utf-8")
