"""The commands and their options, and how failures end: one line and an exit code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core
from rich.markup import escape

from layerscope import __version__
from layerscope.cli import commands
from layerscope.cli.console import err
from layerscope.errors import LayerscopeError

INTERRUPTED = 130


class _Commands(typer.core.TyperGroup):
    """The command group; Ctrl-C in a command ends with a line that says how to go on."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            err.print(
                "[yellow]interrupted[/yellow]: what is finished stays; the same command goes on from there"
            )
            raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(
    name="layerscope",
    cls=_Commands,
    help="Shows what each layer of a language model represents, and which one to use.",
    epilog="Start with: layerscope demo",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
evaluate_app = typer.Typer(help="Score every layer against human labels.", no_args_is_help=True)
app.add_typer(evaluate_app, name="evaluate")

CacheArgument = Annotated[
    Path, typer.Argument(help="A cache folder, made by 'layerscope extract'.", show_default=False)
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


@app.command()
def extract(
    model: Annotated[
        str, typer.Argument(help="A hub id, a model folder, or a .gguf file.", show_default=False)
    ],
    corpus: Annotated[
        str,
        typer.Argument(
            help="A .txt (a line a text), .csv, .tsv, .jsonl or .parquet file, - for standard input, "
            "a dataset folder, or a dataset id of the hub.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The cache folder to write.", show_default=False)
    ],
    text_column: Annotated[
        list[str] | None,
        typer.Option(help="Column of texts; twice for pairs. Guessed where not given.", show_default=False),
    ] = None,
    view_column: Annotated[
        str | None,
        typer.Option(help="Column with a second wording of each text, used as a view.", show_default=False),
    ] = None,
    score_column: Annotated[
        str | None, typer.Option(help="Column of human scores of pairs.", show_default=False)
    ] = None,
    label_column: Annotated[str | None, typer.Option(help="Column of labels.", show_default=False)] = None,
    split: Annotated[str | None, typer.Option(help="Split of a dataset.", show_default=False)] = None,
    limit: Annotated[
        int | None, typer.Option(help="Only the first N texts or pairs.", min=1, show_default=False)
    ] = None,
    quoting: Annotated[
        bool | None,
        typer.Option(
            "--quoting/--no-quoting",
            help="Quotes quote: by default in .csv, not in .tsv.",
            show_default=False,
        ),
    ] = None,
    encoding: Annotated[str, typer.Option(help="Encoding of a text file.")] = "utf-8",
    layers: Annotated[
        str, typer.Option(help="all, or a list such as 0,4:8,-1,norm. The model stops after the last one.")
    ] = "all",
    pooling: Annotated[
        str,
        typer.Option(
            help="Comma-separated: mean, mean-nosink, last, first, cls, max, weighted-mean. "
            "auto: mean, and mean-nosink where the model has attention sinks."
        ),
    ] = "auto",
    views: Annotated[
        int, typer.Option(help="Augmented views of each text, for InfoNCE, LiDAR and DiME.", min=0)
    ] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the augmentation.", min=0)] = 0,
    special_tokens: Annotated[
        str, typer.Option(help="keep or drop the tokens that the tokenizer adds, as [CLS].")
    ] = "keep",
    drop_first_token: Annotated[
        bool, typer.Option("--drop-first-token", help="Leave the first token of every text out.")
    ] = False,
    keep_tokens: Annotated[
        bool, typer.Option("--keep-tokens", help="Store the token states too (large).")
    ] = False,
    token_metrics: Annotated[
        bool,
        typer.Option("--token-metrics/--no-token-metrics", help="Prompt entropy and curvature on the way."),
    ] = True,
    max_length: Annotated[
        int | None,
        typer.Option(help="Cut texts at N tokens, below the model's own limit.", min=1, show_default=False),
    ] = None,
    dtype: Annotated[str, typer.Option(help="auto, float32 or bfloat16.")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, …")] = "auto",
    batch_tokens: Annotated[int, typer.Option(help="Padded tokens per batch.", min=1)] = 4096,
    blocks: Annotated[
        str | None,
        typer.Option(help="Module path of the block list, where it is not found.", show_default=False),
    ] = None,
    final_norm: Annotated[
        str | None,
        typer.Option(
            help="Module path of the final norm, or none, where it is not found.", show_default=False
        ),
    ] = None,
    revision: Annotated[str | None, typer.Option(help="Of a model on the hub.", show_default=False)] = None,
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Also load weights that are not safetensors or GGUF.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a cache that holds another extraction.")
    ] = False,
) -> None:
    """Run a model over a corpus once and cache every layer's embeddings.

    Interrupted, or killed? The same command goes on where it stopped.
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
        pooling=pooling if pooling == "auto" else [name.strip() for name in pooling.split(",")],
        views=views,
        seed=seed,
        special_tokens=special_tokens,
        drop_first_token=drop_first_token,
        keep_tokens=keep_tokens,
        token_metrics=token_metrics,
        max_length=max_length,
        dtype=dtype,
        device=device,
        batch_tokens=batch_tokens,
        blocks=blocks,
        final_norm=final_norm,
        revision=revision,
        allow_pickle=allow_pickle,
        overwrite=overwrite,
    )


@app.command()
def analyze(
    cache: CacheArgument,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="Metric to compute, may be repeated; all by default.", show_default=False),
    ] = None,
    pooling: Annotated[
        list[str] | None, typer.Option(help="Pooling, may be repeated; all by default.", show_default=False)
    ] = None,
    draws: Annotated[int, typer.Option(help="Resamples for intervals; 0 for none.", min=0)] = 100,
    seed: Annotated[int, typer.Option(help="Seed of resamples and permutations.", min=0)] = 0,
    drop_duplicates: Annotated[
        bool, typer.Option("--drop-duplicates", help="Measure every distinct text once.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="By default CACHE/frames/metrics.parquet.", show_default=False),
    ] = None,
) -> None:
    """Compute label-free metrics of every layer in a cache."""
    commands.analyze(cache, metric, pooling, draws, seed, drop_duplicates, output)


@app.command()
def select(
    metrics: Annotated[
        Path,
        typer.Argument(help="A metrics frame (.parquet or .csv), or a cache folder.", show_default=False),
    ],
    criterion: Annotated[
        list[str] | None,
        typer.Option(help="Metric to pick by, may be repeated; all by default.", show_default=False),
    ] = None,
    direction: Annotated[
        str | None,
        typer.Option(help="higher or lower is better, for all criteria given.", show_default=False),
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(
            help="A scores frame: show what each pick costs against the best layer.", show_default=False
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="By default picks.parquet beside the metrics frame.", show_default=False
        ),
    ] = None,
) -> None:
    """Pick layers without labels, beside the depth rules that a pick must beat."""
    commands.select(metrics, criterion, direction, scores, output)


@evaluate_app.command("sts")
def evaluate_sts(
    cache: CacheArgument,
    score_column: Annotated[str, typer.Option(help="Column of human scores in the cache's rows.")] = "score",
    task: Annotated[
        str | None, typer.Option(help="What to call it; by default the corpus' name.", show_default=False)
    ] = None,
    pooling: Annotated[
        list[str] | None, typer.Option(help="Pooling, may be repeated; all by default.", show_default=False)
    ] = None,
    draws: Annotated[int, typer.Option(help="Bootstrap samples for intervals; 0 for none.", min=0)] = 500,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.", min=0)] = 0,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="By default CACHE/frames/scores.parquet.", show_default=False),
    ] = None,
) -> None:
    """Correlate the cosine of pairs with human scores, for every layer."""
    commands.evaluate_sts(cache, score_column, task, pooling, draws, seed, output)


@app.command()
def report(
    cache: CacheArgument,
    metrics: Annotated[
        Path | None, typer.Option(help="By default CACHE/frames/metrics.parquet.", show_default=False)
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(help="By default CACHE/frames/scores.parquet, where it is there.", show_default=False),
    ] = None,
    criterion: Annotated[
        list[str] | None,
        typer.Option(
            help="Metric whose pick comes first, may be repeated; dataset_entropy by default.",
            show_default=False,
        ),
    ] = None,
    direction: Annotated[
        str | None,
        typer.Option(help="higher or lower is better, for the criteria given.", show_default=False),
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="The HTML file to write.")] = Path(
        "report.html"
    ),
) -> None:
    """Write one self-contained HTML report: the picks, curves, tables and where they come from."""
    commands.report(cache, metrics, scores, criterion, direction, output)


@app.command()
def info(cache: CacheArgument) -> None:
    """Say what is in a cache, and how to open it without layerscope."""
    commands.info(cache)


@app.command()
def verify(cache: CacheArgument) -> None:
    """Check every file of a cache against its checksum."""
    commands.verify(cache)


@app.command()
def demo(
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder for caches, frames, figures and report.")
    ] = Path("reports/demo"),
) -> None:
    """Show it all on a small packaged model and news corpus, with no network, in about a minute."""
    commands.demo(output)


def main() -> None:
    """Run the command line: failures are one line; a traceback only with --debug."""
    arguments = sys.argv[1:]
    debug = "--debug" in arguments
    try:
        app([argument for argument in arguments if argument != "--debug"])
    except LayerscopeError as error:
        if debug:
            raise
        _complain(str(error))
        sys.exit(error.exit_code)
    except Exception as error:
        if debug:
            raise
        first = (str(error).strip().splitlines() or [""])[0]
        _complain(f"unexpected {type(error).__name__}: {first} (run again with --debug for the traceback)")
        sys.exit(1)


def _complain(message: str) -> None:
    err.print(f"[red]error[/red]: {escape(' '.join(message.split()))}")
