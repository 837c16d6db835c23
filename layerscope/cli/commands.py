"""What each command does: call the stage, say what was written and what to run next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from layerscope.cli import console
from layerscope.errors import CacheError, FrameError, ModelError, UsageError, count_of, named, nearest
from layerscope.files import make_folder
from layerscope.frames import (
    MEAN_OF_TOKENS,
    check_one,
    check_same_model,
    frame_files,
    frame_rows,
    read_frame,
    write_frame,
)
from layerscope.layers import as_layer_order
from layerscope.manifest import MANIFEST

if TYPE_CHECKING:
    import pandas as pd

    from layerscope.extraction import Listener
    from layerscope.learn import LearnedPooling


def extract(model: str, corpus: str, output: Path, *, token_metrics: bool, **options: Any) -> None:
    """``layerscope extract``."""
    from layerscope.extraction import extract as run

    if not token_metrics:
        options["token_metrics"] = ()

    with console.progress("extracting") as advance:
        cache = run(model, corpus, path=output, listener=_terminal(output, advance), **options)
    console.wrote([cache.path])
    steps = [console.command("analyze", output)]
    if cache.manifest["corpus"]["pairs"] and "score" in cache.rows.columns:
        steps.append(console.command("evaluate", "sts", output))
    console.next_step(*steps)


def _note_if_remote(model: str) -> None:
    """Say that the hub is asked, where the model is not on this machine."""
    from layerscope.models import is_hub_id

    if is_hub_id(model):
        _note_remote(model)


def _note_remote(name: str) -> None:
    console.note(f"{name} is no local folder: asking the Hugging Face hub")


def _terminal(output: Path, advance: Callable[[int, int], None]) -> Listener:
    """A listener that tells people on the terminal."""
    from layerscope.extraction import Listener, Plan

    class Terminal(Listener):
        def remote(self, name: str) -> None:
            _note_remote(name)

        def hit(self, _: Any) -> None:
            console.note(f"{output} already holds this extraction: nothing to do")

        def plan(self, plan: Plan) -> None:
            console.describe_plan(plan)

        def progress(self, done: int, total: int) -> None:
            advance(done, total)

    return Terminal()


def analyze(
    cache_path: Path,
    metrics: list[str] | None,
    output: Path | None,
    *,
    as_json: bool,
    cka: bool,
    **options: Any,
) -> None:
    """``layerscope analyze``."""
    import pandas as pd

    from layerscope.analysis import analyze as run
    from layerscope.analysis import compare_layers
    from layerscope.cache import LayerCache

    cache = LayerCache(cache_path)
    target, _ = frame_files(output or _default(cache_path, "metrics"), "metrics")
    with console.progress("measuring layers") as advance:
        frame = run(cache, metrics, progress=advance, **options)
    _tell_missing(frame, cache.layers)
    files = write_frame(frame, target)
    if cka:
        poolings = options["pooling"] or cache.poolings
        pairs = pd.concat([compare_layers(cache, pooling=name) for name in poolings], ignore_index=True)
        files += write_frame(pairs, target.with_name("cka.parquet"))
    if as_json:
        console.print_json(frame_rows(frame))
        return
    console.layer_figures(frame, cache.layers)
    console.wrote(files)
    console.next_step(console.command("select", target), _report_command(cache_path, target))


def _tell_missing(frame: pd.DataFrame, layers: list[str]) -> None:
    """Which values are missing, where and why."""
    for reason, rows in frame[frame["value"].isna()].groupby("reason", sort=False):
        at = [name for name in layers if name in set(rows["layer_name"])]
        where = "" if len(at) == len(layers) else f" at {', '.join(at)}"
        console.note(f"no value for {', '.join(rows['metric'].unique())}{where}: {reason}")


def perturb(
    model: str, corpus: str, output: Path, *, kind: str, levels: str | None, metrics: str, **options: Any
) -> None:
    """``layerscope perturb``."""
    from layerscope.experiments import perturb as run
    from layerscope.plots import plot_perturbation, save_figure
    from layerscope.plots.curves import figure_of

    target, _ = frame_files(output / f"{kind}.parquet", "metrics")
    _note_if_remote(model)
    with console.progress("running the levels") as advance:
        frame = run(
            model, corpus, path=output, kind=kind, metrics=_listed(metrics),  # type: ignore[arg-type]
            levels=None if levels is None else [_level(word) for word in _listed(levels)],
            progress=advance, tell=console.note, **options,
        )  # fmt: skip
    layers = as_layer_order(frame["layer_name"].unique())
    _tell_missing(frame, layers)
    written = write_frame(frame, target)
    for (metric, pooling), rows in frame.groupby(["metric", "pooling"], sort=False):
        shown = rows.assign(metric=[f"level {level:g}" for level in rows["level"]])
        console.layer_figures(shown, layers, title=f"{metric} by level of {kind}")
        drawn = plot_perturbation(
            frame, str(metric), pooling=str(pooling), labels=_axis_labels([str(metric)])
        )
        written += save_figure(figure_of(drawn), output / f"{kind}-{metric}-{pooling}", ("png", "svg", "pdf"))
    console.wrote(written)
    again = "random-token" if kind == "repeat" else "repeat"
    console.next_step(console.command("perturb", model, corpus, "-o", output, "--kind", again))


def checkpoints(
    models: list[str],
    corpus: str,
    output: Path,
    *,
    revisions: str | None,
    metrics: str | None,
    **options: Any,
) -> None:
    """``layerscope checkpoints``."""
    from layerscope.experiments import analyze_checkpoints as run
    from layerscope.plots import plot_training, save_figure
    from layerscope.plots.style import pooling_family

    target, _ = frame_files(output / "metrics.parquet", "metrics")
    with console.progress("running the checkpoints") as advance:
        frame = run(
            models, corpus, path=output, revisions=_listed(revisions or ""),
            metrics=None if metrics is None else _listed(metrics), progress=advance, tell=console.note,
            **options,
        )  # fmt: skip
    layers = as_layer_order(frame["layer_name"].unique())
    _tell_missing(frame, layers)
    for (metric, _), rows in frame.groupby(["metric", "pooling"], sort=False):
        shown = rows.assign(metric=[f"step {step}" for step in rows["step"]])
        console.layer_figures(shown, layers, title=f"{metric} by step")
    written = write_frame(frame, target)
    families = frame["pooling"].map(pooling_family)
    for family in families.unique():
        names = list(frame.loc[families == family, "metric"].unique())
        drawn = plot_training(frame, names, pooling=str(family), labels=_axis_labels(names))
        written += save_figure(drawn, output / f"training-{family}", ("png", "svg", "pdf"))
    console.wrote(written)
    console.next_step(
        console.command("plot", target, "--kind", "training", "--metric", names[0], "-o", "FIGURE.svg")
    )


def _listed(words: str) -> list[str]:
    """The items of a comma-separated list."""
    return [word.strip() for word in words.split(",") if word.strip()]


def _level(word: str) -> float:
    try:
        return float(word)
    except ValueError as error:
        raise UsageError(f"--levels: '{word}' is not a number; write them as 0,0.5,1") from error


def _axis_labels(names: Sequence[str]) -> dict[str, str]:
    """What the axis of each metric is called, with its unit."""
    from layerscope.metrics.own import find_metric

    return {spec.name: spec.label for spec in map(find_metric, names)}


def metrics(name: str | None, *, as_json: bool) -> None:
    """``layerscope metrics``."""
    from layerscope.cli.metric_pages import explain_metric, list_metrics, metric_facts
    from layerscope.metrics import LAYER_METRICS, METRICS
    from layerscope.metrics.own import find_metric

    if as_json:
        specs = METRICS + LAYER_METRICS if name is None else (find_metric(name),)
        console.print_json([metric_facts(spec) for spec in specs])
        return
    if name is None:
        console.out.print(list_metrics(METRICS + LAYER_METRICS))
        console.next_step("layerscope metrics NAME")
        return
    console.out.print(explain_metric(find_metric(name)))
    console.next_step(console.command("analyze", "CACHE", "--metric", name))


def _default(cache_path: Path, kind: str) -> Path:
    """Where a frame of a cache is where nothing else is said."""
    return cache_path / "frames" / f"{kind}.parquet"


def _report_command(cache_path: Path, metrics: Path, *options: str | Path) -> str:
    """The report of these metrics, which are named where they are not in their usual place."""
    is_usual = metrics == _default(cache_path, "metrics")
    return console.command("report", cache_path, *(() if is_usual else ("--metrics", metrics)), *options)


def _picks(
    frame: pd.DataFrame,
    criteria: list[str] | None,
    direction: str | None,
    scores: pd.DataFrame | None,
    *,
    others: bool = False,
) -> pd.DataFrame:
    """Picks of one model and corpus, with what they cost where scores are given."""
    from layerscope.select import pick_layers, with_costs

    if direction is not None and direction not in ("higher", "lower"):
        raise UsageError(f"--direction {direction}: choose higher or lower")
    if direction is not None and not criteria:
        raise UsageError("--direction needs --criterion: say whose direction it is")
    check_one(frame, "the metrics frame")
    if scores is not None:
        check_same_model(frame, scores)
    directions = dict.fromkeys(criteria or (), direction) if direction else None
    picks = pick_layers(frame, criteria, directions, others=others)  # type: ignore[arg-type]
    return picks if scores is None else with_costs(picks, scores)


def _choice(criteria: list[str] | None, direction: str | None) -> list[str]:
    """The options that choose criteria, to be given to the next command too."""
    words = [word for name in criteria or () for word in ("--criterion", name)]
    return [*words, *(("--direction", direction) if direction else ())]


def select(
    metrics: Path,
    criteria: list[str] | None,
    direction: str | None,
    scores: Path | None,
    output: Path | None,
    *,
    as_json: bool,
) -> None:
    """``layerscope select``."""
    source = _default(metrics, "metrics") if metrics.is_dir() else metrics
    frame = read_frame(source, "metrics")
    target, _ = frame_files(output or source.parent / "picks.parquet", "picks")
    picks = _picks(frame, criteria, direction, read_frame(scores, "scores") if scores else None)
    for hint in _hints(frame, picks):
        console.note(hint)
    files = write_frame(picks, target)
    if as_json:
        console.print_json(frame_rows(picks))
        return
    console.pick_figures(picks)
    console.wrote(files)
    cache_path = source.parent.parent
    if source.parent.name == "frames" and (cache_path / MANIFEST).is_file():
        rated: list[str | Path] = (
            ["--scores", scores] if scores and scores != _default(cache_path, "scores") else []
        )
        console.next_step(_report_command(cache_path, source, *rated, *_choice(criteria, direction)))


def _hints(frame: pd.DataFrame, picks: pd.DataFrame) -> list[str]:
    """What may help the decisive pick of each pooling."""
    from layerscope.select import correction_hint

    made = picks[(picks["kind"] == "criterion") & picks["layer_name"].notna()]
    decisive = made.drop_duplicates("pooling").to_dict("records")
    return [hint for pick in decisive if (hint := correction_hint(frame, pick))]


def evaluate_sts(
    cache_path: Path,
    score_column: str,
    task: str | None,
    subsets: Path | None,
    pooling: list[str] | None,
    draws: int,
    seed: int,
    output: Path | None,
    *,
    fitted: Sequence[Path] = (),
    as_json: bool = False,
) -> None:
    """``layerscope evaluate sts``."""
    from layerscope.cache import LayerCache
    from layerscope.evaluate.sts import evaluate_sts as run
    from layerscope.evaluate.sts import read_subsets

    cache = LayerCache(cache_path)
    target, _ = frame_files(output or _default(cache_path, "scores"), "scores")
    given = None if subsets is None else read_subsets(subsets, cache.corpus, cache.n_rows // 2)
    learned = _learned(fitted)
    scores = run(
        cache, score_column=score_column, pooling=pooling, task=task, subsets=given, draws=draws, seed=seed,
        learned=learned,
    )  # fmt: skip
    files = write_frame(scores, target)
    if as_json:
        console.print_json(frame_rows(scores))
        return
    of_layers = scores[~scores["pooling"].isin(list(learned))]
    several = scores["subset"].nunique() > 1
    named = of_layers.assign(metric=of_layers["metric"] + " " + of_layers["variant"])
    if several:
        named = of_layers[(of_layers["metric"] == "cosine_spearman") & (of_layers["variant"] == "raw")]
        named = named.assign(metric=named["subset"])
    pairs = sorted({*scores["n"]})
    counted = f"{pairs[0]:,}" + (f" to {pairs[-1]:,}" if len(pairs) > 1 else "")
    console.layer_figures(named, cache.layers, "score", title=f"{scores['task'].iloc[0]}: {counted} pairs")
    for reason in scores.loc[scores["score"].isna(), "reason"].unique():
        console.note(f"no score for some layers: {reason}")
    spearman = (scores["variant"] == "raw") & (scores["metric"] == "cosine_spearman")
    console.best_layers(of_layers[spearman[of_layers.index]])
    console.learned_figures(scores[spearman], list(learned))
    console.wrote(files)
    metrics = _default(cache_path, "metrics")
    console.next_step(
        console.command("select", metrics, "--scores", target)
        if metrics.is_file()
        else console.command("analyze", cache_path)
    )


def _learned(folders: Sequence[Path]) -> dict[str, LearnedPooling]:
    """The learned poolings in some folders, by the folders' names."""
    from layerscope.learn import load_pooling

    names = [folder.resolve().name for folder in folders]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two of the learned poolings are in folders called '{name}': rename one")
    return {name: load_pooling(folder) for name, folder in zip(names, folders, strict=True)}


