"""What scoring all layers costs, as ratios in one run against plain mteb on the last layer.

    python benchmarks/evaluate.py [--data ../shared/data] [--pairs N] [--only NAME]

The peer is ``mteb.evaluate`` with sentence-transformers (which has the last layer only), on the same task
data in this process, with the same number of threads; both load the model from its folder and the data from
their files. ``scoring`` is our run again with all vectors there
already: what mteb's scoring of all layers takes. ``one run a layer`` is the peer times the number of layers.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import decoder
import mteb
import task_data
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from timing import seconds

import layerscope as ls
from layerscope import packaged
from layerscope.evaluate.mteb.tasks import find_tasks, load_data, quiet

ROOT = Path(__file__).resolve().parents[1]


def compare(title: str, model: Path, peer: Callable[[], Any], task: str, data: Path, **options: Any) -> None:
    """One plain run of the peer, our run of all layers, and our scoring alone."""

    def last_layer() -> None:
        [loaded] = find_tasks([task])
        load_data(loaded, data)
        mteb.evaluate(peer(), loaded, cache=None, co2_tracker=False, show_progress_bar=False)

    with tempfile.TemporaryDirectory() as place, quiet():
        plain = seconds(last_layer)
        results = Path(place) / "results"

        def ours() -> None:
            frames.append(
                ls.evaluate_mteb(model, [task], results=results, task_data=data, draws=0, **options)
            )

        frames: list[Any] = []
        whole = seconds(ours)
        layers = frames[0]["layer_name"].nunique()
        (results / "results").rename(results / "first")  # so that only the vectors are there
        scoring = seconds(ours)
    print(
        f"{title}, {task}: plain run {plain:.1f} s, all {layers} layers {whole:.1f} s, "
        f"scoring alone {scoring:.1f} s\n"
        f"  all layers / (one plain run + scoring): {whole / (plain + scoring):.2f}\n"
        f"  one run a layer / all layers: {layers * plain / whole:.1f}"
    )


def minilm(data: Path) -> None:
    """MiniLM on STS-B and Banking77."""
    folder = packaged.minilm()

    def peer() -> Any:
        return SentenceTransformer(str(folder), device="cpu")

    for task in ("STSBenchmark", "Banking77Classification"):
        compare("MiniLM", folder, peer, task, data, normalize=True)


def smollm2(data: Path) -> None:
    """SmolLM2 on STS-B."""
    with tempfile.TemporaryDirectory() as place:
        folder = decoder.smollm2(Path(place))

        def peer() -> Any:
            words = Transformer(str(folder))
            words.tokenizer.pad_token = words.tokenizer.pad_token or words.tokenizer.eos_token
            pooling = Pooling(words.get_embedding_dimension())
            return SentenceTransformer(modules=[words, pooling], device="cpu")

        compare("SmolLM2-135M", folder, peer, "STSBenchmark", data)


PARTS = {"minilm": minilm, "smollm2": smollm2}


def main() -> None:
    """Lay the data out and run the parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data")
    parser.add_argument("--intents", type=int, help="of Banking77, all 77 by default")
    parser.add_argument("--pairs", type=int, help="of STS-B, all 1,379 by default")
    parser.add_argument("--only", choices=PARTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        data = Path(place)
        task_data.sts(options.data, data)
        task_data.banking77(options.data, data, options.intents)
        if options.pairs is not None:
            file = data / "STSBenchmark/test.tsv"
            file.write_text(
                "\n".join(file.read_text("utf-8").split("\n")[: options.pairs + 1]) + "\n", "utf-8"
            )
        for name, part in PARTS.items():
            if options.only in (None, name):
                part(data)


if __name__ == "__main__":
    main()
