"""The commands and their options, and how failures end: one line and an exit code."""

from __future__ import annotations

import difflib
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core
from rich.markup import escape

from layerscope import __version__
from layerscope.cli import commands
from layerscope.cli.console import err
from layerscope.errors import LayerscopeError, UsageError

INTERRUPTED = 130


class _Commands(typer.core.TyperGroup):
    """The command group; Ctrl-C in a command ends with a line that says how to go on."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, RuntimeError) as error:
            if not _is_interruption(error):
                raise
            err.print(f"[yellow]interrupted[/yellow]: {_after_interruption(ctx.invoked_subcommand)}")
            raise typer.Exit(INTERRUPTED) from None


def _is_interruption(error: BaseException | None) -> bool:
    """Whether Ctrl-C is what happened, perhaps in the middle of a library's tidying up that then failed.

    >>> _is_interruption(RuntimeError("cannot join thread before it is started"))
    False
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _after_interruption(command: str | None) -> str:
    if command in ("extract", "repair", "demo", "evaluate", "perturb", "checkpoints"):
        return "what is finished stays; the same command goes on from there"
    return "nothing was written; run the same command again"


# How a model is loaded and read; the same for every command that runs one.
Dtype = Annotated[str, typer.Option(help="auto, float32 or bfloat16.", metavar="NAME")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, …", metavar="NAME")]
Blocks = Annotated[
    str | None,
    typer.Option(
        help="Module path of the block list, where it is not found.", metavar="PATH", show_default=False
    ),
]
FinalNorm = Annotated[
    str | None,
    typer.Option(
        help="Module path of the final norm, or none, where it is not found.",
        metavar="PATH",
        show_default=False,
    ),
]
Revision = Annotated[
    str | None,
    typer.Option(help="Branch, tag or commit of a model on the hub.", metavar="NAME", show_default=False),
]
AllowPickle = Annotated[
    bool, typer.Option("--allow-pickle", help="Also load weights that are not safetensors or GGUF.")
]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run Python code that comes with the model.")
]
MaxLength = Annotated[
    int | None,
    typer.Option(
        help="Cut texts at N tokens, below the model's own limit.", min=1, metavar="N", show_default=False
    ),
]
BatchTokens = Annotated[int, typer.Option(help="Padded tokens per batch.", min=1, metavar="N")]
DropFirstToken = Annotated[
    bool, typer.Option("--drop-first-token", help="Leave the first token of every text out.")
]
Part = Annotated[str, typer.Option(help="Of an encoder-decoder: encoder or decoder.", metavar="WORD")]

app = typer.Typer(
    name="layerscope",
    cls=_Commands,
    help="Shows what each layer of a language model represents, and which one to use.",
    epilog="Start with: layerscope demo",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
evaluate_app = typer.Typer(help="Score every layer against labels.", no_args_is_help=True)
app.add_typer(evaluate_app, name="evaluate")


def _folder(text: str | Path) -> Path:
    """An output folder; an empty name would be the folder that the command runs in."""
    if not str(text).strip():
        raise typer.BadParameter("it has no name: give a folder")
    return Path(text)


def _output_folder(says: str) -> Any:
    """The option for a folder that a command writes."""
    return typer.Option("-o", "--output", help=says, metavar="FOLDER", parser=_folder, show_default=False)


ModelArgument = Annotated[
    str,
    typer.Argument(help="A hub id, a model folder, or a .gguf file.", metavar="MODEL", show_default=False),
]
CorpusArgument = Annotated[
    str,
    typer.Argument(
        help="A .txt (a line a text), .csv, .tsv, .jsonl or .parquet file, - for standard input, "
        "a dataset folder, or a dataset id of the hub.",
        metavar="CORPUS",
        show_default=False,
    ),
]
CacheArgument = Annotated[
    Path,
    typer.Argument(help="A cache folder, made by 'layerscope extract'.", metavar="CACHE", show_default=False),
]

AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print JSON on standard output instead of tables; missing values are null."),
]

TextColumns = Annotated[
    list[str] | None,
    typer.Option(
        help="Column of texts; twice for pairs, three times for triplets. Guessed where not given.",
        metavar="NAME",
        show_default=False,
    ),
]
Poolings = Annotated[
    list[str] | None,
    typer.Option(help="Pooling, may be repeated; all by default.", metavar="NAME", show_default=False),
]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"layerscope {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of a failure.")] = False,
) -> None:
    """Shows what each layer of a language model represents, and which one to use."""


