"""How commands talk to people: results on standard output, the rest on standard error."""

from __future__ import annotations

import io
import json
import math
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from layerscope.errors import count_of
from layerscope.files import human_bytes
from layerscope.frames import ALL_TASKS, MEAN_OF_TOKENS

if TYPE_CHECKING:
    import pandas as pd

    from layerscope.cache import LayerCache
    from layerscope.checkup import Check
    from layerscope.exporting import Exported
    from layerscope.extraction import Plan
    from layerscope.learn import LearnedPooling
    from layerscope.training import Trained

for _stream in (sys.stdout, sys.stderr):
    if isinstance(_stream, io.TextIOWrapper):
        _stream.reconfigure(errors="replace")  # a terminal without a sign shows a question mark for it

out = Console(highlight=False, soft_wrap=True)
err = Console(highlight=False, soft_wrap=True, stderr=True)


def print_json(value: Any) -> None:
    """Strict JSON on standard output, for machines."""
    out.print(json.dumps(value, ensure_ascii=False, allow_nan=False), markup=False)


def note(text: str) -> None:
    """A line of information."""
    err.print(f"[dim]·[/dim] {escape(text)}")


def wrote(paths: Sequence[Path]) -> None:
    """What a command left on disk."""
    for path in paths:
        out.print(f"[green]wrote[/green] {escape(str(path))}")


def command(*words: str | Path) -> str:
    """A command line that can be pasted: words with blanks or signs are quoted.

    >>> command("analyze", "my cache")
    "layerscope analyze 'my cache'"
    """
    return shlex.join(["layerscope", *map(str, words)])


def next_step(*commands: str) -> None:
    """What to run next."""
    for number, command in enumerate(commands):
        out.print(f"[dim]{'next' if number == 0 else '  or'}[/dim]  {escape(command)}")


def number(value: float | None, digits: int = 3) -> str:
    """A figure, or a dash where it is missing.

    >>> number(0.12345), number(1234.5), number(float("nan"))
    ('0.123', '1234', '–')
    """
    if value is None or value != value:  # noqa: PLR0124 - NaN is not equal to itself
        return "–"
    value = round(value, digits) + 0.0  # never a negative zero
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.{digits}f}"


def figures(
    keys: Sequence[str], columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = ""
) -> None:
    """Print a table of figures, in several parts where the terminal is too narrow for all columns.

    Args:
        keys: headings of the first columns, repeated in every part.
        columns: headings of the other columns; an underscore may break a line.
        rows: cells, those of ``keys`` first.
        title: above the table.
    """
    headings = [column.replace("_", "\n") for column in columns]
    widths = [
        3 + max(len(text) for text in [*heading.split("\n"), *(row[len(keys) + at] for row in rows)])
        for at, heading in enumerate(headings)
    ]
    fixed = 1 + sum(
        3 + max(len(text) for text in [key, *(row[at] for row in rows)]) for at, key in enumerate(keys)
    )
    start = 0
    while start < len(columns):
        stop, used = start + 1, fixed + widths[start]
        while stop < len(columns) and used + widths[stop] <= out.width:
            used += widths[stop]
            stop += 1
        part = Table(
            title=title if start == 0 else None, title_justify="left", title_style="bold", box=SIMPLE_HEAD
        )
        for key in keys:
            part.add_column(key, no_wrap=True)
        for heading in headings[start:stop]:
            part.add_column(heading, justify="right", no_wrap=True)
        for row in rows:
            part.add_row(*map(escape, row[: len(keys)]), *row[len(keys) + start : len(keys) + stop])
        out.print(part)
        start = stop


def layer_figures(frame: pd.DataFrame, layers: Sequence[str], value: str = "value", title: str = "") -> None:
    """Print one line a layer and pooling, one column a metric.

    Token metrics stand in the line of the mean over the same tokens.
    """
    shown = frame.assign(pooling=_beside_their_mean(frame["pooling"]))
    wide = shown.pivot_table(
        index=["layer_name", "pooling"], columns="metric", values=value, sort=False, dropna=False
    )
    metrics = [name for name in wide.columns if wide[name].notna().any()]
    rows = [
        [layer, pooling, *(number(wide.loc[(layer, pooling), metric]) for metric in metrics)]
        for layer in layers
        for pooling in dict.fromkeys(shown["pooling"])
        if (layer, pooling) in wide.index
    ]
    if metrics:
        _figures_of_poolings(["layer", "pooling"], metrics, rows, title)


