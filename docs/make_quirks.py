"""Measure the quirks of the published recipe on real text: python docs/make_quirks.py.

Writes docs/quirks.md: what each quirk does to a number at three layers of MiniLM, on 500 sentences of the Lee
background news. Needs the extra ``demo``; no network; about two minutes on two cores.
"""

import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from layerscope.cache import LayerCache
from layerscope.extraction import extract
from layerscope.metrics import Undefined, curvature, dime, infonce, lidar, prompt_entropy, spectral
from layerscope.metrics.published import curvature as published_curvature
from layerscope.metrics.published import dime as published_dime
from layerscope.metrics.published import entropy as published_entropy
from layerscope.metrics.published import infonce as published_infonce
from layerscope.metrics.published import lidar as published_lidar
from layerscope.packaged import minilm, news

LAYERS = ("embed", "block.3", "block.6")
SENTENCES, FEW = 500, 300
HEAD = f"""# The size of the published recipe's quirks

<!-- written by docs/make_quirks.py; do not edit -->

The quirks are described in [metrics.md](metrics.md#the-published-recipe). Here each is taken alone, on
{SENTENCES} sentences of the Lee background news, at three layers of MiniLM (d = 384): first the number
without the quirk, then with it. Made by `python docs/make_quirks.py`.
"""

Rows = np.ndarray
Pair = tuple[float | str, float | str]


def sentences() -> list[str]:
    """The first sentences of the corpus that have 8 words or more, each once."""
    parts = (part.strip() for part in " ".join(news()).split(". "))
    return list(dict.fromkeys(part for part in parts if len(part.split()) >= 8))[:SENTENCES]


class Layer:
    """What is measured of one layer: token states a prompt, and vectors of texts and views."""

    def __init__(self, cache: LayerCache, name: str) -> None:
        values, offsets = cache.tokens(name)
        self.prompts = [values[a:b].astype(np.float64) for a, b in itertools.pairwise(offsets)]
        self.mean, self.residue = (
            cache.layer(name, pooling).astype(np.float64) for pooling in ("mean", "prompt-vector")
        )
        self.views = [cache.layer(name, "prompt-vector", view).astype(np.float64) for view in cache.views]


def over_prompts(layer: Layer, *functions: Callable[[Rows], float]) -> Pair:
    """Means over prompts of two functions."""
    one, other = (float(np.mean([function(states) for states in layer.prompts])) for function in functions)
    return one, other


def prompt_vectors(layer: Layer) -> Pair:
    """Dataset entropy of mean-pooled texts, and of prompt vectors, by the right formula."""
    return spectral.dataset_entropy(layer.mean), spectral.dataset_entropy(layer.residue)


def alignment_of_vectors(layer: Layer) -> Pair:
    """Cosine of a text's mean with itself, and with its prompt vector."""
    products = np.einsum("ij,ij->i", layer.mean, layer.residue)
    lengths = np.linalg.norm(layer.mean, axis=1) * np.linalg.norm(layer.residue, axis=1)
    return 1.0, float(np.mean(products / lengths))


def clamp(layer: Layer) -> Pair:
    """Prompt entropy, raw, without and with negative entries set to 0."""
    return over_prompts(
        layer,
        prompt_entropy.prompt_entropy,
        lambda Z: published_entropy.prompt_entropy(Z, normalization="raw"),
    )


def switch(layer: Layer) -> Pair:
    """Clamped entropy of n > d rows on the (n, n) side, and on the (d, d) side that the code takes."""
    K = np.maximum(layer.residue @ layer.residue.T, 0)
    return published_entropy.itl_entropy(K, 1.0), published_entropy.entropy(
        layer.residue, normalization="raw"
    )


def order_two(layer: Layer) -> Pair:
    """Entropy of order 2 of mean-pooled texts, right and as -ln(Σ K² / m²)."""
    few = layer.mean[:FEW]
    return spectral.matrix_entropy(few, 2, "raw"), published_entropy.itl_entropy(few @ few.T, 2)


def normalization(layer: Layer) -> Pair:
    """Prompt entropy as published, in nats and as a share."""
    return over_prompts(
        layer,
        lambda Z: published_entropy.prompt_entropy(Z, normalization="raw"),
        published_entropy.prompt_entropy,
    )


def sides_of_dime(layer: Layer) -> Pair:
    """DiME of the views' prompt vectors, right and as published, in nats."""
    return dime.dime(*layer.views), published_dime.dime(*layer.views, normalization="raw")


def lengths_of_rows(layer: Layer) -> Pair:
    """InfoNCE of the views, with unit rows and with rows as they are."""
    try:
        found: float | str = published_infonce.infonce(*layer.views)
    except Undefined as undefined:
        found = undefined.reason
    return infonce.infonce(*layer.views), found


def precision_of_lidar(layer: Layer) -> Pair:
    """Log of LiDAR in float64 and in float32."""
    V = np.stack(layer.views, axis=1)
    return lidar.lidar_log(V, rows="raw"), published_lidar.lidar(V, normalization="raw")


def path(layer: Layer) -> Pair:
    """Curvature between steps, and between states."""
    return over_prompts(layer, curvature.curvature, published_curvature.curvature)


def tolerance(layer: Layer) -> Pair:
    """Entropy of order 1/2 of fewer rows than dimensions, round-off left out and counted."""
    few = layer.mean[:FEW] - layer.mean[:FEW].mean(axis=0)
    return spectral.matrix_entropy(few, 0.5, "raw"), published_entropy.itl_entropy(few @ few.T, 0.5)


QUIRKS: dict[str, Callable[[Layer], Pair]] = {
    "1. Prompt vectors: cosine with the mean-pooled text": alignment_of_vectors,
    "1. Prompt vectors: dataset entropy of them (nats)": prompt_vectors,
    "2. Negative entries set to 0: prompt entropy (nats)": clamp,
    "3. Switch of sides at n > d: dataset entropy (nats)": switch,
    "4. α = 2 without the trace: entropy of order 2 (nats)": order_two,
    "5. Normalisation: prompt entropy, nats and share": normalization,
    "6. DiME of covariances (nats)": sides_of_dime,
    "7. InfoNCE of rows of any length (nats)": lengths_of_rows,
    "8. LiDAR in float32 (ln directions)": precision_of_lidar,
    "9. Curvature between states (radians)": path,
    "10. Round-off counts: entropy of order 1/2 (nats)": tolerance,
}


def page(cache: LayerCache) -> str:
    """The whole page as Markdown."""
    layers = {name: Layer(cache, name) for name in LAYERS}
    lines = [HEAD, "| quirk | " + " | ".join(LAYERS) + " |", "|---" * (1 + len(LAYERS)) + "|"]
    for name, measure in QUIRKS.items():
        cells = [" → ".join(map(_text, measure(layer))) for layer in layers.values()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def main() -> None:
    """Extract, measure, write."""
    with tempfile.TemporaryDirectory() as work:
        cache = extract(
            minilm(), sentences(), path=Path(work) / "c", layers=list(LAYERS), views=2, max_length=64,
            pooling=["mean", "prompt-vector"], keep_tokens=True,
        )  # fmt: skip
        Path(__file__).with_name("quirks.md").write_text(page(cache), encoding="utf-8")


if __name__ == "__main__":
    main()