def fit(cache_path: Path, output: Path, dev: Path | None, **options: Any) -> None:
    """``layerscope fit``."""
    from layerscope.learn import LearnedPooling, save_pooling
    from layerscope.learn.saving import check_folder
    from layerscope.plots import plot_layer_weights, save_figure
    from layerscope.plots.curves import figure_of

    check_folder(output)
    with console.progress("fitting") as advance:
        fitted = LearnedPooling(**options).fit(cache_path, dev=dev, progress=advance)
    console.fit_figures(fitted)
    written = save_pooling(fitted, output)
    figure = figure_of(plot_layer_weights(fitted.layer_weights_))
    console.wrote([written, *save_figure(figure, output / "layer_weights", ("svg",))])
    console.next_step(
        console.command("evaluate", "sts", dev or "CACHE", "--fitted", output),
        console.command("export", "MODEL", "--fitted", output, "-o", "FOLDER"),
    )


def export(
    model: str,
    output: Path,
    *,
    layer: str | None,
    picks: Path | None,
    criterion: str | None,
    fitted: Path | None,
    pooling: str | None,
    **options: Any,
) -> None:
    """``layerscope export``."""
    from layerscope.exporting import export as run

    ways = [layer is not None, picks is not None, fitted is not None]
    if sum(ways) != 1:
        raise UsageError("say what to export: one of --layer, --picks and --fitted")
    if criterion is not None and picks is None:
        raise UsageError("--criterion needs --picks: say which frame it is in")
    pick = None
    if picks is not None:
        pick = _one_pick(read_frame(picks, "picks"), criterion, pooling, picks)
        layer = str(pick["layer_name"])
        pooling = pooling or MEAN_OF_TOKENS.get(str(pick["pooling"]), str(pick["pooling"]))
    _note_if_remote(model)
    with console.working("exporting"):
        exported = run(model, path=output, layer=layer, pooling=pooling, learned=fitted, pick=pick, **options)
    console.export_figures(exported)
    console.wrote([exported.path])
    if exported.alternative is not None:
        console.note(
            f"{exported.layer} before the final norm needs layerscope to load; {exported.alternative} is the "
            "same block with the norm, and loads without: score both before you choose"
        )
        words = ["--layer", exported.alternative, "-o", f"{output}-{exported.alternative}"]
        console.next_step(console.command("export", model, *words))