def _beside_their_mean(poolings: Iterable[str]) -> list[str]:
    """Token sets named after the pooling that averages the same tokens, where it is among ``poolings``.

    >>> _beside_their_mean(["mean", "tokens"]), _beside_their_mean(["last", "tokens"])
    (['mean', 'mean'], ['last', 'tokens'])
    """
    names = list(poolings)
    return [MEAN_OF_TOKENS[name] if MEAN_OF_TOKENS.get(name) in names else name for name in names]


def _figures_of_poolings(keys: list[str], columns: Sequence[str], rows: list[list[str]], title: str) -> None:
    """Print figures; where there is only one pooling, it stands in the title and not in a column."""
    at = keys.index("pooling")
    poolings = {row[at] for row in rows}
    if len(poolings) == 1:
        title = f"{title} (pooling {poolings.pop()})".strip()
        keys = keys[:at] + keys[at + 1 :]
        rows = [row[:at] + row[at + 1 :] for row in rows]
    figures(keys, columns, rows, title)


_SECONDS_PER_LINE = 20
_ARROWS = {"higher": "↑", "lower": "↓"}


def pick_figures(picks: pd.DataFrame) -> None:
    """Print picks and depth rules, with what they cost where that is known."""
    scored = "cost" in picks
    picks = picks.assign(pooling=_beside_their_mean(picks["pooling"]))
    rows = []
    for pick in picks.to_dict("records"):
        if not isinstance(pick["layer_name"], str):
            note(f"no pick by {pick['criterion']} (pooling {pick['pooling']}): {pick['reason']}")
            continue
        is_rule = pick["kind"] == "baseline"
        arrow = "" if is_rule else f" {_ARROWS[pick['direction']]}"
        row = [
            pick["criterion"] + arrow,
            pick["pooling"],
            pick["layer_name"],
            *([number(pick["score"]), _cost(pick)] if scored else []),
            "" if is_rule else _percent(pick["support"]),
            "" if is_rule else ("yes" if pick["clear"] else "no"),
            "" if is_rule else pick["runner_up"] if isinstance(pick["runner_up"], str) else "–",
        ]
        rows.append(row)
    columns = [*(["score", "cost [95 %]"] if scored else []), "support", "clear", "runner-up"]
    _figures_of_poolings(
        ["picked by", "pooling", "layer"],
        columns,
        rows,
        "Picks without labels (↑ highest, ↓ lowest value), and by depth",
    )
    unsure = picks[picks["layer_name"].notna() & (picks["kind"] == "criterion") & (picks["reason"] != "")]
    for reason in unsure["reason"].unique():
        note(f"no support is given: {reason}")


def learned_figures(scores: pd.DataFrame, names: Sequence[str]) -> None:
    """Print what learned mixes score beside the best layer of any pooling."""
    from layerscope.evaluate.differences import paired_difference

    whole = scores[(scores["subset"] == "all") & scores["score"].notna()]
    layers = whole[~whole["pooling"].isin(names)]
    if layers.empty:
        return
    best = layers.sort_values("score", kind="stable").iloc[-1]
    rival = f"{best['layer_name']}, {best['pooling']} ({number(best['score'])})"
    rows = []
    for own in (row for _, row in whole[whole["pooling"].isin(names)].iterrows()):
        gain = paired_difference(own, best)
        above = f"{gain['difference']:+.3f} [{number(gain['low'])}, {number(gain['high'])}]"
        rows.append([own["pooling"], number(own["score"]), rival, f"{above}, p = {number(gain['p'])}"])
    if rows:
        title = "Learned mixes beside the best layer, which these scores chose"
        figures(["learned mix"], ["Spearman", "best layer", "above it [95 %]"], rows, title)


def fit_figures(fitted: LearnedPooling) -> None:
    """Print how a fit went and how much each layer counts."""
    history = fitted.history_
    kept = history[history["epoch"] == fitted.best_epoch_].iloc[0]
    out.print(
        f"{fitted.kind} of {count_of(len(fitted.layers_), 'layer')} ({', '.join(fitted.poolings_)}), "
        f"trained on {count_of(fitted.n_examples_, 'example')} for '{fitted.objective_}'"
    )
    out.print(
        f"{fitted.dev_metric_} {number(history['dev'].iloc[0])} before training, {number(kept['dev'])} at "
        f"the best of {int(history['epoch'].iloc[-1])} epochs ({fitted.best_epoch_})"
    )
    shares = fitted.layer_weights_
    rows = [[name, number(share)] for name, share in zip(shares["layer_name"], shares["weight"], strict=True)]
    figures(["layer"], ["share"], rows, "How much each layer counts")
    if fitted.best_epoch_ == 0:
        note("no epoch was better than the mix before training: nothing was learned")