@app.command(short_help="Run a model once and cache all layers.")
def extract(
    model: ModelArgument,
    corpus: CorpusArgument,
    output: Annotated[Path, _output_folder("The cache folder to write.")],
    text_column: TextColumns = None,
    view_column: Annotated[
        str | None,
        typer.Option(
            help="Column with a second wording of each text, used as a view.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    score_column: Annotated[
        str | None, typer.Option(help="Column of human scores of pairs.", metavar="NAME", show_default=False)
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(help="Column of labels.", metavar="NAME", show_default=False)
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Split of a dataset.", metavar="NAME", show_default=False)
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            help="Only the first N texts, pairs or triplets.", min=1, metavar="N", show_default=False
        ),
    ] = None,
    quoting: Annotated[
        bool | None,
        typer.Option(
            "--quoting/--no-quoting",
            help="Whether quote marks enclose fields: by default in .csv, not in .tsv.",
            show_default=False,
        ),
    ] = None,
    encoding: Annotated[str, typer.Option(help="Encoding of a text file.", metavar="NAME")] = "utf-8",
    layers: Annotated[
        str,
        typer.Option(
            help="all, or a list such as 0,4:8,-1,norm: numbers and names, and slices that leave out "
            "their end. The model stops after the last one.",
            metavar="LIST",
        ),
    ] = "all",
    sites: Annotated[
        str,
        typer.Option(
            help="Comma-separated: block (the residual stream), attn and mlp (what each block's attention "
            "and MLP add to it, as layers attn.k and mlp.k).",
            metavar="LIST",
        ),
    ] = "block",
    pooling: Annotated[
        str,
        typer.Option(
            help="Comma-separated: mean, mean-nosink, last, first, cls, max, weighted-mean, prompt-vector. "
            "auto: mean, and mean-nosink where the model has attention sinks.",
            metavar="LIST",
        ),
    ] = "auto",
    views: Annotated[
        int,
        typer.Option(
            help="Views of each text, for alignment, InfoNCE, LiDAR and DiME.",
            min=0,
            max=64,
            metavar="N",
        ),
    ] = 0,
    view_kind: Annotated[
        str,
        typer.Option(
            help="augment (edits of each text), crop (a run of its words) or dropout (of the model).",
            metavar="WORD",
        ),
    ] = "augment",
    seed: Annotated[int, typer.Option(help="Seed of the views.", min=0, metavar="N")] = 0,
    special_tokens: Annotated[
        str,
        typer.Option(help="keep or drop the tokens that the tokenizer adds, as [CLS].", metavar="WORD"),
    ] = "keep",
    prompt: Annotated[
        str,
        typer.Option(help="Stands before every text, as 'query: '.", metavar="TEXT", show_default=False),
    ] = "",
    prompt_tokens: Annotated[
        str, typer.Option(help="keep or drop the prompt's tokens in poolings.", metavar="WORD")
    ] = "keep",
    chat_template: Annotated[
        bool,
        typer.Option("--chat-template", help="Make every text the user's turn in the tokenizer's template."),
    ] = False,
    on_truncate: Annotated[
        str, typer.Option(help="Texts that are too long: warn and cut, error, or chunk them.", metavar="WORD")
    ] = "warn",
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Batch texts of equal length only: no padding at all.")
    ] = False,
    drop_first_token: DropFirstToken = False,
    keep_tokens: Annotated[
        bool, typer.Option("--keep-tokens", help="Store the token states too (large).")
    ] = False,
    token_metrics: Annotated[
        bool,
        typer.Option(
            "--token-metrics/--no-token-metrics", help="Compute prompt entropy and curvature during the run."
        ),
    ] = True,
    max_length: MaxLength = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    batch_tokens: BatchTokens = 4096,
    blocks: Blocks = None,
    final_norm: FinalNorm = None,
    attention: Annotated[
        str | None,
        typer.Option(
            help="Module path, within a block, of what its attention adds, where it is not found.",
            metavar="PATH",
            show_default=False,
        ),
    ] = None,
    mlp: Annotated[
        str | None,
        typer.Option(help="The same of its MLP.", metavar="PATH", show_default=False),
    ] = None,
    revision: Revision = None,
    allow_pickle: AllowPickle = False,
    trust_remote_code: TrustRemoteCode = False,
    part: Part = "encoder",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a cache that holds another extraction.")
    ] = False,
) -> None:
    """Run a model over a corpus once and cache every layer's embeddings.

    Interrupted, or killed? The same command goes on where it stopped. Layers, poolings, views or texts at the
    end that a cache lacks are added to it.
    """
    commands.extract(
        model,
        corpus,
        output,
        text_columns=text_column or (),
        view_column=view_column,
        score_column=score_column,
        label_column=label_column,
        split=split,
        limit=limit,
        quoting=quoting,
        encoding=encoding,
        layers=layers,
        sites=sites,
        pooling=pooling if pooling == "auto" else [name.strip() for name in pooling.split(",")],
        views=views,
        view_kind=view_kind,
        seed=seed,
        special_tokens=special_tokens,
        drop_first_token=drop_first_token,
        prompt=prompt,
        prompt_tokens=prompt_tokens,
        chat_template=chat_template,
        on_truncate=on_truncate,
        deterministic=deterministic,
        keep_tokens=keep_tokens,
        token_metrics=token_metrics,
        max_length=max_length,
        dtype=dtype,
        device=device,
        batch_tokens=batch_tokens,
        blocks=blocks,
        final_norm=final_norm,
        attention=attention,
        mlp=mlp,
        revision=revision,
        allow_pickle=allow_pickle,
        trust_remote_code=trust_remote_code,
        part=part,
        overwrite=overwrite,
    )