def train(model: str, corpus: str, output: Path, *, design: str, **options: Any) -> None:
    """``layerscope train``."""
    from layerscope.training import find_design
    from layerscope.training import train as run

    chosen = find_design(design)
    console.note(f"{chosen.name}: {chosen.description}")
    _note_if_remote(model)
    with console.progress("training") as advance:
        trained = run(model, corpus, path=output, design=chosen, progress=advance, **options)
    console.training_figures(trained)
    console.wrote([trained.path])


def _one_pick(
    frame: pd.DataFrame, criterion: str | None, pooling: str | None, source: Path
) -> dict[str, Any]:
    """The row of a picks frame that is meant: by its criterion and pooling, else the first."""
    rows = frame[frame["layer_name"].notna()]
    if "kind" in rows and criterion is None:
        rows = rows[rows["kind"] == "criterion"]
    if criterion is not None:
        known = list(dict.fromkeys(rows["criterion"]))
        rows = rows[rows["criterion"] == criterion]
        if rows.empty:
            raise UsageError(f"{source} holds no pick by '{criterion}': {nearest(criterion, known)}")
    if pooling is not None:
        of_tokens = rows["pooling"].map(lambda name: MEAN_OF_TOKENS.get(name, name))
        rows = rows[of_tokens == pooling]
    if rows.empty:
        raise FrameError(f"{source} holds no pick that fits: name another --criterion or --pooling")
    return dict(rows.iloc[0])