def training_figures(trained: Trained) -> None:
    """Print how a training went."""
    out.print(f"{trained.design.name}: {trained.design.description}")
    out.print(
        f"{count_of(trained.n_examples, 'example')} an epoch, {trained.trainable:,} trained parameters, "
        f"epoch {trained.best_epoch} kept"
    )
    rows = [
        [f"{epoch:.0f}", number(loss), number(dev)]
        for epoch, loss, dev in trained.history[["epoch", "loss", "dev"]].to_numpy(dtype=float).tolist()
    ]
    figures(["epoch"], ["loss", "dev Spearman"], rows)


def export_figures(exported: Exported) -> None:
    """Print what an export holds, and what it costs beside the full model."""
    share = exported.parameters / exported.full_parameters
    how = "with sentence-transformers alone" if exported.plain else "where layerscope is installed"
    rows = [
        ["layer", f"{exported.layer} ({exported.pooling})"],
        ["blocks", f"{exported.blocks} of {exported.n_blocks}"],
        ["parameters", f"{exported.parameters:,} ({share:.0%} of the full model)"],
        ["on disk", human_bytes(exported.bytes)],
        ["forward pass", f"{exported.speed:.2f} of the full model's time" if exported.speed else "–"],
        ["vectors", f"as the full model's to {exported.error:.1e} of the largest entry"],
        ["loads", how],
    ]
    table = Table(box=None, show_header=False)
    for row in rows:
        table.add_row(*map(escape, row))
    out.print(table)


@contextmanager
def working(what: str) -> Iterator[None]:
    """A spinner, on a terminal, while something takes a while."""
    if not err.is_terminal:
        yield
        return
    with err.status(what):
        yield


def best_layers(scores: pd.DataFrame) -> None:
    """Of every task and pooling, whether the best layer is better than the last one."""
    from layerscope.evaluate.differences import best_against_last

    for best in best_against_last(scores).to_dict("records"):
        where = ", ".join(str(best[key]) for key in ("task", "subset", "pooling") if best[key] not in _PLAIN)
        text = f"{where}: best is {best['layer_name']} ({number(best['score'])})"
        if best["vs_last"] == 0:
            text += ", the last layer"
        elif math.isfinite(best["vs_last"]):
            text += f", {number(best['vs_last'])} above the last layer"
            if math.isfinite(best["vs_last_p"]):
                low, high, p = (best[f"vs_last_{name}"] for name in ("low", "high", "p"))
                sure = "beyond chance" if p < 0.05 else "not beyond chance"
                text += f" [{number(low)}, {number(high)}], p = {p:.2g} over all layers: {sure}"
        note(text)


_PLAIN = ("all", "default", "")


def correlation_figures(correlations: pd.DataFrame) -> None:
    """Correlations of one model, averaged over tasks, a line a metric."""
    mean = correlations[correlations["task"] == ALL_TASKS]
    statistics = list(dict.fromkeys(mean["statistic"]))
    rows = []
    for (metric, variant), group in mean.groupby(["metric", "variant"], sort=False):
        records = {str(record["statistic"]): record for record in group.to_dict("records")}
        cells = []
        for name in statistics:
            value, p = float(records[name]["value"]), float(records[name]["p"])
            cells.append(number(value, 2) + (f" (p {p:.2g})" if math.isfinite(p) else ""))
        low, high = (float(records["spearman"][f"ci_{end}"]) for end in ("low", "high"))
        interval = f"[{number(low, 2)}, {number(high, 2)}]" if math.isfinite(low) else "–"
        rows.append([str(metric) + (f" ({variant})" if variant else ""), cells[0], interval, *cells[1:]])
    title = f"{mean['model'].iloc[0]}: correlation of metric and score over layers, mean over tasks"
    figures(["metric"], [statistics[0], "95 %", *statistics[1:]], rows, title)


