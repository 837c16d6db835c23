"""The report in reports/pooling: picking a layer without labels, and learned mixes, for MiniLM and SmolLM2.

    python reports/pooling.py [--data ../shared/data] [--work FOLDER]

Caches all layers of STS-B, SICK-R and SNLI triplets, fits every kind of learned pooling on the triplets with
the model frozen (STS-B dev decides the epoch), and scores layers, rules and mixes on STS-B and SICK-R test.
What is in the work folder already is not computed again.
"""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from places import ROOT, data_and_work, minilm, smollm2, table

import layerscope as ls
from layerscope.compare.aligned import align
from layerscope.compare.regret import regret_table, verdict
from layerscope.depth_rules import DEPTH_RULES, rule_layer
from layerscope.evaluate.differences import paired_difference
from layerscope.evaluate.importing import import_table
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
        "kinds": tuple(KINDS),
    },
    "SmolLM2": {
        "key": "smol",
        "extract": ["mean", "mean-nosink", "last"],
        "pooling": "mean-nosink",
        "limit": SICK_PAIRS,
        "kinds": ("scalar-mix", "layer-attention"),
    },
}
CRITERIA = (
    "dataset_entropy", "effective_rank", "participation_ratio", "stable_rank", "isoscore", "uniformity",
    "anisotropy", "outlier_variance_top1", "intrinsic_dimension_twonn", "hubness",
)  # fmt: skip


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
    for kind in MODELS[label]["kinds"]:
        for seed in SEEDS:
            folder = work / "fits" / f"{MODELS[label]['key']}-{kind}-{seed}"
            if not (folder / "config.json").is_file():
                fitted = ls.LearnedPooling(kind, epochs=EPOCHS, seed=seed, **KINDS[kind])
                fitted.fit(found["nli"], dev=found["sts-dev"])
                ls.save_pooling(fitted, folder)
                print(f"{label}: fitted {kind}, seed {seed}", flush=True)
            mixes[kind, seed] = ls.load_pooling(folder)
    return mixes


def metrics_of(cache: ls.LayerCache, pooling: str) -> pd.DataFrame:
    """The criteria at every layer, on the texts of a task without their scores."""
    file = cache.path.parent / f"{cache.path.name}.parquet"
    if not file.is_file():
        ls.analyze(cache, list(CRITERIA), pooling=[pooling], draws=0).to_parquet(file, index=False)
    return pd.read_parquet(file)


def neighbour_agreement(cache: ls.LayerCache, pooling: str, texts: int = 500, k: int = 10) -> pd.Series:
    """Share of the k nearest texts (by cosine) that a layer has in common with the layers beside it."""
    rows = np.flatnonzero(~cache.rows["empty"].to_numpy(dtype=bool))
    rows = rows[cache.rows["duplicate_of"].isna().to_numpy()[rows]][:texts]
    nearest = []
    for layer in cache.layers:
        unit = np.asarray(cache.layer(layer, pooling), dtype=np.float64)[rows]
        unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
        cosine = unit @ unit.T
        np.fill_diagonal(cosine, -np.inf)
        nearest.append(np.argsort(-cosine, axis=1)[:, :k])
    shared = [
        np.mean([len(set(a) & set(b)) / k for a, b in zip(one, other, strict=True)])
        for one, other in itertools.pairwise(nearest)
    ]
    both = [np.mean(shared[max(0, at - 1) : at + 1]) for at in range(len(cache.layers))]
    return pd.Series(both, index=cache.layers)


def lexical_share(cache: ls.LayerCache, pooling: str, data: Path, file: str, pairs: int = 4000) -> pd.Series:
    """Spearman of cosine with the overlap of words (Jaccard) over random pairs of texts, of every layer."""
    corpus = ls.read_corpus(data / file)
    words = [frozenset(text.lower().split()) for text in corpus.texts[: cache.n_rows]]
    rng = np.random.default_rng(0)
    one, other = rng.integers(cache.n_rows, size=(2, pairs))
    keep = one != other
    one, other = one[keep], other[keep]
    overlap = [
        len(words[a] & words[b]) / max(1, len(words[a] | words[b])) for a, b in zip(one, other, strict=True)
    ]
    found = {}
    for layer in cache.layers:
        x = np.asarray(cache.layer(layer, pooling), dtype=np.float64)
        unit = x / np.linalg.norm(x, axis=1, keepdims=True)
        found[layer] = pd.Series(np.sum(unit[one] * unit[other], axis=1)).corr(pd.Series(overlap), "spearman")
    return pd.Series(found)


def rules(cache: ls.LayerCache, pooling: str, data: Path, file: str) -> dict[str, str]:
    """The layer that each rule takes, without labels."""
    frame = metrics_of(cache, pooling)
    depth = dict(zip(frame["layer_name"], frame["depth"], strict=True))
    picked = {rule: rule_layer(rule, list(depth), depth) for rule in DEPTH_RULES}
    for criterion in CRITERIA:
        for direction, word in (("higher", "highest"), ("lower", "lowest")):
            chosen = ls.LayerSelector(criterion, direction).fit(frame)
            picked[f"{word} {criterion}"] = chosen.layer_
    together = ["participation_ratio", "uniformity", "isoscore"]
    picked[f"rank aggregate of {', '.join(together)}"] = ls.RankAggregateSelector(together).fit(frame).layer_
    entropy = frame[frame["metric"] == "dataset_entropy"].set_index("layer_name")["value"]
    line = np.polyval(np.polyfit(np.arange(len(entropy)), entropy, 1), np.arange(len(entropy)))
    picked["highest dataset_entropy above its trend over depth"] = str((entropy - line).idxmax())
    picked["highest agreement of neighbours with the layers beside"] = str(
        neighbour_agreement(cache, pooling).idxmax()
    )
    lexical = lexical_share(cache, pooling, data, file)
    picked["least explained by overlap of words"] = str(lexical.abs().idxmin())
    return picked


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