def evaluate_mteb(
    model: str, tasks: str, output: Path | None, *, results: Path, as_json: bool, **options: Any
) -> None:
    """``layerscope evaluate mteb``."""
    from layerscope.evaluate.mteb.run import Evaluation
    from layerscope.evaluate.mteb.run import evaluate_mteb as run

    target, _ = frame_files(output or results / "scores.parquet", "scores")
    names = [name.strip() for name in tasks.split(",") if name.strip()]
    with console.progress("scoring layers") as advance:
        told = Evaluation(advance, console.note, _beside_a_bar())
        scores = run(model, names, results=results, told=told, **options)
    files = write_frame(scores, target)
    if as_json:
        console.print_json(frame_rows(scores))
        return
    whole = scores.assign(metric=_task_columns(scores))
    console.layer_figures(whole, as_layer_order(scores["layer_name"].unique()), "score", title="Main scores")
    for reason, rows in scores[scores["score"].isna()].groupby("reason", sort=False):
        console.note(f"no score of {named(rows['task'])} at {named(rows['layer_name'])}: {reason}")
    console.best_layers(scores)
    console.wrote([results, *files])
    console.next_step(console.command("compare", "METRICS", target))


def _beside_a_bar() -> Listener:
    """A listener that tells of runs of the model in lines, since the bar is of something else."""
    from layerscope.extraction import Listener, Plan

    class Lines(Listener):
        def remote(self, name: str) -> None:
            _note_remote(name)

        def plan(self, plan: Plan) -> None:
            counted = f"{count_of(plan.unique, 'text')} ({count_of(plan.tokens, 'token')})"
            console.note(f"{plan.model}: {counted} for {count_of(len(plan.layers), 'layer')}")
            self._advance = console.in_lines("running the model")

        def progress(self, done: int, total: int) -> None:
            self._advance(done, total)

    return Lines()


