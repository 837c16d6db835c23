"""Lays public evaluation sets out as folders for --task-data.

    python benchmarks/task_data.py DATA FOLDER [--banking77-intents N]

DATA has ``sts/``, ``banking77/``, ``scifact/`` and ``stackoverflow_titles/`` in the layout described in its
README. ``--banking77-intents N`` keeps the first N of the 77 intents.
"""

import argparse
import csv
import gzip
import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

STS_PARTS = {
    "STSBenchmark": ["stsbenchmark-test.tsv"],
    "SICK-R": ["sickr-train.tsv", "sickr-dev.tsv", "sickr-test.tsv"],  # mteb scores all of it
    **{f"STS{year}": [f"mteb/sts{year}-test.tsv"] for year in range(12, 17)},
}


def sts(data: Path, folder: Path) -> None:
    """STS sets: one file of pairs each; edge spaces stay, as mteb scores them."""
    for task, parts in STS_PARTS.items():
        lines = [(data / "sts" / part).read_text("utf-8").rstrip("\n").split("\n") for part in parts]
        whole = [lines[0][0], *(line for part in lines for line in part[1:])]
        _write(folder / task / "test.tsv", "\n".join(whole) + "\n")


def banking77(data: Path, folder: Path, intents: int | None = None) -> None:
    """Banking77 with its labels as the numbers that categories.json gives them."""
    names = {
        name: number
        for number, name in enumerate(json.loads((data / "banking77/categories.json").read_text()))
    }
    for split in ("train", "test"):
        with (data / f"banking77/{split}.csv").open(encoding="utf-8", newline="") as stream:
            rows = [{"text": row["text"], "label": names[row["category"]]} for row in csv.DictReader(stream)]
        kept = [row for row in rows if intents is None or row["label"] < intents]
        _write_lines(folder / "Banking77Classification" / f"{split}.jsonl", kept)


def scifact(data: Path, folder: Path) -> None:
    """SciFact, which is in BEIR's layout already."""
    target = folder / "SciFact"
    (target / "qrels").mkdir(parents=True, exist_ok=True)
    with gzip.open(data / "scifact/corpus.jsonl.gz", "rt", encoding="utf-8") as stream:
        _write(target / "corpus.jsonl", stream.read())
    shutil.copy(data / "scifact/queries.jsonl", target / "queries.jsonl")
    shutil.copy(data / "scifact/qrels/test.tsv", target / "qrels/test.tsv")


def titles(data: Path, folder: Path, task: str = "TwentyNewsgroupsClustering.v2") -> None:
    """Question titles by tag, as the data of a clustering task with columns sentences and labels."""
    lines = (data / "stackoverflow_titles/titles.tsv").read_text("utf-8").rstrip("\n").split("\n")[1:]
    rows = [dict(zip(("sentences", "labels"), line.rsplit("\t", 1), strict=True)) for line in lines]
    _write_lines(folder / task / "test.jsonl", rows)


def _write_lines(path: Path, rows: Iterable[dict[str, object]]) -> None:
    _write(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")


def main(arguments: Sequence[str] | None = None) -> None:
    """Write all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--banking77-intents", type=int, metavar="N")
    options = parser.parse_args(arguments)
    sts(options.data, options.folder)
    banking77(options.data, options.folder, options.banking77_intents)
    scifact(options.data, options.folder)
    print(f"wrote {', '.join(sorted(path.name for path in options.folder.iterdir()))} to {options.folder}")


if __name__ == "__main__":
    main()