@app.command(short_help="Check whether a model's layers can be trusted.")
def doctor(
    model: ModelArgument,
    corpus: Annotated[
        str | None,
        typer.Option(
            help="Texts to check on, as for extract; a handful of sentences where not given.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(help="How many texts of the corpus.", min=2, max=64, metavar="N")
    ] = 16,
    texts: Annotated[
        int, typer.Option(help="Estimate time and space for N texts.", min=1, metavar="N")
    ] = 10_000,
    max_length: Annotated[
        int | None,
        typer.Option(help="Cut texts at N tokens.", min=1, metavar="N", show_default=False),
    ] = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    blocks: Blocks = None,
    final_norm: FinalNorm = None,
    revision: Revision = None,
    allow_pickle: AllowPickle = False,
    trust_remote_code: TrustRemoteCode = False,
    part: Part = "encoder",
    as_json: AsJson = False,
) -> None:
    """Run a few texts through a model: pass, warn or fail for each thing that can go wrong with its layers.

    Exits with 1 where a check fails.
    """
    commands.doctor(
        model,
        corpus,
        limit,
        n_texts=texts,
        max_length=max_length,
        dtype=dtype,
        device=device,
        blocks=blocks,
        final_norm=final_norm,
        revision=revision,
        allow_pickle=allow_pickle,
        trust_remote_code=trust_remote_code,
        part=part,
        as_json=as_json,
    )


@app.command(short_help="Measure every layer without labels.")
def analyze(
    cache: CacheArgument,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="Metric to compute, or module:object of your own; may be repeated; all by default. "
            "'layerscope metrics' lists them.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    pooling: Poolings = None,
    draws: Annotated[
        int, typer.Option(help="Resamples for intervals; 0 for none.", min=0, metavar="N")
    ] = 100,
    seed: Annotated[int, typer.Option(help="Seed of resamples and permutations.", min=0, metavar="N")] = 0,
    drop_duplicates: Annotated[
        bool, typer.Option("--drop-duplicates", help="Measure every distinct text once.")
    ] = False,
    exclude_nonfinite: Annotated[
        bool,
        typer.Option(
            "--exclude-nonfinite", help="Leave rows with a NaN or infinity out, instead of giving no value."
        ),
    ] = False,
    device: Annotated[
        str, typer.Option(help="Where matrices are decomposed: auto, cpu or cuda.", metavar="NAME")
    ] = "auto",
    recipe: Annotated[
        str,
        typer.Option(
            help="default, or published: as the released code of the study computes them, from "
            "--pooling prompt-vector.",
            metavar="WORD",
        ),
    ] = "default",
    cka: Annotated[
        bool, typer.Option("--cka", help="Also compare all pairs of layers: CACHE/frames/cka.parquet.")
    ] = False,
    as_json: AsJson = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="By default CACHE/frames/metrics.parquet.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Compute label-free metrics of every layer in a cache."""
    commands.analyze(
        cache,
        metric,
        output,
        pooling=pooling,
        draws=draws,
        seed=seed,
        duplicates="drop" if drop_duplicates else "keep",
        nonfinite="exclude" if exclude_nonfinite else "refuse",
        device=device,
        recipe=recipe,
        as_json=as_json,
        cka=cka,
    )


@app.command(short_help="Measure layers while texts are made extreme.")
def perturb(
    model: ModelArgument,
    corpus: CorpusArgument,
    output: Annotated[Path, _output_folder("The folder for caches, frame and figures.")],
    kind: Annotated[
        str,
        typer.Option(
            help="repeat (tokens replaced by one of the text's own), random-token (by any of the vocabulary) "
            "or random-prompt (texts of nothing but random tokens).",
            metavar="WORD",
        ),
    ] = "repeat",
    levels: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated: probabilities from 0 to 1 that a token is replaced, by default "
            "0,0.1,0.25,0.5,0.75,1; for random-prompt numbers of tokens, by default 8,16,32,64,128.",
            metavar="LIST",
            show_default=False,
        ),
    ] = None,
    metrics: Annotated[
        str,
        typer.Option(
            help="Comma-separated metrics of token states or texts; 'layerscope metrics' lists them.",
            metavar="LIST",
        ),
    ] = "prompt_entropy",
    text_column: TextColumns = None,
    limit: Annotated[
        int | None, typer.Option(help="Only the first N texts.", min=1, metavar="N", show_default=False)
    ] = None,
    layers: Annotated[str, typer.Option(help="As for extract.", metavar="LIST")] = "all",
    pooling: Annotated[
        str, typer.Option(help="Comma-separated poolings, as for extract.", metavar="LIST")
    ] = "auto",
    seed: Annotated[
        int, typer.Option(help="Seed of the perturbation and of resamples.", min=0, metavar="N")
    ] = 0,
    draws: Annotated[
        int, typer.Option(help="Resamples for intervals; 0 for none.", min=0, metavar="N")
    ] = 100,
    max_length: MaxLength = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    batch_tokens: BatchTokens = 4096,
    blocks: Blocks = None,
    final_norm: FinalNorm = None,
    revision: Revision = None,
    allow_pickle: AllowPickle = False,
    trust_remote_code: TrustRemoteCode = False,
    part: Part = "encoder",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace levels that hold another extraction.")
    ] = False,
) -> None:
    """Change the tokens of texts more and more, run the model at each level, and measure every layer.

    The extreme prompts of Skean et al. 2025. Writes FOLDER/KIND.parquet (with columns perturbation and level)
    and a figure for every metric. Levels that FOLDER holds already are not run again.
    """
    commands.perturb(
        model,
        corpus,
        output,
        kind=kind,
        levels=levels,
        metrics=metrics,
        text_columns=text_column or (),
        limit=limit,
        layers=layers,
        pooling=pooling if pooling == "auto" else [name.strip() for name in pooling.split(",")],
        seed=seed,
        draws=draws,
        max_length=max_length,
        dtype=dtype,
        device=device,
        batch_tokens=batch_tokens,
        blocks=blocks,
        final_norm=final_norm,
        revision=revision,
        allow_pickle=allow_pickle,
        trust_remote_code=trust_remote_code,
        part=part,
        overwrite=overwrite,
    )