def _task_columns(scores: pd.DataFrame) -> pd.Series[str]:
    """What the column of a score is called: its task, and split and subset where there are several."""
    column = scores["task"]
    for key in ("split", "subset"):
        several = scores.groupby("task")[key].transform("nunique") > 1
        column = column.where(~several, column + " " + scores[key])
    return column


def compare(
    metrics: Path, scores: Path, output: Path, *, tasks: Path | None, as_json: bool, **options: Any
) -> None:
    """``layerscope compare``."""
    import pandas as pd

    from layerscope.compare.aligned import align
    from layerscope.compare.correlations import correlate_layers
    from layerscope.compare.regret import regret_table, verdict
    from layerscope.evaluate.importing import import_results, import_table
    from layerscope.plots import plot_correlations, save_figure
    from layerscope.plots.curves import figure_of

    kind, values = import_table(metrics, tasks=tasks)
    if kind != "metrics":
        raise FrameError(f"{metrics} holds scores, not metrics: give the metrics first, then the scores")
    kind, rated = ("scores", import_results(scores)) if scores.is_dir() else import_table(scores)
    if kind != "scores":
        raise FrameError(f"{scores} holds metrics, not scores: give the metrics first, then the scores")
    permutations, draws, seed = (options.pop(name) for name in ("permutations", "draws", "seed"))
    tables: list[tuple[pd.DataFrame, pd.DataFrame]] = []
    written: list[Path] = []
    verdicts: list[str] = []
    for aligned in align(values, rated, **options):
        for text in aligned.notes:
            console.note(text)
        correlations = correlate_layers(aligned, permutations=permutations, draws=draws, seed=seed)
        regret = regret_table(aligned, draws=draws, seed=seed)
        tables.append((correlations, regret))
        verdicts.append(verdict(regret))
        if not as_json:
            console.correlation_figures(correlations)
            console.regret_figures(regret)
            console.out.print(escape(verdicts[-1]))
            console.out.print()
        make_folder(output)
        name = f"correlations-{aligned.model.replace('/', '-') or 'model'}"
        written += save_figure(figure_of(plot_correlations(correlations)), output / name)
    correlations, regret = (pd.concat(frames, ignore_index=True) for frames in zip(*tables, strict=True))
    written += write_frame(correlations, output / "correlations")
    written += write_frame(regret, output / "regret")
    if as_json:
        console.print_json(
            {
                "correlations": frame_rows(correlations),
                "regret": frame_rows(regret),
                "verdicts": verdicts,
            }
        )
        return
    console.wrote(written)