def regret_figures(table: pd.DataFrame) -> None:
    """Average scores, in percent: references first, then each criterion in both directions."""
    from layerscope.compare.regret import best_depth_rule

    first = table[table["reference"] == table["reference"].iloc[0]]
    rules = first[first["kind"] != "criterion"]
    shown = [
        [
            str(rule["criterion"]) + ("" if rule["layers"] == "all" else f" ({rule['layers']})"),
            number(100 * rule["score"], 2),
            str(rule["layer_name"]) or "–",
        ]
        for rule in rules.to_dict("records")
    ]
    title = f"{first['model'].iloc[0]}: average score of {first['n'].iloc[0]} tasks, in %"
    figures(["layer taken"], ["score", "layer"], shown, title)
    best_rule = best_depth_rule(table)["criterion"]
    against = table[(table["kind"] == "criterion") & (table["reference"] == best_rule)]
    rows = []
    for (criterion, direction), group in against.groupby(["criterion", "direction"], sort=False):
        cells = []
        for scope, layers in (("per task", "all"), ("one layer", "all"), ("per task", "without layer 0"),
                              ("one layer", "without layer 0")):  # fmt: skip
            found = group[(group["scope"] == scope) & (group["layers"] == layers)]
            cells.append(_regret_cell(found.iloc[0]) if len(found) else "–")
        own = " *" if group["own_direction"].any() else ""
        rows.append([f"{criterion} {_ARROWS[str(direction)]}{own}", *cells])
    columns = ["per task", "one layer", "per task, no layer 0", "one layer, no layer 0"]
    figures(
        ["picked by"],
        columns,
        rows,
        f"the same, picked by a metric (↑ highest, ↓ lowest, * its usual end); in brackets the difference "
        f"to the {best_rule}, ! where it is beyond chance",
    )


def _regret_cell(rule: pd.Series[Any]) -> str:
    """A score with its difference to the best depth rule."""
    mark = "!" if rule["p_holm"] < 0.05 else ""
    return f"{100 * rule['score']:.2f} ({100 * rule['difference']:+.2f}{mark})"


def _percent(share: float) -> str:
    return "–" if share != share else f"{share:.0%}"  # noqa: PLR0124 - NaN is not equal to itself


def _cost(pick: Mapping[Any, Any]) -> str:
    if pick["cost"] == 0:
        return "0, the best"
    low, high = number(pick["cost_low"]), number(pick["cost_high"])
    return number(pick["cost"]) + ("" if low == "–" else f" [{low}, {high}]")


@contextmanager
def progress(what: str) -> Iterator[Any]:
    """A progress bar; yields a function that takes what is done and the total."""
    if not err.is_terminal:
        yield in_lines(what)
        return
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
        console=err,
        transient=True,
    )
    task: TaskID | None = None

    def advance(done: int, total: int) -> None:
        nonlocal task
        if task is None:
            bar.start()
            task = bar.add_task(what, total=total)
        bar.update(task, completed=done, total=total)

    try:
        yield advance
    finally:
        if task is not None:
            bar.stop()


