"""Writes docs/published.md from the published per-layer scores and metrics.

python docs/make_published.py [--data ../shared/golden/published]
"""

import argparse
from pathlib import Path

import pandas as pd

from layerscope.compare.aligned import align
from layerscope.compare.correlations import ALL_TASKS, correlate_layers
from layerscope.compare.regret import ALL, BEST_LAYER, ORACLE, PER_TASK, RANDOM, regret_table, verdict
from layerscope.depth_rules import DEPTH_RULES
from layerscope.evaluate.importing import import_table

ROOT = Path(__file__).resolve().parents[1]
HEAD = """# What the published metrics are worth on the published scores

The authors of "Layer by Layer" (Skean et al. 2025) released the MTEB scores and the metrics of
every layer of three small Pythia models. Laid out as tidy tables (`scores.csv`: model, layer, task,
main_score; `metrics.csv.gz`: model, layer, dataset, split, metric, normalization, value;
`tasks.csv`: task, dataset), they need one command:

```bash
layerscope compare metrics.csv.gz scores.csv --tasks tasks.csv --variant raw
```

The same command takes the frames of any other model: `layerscope compare METRICS.parquet
SCORES.parquet`. It prints, for every model, the correlation of each metric with the score over
layers, what a layer picked by each metric scores, and one sentence on whether that beats taking a
fixed depth; it leaves tables and heat maps in `compare/`. This page was written by `python
docs/make_published.py` from the same functions.

Only tasks that have every metric count, 26 of 32; curvature is left out, which two tasks have at
most. Where a data set has metrics of several splits, the test split is taken. Scores are averages
of main scores in %.

## Taking a layer without looking at the scores
"""
TAIL = """
`best single layer` and `best layer of each task` know the scores. Intervals are paired bootstraps over the
tasks; p is corrected by Holm's method for all 40 ways to use the five metrics (either end, for each task
or as one layer, with and without layer 0).
"""


def score(table: pd.DataFrame, **where: str) -> str:
    """The average score of one rule, in %."""
    rows = table[(table["reference"] == "last layer") & (table["layers"] == ALL)]
    for column, value in where.items():
        rows = rows[rows[column] == value]
    return f"{100 * rows['score'].iloc[0]:.2f}"


def page(folder: Path) -> str:
    """The whole page."""
    _, metrics = import_table(folder / "metrics.csv.gz", tasks=folder / "tasks.csv")
    _, scores = import_table(folder / "scores.csv")
    every = align(metrics, scores, variant="raw")
    tables = {aligned.model: regret_table(aligned) for aligned in every}
    correlations = {aligned.model: correlate_layers(aligned) for aligned in every}
    lines = [HEAD, f"| | {' | '.join(tables)} |", f"|---|{'---|' * len(tables)}"]
    for rule in (*DEPTH_RULES, RANDOM, BEST_LAYER, ORACLE):
        cells = [score(table, criterion=rule) for table in tables.values()]
        lines.append(f"| {rule} | {' | '.join(cells)} |")
    for criterion in map(str, every[0].values):
        for direction, end in (("lower", "lowest"), ("higher", "highest")):
            cells = [
                score(table, criterion=criterion, direction=direction, scope=PER_TASK)
                for table in tables.values()
            ]
            lines.append(f"| {end} {criterion.replace('_', ' ')}, per task | {' | '.join(cells)} |")
    lines += ["", *(f"* {verdict(table)}" for table in tables.values()), TAIL]
    lines += ["## Correlation with the score over layers", ""]
    lines += [
        "Spearman, mean over tasks with its interval, and the p of shuffling the layers of all tasks alike.",
        "",
    ]
    lines += [f"| | {' | '.join(correlations)} |", f"|---|{'---|' * len(correlations)}"]
    for criterion in map(str, every[0].values):
        cells = []
        for frame in correlations.values():
            mean = frame[(frame["task"] == ALL_TASKS) & (frame["statistic"] == "spearman")]
            row = mean[mean["metric"] == criterion].iloc[0]
            interval = f"[{row['ci_low']:.2f}, {row['ci_high']:.2f}]"
            cells.append(f"{row['value']:.2f} {interval}, p = {row['p']:.2g}")
        lines.append(f"| {criterion.replace('_', ' ')} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/golden/published")
    options = parser.parse_args()
    if not options.data.is_dir():
        raise SystemExit(f"the published scores are not at {options.data}: give --data")
    (ROOT / "docs/published.md").write_text(page(options.data), encoding="utf-8")


if __name__ == "__main__":
    main()