def task_table(scores: pd.DataFrame, pooling: str, picked: dict[str, str]) -> tuple[str, dict[str, float]]:
    """Rules, layers and mixes on one task, and what each rule's pick costs against the best layer."""
    raw = scores[(scores["pooling"] == pooling) & (scores["variant"] == "raw")].set_index(
        "layer_name", drop=False
    )
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
    return table(pd.DataFrame(rows)), {
        rule: float(raw.loc[layer, "score"] - best["score"]) for rule, layer in picked.items()
    }


def verdict_on_mixes(scores: dict[str, pd.DataFrame], pooling: str, label: str) -> str:
    """One sentence a kind: does it beat the best single layer of STS-B test, centred or not?"""
    frame = scores["STS-B"]
    single = frame[frame["pooling"] == pooling]
    best = single.loc[single["score"].idxmax()]
    lines = []
    for kind in MODELS[label]["kinds"]:
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
    place = shared / "golden/published"
    if not place.is_dir():
        return ""
    _, values = import_table(place / "metrics.csv.gz", tasks=place / "tasks.csv")
    _, rated = import_table(place / "scores.csv")
    lines = []
    for aligned in align(values, rated, variant="raw"):
        frame = regret_table(aligned, draws=2000)
        lines.append(f"- {verdict(frame)}")
    return (
        '## Published data: Pythia\n\nThe metrics and scores that the authors of "Layer by Layer" released, '
        "through the same selectors, from frames alone (`layerscope compare`, docs/published.md):\n\n"
        + "\n".join(lines)
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


def regret_over_tasks(regrets: dict[tuple[str, str], dict[str, float]]) -> str:
    """Mean and worst regret of each rule over models and tasks."""
    frame = pd.DataFrame({f"{model}, {task}": costs for (model, task), costs in regrets.items()})
    order = frame.mean(axis=1).sort_values(ascending=False, kind="stable").index
    rows = []
    for rule in order:
        costs = frame.loc[rule]
        cells = {name: f"{100 * cost:.1f}" for name, cost in costs.items()}
        rows.append(
            {
                "rule": str(rule),
                **cells,
                "mean": f"{100 * costs.mean():.1f}",
                "worst": f"{100 * costs.min():.1f}",
            }
        )
    return table(pd.DataFrame(rows))


def main() -> None:
    """Run all of it."""
    data_folder, work = data_and_work(__doc__.splitlines()[0], "pooling")
    out = ROOT / "reports/pooling"
    models = {"MiniLM": minilm(), "SmolLM2": smollm2(work)}
    parts, regrets, found = [], {}, {}
    for label, model in models.items():
        pooling = MODELS[label]["pooling"]
        found[label] = caches(label, model, data_folder, work)
        mixes = fits(label, found[label], work)
        scores = {}
        parts.append(f"## {label}, pooling {pooling}")
        for key, task in TASKS.items():
            cache = found[label][key]
            picked = rules(cache, pooling, data_folder, FILES[key])
            scores[task] = scores_of(cache, pooling, task, mixes)
            body, regrets[label, task] = task_table(scores[task], pooling, picked)
            parts.append(f"### {task}: {cache.n_rows // 2:,} pairs\n\n{body}")
            ls.write_frame(scores[task].drop(columns="draws"), out / f"scores-{label}-{task}")
        parts.append(verdict_on_mixes(scores, pooling, label))
        weights = pd.concat(
            [mixes[kind, 0].layer_weights_.assign(kind=kind) for kind in MODELS[label]["kinds"]],
            ignore_index=True,
        )
        save_figure(plot_layer_weights(weights).figure, out / f"layer-weights-{label}", formats=["svg"])
        parts.append(f"![How much each layer counts in the mixes of {label}](layer-weights-{label}.svg)")
    head = [
        "# Which layer, or which mix: MiniLM and SmolLM2",
        f"Written by `{COMMAND}`. Spearman of cosine with human scores, in %, with 95 % intervals of the "
        "difference from 1,000 paired bootstrap samples of the pairs. Rules see the texts of a task and no "
        f"scores. SICK-R is its test part, the first {SICK_PAIRS:,} pairs of it for SmolLM2. Learned mixes "
        f"were fitted with the model frozen on 5,693 SNLI triplets, at most {EPOCHS} epochs, the epoch "
        f"chosen on STS-B dev, {len(SEEDS)} seeds each; multi-layer pooling was fitted for MiniLM only.",
    ]
    tail = [
        "## What rules cost\n\nSpearman below the best layer, in points; over two models and two tasks, "
        f"which is too few to call any rule the best one.\n\n{regret_over_tasks(regrets)}",
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
