"""The report in reports/pooling: picking a layer without labels, and learned mixes, for MiniLM and SmolLM2.

    python reports/pooling.py [--data ../shared/data] [--work FOLDER]

Caches all layers of STS-B, SICK-R and SNLI triplets, fits every kind of learned pooling on the triplets with
the model frozen (STS-B dev decides the epoch), and scores layers, rules and mixes on STS-B and SICK-R test.
What is in the work folder already is not computed again.
"""

from pathlib import Path
from typing import Any

import heldout
import pandas as pd
from heldout import PAIRS, Task, corrected, held_out, other_models, other_tasks, raw_scores
from places import ROOT, data_and_work, minilm, smollm2, table
from rules import picks

import layerscope as ls
from layerscope.compare.regret import regret_table, verdict
from layerscope.errors import named
from layerscope.evaluate.differences import paired_difference
from layerscope.evaluate.labels import label_curve
from layerscope.plots import plot_layer_weights, save_figure

COMMAND = "make pooling"
TASKS = {"sts-test": "STS-B", "sick": "SICK-R"}
FILES = {
    "sts-test": "sts/stsbenchmark-test.tsv",
    "sts-dev": "sts/stsbenchmark-dev.tsv",
    "sick": "sts/sickr-test.tsv",
    "nli": "nli/snli-triplets.tsv",
}
KINDS: dict[str, dict[str, Any]] = {
    "scalar-mix": {},
    "layer-attention": {},
    "multi-layer": {"sizes": {"latents": 8}},
}
SEEDS = (0, 1)
EPOCHS = 8
SICK_PAIRS = 1500
"""Of SICK-R for SmolLM2, which is slow on a processor."""
MODELS: dict[str, dict[str, Any]] = {
    "MiniLM": {
        "key": "minilm",
        "extract": ["mean", "cls"],
        "pooling": "mean",
        "limit": None,
    },
    "SmolLM2": {
        "key": "smol",
        "extract": ["mean", "mean-nosink", "last"],
        "pooling": "mean-nosink",
        "limit": SICK_PAIRS,
    },
}


def caches(label: str, model: Path, data: Path, work: Path) -> dict[str, ls.LayerCache]:
    """All layers of the four sets."""
    plan = MODELS[label]
    return {
        name: ls.extract(
            model, data / file, path=work / "caches" / f"{plan['key']}-{name}", pooling=plan["extract"],
            token_metrics=(), limit=plan["limit"] if name == "sick" else None,
        )
        for name, file in FILES.items()
    }  # fmt: skip


def fits(label: str, found: dict[str, ls.LayerCache], work: Path) -> dict[tuple[str, int], ls.LearnedPooling]:
    """Every kind of learned pooling with every seed."""
    mixes = {}
    for kind, options in KINDS.items():
        for seed in SEEDS:
            folder = work / "fits" / f"{MODELS[label]['key']}-{kind}-{seed}"
            if not (folder / "config.json").is_file():
                fitted = ls.LearnedPooling(kind, epochs=EPOCHS, seed=seed, **options)
                fitted.fit(found["nli"], dev=found["sts-dev"])
                ls.save_pooling(fitted, folder)
                print(f"{label}: fitted {kind}, seed {seed}", flush=True)
            mixes[kind, seed] = ls.load_pooling(folder)
    return mixes


def scores_of(
    cache: ls.LayerCache, pooling: str, task: str, mixes: dict[tuple[str, int], Any]
) -> pd.DataFrame:
    """Spearman of every layer and mix, with draws."""
    learned = {f"{kind}, seed {seed}": fitted for (kind, seed), fitted in mixes.items()}
    frame = ls.evaluate_sts(cache, pooling=pooling, task=task, draws=1000, learned=learned)
    return frame[frame["metric"] == "cosine_spearman"]


def in_points(gain: dict[str, float]) -> str:
    """A difference with its interval."""
    return f"{100 * gain['difference']:+.1f} [{100 * gain['low']:+.1f}, {100 * gain['high']:+.1f}]"