def import_source(
    source: Path, output: Path, tasks: Path | None, pooling: str, layer_pattern: str | None
) -> None:
    """``layerscope import``."""
    from layerscope.evaluate.importing import LAYER_PATTERN, import_results, import_table

    if source.is_dir():
        kind = "scores"
        frame = import_results(source, layer_pattern=layer_pattern or LAYER_PATTERN, pooling=pooling)
    else:
        kind, frame = import_table(source, tasks=tasks, pooling=pooling)
    target, _ = frame_files(output, kind)
    console.note(f"{kind} of {named(frame['model'])}: {count_of(len(frame), 'row')}")
    console.wrote(write_frame(frame, target))
    other = ("METRICS", target) if kind == "scores" else (target, "SCORES")
    console.next_step(console.command("compare", *other))


def report(
    cache_path: Path,
    metrics: Path | None,
    scores: Path | None,
    criteria: list[str] | None,
    direction: str | None,
    output: Path,
) -> None:
    """``layerscope report``."""
    from layerscope.cache import LayerCache
    from layerscope.report import Files, report_file, write_cache_report

    report_file(output)
    cache = LayerCache(cache_path)
    frame = read_frame(metrics or _default(cache_path, "metrics"), "metrics")
    default = _default(cache_path, "scores")
    source = scores or (default if default.is_file() else None)
    scored = read_frame(source, "scores") if source else None
    picks = _picks(frame, criteria, direction, scored, others=True)
    files = Files(metrics, source, criteria=criteria or (), direction=direction)
    console.wrote([write_cache_report(output, cache, metrics=frame, scores=scored, picks=picks, files=files)])
    console.next_step(f"open {output} in a browser")


def plot(sources: list[Path], output: Path, kind: str, **options: Any) -> None:
    """``layerscope plot``."""
    from layerscope.cli.figures import FORMATS, FigureOptions, draw_figure
    from layerscope.plots import save_figure

    suffix = output.suffix.removeprefix(".")
    if suffix not in FORMATS:
        raise UsageError(f"{output} ends in '{output.suffix}': a figure is a .png, .svg or .pdf file")
    figure = draw_figure(sources, kind, FigureOptions(**options))
    console.wrote(save_figure(figure, output.with_suffix(""), (suffix,)))