def in_lines(what: str) -> Any:
    """Progress without a bar, as in a log or beside another bar: a line now and then."""
    last = time.monotonic()

    def advance(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _SECONDS_PER_LINE and total:
            last = time.monotonic()
            note(f"{what}: {done / total:.0%}")

    return advance


def show_checks(checks: Sequence[Check]) -> None:
    """What each check of a model found, a line each."""
    colours = {"pass": "green", "warn": "yellow", "fail": "red"}
    width = max(len(check.name) for check in checks)
    for check in checks:
        mark = f"[{colours[check.status]}]{check.status}[/{colours[check.status]}]"
        out.print(f"{mark}  {check.name:<{width}}  {escape(check.says)}")


def describe_plan(plan: Plan) -> None:
    """Say what is going to be extracted, and how large it will be, before it starts."""
    for line in plan.notes:
        note(line)
    note(
        f"{plan.model}: {count_of(plan.rows, 'text')}, {plan.unique:,} distinct to run "
        f"({count_of(plan.tokens, 'token')}), {count_of(len(plan.layers), 'layer')} "
        f"({plan.layers[0]} … {plan.layers[-1]}), poolings {', '.join(plan.poolings)}"
        + (f", {count_of(len(plan.views), 'view')}" if plan.views else "")
    )
    if plan.truncated:
        note(f"cut at {count_of(plan.max_length, 'token')}: {count_of(plan.truncated, 'text')}")
    if plan.sinks is not None and plan.sinks.rule:
        note(
            f"attention sinks: {describe_sinks(plan.sinks.as_dict())}, up to "
            f"{plan.sinks.largest_ratio:.0f} times the median norm of a text; "
            "compare poolings mean and mean-nosink"
        )
    size = f"{human_bytes(plan.bytes)} on disk in {count_of(plan.shards, 'shard')}"
    note(size + (f", {plan.finished_shards} of them there already" if plan.finished_shards else ""))


def describe_sinks(sinks: dict[str, Any]) -> str:
    """Which tokens are sinks, in words.

    >>> describe_sinks({"positions": [0], "token_ids": []})
    'token position 0'
    """
    parts = []
    if sinks["positions"]:
        parts.append("token position " + ", ".join(map(str, sinks["positions"])))
    if sinks["token_ids"]:
        parts.append("token ids " + ", ".join(map(str, sinks["token_ids"])))
    return " and ".join(parts) or "none"


def describe_partial_cache(cache: LayerCache) -> Table:
    """What is known of a cache that is not finished."""
    done, planned = cache.progress
    facts = {
        "model": cache.model,
        "corpus": f"{cache.corpus}: {count_of(cache.n_rows, 'text')}",
        "layers": ", ".join(cache.layers),
        "poolings": ", ".join(cache.poolings),
        "views": ", ".join(cache.views) or "none",
        "unfinished": f"{done} of {count_of(planned, 'shard')} there",
    }
    return _facts_table(cache.path, facts)


def cache_facts(cache: LayerCache) -> dict[str, Any]:
    """What is in a cache, finished or not, for machines."""
    manifest = cache.manifest
    done, planned = cache.progress
    facts = {
        "cache": str(cache.path),
        "status": manifest["status"],
        "shards": done,
        "planned_shards": planned,
        "model": {"name": cache.model} | manifest["model"],
        "corpus": manifest["corpus"],
        "texts": cache.n_rows,
        "layers": cache.layers,
        "poolings": cache.poolings,
        "views": cache.views,
        "sinks": manifest["sinks"],
        "identity": manifest["identity"],
        "bytes": _size_of(cache),
        "created": manifest["created"],
        "versions": manifest["versions"],
    }
    if manifest["status"] == "complete":
        facts["flags"] = _flags(cache.rows)
    return facts


def _flags(rows: pd.DataFrame) -> dict[str, int]:
    """How many texts are out of the ordinary."""
    return {
        "empty": int(rows["empty"].sum()),
        "truncated": int(rows["truncated"].sum()),
        "repeats": int(rows["duplicate_of"].notna().sum()),
        "nonfinite": int((rows["nonfinite"] != "").sum()),
    }


def _size_of(cache: LayerCache) -> int:
    return sum(file.stat().st_size for file in cache.path.rglob("*") if file.is_file())


def describe_cache(cache: LayerCache) -> Table:
    """A readable summary of a cache."""
    manifest, rows = cache.manifest, cache.rows
    model, flags = manifest["model"], _flags(rows)
    facts = {
        "model": f"{cache.model} ({model['class']}, {count_of(model['n_blocks'], 'block')}"
        + (f", final norm at {model['final_norm']})" if model["final_norm"] else ", no final norm)"),
        "corpus": f"{cache.corpus}: {count_of(cache.n_rows, 'text')}"
        + next((f" in {name}s" for name in ("pair", "triplet") if name in rows), ""),
        "flags": f"{flags['empty']} empty, {flags['truncated']} truncated at "
        f"{count_of(manifest['identity']['max_length'], 'token')}, "
        f"{count_of(flags['repeats'], 'repeat')}, {flags['nonfinite']} not finite",
        "layers": ", ".join(cache.layers),
        "poolings": ", ".join(cache.poolings),
        "views": ", ".join(cache.views) or "none",
        "token states": "stored" if manifest["identity"]["keep_tokens"] else "not stored",
        "sinks": describe_sinks(manifest["sinks"]) if manifest["sinks"] else "not looked for",
        "dtype": manifest["identity"]["dtype"],
        "notes": "; ".join(manifest["corpus"].get("notes", [])) or "none",
        "size": human_bytes(_size_of(cache)),
        "created": f"{manifest['created']} with "
        + ", ".join(f"{name} {version}" for name, version in manifest["versions"].items()),
    }
    return _facts_table(cache.path, facts)


def _facts_table(path: Path, facts: Mapping[str, str]) -> Table:
    made = Table(show_header=False, title=escape(str(path)), title_justify="left", title_style="bold")
    for name, fact in facts.items():
        made.add_row(name, escape(fact))
    return made