@app.command(short_help="Measure layers over the course of a training.")
def checkpoints(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Folders of checkpoints, as checkpoint-100 checkpoint-200; or one hub id with --revisions.",
            metavar="MODEL...",
            show_default=False,
        ),
    ],
    corpus: CorpusArgument,
    output: Annotated[Path, _output_folder("The folder for caches, frame and figures.")],
    revisions: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated branches, tags or commits of the hub id, as step1000,step2000.",
            metavar="LIST",
            show_default=False,
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(help="Comma-separated; all by default.", metavar="LIST", show_default=False),
    ] = None,
    text_column: TextColumns = None,
    limit: Annotated[
        int | None, typer.Option(help="Only the first N texts.", min=1, metavar="N", show_default=False)
    ] = None,
    layers: Annotated[str, typer.Option(help="As for extract.", metavar="LIST")] = "all",
    pooling: Annotated[
        str, typer.Option(help="Comma-separated poolings, as for extract.", metavar="LIST")
    ] = "auto",
    views: Annotated[
        int, typer.Option(help="Views of each text, as for extract.", min=0, max=64, metavar="N")
    ] = 0,
    seed: Annotated[int, typer.Option(help="Seed of views and of resamples.", min=0, metavar="N")] = 0,
    draws: Annotated[
        int, typer.Option(help="Resamples for intervals; 0 for none.", min=0, metavar="N")
    ] = 100,
    max_length: MaxLength = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    batch_tokens: BatchTokens = 4096,
    blocks: Blocks = None,
    final_norm: FinalNorm = None,
    allow_pickle: AllowPickle = False,
    trust_remote_code: TrustRemoteCode = False,
    part: Part = "encoder",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace checkpoints that hold another extraction.")
    ] = False,
) -> None:
    """Run several checkpoints of a model over the same texts and measure every layer of each.

    Writes FOLDER/metrics.parquet, with columns revision and step (the number in the checkpoint's name, else
    its place in the order given), and figures of every metric. Checkpoints that FOLDER holds already are not
    run again.
    """
    commands.checkpoints(
        models,
        corpus,
        output,
        revisions=revisions,
        metrics=metrics,
        text_columns=text_column or (),
        limit=limit,
        layers=layers,
        pooling=pooling if pooling == "auto" else [name.strip() for name in pooling.split(",")],
        views=views,
        seed=seed,
        draws=draws,
        max_length=max_length,
        dtype=dtype,
        device=device,
        batch_tokens=batch_tokens,
        blocks=blocks,
        final_norm=final_norm,
        allow_pickle=allow_pickle,
        trust_remote_code=trust_remote_code,
        part=part,
        overwrite=overwrite,
    )