def row_of(what: str, layer: str, row: Any, last: Any, best: Any) -> dict[str, str]:
    """A line of the table."""

    def against(other: Any) -> str:
        if row is other or (row["layer_name"], row["pooling"], row["variant"]) == (
            other["layer_name"], other["pooling"], other["variant"],
        ):  # fmt: skip
            return "–"
        return in_points(paired_difference(row, other))

    return {
        "": what, "layer": layer, "Spearman": f"{100 * row['score']:.1f}",
        "against the last layer": against(last), "against the best layer": against(best),
    }  # fmt: skip


def task_table(scores: pd.DataFrame, task: Task) -> str:
    """Rules, layers and mixes on one task."""
    raw, pooling, picked = task.scores, task.pooling, task.picked
    centred = scores[(scores["pooling"] == pooling) & (scores["variant"] == "center")]
    best = raw.loc[raw["score"].idxmax()]
    last = raw.loc[picked["last layer"]]
    best_centred = centred.loc[centred["score"].idxmax()]
    rows = [row_of("best layer (needs labels)", best["layer_name"], best, last, best)]
    rows.append(
        row_of("best layer, centred (needs labels)", best_centred["layer_name"], best_centred, last, best)
    )
    rows += [row_of(rule, layer, raw.loc[layer], last, best) for rule, layer in picked.items()]
    rows[2:] = sorted(rows[2:], key=lambda row: -float(row["Spearman"]))
    mixes = scores[(scores["pooling"] != pooling)]
    for name in dict.fromkeys(mixes["pooling"]):
        own = mixes[(mixes["pooling"] == name) & (mixes["variant"] == "raw")].iloc[0]
        rows.append(row_of(f"**{name}** (SNLI triplets)", "all", own, last, best))
    return table(pd.DataFrame(rows))


def verdict_on_mixes(scores: dict[str, pd.DataFrame], pooling: str, label: str) -> str:
    """One sentence a kind: does it beat the best single layer of STS-B test, centred or not?"""
    frame = scores["STS-B"]
    single = frame[frame["pooling"] == pooling]
    best = single.loc[single["score"].idxmax()]
    lines = []
    for kind in KINDS:
        gains = []
        for seed in SEEDS:
            own = frame[(frame["pooling"] == f"{kind}, seed {seed}") & (frame["variant"] == "raw")].iloc[0]
            gains.append(paired_difference(own, best))
        words = "; ".join(f"{in_points(gain)}, p = {gain['p']:.2g}" for gain in gains)
        lines.append(f"- {kind}: {words}")
    way = "centred" if best["variant"] == "center" else "as it is"
    return (
        f"Against the best single layer of {label} on STS-B test, chosen by the test scores themselves "
        f"({best['layer_name']}, {way}: {100 * best['score']:.1f}), a seed each:\n\n" + "\n".join(lines)
    )


def published(shared: Path) -> str:
    """The published Pythia metrics through the same selectors, from frames alone."""
    if not (shared / "golden/published").is_dir():
        return ""
    models = heldout.pythia(shared)
    lines = [f"- {verdict(regret_table(aligned))}" for aligned in models]
    return (
        '## Published data: Pythia\n\nThe metrics and scores that the authors of "Layer by Layer" released, '
        "through the same selectors, from frames alone (`layerscope compare`, docs/published.md):\n\n"
        + "\n".join(lines)
        + "\n\nThe rule that scores highest on average on two of the models, tried on the third:\n\n"
        + heldout.other_checkpoints(models)
    )


def curve_table(found: dict[str, dict[str, ls.LayerCache]]) -> str:
    """What choosing by a few labelled pairs costs."""
    curves = {
        f"{label}, {name}": label_curve(found[label][key], pooling=MODELS[label]["pooling"])
        for label in found
        for key, name in TASKS.items()
    }
    sizes = next(iter(curves.values()))["pairs"].tolist()
    rows = []
    for size in sizes:
        row = {"labelled pairs": str(size)}
        for name, curve in curves.items():
            at = curve[curve["pairs"] == size]
            row[name] = "–" if at.empty else f"{100 * at['regret'].item():.1f} ({at['best'].item():.0%})"
        rows.append(row)
    return table(pd.DataFrame(rows))


def costs_table(seen: dict[str, dict[str, Task]]) -> str:
    """What each rule costs on every model and task."""
    tasks = {f"{model}, {name}": task for model, own in seen.items() for name, task in own.items()}
    rules = next(iter(tasks.values())).picked
    frame = pd.DataFrame({name: {rule: task.cost(rule) for rule in rules} for name, task in tasks.items()})
    frame = frame.assign(mean=frame.mean(axis=1), worst=frame.max(axis=1))
    frame = frame.sort_values("mean", kind="stable").map("{:.1f}".format)
    return table(frame.rename_axis("rule").reset_index())


