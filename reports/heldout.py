"""Rules chosen on some tasks and models and tried on others, for the report in reports/pooling."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from places import table
from rules import AGGREGATE, picks
from scipy.stats import spearmanr

import layerscope as ls
from layerscope.compare.aligned import Aligned, align
from layerscope.compare.regret import ALL, regret_table
from layerscope.depth_rules import DEPTH_RULES
from layerscope.evaluate.importing import import_table
from layerscope.evaluate.sts import cosine_of_pairs
from layerscope.resampling import interval
from layerscope.select import CORRECTIONS

TASKS = {f"STS{year}": f"sts/sts{year}-test.tsv" for year in (12, 13, 14, 15, 16)}
SEEN = ("sts/stsbenchmark-test.tsv", "sts/stsbenchmark-dev.tsv")
"""STS-B was put together from STS12 to STS17: pairs of it are not scored again."""
PAIRS = 300
"""Drawn from each task: SmolLM2 is slow on a processor."""


class Task(NamedTuple):
    """A task of a model: cache, the layer of each rule, human scores (NaN: not counted), scores of layers."""

    cache: ls.LayerCache
    pooling: str
    picked: dict[str, str]
    human: NDArray[np.float64]
    scores: pd.DataFrame

    @property
    def pairs(self) -> int:
        """How many pairs were scored."""
        return int(self.scores["n"].iloc[0])

    def of(self, rule: str) -> Any:
        """The row of scores of the layer that a rule takes."""
        return self.scores.loc[self.picked[rule]]

    def cost(self, rule: str) -> float:
        """Points of Spearman below the best layer."""
        return 100 * float(self.scores["score"].max() - self.of(rule)["score"])


def read(file: Path) -> pd.DataFrame:
    """Scored pairs."""
    return pd.read_csv(file, sep="\t", quoting=3, keep_default_na=False)


def raw_scores(scores: pd.DataFrame, pooling: str) -> pd.DataFrame:
    """Plain Spearman of every layer with one pooling, by layer."""
    own = (scores["pooling"] == pooling) & (scores["variant"] == "raw")
    return scores[own & (scores["metric"] == "cosine_spearman")].set_index("layer_name", drop=False)


def held_out(
    key: str, model: Path, pooling: str, extract: Sequence[str], data: Path, work: Path
) -> dict[str, Task]:
    """The tasks that no rule was chosen on."""
    found = {}
    seen = pd.concat([pairs_of(read(data / file)) for file in SEEN])
    for name, file in TASKS.items():
        rows = read(data / file)
        sample = rows.sample(PAIRS, random_state=0).sort_index().reset_index(drop=True)
        corpus = ls.read_corpus(sample, name=name)
        cache = ls.extract(
            model, corpus, path=work / "caches" / f"{key}-{name}", pooling=list(extract), token_metrics=()
        )
        human = sample["score"].mask(pairs_of(sample).isin(seen)).to_numpy(dtype=float)
        scores = raw_scores(ls.evaluate_sts(cache, human, pooling=pooling, task=name, draws=1000), pooling)
        found[name] = Task(cache, pooling, picks(cache, pooling, corpus.texts), human, scores)
    return found


def pairs_of(rows: pd.DataFrame) -> pd.Series:
    """Pairs of sentences, alike whatever their order, case and spaces."""
    sides = rows[["sentence1", "sentence2"]].map(lambda text: " ".join(text.lower().split()))
    return sides.apply(lambda row: "\t".join(sorted(row)), axis=1)


def gain(tasks: Collection[Task], rule: str, other: str) -> str:
    """The mean difference of two rules over tasks, with an interval over the pairs of the tasks."""
    differences = [task.of(rule)["score"] - task.of(other)["score"] for task in tasks]
    draws = [np.array(task.of(rule)["draws"]) - np.array(task.of(other)["draws"]) for task in tasks]
    low, high = interval(float(np.mean(differences)), np.mean(draws, axis=0))
    return f"{100 * np.mean(differences):+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def mean_cost(tasks: Collection[Task], rule: str) -> float:
    """Mean over tasks of what a rule costs, in points."""
    return float(np.mean([task.cost(rule) for task in tasks]))


def cheapest(tasks: Collection[Task], rules: Sequence[str]) -> list[str]:
    """The rules of smallest mean cost; several where they tie."""
    costs = {rule: round(mean_cost(tasks, rule), 6) for rule in rules}
    return [rule for rule, cost in costs.items() if cost == min(costs.values())]


def other_tasks(
    chosen_on: Mapping[str, Mapping[str, Task]], tried_on: Mapping[str, Mapping[str, Task]]
) -> str:
    """What every rule costs where rules were chosen and on the tasks held out, by model."""
    first = [task for tasks in chosen_on.values() for task in tasks.values()]
    held = [task for tasks in tried_on.values() for task in tasks.values()]
    rules = sorted(first[0].picked, key=lambda rule: mean_cost(first, rule))
    rows = [
        {
            "rule": rule,
            "STS-B and SICK-R": f"{mean_cost(first, rule):.1f}",
            **{
                f"held out, {model}": f"{mean_cost(tasks.values(), rule):.1f}"
                for model, tasks in tried_on.items()
            },
            "held out, both": f"{mean_cost(held, rule):.1f}",
            "worst": f"{max(task.cost(rule) for task in held):.1f}",
        }
        for rule in rules
    ]
    depth = min(DEPTH_RULES, key=lambda rule: mean_cost(held, rule))
    lines = [
        f"- {rule}: against the {depth} {gain(held, rule, depth)} over all held-out tasks; "
        + "; ".join(f"{model} {gain(tasks.values(), rule, depth)}" for model, tasks in tried_on.items())
        for rule in dict.fromkeys([*cheapest(first, rules), AGGREGATE])
    ]
    return (
        f"Mean cost in points. The cheapest rules of STS-B and SICK-R, on the tasks held out, against the "
        f"depth rule that is cheapest there ({depth}, known only afterwards):\n\n"
        + "\n".join(lines)
        + "\n\n"
        + table(pd.DataFrame(rows))
    )


def other_models(tasks: Mapping[str, Mapping[str, Task]]) -> str:
    """The cheapest rule and the cheapest depth rule of one model, on the other."""
    rows = []
    for model, own in tasks.items():
        held = list(own.values())
        seen = [task for name, others in tasks.items() if name != model for task in others.values()]
        depth = cheapest(seen, list(DEPTH_RULES))[0]
        for rule in cheapest(seen, [name for name in seen[0].picked if name not in DEPTH_RULES]):
            rows.append(
                {
                    "chosen on": ", ".join(name for name in tasks if name != model),
                    "rule": rule,
                    "costs there": f"{mean_cost(seen, rule):.1f}",
                    "tried on": model,
                    "costs here": f"{mean_cost(held, rule):.1f}",
                    "against the depth rule chosen there": f"{gain(held, rule, depth)} ({depth})",
                }
            )
    return table(pd.DataFrame(rows))


def pythia(shared: Path) -> list[Aligned]:
    """The metrics and scores that the authors of "Layer by Layer" released, by model."""
    place = shared / "golden/published"
    _, values = import_table(place / "metrics.csv.gz", tasks=place / "tasks.csv")
    _, rated = import_table(place / "scores.csv")
    return align(values, rated, variant="raw")


def other_checkpoints(models: Sequence[Aligned]) -> str:
    """Rules chosen on all models but one, tried on that one."""
    frames = {aligned.model: _averages(aligned) for aligned in models}
    rows = []
    for model in frames:
        seen = pd.concat([frame for name, frame in frames.items() if name != model])
        average = seen.groupby(["kind", "rule"])["score"].mean()
        counted = seen.groupby(["kind", "rule"])["score"].size()
        average = average[counted == len(frames) - 1]
        rule, depth = average["criterion"].idxmax(), average["baseline"][list(DEPTH_RULES)].idxmax()
        own = frames[model].set_index("rule")["score"]
        rows.append(
            {
                "tried on": model,
                "rule chosen on the others": rule,
                "score": f"{100 * own[rule]:.1f}",
                "depth rule chosen on the others": f"{depth}: {100 * own[depth]:.1f}",
                "best single layer": f"{100 * own['best single layer']:.1f}",
            }
        )
    return table(pd.DataFrame(rows))


def _averages(aligned: Aligned) -> pd.DataFrame:
    """The average score of every rule of a model."""
    frame = regret_table(aligned, draws=1)
    frame = frame[(frame["layers"] == ALL) & (frame["reference"] == "last layer")]
    scope = frame["scope"].where(frame["kind"] == "criterion", "")
    end = frame["direction"].map({"higher": "highest ", "lower": "lowest "}).fillna("")
    name = end + frame["criterion"] + scope.map(lambda word: f", {word}" if word else "")
    return frame.assign(rule=name)[["kind", "rule", "score"]].drop_duplicates("rule")


def corrected(tasks: Mapping[str, Mapping[str, Task]]) -> str:
    """What corrections, fitted on the texts of a task, do to the layers that rules take."""
    rules = {"last layer": "last layer", AGGREGATE: "rank aggregate"}
    rows = []
    for model, own in tasks.items():
        for rule, name in rules.items():
            cells = {}
            for kind in CORRECTIONS:
                found = [_corrected_score(task, task.picked[rule], kind) for task in own.values()]
                cells[kind] = f"{100 * np.mean(found):.1f}"
            rows.append({"model": model, "layer of": name, **cells})
    return table(pd.DataFrame(rows))


def _corrected_score(task: Task, layer: str, kind: str) -> float:
    x = np.asarray(task.cache.layer(layer, task.pooling), dtype=np.float64)
    cosines = cosine_of_pairs(ls.fit_correction(x, kind).apply(x))
    return float(spearmanr(cosines, task.human, nan_policy="omit").statistic)