@app.command(short_help="List the metrics, or explain one.")
def metrics(
    name: Annotated[
        str | None,
        typer.Argument(help="A metric, or module:object of your own.", metavar="NAME", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List all metrics with formula, input, direction, range and source; or explain one."""
    commands.metrics(name, as_json=as_json)


@app.command(short_help="Pick layers, beside the depth rules.")
def select(
    metrics: Annotated[
        Path,
        typer.Argument(
            help="A metrics frame (.parquet or .csv), or a cache folder.",
            metavar="METRICS",
            show_default=False,
        ),
    ],
    criterion: Annotated[
        list[str] | None,
        typer.Option(
            help="Metric to pick by, may be repeated; by default all, and first rank_aggregate, the mean "
            "rank by participation_ratio, uniformity and isoscore.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    direction: Annotated[
        str | None,
        typer.Option(
            help="higher or lower is better, for all criteria given.", metavar="WORD", show_default=False
        ),
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(
            help="A scores frame: show what each pick costs against the best layer.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="By default picks.parquet beside the metrics frame.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Pick layers without labels, beside the depth rules that a pick must beat."""
    commands.select(metrics, criterion, direction, scores, output, as_json=as_json)


@evaluate_app.command("sts")
def evaluate_sts(
    cache: CacheArgument,
    score_column: Annotated[
        str, typer.Option(help="Column of human scores in the cache's rows.", metavar="NAME")
    ] = "score",
    fitted: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder of a learned pooling, to be scored beside the layers; may be repeated.",
            metavar="FOLDER",
            show_default=False,
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="Name of the task in the frame and the report; by default the corpus' name.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    subsets: Annotated[
        Path | None,
        typer.Option(
            help="Table of subsets (columns subset, first_row, rows): score each, and their mean.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    pooling: Poolings = None,
    draws: Annotated[
        int,
        typer.Option(help="Bootstrap samples for intervals; 0 for none.", min=0, metavar="N"),
    ] = 500,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.", min=0, metavar="N")] = 0,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="By default CACHE/frames/scores.parquet.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Correlate the cosine of pairs with human scores, for every layer."""
    commands.evaluate_sts(
        cache, score_column, task, subsets, pooling, draws, seed, output, fitted=fitted or (), as_json=as_json
    )


@evaluate_app.command("mteb")
def evaluate_mteb(
    model: ModelArgument,
    tasks: Annotated[
        str, typer.Option(help="Comma-separated names of mteb tasks.", metavar="LIST", show_default=False)
    ] = "",
    benchmark: Annotated[
        str | None,
        typer.Option(help="Also all tasks of this mteb benchmark.", metavar="NAME", show_default=False),
    ] = None,
    task_data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with data of tasks: TASK/SPLIT.tsv (.csv, .jsonl, .parquet), for retrieval "
            "TASK/corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv. Other tasks are fetched as mteb does.",
            metavar="FOLDER",
            show_default=False,
        ),
    ] = None,
    results: Annotated[
        Path,
        typer.Option(
            help="Folder of mteb's result files, scores by item, and vectors; what is there is not computed "
            "again.",
            metavar="FOLDER",
        ),
    ] = Path("mteb-results"),
    layers: Annotated[
        str,
        typer.Option(
            help="As for extract; 'normed,norm' are those with the final norm applied.", metavar="LIST"
        ),
    ] = "all",
    pooling: Annotated[str, typer.Option(help="Comma-separated, as for extract.", metavar="LIST")] = "mean",
    normalize: Annotated[
        bool,
        typer.Option(
            "--normalize/--no-normalize",
            help="Scale vectors to unit length, as many sentence-transformers models do at their end.",
        ),
    ] = False,
    prompt: Annotated[
        str,
        typer.Option(
            help="Stands before texts that are no queries or documents.", metavar="TEXT", show_default=False
        ),
    ] = "",
    query_prompt: Annotated[
        str, typer.Option(help="Stands before every query.", metavar="TEXT", show_default=False)
    ] = "",
    document_prompt: Annotated[
        str, typer.Option(help="Stands before every document.", metavar="TEXT", show_default=False)
    ] = "",
    draws: Annotated[
        int, typer.Option(help="Bootstrap samples of items, for intervals; 0 for none.", min=0, metavar="N")
    ] = 500,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.", min=0, metavar="N")] = 0,
    max_length: MaxLength = None,
    drop_first_token: DropFirstToken = False,
    dtype: Dtype = "auto",
    device: Device = "auto",
    batch_tokens: BatchTokens = 4096,
    blocks: Blocks = None,
    final_norm: FinalNorm = None,
    revision: Revision = None,
    allow_pickle: AllowPickle = False,
    trust_remote_code: TrustRemoteCode = False,
    part: Part = "encoder",
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="By default RESULTS/scores.parquet.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Score every layer on MTEB tasks; the model runs once over each text.

    Interrupted? The same command goes on where it stopped.
    """
    commands.evaluate_mteb(
        model,
        tasks,
        output,
        benchmark=benchmark,
        task_data=task_data,
        results=results,
        layers=layers,
        pooling=pooling,
        normalize=normalize,
        prompt=prompt,
        query_prompt=query_prompt,
        document_prompt=document_prompt,
        draws=draws,
        seed=seed,
        max_length=max_length,
        drop_first_token=drop_first_token,
        dtype=dtype,
        device=device,
        batch_tokens=batch_tokens,
        blocks=blocks,
        final_norm=final_norm,
        revision=revision,
        allow_pickle=allow_pickle,
        trust_remote_code=trust_remote_code,
        part=part,
        as_json=as_json,
    )


@app.command(short_help="Say what the metrics are worth, given scores.")
def compare(
    metrics: Annotated[
        Path,
        typer.Argument(
            help="A metrics frame, or a tidy table: model, layer, dataset, metric, value.",
            metavar="METRICS",
            show_default=False,
        ),
    ],
    scores: Annotated[
        Path,
        typer.Argument(
            help="A scores frame, a tidy table: model, layer, task, main_score; or a folder of mteb results.",
            metavar="SCORES",
            show_default=False,
        ),
    ],
    tasks: Annotated[
        Path | None,
        typer.Option(
            help="Table with the columns task, dataset: which data set of METRICS is which task.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    pooling: Annotated[
        str | None,
        typer.Option(help="Which of the scores; mean by default.", metavar="NAME", show_default=False),
    ] = None,
    score: Annotated[
        str | None,
        typer.Option(
            help="Which score; main_score or cosine_spearman by default.", metavar="NAME", show_default=False
        ),
    ] = None,
    variant: Annotated[
        str | None,
        typer.Option(
            help="Which recipe of metrics that come in several; all by default.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    permutations: Annotated[
        int, typer.Option(help="Permutations of the layers, for p-values.", min=0, metavar="N")
    ] = 999,
    draws: Annotated[
        int, typer.Option(help="Bootstrap samples of the tasks, for intervals.", min=0, metavar="N")
    ] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed of both.", min=0, metavar="N")] = 0,
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", help="Folder for tables and figures.", metavar="FOLDER", parser=_folder
        ),
    ] = Path("compare"),
    as_json: AsJson = False,
) -> None:
    """Correlate metrics with scores over layers, and say what picking by them costs against depth rules."""
    commands.compare(
        metrics,
        scores,
        output,
        tasks=tasks,
        pooling=pooling,
        score=score,
        variant=variant,
        permutations=permutations,
        draws=draws,
        seed=seed,
        as_json=as_json,
    )


@app.command(short_help="Learn a mix of layers from a cache.")
def fit(
    cache: CacheArgument,
    output: Annotated[Path, _output_folder("The folder to write.")],
    pooling_model: Annotated[
        str, typer.Option(help="scalar-mix, layer-attention or multi-layer.", metavar="NAME")
    ] = "layer-attention",
    objective: Annotated[
        str,
        typer.Option(
            help="triplets, pairs, views or scores; auto: what the cache is made of.", metavar="NAME"
        ),
    ] = "auto",
    dev: Annotated[
        Path | None,
        typer.Option(
            help="A cache of pairs with human scores, to stop by; a tenth of CACHE where not given.",
            metavar="CACHE",
            show_default=False,
        ),
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated names; by default all that a Hugging Face model returns.",
            metavar="LIST",
            show_default=False,
        ),
    ] = None,
    pooling: Annotated[
        str | None,
        typer.Option(
            help="Of the cache; mean-nosink or mean by default.", metavar="NAME", show_default=False
        ),
    ] = None,
    token_pooling: Annotated[
        str | None,
        typer.Option(
            help="Which token asks in layer-attention: cls, last or first; the first of these in the cache "
            "by default.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    latents: Annotated[
        int | None, typer.Option(help="Of multi-layer.", min=1, metavar="N", show_default=False)
    ] = None,
    heads: Annotated[
        int | None, typer.Option(help="Of multi-layer.", min=1, metavar="N", show_default=False)
    ] = None,
    head_width: Annotated[
        int | None, typer.Option(help="Of multi-layer.", min=1, metavar="N", show_default=False)
    ] = None,
    standardize: Annotated[
        bool,
        typer.Option("--standardize/--no-standardize", help="Centre layers, bring them to one size."),
    ] = True,
    epochs: Annotated[int, typer.Option(help="At most so many.", min=1, metavar="N")] = 20,
    batch_size: Annotated[int, typer.Option(help="Examples in a step.", min=2, metavar="N")] = 128,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help="Of AdamW; 0.03, 5e-4 and 3e-4 for the three models by default.",
            metavar="NUMBER",
            show_default=False,
        ),
    ] = None,
    temperature: Annotated[float, typer.Option(help="What cosines are divided by.", metavar="NUMBER")] = 0.05,
    patience: Annotated[
        int, typer.Option(help="Epochs without a better dev score before it stops.", min=1, metavar="N")
    ] = 3,
    seed: Annotated[int, typer.Option(help="Of the start and of the batches.", min=0, metavar="N")] = 0,
    device: Device = "auto",
) -> None:
    """Fit a mix of layers from a cache of triplets, pairs or views, the model itself left as it is.

    Takes seconds to minutes. Interrupted? Nothing is written; run the same command again.
    """
    sizes = {"latents": latents, "heads": heads, "head_width": head_width}
    commands.fit(
        cache,
        output,
        dev,
        kind=pooling_model,
        objective=objective,
        layers=None if layers is None else [name.strip() for name in layers.split(",")],
        pooling=pooling,
        token_pooling=token_pooling,
        sizes={name: size for name, size in sizes.items() if size is not None} or None,
        standardize=standardize,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        temperature=temperature,
        patience=patience,
        seed=seed,
        device=device,
    )


@app.command(short_help="Write a layer as a model of its own.")
def export(
    model: ModelArgument,
    output: Annotated[Path, _output_folder("The folder to write, new or empty.")],
    layer: Annotated[
        str | None,
        typer.Option(
            help="embed, block.k, norm or normed.k.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    picks: Annotated[
        Path | None,
        typer.Option(
            help="A picks frame: its first pick, or that by --criterion, in place of --layer.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    criterion: Annotated[
        str | None, typer.Option(help="Which pick of --picks.", metavar="NAME", show_default=False)
    ] = None,
    fitted: Annotated[
        Path | None,
        typer.Option(
            help="Folder of a learned pooling, in place of --layer.", metavar="FOLDER", show_default=False
        ),
    ] = None,
    pooling: Annotated[
        str | None,
        typer.Option(
            help="Of the tokens; by default the pick's, the cache's, or mean.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            help="An extraction by this model: its prompt, length, special tokens and attention sinks are "
            "taken over, and --correct is fitted on it.",
            metavar="CACHE",
            show_default=False,
        ),
    ] = None,
    correct: Annotated[
        str,
        typer.Option(
            help="none, center, components or dimensions: taken out of every vector.", metavar="NAME"
        ),
    ] = "none",
    correct_count: Annotated[
        int | None,
        typer.Option(
            help="How many components or dimensions; d / 100 or 3 by default.",
            min=1,
            metavar="N",
            show_default=False,
        ),
    ] = None,
    normalize: Annotated[
        bool, typer.Option("--normalize/--no-normalize", help="Scale vectors to unit length at the end.")
    ] = False,
    max_length: MaxLength = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    blocks: Blocks = None,
    final_norm: FinalNorm = None,
    revision: Revision = None,
    allow_pickle: AllowPickle = False,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Write a layer, or a learned mix, as a sentence-transformers folder with only the blocks it needs.

    The folder is checked against the full model before it is put in place.
    """
    commands.export(
        model,
        output,
        layer=layer,
        picks=picks,
        criterion=criterion,
        fitted=fitted,
        cache=cache,
        correct=correct,
        correct_count=correct_count,
        pooling=pooling,
        normalize=normalize,
        max_length=max_length,
        dtype=dtype,
        device=device,
        blocks=blocks,
        final_norm=final_norm,
        revision=revision,
        allow_pickle=allow_pickle,
        trust_remote_code=trust_remote_code,
    )


@app.command(short_help="Train a model end to end for a pooling.")
def train(
    model: ModelArgument,
    corpus: Annotated[
        str,
        typer.Argument(
            help="Triplets, pairs or single texts, as for extract.", metavar="CORPUS", show_default=False
        ),
    ],
    output: Annotated[Path, _output_folder("The folder to write, new or empty.")],
    design: Annotated[
        str,
        typer.Option(
            help="last-token-causal, last-layer-causal, multi-layer-causal, last-layer-bidirectional, "
            "multi-layer-bidirectional, layer-attention, or a .toml file.",
            metavar="NAME",
        ),
    ] = "multi-layer-bidirectional",
    dev: Annotated[
        str | None,
        typer.Option(
            help="Pairs with human scores: the best epoch on them is kept.",
            metavar="CORPUS",
            show_default=False,
        ),
    ] = None,
    text_column: TextColumns = None,
    limit: Annotated[
        int | None,
        typer.Option(help="Only the first N examples.", min=1, metavar="N", show_default=False),
    ] = None,
    epochs: Annotated[int, typer.Option(help="Passes over the examples.", min=1, metavar="N")] = 1,
    batch_size: Annotated[int, typer.Option(help="Examples in a step.", min=2, metavar="N")] = 64,
    learning_rate: Annotated[
        float | None,
        typer.Option(help="The design's by default.", metavar="NUMBER", show_default=False),
    ] = None,
    max_length: Annotated[int, typer.Option(help="Cut texts at N tokens.", min=1, metavar="N")] = 64,
    seed: Annotated[
        int, typer.Option(help="Of new weights, dropout and the order of examples.", min=0, metavar="N")
    ] = 0,
    dtype: Dtype = "auto",
    device: Device = "auto",
    blocks: Blocks = None,
    final_norm: FinalNorm = None,
    revision: Revision = None,
    allow_pickle: AllowPickle = False,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Train a model for a pooling over its tokens or layers (needs pip install 'layerscope[train]').

    Interrupted? Nothing is written; run the same command again.
    """
    commands.train(
        model,
        corpus,
        output,
        design=design,
        dev=dev,
        text_columns=text_column or (),
        limit=limit,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        max_length=max_length,
        seed=seed,
        dtype=dtype,
        device=device,
        blocks=blocks,
        final_norm=final_norm,
        revision=revision,
        allow_pickle=allow_pickle,
        trust_remote_code=trust_remote_code,
    )


@app.command("import", short_help="Turn scores or metrics from elsewhere into a frame.")
def import_(
    source: Annotated[
        Path,
        typer.Argument(
            help="A folder of mteb results; or a .csv or .parquet table of scores (model, layer, task, "
            "main_score) or metrics (model, layer, dataset, metric, value).",
            metavar="SOURCE",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="The frame to write.", metavar="FILE", show_default=False),
    ],
    tasks: Annotated[
        Path | None,
        typer.Option(
            help="Table with the columns task, dataset: which data set is which task.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    pooling: Annotated[
        str, typer.Option(help="Of the vectors, where SOURCE does not say.", metavar="NAME")
    ] = ("mean"),
    layer_pattern: Annotated[
        str | None,
        typer.Option(
            help="Regular expression with a group (?P<layer>...), for names of result folders.",
            metavar="REGEX",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Turn a folder of mteb results, or a tidy table, into a frame for select, compare and report."""
    commands.import_source(source, output, tasks, pooling, layer_pattern)


@app.command(short_help="Write one self-contained HTML report.")
def report(
    cache: CacheArgument,
    metrics: Annotated[
        Path | None,
        typer.Option(help="By default CACHE/frames/metrics.parquet.", metavar="FILE", show_default=False),
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(
            help="By default CACHE/frames/scores.parquet, where it is there.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    criterion: Annotated[
        list[str] | None,
        typer.Option(
            help="Metric whose pick comes first, may be repeated; participation_ratio by default.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    direction: Annotated[
        str | None,
        typer.Option(
            help="higher or lower is better, for the criteria given.", metavar="WORD", show_default=False
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The HTML file to write.", metavar="FILE")
    ] = Path("report.html"),
) -> None:
    """Write one self-contained HTML report: the picks, curves, tables and where they come from."""
    commands.report(cache, metrics, scores, criterion, direction, output)


@app.command(short_help="Draw a figure of frames, or of a cache.")
def plot(
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="Frames (.parquet or .csv) of one or several models; for embeddings a cache folder.",
            metavar="FRAME...",
            show_default=False,
        ),
    ],
    kind: Annotated[
        str,
        typer.Option(
            help="Of metrics frames: curves, heatmap, models, stability, sites (of a block), training (of "
            "'checkpoints') or perturbation (of 'perturb'); of others: scores, cka or correlations; of a "
            "cache: embeddings.",
            metavar="WORD",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            help="The figure to write: .png, .svg or .pdf.",
            metavar="FILE",
            show_default=False,
        ),
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="Metric or score to draw, may be repeated; all by default.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    corpus: Annotated[
        str | None,
        typer.Option(
            help="Only what is of these texts; of scores, of this task.", metavar="NAME", show_default=False
        ),
    ] = None,
    pooling: Annotated[
        str | None,
        typer.Option(
            help="Only this pooling, with the token metrics of the same tokens.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            help="Column of the cache's rows that colours embeddings; label by default, where there.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(
            help="Layers of embeddings, comma-separated, or all; six by default.",
            metavar="LIST",
            show_default=False,
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="Projection of embeddings: pca by default, or umap.", metavar="WORD", show_default=False
        ),
    ] = None,
) -> None:
    """Draw a figure of frames, or of a cache, as PNG, SVG or PDF."""
    commands.plot(
        sources,
        output,
        kind,
        metrics=metric,
        corpus=corpus,
        pooling=pooling,
        label=label,
        layers=layers,
        method=method,
    )


@app.command(short_help="Say what is in a cache.")
def info(cache: CacheArgument, as_json: AsJson = False) -> None:
    """Say what is in a cache, and how to open it without layerscope."""
    commands.info(cache, as_json=as_json)


@app.command(short_help="Check a cache against its checksums.")
def verify(cache: CacheArgument, as_json: AsJson = False) -> None:
    """Check every file of a cache against its checksum.

    Exits with 1 where one does not hold.
    """
    commands.verify(cache, as_json=as_json)


@app.command(short_help="Redo what is damaged or missing in a cache.")
def repair(
    cache: CacheArgument,
    model: Annotated[
        str | None,
        typer.Option(help="Where the model is now, if it has moved.", metavar="MODEL", show_default=False),
    ] = None,
    corpus: Annotated[
        str | None,
        typer.Option(help="Where the corpus is now, if it has moved.", metavar="CORPUS", show_default=False),
    ] = None,
    allow_pickle: AllowPickle = False,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Compute again what is damaged or missing in a cache, from the model and corpus it was made of.

    Both must be the same as then. What is whole stays as it is.
    """
    commands.repair(cache, model, corpus, allow_pickle=allow_pickle, trust_remote_code=trust_remote_code)


@app.command(short_help="Show it all on packaged data, offline.")
def demo(
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            help="Folder for caches, frames, figures and report.",
            metavar="FOLDER",
            parser=_folder,
        ),
    ] = Path("reports/demo"),
) -> None:
    """Show it all on a small packaged model and news corpus, with no network, in about a minute."""
    commands.demo(output)


def main() -> None:
    """Run the command line: failures are one line; a traceback only with --debug."""
    signal.signal(signal.SIGTERM, _interrupt)
    arguments = sys.argv[1:]
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        _refuse_empty(arguments)
        code = app(arguments, standalone_mode=False)
        if sys.stdout is not None:  # None where standard output is closed
            sys.stdout.flush()
    except LayerscopeError as error:
        if debug:
            raise
        code = _complain(str(error), error.exit_code)
    except Exception as error:
        if debug:
            raise
        if hasattr(error, "format_message"):
            code = _complain_of_usage(error, _command_of(arguments))
        elif isinstance(error, OSError):
            code = _complain(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", 1)
        else:
            first = (str(error).strip().splitlines() or [""])[0]
            what = f"unexpected {type(error).__name__}: {first}"
            code = _complain(f"{what} (run again with --debug for the traceback)", 1)
    sys.exit(code)


def _interrupt(*_: object) -> None:
    """Being told to end is like Ctrl-C: what is half done is put in order, and workers end too."""
    raise KeyboardInterrupt


def _command_of(arguments: list[str]) -> str:
    """The command that was called, in full.

    >>> _command_of(["evaluate", "sts", "cache"]), _command_of(["--bogus"])
    ('layerscope evaluate sts', 'layerscope')
    """
    words = ["layerscope"]
    known: Any = typer.main.get_command(app)
    for argument in arguments:
        known = getattr(known, "commands", {}).get(argument)
        if known is None:
            break
        words.append(argument)
    return " ".join(words)


def _refuse_empty(arguments: list[str]) -> None:
    """An empty word is a shell variable that was not set; as a path it would be the working folder."""
    if arguments[:1] == ["extract"]:  # which checks its own, argument by argument
        return
    for before, argument in zip(["", *arguments], arguments, strict=False):
        option = before if argument == "" and before.startswith("-") else argument.removesuffix("=")
        if argument == "" or (argument.startswith("--") and argument.endswith("=")):
            command = _command_of(arguments)
            what = f"{option} is empty" if option else "an argument is empty"
            raise UsageError(f"{what}: give it a value (see {command} --help)")


def _complain_of_usage(error: Any, command: str) -> int:
    """One line for what the command line parser refuses."""
    message = " ".join(error.format_message().split()).rstrip(".")
    if message.startswith("Usage:"):  # a group without a command: its help
        error.show()
        return int(error.exit_code)
    if option := getattr(error, "option_name", "") if hasattr(error, "possibilities") else "":
        close = difflib.get_close_matches(option, error.possibilities or (), n=1)
        message = f"no option '{option}'" + (f": did you mean '{close[0]}'?" if close else "")
    return _complain(f"{message} (see {command} --help)", 2)


def _complain(message: str, code: int) -> int:
    err.print(f"[red]error[/red]: {escape(' '.join(message.split()))}")
    return code
