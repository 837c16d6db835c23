"""What an exported half of a model costs, as ratios in one run against the exported full model.

    python benchmarks/export.py [--rounds N] [--texts N]

Both are folders written by ``export`` and loaded by sentence-transformers, so that the same code
encodes the same texts; rounds alternate, and the median of the paired ratios counts.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from decoder import smollm2
from sentence_transformers import SentenceTransformer
from timing import seconds

import layerscope as ls
from layerscope.checkup import TEXTS
from layerscope.packaged import minilm


def compare(name: str, model: Path, half: str, full: str, place: Path, texts: list[str], rounds: int) -> None:
    """One model: its lower half against all of it."""
    folders = {
        layer: ls.export(model, path=place / f"{name}-{layer}", layer=layer, pooling="mean")
        for layer in (half, full)
    }
    loaded = {
        layer: SentenceTransformer(str(one.path), device="cpu", local_files_only=True)
        for layer, one in folders.items()
    }
    for one in loaded.values():
        one.encode(texts[:16], show_progress_bar=False)
    ratios = []
    for _ in range(rounds):
        times = {
            layer: seconds(lambda one=one: one.encode(texts, show_progress_bar=False))
            for layer, one in loaded.items()
        }
        ratios.append(times[half] / times[full])
    size = folders[half].bytes / folders[full].bytes
    weights = folders[half].parameters / folders[full].parameters
    print(
        f"{name}, {half} against {full}, {len(texts)} texts: encoding takes "
        f"{statistics.median(ratios):.2f} of the time, {weights:.2f} of the parameters, "
        f"{size:.2f} of the bytes"
    )


def main() -> None:
    """Both models."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--texts", type=int, default=128)
    options = parser.parse_args()
    texts = [f"{TEXTS[at % len(TEXTS)]} {at}" for at in range(options.texts)]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        compare("MiniLM", minilm(), "block.3", "block.6", place, texts, options.rounds)
        compare("SmolLM2", smollm2(place), "normed.15", "norm", place, texts, options.rounds)


if __name__ == "__main__":
    main()
