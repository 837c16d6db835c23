"""The study in reports/study: what label-free metrics are worth for MiniLM and SmolLM2.

    python reports/study.py [--data ../shared/data] [--work FOLDER]

Scores every layer of both models on STSBenchmark, SICK-R and a sample of Banking77Classification, computes
all metrics on texts of each task, and writes tables, figures and README.md. What is in the work folder
already is not computed again.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from places import ROOT, data_and_work, minilm, smollm2, table, task_data

import layerscope as ls
from layerscope.compare.aligned import Aligned, align
from layerscope.compare.correlations import ALL_TASKS, correlate_layers
from layerscope.compare.regret import ALL, ONE_LAYER, PER_TASK, best_depth_rule, regret_table, verdict
from layerscope.evaluate.differences import best_against_last
from layerscope.frames import write_frame
from layerscope.plots import plot_correlations, plot_scores, save_figure
from layerscope.resampling import interval

TASKS = ["STSBenchmark", "SICK-R", "Banking77Classification"]
INTENTS = 10
TEXTS = 500
COMMAND = "make study"


def texts_of(data: Path, task: str) -> list[str]:
    """The first different texts of a task."""
    if task == "Banking77Classification":
        lines = (data / task / "test.jsonl").read_text("utf-8").splitlines()
        texts = [json.loads(line)["text"] for line in lines]
    else:
        rows = (data / task / "test.tsv").read_text("utf-8").rstrip("\n").split("\n")[1:]
        texts = [row.split("\t")[0] for row in rows]
    return list(dict.fromkeys(texts))[:TEXTS]


def metrics_of(model: Path, data: Path, work: Path, poolings: Sequence[str]) -> pd.DataFrame:
    """All metrics of all layers, on texts of each task."""
    frames = []
    for task in TASKS:
        cache = ls.extract(
            model, pd.DataFrame({"text": texts_of(data, task)}), views=2, pooling=list(poolings),
            path=work / "caches" / f"{model.name}-{task}",
        )  # fmt: skip
        file = work / "caches" / f"{model.name}-{task}.parquet"
        if not file.is_file():
            ls.analyze(cache, draws=0).assign(corpus=task).to_parquet(file, index=False)
        frames.append(pd.read_parquet(file))
    return pd.concat(frames, ignore_index=True)


def percent(value: float) -> str:
    """A share in percent, or a dash."""
    return f"{100 * value:.2f}" if math.isfinite(value) else "–"


def best_layers(scores: pd.DataFrame) -> str:
    """Best and last layer of each task, and whether they differ."""
    rows = []
    for best in best_against_last(scores).to_dict("records"):
        gain = "it is the last"
        if best["vs_last"] > 0:
            low, high = percent(best["vs_last_low"]), percent(best["vs_last_high"])
            gain = f"+{percent(best['vs_last'])} [{low}, {high}], p = {best['vs_last_p']:.2g}"
        rows.append(
            {"task": best["task"], "pooling": best["pooling"], "best layer": best["layer_name"],
             "score": percent(best["score"]), "above the last layer [95 %], p over all layers": gain}
        )  # fmt: skip
    return table(pd.DataFrame(rows))


def correlations_table(frame: pd.DataFrame) -> str:
    """Correlations of each metric, averaged over tasks."""
    mean = frame[frame["task"] == ALL_TASKS]
    wide = mean.pivot_table(index=["metric", "variant"], columns="statistic", values="value", sort=False)
    p = mean[mean["statistic"] == "spearman"].set_index(["metric", "variant"])["p"]
    rows = [
        {"metric": metric, **{name: f"{value:.2f}" for name, value in wide.loc[(metric, variant)].items()},
         "p (Spearman)": f"{p[(metric, variant)]:.2g}"}
        for metric, variant in wide.index
    ]  # fmt: skip
    return table(pd.DataFrame(rows))


def picked_layers(rule: dict[Any, Any], aligned: Aligned) -> list[str]:
    """The layer that a rule takes for each task; none where it takes no one layer."""
    if rule["scope"] == ONE_LAYER:
        return [rule["layer_name"]] * len(aligned.tasks) if rule["layer_name"] else []
    for criterion, values in aligned.values.items():
        if str(criterion) == rule["criterion"]:
            signed = values if rule["direction"] == "higher" else -values
            return [aligned.layers[at] for at in np.where(np.isnan(signed), -np.inf, signed).argmax(axis=1)]
    return []


def item_interval(rule: dict[Any, Any], best: str, aligned: Aligned, scores: pd.DataFrame) -> str:
    """The interval of a rule's average gain on a layer, from paired bootstraps over each task's items."""
    own = scores[scores["pooling"] == aligned.pooling].set_index(["task", "layer_name"])["draws"]
    layers = picked_layers(rule, aligned)
    if not layers or layers == [best] * len(layers):
        return ""
    gains = [
        np.array(own[(task, layer)]) - np.array(own[(task, best)])
        for task, layer in zip(aligned.tasks, layers, strict=True)
    ]
    low, high = interval(rule["difference"], np.mean(gains, axis=0))
    return f" [{100 * low:+.2f}, {100 * high:+.2f}]"


def summary(frame: pd.DataFrame) -> str:
    """How many metrics, by their usual end, do at least as well as the best depth rule."""
    whole = frame[(frame["layers"] == ALL) & (frame["scope"] == PER_TASK)]
    best = best_depth_rule(frame)
    usual = whole[whole["own_direction"] & (whole["reference"] == best["criterion"])]
    above = usual[usual["difference"] > 0].sort_values("score", ascending=False)
    named = f" ({', '.join(above['criterion'])})" if len(above) else ""
    last = frame.loc[frame["criterion"] == "last layer", "score"].iloc[0]
    as_good = int((usual["score"] >= last).sum())
    return (
        f"What it shows: taken by their usual end, for each task, {as_good} of {len(usual)} metrics pick "
        "layers that score at least as high as the last layer on average, "
        f"{int((usual['difference'] >= 0).sum())} at least as high as the best depth rule, the "
        f"{best['criterion']}, and {len(above)} higher{named}."
    )


def regret(frame: pd.DataFrame, aligned: Aligned, scores: pd.DataFrame) -> str:
    """Average scores of every rule, over all layers, with the difference to the best depth rule."""
    whole = frame[frame["layers"] == ALL]
    best = best_depth_rule(frame)
    against = whole[whole["reference"] == best["criterion"]]
    rows = []
    for rule in against.sort_values("score", ascending=False, kind="stable").to_dict("records"):
        end = {"higher": "highest ", "lower": "lowest "}.get(rule["direction"], "")
        rows.append(
            {"layer taken by": f"{end}{rule['criterion']}", "for": rule["scope"],
             "layer": rule["layer_name"] or "–", "score": percent(rule["score"]),
             f"difference to the {best['criterion']} [95 %, over items]": f"{100 * rule['difference']:+.2f}"
             + item_interval(rule, best["layer_name"], aligned, scores)}
        )  # fmt: skip
    return table(pd.DataFrame(rows))


def main() -> None:
    """Run all of it."""
    data_folder, work = data_and_work(__doc__.splitlines()[0], "study")
    out, data = ROOT / "reports/study", work / "task-data"
    task_data.sts(data_folder, data)
    task_data.banking77(data_folder, data, INTENTS)
    models = {
        "MiniLM": (minilm(), ["mean"]),
        "SmolLM2": (smollm2(work), ["mean", "mean-nosink"]),
    }
    parts = [
        "# What label-free metrics are worth: MiniLM and SmolLM2",
        f"Written by `{COMMAND}`. Scores are mteb's main scores in %: STSBenchmark and SICK-R in full, "
        f"Banking77Classification on its first {INTENTS} of 77 intents (all their train and test questions). "
        f"Metrics are those of the first {TEXTS} different texts of each task (first sentences, or test "
        "questions), with two augmented views. Mean pooling; vectors are not normalised.",
        "Three tasks are few: intervals and tests over tasks need six, so the tables rank rules on these "
        "tasks and say nothing about others. Intervals over the items of these tasks, and their p, are "
        "paired bootstraps; in the tables of rules they do not allow for the choice of the rule.",
    ]
    for label, (model, poolings) in models.items():
        results = work / "results"
        scores = ls.evaluate_mteb(model, TASKS, results=results, task_data=data, pooling=poolings)
        metrics = metrics_of(model, data, work, poolings)
        write_frame(scores.drop(columns="draws"), out / f"scores-{label}")
        write_frame(metrics.drop(columns="draws"), out / f"metrics-{label}")
        parts.append(f"## {label}\n\n{best_layers(scores)}")
        for task in TASKS:
            figure = plot_scores(scores[scores["task"] == task]).figure
            save_figure(figure, out / f"scores-{label}-{task}", formats=["svg"])
            parts.append(f"![{label} on {task}](scores-{label}-{task}.svg)")
        for pooling in poolings:
            [aligned] = align(metrics, scores, pooling=pooling)
            correlations, picked = correlate_layers(aligned), regret_table(aligned)
            name = f"{label}-{pooling}"
            write_frame(correlations, out / f"correlations-{name}")
            write_frame(picked, out / f"regret-{name}")
            save_figure(plot_correlations(correlations).figure, out / f"correlations-{name}", formats=["svg"])
            parts += [
                f"### {label}, pooling {pooling}",
                f"Correlation of metric and score over the {len(aligned.layers)} layers, mean over tasks:",
                correlations_table(correlations),
                f"![correlations](correlations-{name}.svg)",
                "Average score when the layer is taken by a rule (all layers allowed):",
                regret(picked, aligned, scores),
                summary(picked),
                f"**{verdict(picked)}**",
            ]
    (out / "README.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print(f"wrote {out / 'README.md'}")


if __name__ == "__main__":
    main()