def main() -> None:
    """Run all of it."""
    data_folder, work = data_and_work(__doc__.splitlines()[0], "pooling")
    out = ROOT / "reports/pooling"
    models = {"MiniLM": minilm(), "SmolLM2": smollm2(work)}
    parts, found = [], {}
    seen: dict[str, dict[str, Task]] = {}
    held: dict[str, dict[str, Task]] = {}
    for label, model in models.items():
        plan = MODELS[label]
        pooling = plan["pooling"]
        found[label] = caches(label, model, data_folder, work)
        mixes = fits(label, found[label], work)
        seen[label], scores = {}, {}
        parts.append(f"## {label}, pooling {pooling}")
        for key, name in TASKS.items():
            cache = found[label][key]
            texts = ls.read_corpus(data_folder / FILES[key]).texts[: cache.n_rows]
            scores[name] = scores_of(cache, pooling, name, mixes)
            human = cache.rows["score"].to_numpy(dtype=float)[::2]
            task = Task(
                cache, pooling, picks(cache, pooling, texts), human, raw_scores(scores[name], pooling)
            )
            parts.append(f"### {name}: {cache.n_rows // 2:,} pairs\n\n{task_table(scores[name], task)}")
            ls.write_frame(scores[name].drop(columns="draws"), out / f"scores-{label}-{name}")
            seen[label][name] = task
        parts.append(verdict_on_mixes(scores, pooling, label))
        weights = pd.concat(
            [mixes[kind, 0].layer_weights_.assign(kind=kind) for kind in KINDS],
            ignore_index=True,
        )
        save_figure(plot_layer_weights(weights).figure, out / f"layer-weights-{label}", formats=["svg"])
        parts.append(f"![How much each layer counts in the mixes of {label}](layer-weights-{label}.svg)")
        held[label] = held_out(plan["key"], model, pooling, plan["extract"], data_folder, work)
    head = [
        "# Which layer, or which mix: MiniLM and SmolLM2",
        f"Written by `{COMMAND}`. Spearman of cosine with human scores, in %, with 95 % intervals of the "
        "difference from 1,000 paired bootstrap samples of the pairs. Rules see the texts of a task and no "
        f"scores. SICK-R is its test part, the first {SICK_PAIRS:,} pairs of it for SmolLM2. Learned mixes "
        f"were fitted with the model frozen on 5,693 SNLI triplets, at most {EPOCHS} epochs, the epoch "
        f"chosen on STS-B dev, {len(SEEDS)} seeds each.",
    ]
    merged = {label: {**seen[label], **held[label]} for label in models}
    left = named(task.pairs for task in next(iter(held.values())).values())
    tail = [
        "## What rules cost\n\nSpearman below the best layer, in points, on the two tasks that rules were "
        f"looked for on.\n\n{costs_table(seen)}",
        "## Rules on tasks that they were not chosen on\n\nSTS12 to STS16, "
        f"{PAIRS} pairs drawn from each, less those that are in STS-B test or dev too, which leaves {left}. "
        f"{other_tasks(seen, held)}",
        "## Rules on a model that they were not chosen on\n\nThe cheapest rule on all seven tasks of one "
        f"model, on the seven of the other; differences are of scores.\n\n{other_models(merged)}",
        "## Corrections\n\nMean Spearman over the five held-out tasks, with the vectors as they are and "
        f"corrected, fitted on the texts of each task without their scores.\n\n{corrected(held)}",
        "## Choosing by a few labelled pairs\n\nMean cost in points of taking the layer that is best on "
        "so many labelled pairs, on the pairs not drawn, and the share of 200 draws that find the best layer "
        f"(`layerscope.evaluate.labels.label_curve`).\n\n{curve_table(found)}",
        published(data_folder.parent),
    ]
    text = "\n\n".join(part for part in [*head, *parts, *tail] if part)
    (out / "README.md").write_text(text + "\n", encoding="utf-8")
    print(f"wrote {out / 'README.md'}")


if __name__ == "__main__":
    main()