def doctor(model: str, corpus: str | None, limit: int, *, as_json: bool, **options: Any) -> None:
    """``layerscope doctor``."""
    from dataclasses import asdict

    from layerscope.checkup import TEXTS
    from layerscope.checkup import doctor as run

    texts: tuple[str, ...] = TEXTS
    if corpus is not None:
        from layerscope.corpus import read_corpus

        read = read_corpus(corpus, limit=limit)
        texts = tuple(text for text, empty in zip(read.texts, read.rows["empty"], strict=True) if not empty)
    checks = run(model, texts, **options)
    if as_json:
        console.print_json([asdict(check) for check in checks])
    else:
        console.show_checks(checks)
    failed = [check.name for check in checks if check.status == "fail"]
    if failed:
        raise ModelError(f"{model} fails {count_of(len(failed), 'check')} ({', '.join(failed)})")
    if not as_json:
        console.next_step(console.command("extract", model, "CORPUS", "-o", "CACHE"))


def info(cache_path: Path, *, as_json: bool) -> None:
    """``layerscope info``."""
    from layerscope.cache import LayerCache

    cache = LayerCache(cache_path, allow_partial=True)
    if cache.manifest["status"] == "complete":
        cache = LayerCache(cache_path)  # which looks at every file
    if as_json:
        console.print_json(console.cache_facts(cache))
        return
    if cache.manifest["status"] != "complete":
        console.out.print(console.describe_partial_cache(cache))
        console.next_step("the same 'layerscope extract' command again: it goes on from there")
        return
    console.out.print(console.describe_cache(cache))
    shard = next(
        name for entry in cache.manifest["shards"] for name in entry["files"] if name.startswith("embed")
    )
    console.out.print("[bold]open it without layerscope[/bold]")
    console.out.print(
        escape(
            "  import pandas, safetensors.numpy\n"
            f"  rows = pandas.read_parquet({str(cache_path / 'rows.parquet')!r})\n"
            f"  tensors = safetensors.numpy.load_file({str(cache_path / shard)!r})\n"
            f"  vectors = tensors[{f'{cache.poolings[0]}/{cache.layers[-1]}'!r}]"
        )
    )
    console.next_step(console.command("analyze", cache_path))


def verify(cache_path: Path, *, as_json: bool = False) -> None:
    """``layerscope verify``."""
    from layerscope.cache import LayerCache

    cache = LayerCache(cache_path, allow_partial=True)
    problems = cache.verify()
    done, _ = cache.progress
    if as_json:
        console.print_json({"cache": str(cache_path), "shards": done, "problems": problems})
    else:
        for problem in problems:
            console.out.print(f"[red]bad[/red]  {escape(problem)}")
    if problems:
        raise CacheError(
            f"{count_of(len(problems), 'problem')} in {cache_path}: "
            f"'{console.command('repair', cache_path)}' redoes what is missing or damaged, and only that"
        )
    if as_json:
        return
    console.out.print(f"[green]ok[/green]  {count_of(done, 'shard')}, every checksum holds")
    console.next_step(console.command("analyze", cache_path))


def repair(cache_path: Path, model: str | None, corpus: str | None, **options: Any) -> None:
    """``layerscope repair``."""
    from layerscope.extraction import repair as run

    with console.progress("repairing") as advance:
        run(cache_path, model=model, texts=corpus, listener=_terminal(cache_path, advance), **options)
    verify(cache_path)


def demo(output: Path) -> None:
    """``layerscope demo``."""
    import pandas as pd

    from layerscope.demo import run_demo

    result = run_demo(output, console.progress)
    scores = result.scores[
        (result.scores["metric"] == "cosine_spearman") & (result.scores["variant"] == "raw")
    ]
    rated = scores.rename(columns={"score": "value"}).assign(metric="human_rating_Spearman")
    console.layer_figures(pd.concat([rated, result.metrics]), result.layers, title="Every layer of MiniLM")
    console.pick_figures(result.picks)
    console.wrote(result.paths)
    console.next_step(f"open {result.report} in a browser", "layerscope extract MODEL CORPUS -o CACHE")
