"""Where the reports find their data and keep what they have computed, and how they write tables."""

import argparse
import sys
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
import task_data  # noqa: E402 - both stand beside the benchmarks
from decoder import smollm2  # noqa: E402

from layerscope.packaged import minilm  # noqa: E402

__all__ = ["ROOT", "data_and_work", "minilm", "smollm2", "table", "task_data"]


def data_and_work(says: str, report: str) -> tuple[Path, Path]:
    """The folders of evaluation sets and of work, from the command line.

    Args:
        says: what the script does.
        report: the name of its folder in ``reports``.
    """
    parser = argparse.ArgumentParser(description=says)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data")
    parser.add_argument("--work", type=Path, default=ROOT / "reports" / report / "work")
    options = parser.parse_args()
    if not options.data.is_dir():
        raise SystemExit(f"the evaluation sets are not at {options.data}: give --data")
    return options.data, options.work


def table(frame: pd.DataFrame) -> str:
    """A frame as a table of Markdown."""
    rows = [list(map(str, frame.columns)), ["---"] * frame.shape[1], *frame.astype(str).values.tolist()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
