"""extract(): a model and texts in, a cache out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from layerscope.backbone import Backbone
from layerscope.cache import CacheWriter, LayerCache
from layerscope.corpus import Corpus, read_corpus
from layerscope.errors import UsageError
from layerscope.extraction.content import PUBLISHED_TOKEN_METRICS, TOKEN_METRICS, Content
from layerscope.extraction.identity import finished_cache, tokenizer_identity, versions
from layerscope.extraction.job import SHARD_BYTES, Job
from layerscope.extraction.options import (
    MOST_VIEWS,
    check_choices,
    check_layers,
    check_listener,
    check_number,
    check_prompt,
    check_switches,
    check_target,
    check_texts,
    wanted_poolings,
    wanted_token_metrics,
)
from layerscope.extraction.plan import Listener, check_space
from layerscope.extraction.rows import rows_frame
from layerscope.extraction.streams import check_dropout, make_streams, make_view_plan, refuse_cut_rows
from layerscope.files import check_writable, json_sha256
from layerscope.metrics.published import PROMPT_VECTOR
from layerscope.models import DType, Part, find_model, is_hub_id, load_model
from layerscope.sinks import SinkReport, find_sinks
from layerscope.tokens import (
    OnTruncate,
    SinkRule,
    SpecialTokens,
    TokenPolicy,
    TokenTable,
    Wrapping,
    bos_eos_note,
    unknown_tokens_note,
)
from layerscope.views import ViewKind

TOKEN_BUDGET = 4096


def extract(
    model: Any,
    texts: Any,
    *,
    path: str | Path,
    tokenizer: Any = None,
    text_columns: Sequence[str] = (),
    view_column: str | None = None,
    score_column: str | None = None,
    label_column: str | None = None,
    split: str | None = None,
    limit: int | None = None,
    quoting: bool | None = None,
    encoding: str = "utf-8",
    layers: str | int | Sequence[str | int] = "all",
    pooling: str | Sequence[str] = "auto",
    views: int = 0,
    view_kind: ViewKind = "augment",
    seed: int = 0,
    special_tokens: SpecialTokens = "keep",
    drop_first_token: bool = False,
    prompt: str = "",
    prompt_tokens: SpecialTokens = "keep",
    chat_template: bool = False,
    on_truncate: OnTruncate = "warn",
    deterministic: bool = False,
    token_metrics: str | Sequence[str] = tuple(TOKEN_METRICS),
    keep_tokens: bool = False,
    max_length: int | None = None,
    dtype: DType = "auto",
    device: str = "auto",
    batch_tokens: int = TOKEN_BUDGET,
    blocks: str | None = None,
    final_norm: str | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
    part: Part = "encoder",
    overwrite: bool = False,
    listener: Listener | None = None,
) -> LayerCache:
    """Run ``model`` over ``texts`` once and cache every layer's embeddings in the folder ``path``.

    A folder that holds this very extraction is returned as it is; one that was interrupted is
    completed. The model and tokenizer are left exactly as they were.

    Args:
        model: a hub id, a folder, a .gguf file, or a loaded transformers model (then ``tokenizer`` too).
        texts: what ``read_corpus`` takes: a file, a dataset, a DataFrame, a list of texts; or a ``Corpus``.
        path: the cache folder.
        tokenizer: a Hugging Face tokenizer; the model's own where not given.
        text_columns: one column of texts, or two of pairs; guessed where not given.
        view_column: a column whose text is another view of the first (a paraphrase, say).
        score_column: a column of human scores of pairs, for evaluation only.
        label_column: a column of labels, for evaluation only.
        split: of a dataset.
        limit: only the first texts or pairs.
        quoting: whether quotes quote in a delimited file; by default in .csv and not in .tsv.
        encoding: of a text file.
        layers: see ``layerscope.layers.parse_layers``.
        pooling: names, or ``auto``: ``mean``, and ``mean-nosink`` where the model has attention sinks.
        views: how many views of each text to embed too, for InfoNCE, LiDAR and DiME.
        view_kind: ``augment`` edits each text, ``crop`` takes a run of its words, ``dropout`` runs the text
            with the model's dropout on.
        seed: of the views.
        special_tokens: ``keep`` or ``drop`` what the tokenizer adds.
        drop_first_token: leave the first token of every text out of every pooling and token metric.
        prompt: stands before every text, as ``"query: "``.
        prompt_tokens: ``keep`` or ``drop`` the prompt's tokens in poolings and token metrics.
        chat_template: whether every text becomes the user's turn in the tokenizer's chat template, whose
            tokens are special tokens then.
        on_truncate: ``warn`` counts and flags texts that are cut, ``error`` refuses them, ``chunk`` runs them
            in pieces, which are pooled by their number of tokens.
        deterministic: run texts of equal length only in one batch, so that nothing is ever padded.
        token_metrics: which metrics of token states to compute on the way; with the pooling
            ``prompt-vector``, those of the published recipe too.
        keep_tokens: also store the token states themselves (large).
        max_length: a limit in tokens below that of the model.
        dtype: of the weights; ``auto`` is float32 on a CPU.
        device: where to run; ``auto`` takes a GPU where there is one.
        batch_tokens: padded tokens per batch; halved when memory runs out.
        blocks: module path of the block list, where it is not found.
        final_norm: module path of the final norm, or ``none``, where it is not found.
        revision: of the model on the hub.
        allow_pickle: also load weights from pickles.
        trust_remote_code: run Python code that comes with the model.
        part: of an encoder-decoder, ``encoder`` or ``decoder``; the decoder gets the same tokens.
        overwrite: replace a cache of another extraction.
        listener: is told about plan and progress.

    Raises:
        LayerscopeError: with one line that says what was wrong and what to do.
    """
    listener = check_listener(listener)
    target = check_target(path, overwrite=overwrite)
    layers, wanted = check_layers(layers), wanted_poolings(pooling)
    token_metrics = wanted_token_metrics(token_metrics)
    views, seed = check_number("views", views, 0, MOST_VIEWS), check_number("seed", seed, 0)
    batch_tokens = check_number("batch-tokens", batch_tokens, 1)
    max_length = None if max_length is None else check_number("max-length", max_length, 1)
    device = str(device)  # torch.device will do
    check_texts(device=device, blocks=blocks, final_norm=final_norm, revision=revision)
    check_switches(
        drop_first_token=drop_first_token, keep_tokens=keep_tokens, allow_pickle=allow_pickle,
        trust_remote_code=trust_remote_code, overwrite=overwrite, chat_template=chat_template,
        deterministic=deterministic,
    )  # fmt: skip
    check_choices(
        view_kind=view_kind, special_tokens=special_tokens, prompt_tokens=prompt_tokens,
        on_truncate=on_truncate, dtype=dtype, part=part, tokenizer=tokenizer,
    )  # fmt: skip
    wrapping = Wrapping(check_prompt(prompt), chat_template)
    if is_hub_id(model):
        listener.remote(model)
    source = find_model(model, revision, trust_remote_code=trust_remote_code)
    if part == "decoder":
        source = replace(source, name=f"{source.name} (decoder)")
    corpus = texts if isinstance(texts, Corpus) else read_corpus(
        texts, text_columns=text_columns, view_column=view_column, score_column=score_column,
        label_column=label_column, split=split, limit=limit, quoting=quoting, encoding=encoding,
    )  # fmt: skip
    view_plan = make_view_plan(corpus, views, seed, view_kind)
    request = {
        "model": source.identity,
        "tokenizer": tokenizer_identity(tokenizer) if tokenizer is not None else "own",
        "corpus": corpus.sha256,
        "layers": layers,
        "pooling": wanted,
        "views": view_plan.identity() if view_plan else None,
        "special_tokens": special_tokens,
        "drop_first_token": drop_first_token,
        "prompt": [prompt, prompt_tokens, chat_template],
        "deterministic": deterministic,
        "in_pieces": on_truncate == "chunk",
        "token_metrics": sorted(token_metrics),
        "keep_tokens": keep_tokens,
        "max_length": max_length,
        "dtype": [dtype, device],
        "structure": [blocks, final_norm, part],
    }
    hit = finished_cache(target, request)
    if hit is not None:
        if on_truncate == "error":
            refuse_cut_rows(
                hit.rows["truncated"].to_numpy(dtype=bool), hit.manifest["identity"]["max_length"]
            )
        listener.hit(hit)
        return hit
    check_writable(target)
    loaded = load_model(
        source, model, tokenizer=tokenizer, dtype=dtype, device=device, max_length=max_length,
        revision=revision, allow_pickle=allow_pickle, trust_remote_code=trust_remote_code, part=part,
    )  # fmt: skip
    backbone = Backbone(loaded.model, blocks=blocks, final_norm=final_norm)
    chosen = backbone.layers(layers)
    check_dropout(view_plan, backbone)
    streams = make_streams(corpus, view_plan, loaded, wrapping, in_pieces=on_truncate == "chunk")
    if on_truncate == "error":
        refuse_cut_rows(streams[0].spread(streams[0].table.truncated), loaded.max_length)
    policy, poolings, sinks = _token_policy(
        backbone,
        streams[0].table,
        wanted,
        TokenPolicy(
            special_tokens, drop_first_token, SinkRule(), loaded.tokenizer.cls_token_id, prompt_tokens
        ),
        batch_tokens,
        equal_lengths=deterministic,
    )
    widths = {layer.name: backbone.width(layer) for layer in chosen}
    if token_metrics and PROMPT_VECTOR in poolings:
        token_metrics = (*token_metrics, *PUBLISHED_TOKEN_METRICS)
    content = Content(widths, poolings, policy, tuple(token_metrics), keep_tokens, streams)
    job = Job(backbone, chosen, content, batch_tokens, equal_lengths=deterministic)
    resolved = {
        "layers": list(widths),
        "pooling": poolings,
        "sinks": [list(policy.sinks.positions), list(policy.sinks.token_ids)],
        "tokenizer": request["tokenizer"] if tokenizer is not None else tokenizer_identity(loaded.tokenizer),
        "dtype": loaded.dtype,
        "max_length": loaded.max_length,
        "shard_bytes": SHARD_BYTES,
    }
    notes = (
        *corpus.notes,
        *unknown_tokens_note(streams[0].table, loaded.tokenizer),
        *bos_eos_note(streams[0].table, loaded.tokenizer),
    )
    layout = {
        "identity": request | resolved,
        "request_sha256": json_sha256(request),
        "model": _describe_model(source.name, backbone),
        "corpus": _describe_corpus(corpus, notes),
        "rows": corpus.n_texts,
        "layers": list(widths),
        "widths": widths,
        "poolings": poolings,
        "views": [stream.view for stream in streams[1:]],
        "token_metrics": sorted(token_metrics),
        "sinks": sinks.as_dict() if sinks else None,
        "planned_shards": len(job.bounds),
        "versions": versions(),
    }
    with CacheWriter(target, layout, overwrite=overwrite) as writer:
        plan = job.plan(source.name, notes, loaded.max_length, sinks)
        plan = replace(plan, finished_shards=len(writer.finished))
        check_space(target, plan)
        listener.plan(plan)
        job.run(writer, listener)
        writer.finish(rows_frame(corpus, content, writer.nonfinite, writer.recovered))
    return LayerCache(target)


def _describe_model(name: str, backbone: Backbone) -> dict[str, Any]:
    structure = backbone.structure
    return {
        "name": name,
        "class": type(backbone.model).__name__,
        "n_blocks": structure.n_blocks,
        "blocks": structure.blocks_path,
        "final_norm": structure.norm_path,
    }


def _describe_corpus(corpus: Corpus, notes: tuple[str, ...]) -> dict[str, Any]:
    return {
        "name": corpus.name,
        "sha256": corpus.sha256,
        "pairs": corpus.is_pairs,
        "notes": list(notes),
    }


def _token_policy(
    backbone: Backbone,
    table: TokenTable,
    wanted: list[str],
    plain: TokenPolicy,
    token_budget: int,
    *,
    equal_lengths: bool,
) -> tuple[TokenPolicy, list[str], SinkReport | None]:
    """Which tokens count, with sinks looked for where a pooling needs them, and the poolings."""
    if "cls" in wanted and plain.cls_token_id is None:
        raise UsageError(
            "pooling 'cls': this model's tokenizer has no classification token; use first or last"
        )
    if not {"auto", "mean-nosink"} & set(wanted):
        return plain, wanted, None
    sinks = find_sinks(backbone, table, token_budget=token_budget, equal_lengths=equal_lengths)
    policy = replace(plain, sinks=sinks.rule)
    sets = policy.token_sets(table)
    has_sinks = bool((sets["kept"] & ~sets["nosink"]).any())
    automatic = ["mean", "mean-nosink"] if has_sinks else ["mean"]
    return policy, automatic if wanted == ["auto"] else wanted, sinks
