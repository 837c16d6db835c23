"""extract(): a model and texts in, a cache out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from layerscope.backbone import Backbone
from layerscope.cache import CacheWriter, LayerCache
from layerscope.corpus import Corpus, read_corpus
from layerscope.extraction.content import PUBLISHED_TOKEN_METRICS, TOKEN_METRICS, Content
from layerscope.extraction.extension import Asked, find_held, finished_cache
from layerscope.extraction.identity import tokenizer_identity, versions
from layerscope.extraction.job import Job
from layerscope.extraction.manner import Manner
from layerscope.extraction.options import (
    MOST_VIEWS,
    check_choices,
    check_layers,
    check_listener,
    check_number,
    check_perturbation,
    check_prompt,
    check_switches,
    check_target,
    check_texts,
    wanted_poolings,
    wanted_sites,
    wanted_token_metrics,
)
from layerscope.extraction.plan import Listener, check_space
from layerscope.extraction.rows import rows_frame
from layerscope.extraction.streams import check_dropout, make_streams, make_view_plan, refuse_cut_rows
from layerscope.files import check_writable
from layerscope.layers import RESIDUAL
from layerscope.metrics.published import PROMPT_VECTOR
from layerscope.models import DType, LoadedModel, OpenedModel, Part, find_model, is_hub_id, load_model
from layerscope.perturbation import Perturbation
from layerscope.tokens import OnTruncate, SpecialTokens, Wrapping, bos_eos_note, unknown_tokens_note
from layerscope.views import RECIPE, ViewKind

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
    sites: str | Sequence[str] = RESIDUAL,
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
    perturbation: Perturbation | None = None,
    token_metrics: str | Sequence[str] = tuple(TOKEN_METRICS),
    keep_tokens: bool = False,
    max_length: int | None = None,
    dtype: DType = "auto",
    device: str = "auto",
    batch_tokens: int = TOKEN_BUDGET,
    blocks: str | None = None,
    final_norm: str | None = None,
    attention: str | None = None,
    mlp: str | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
    part: Part = "encoder",
    overwrite: bool = False,
    listener: Listener | None = None,
) -> LayerCache:
    """Run ``model`` over ``texts`` once and cache every layer's embeddings in the folder ``path``.

    A folder that holds this extraction already is returned as it is; one that was interrupted is
    completed. Layers, poolings, views, token metrics and texts at the end that a folder lacks are added to
    those that it holds, where all else is the same. The model and tokenizer are left exactly as they were.

    Args:
        model: a hub id, a folder, a .gguf file, or a loaded transformers model (then ``tokenizer`` too).
        texts: what ``read_corpus`` takes: a file, a dataset, a DataFrame, a list of texts; or a ``Corpus``.
        path: the cache folder.
        tokenizer: a Hugging Face tokenizer; the model's own where not given.
        text_columns: one column of texts, two of pairs, three of triplets; guessed where not given.
        view_column: a column whose text is another view of the first (a paraphrase, say).
        score_column: a column of human scores of pairs, for evaluation only.
        label_column: a column of labels, for evaluation only.
        split: of a dataset.
        limit: only the first texts or pairs.
        quoting: whether quote marks enclose fields of a delimited file; by default in .csv, not in .tsv.
        encoding: of a text file.
        layers: ``all``, or a list such as ``0,4:8,-1,norm``: numbers and names, and slices that leave out
            their end. The model stops after the last one.
        sites: ``block`` for the residual stream behind each block, ``attn`` and ``mlp`` for what the block's
            attention and its MLP add to it, as layers ``attn.k`` and ``mlp.k``.
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
        perturbation: how the token ids of every text are changed; not together with views.
        token_metrics: which metrics of token states to compute on the way; with the pooling
            ``prompt-vector``, those of the published recipe too.
        keep_tokens: also store the token states themselves (large).
        max_length: a limit in tokens below that of the model.
        dtype: of the weights; ``auto`` is float32 on a CPU.
        device: where to run; ``auto`` takes a GPU where there is one.
        batch_tokens: padded tokens per batch; halved when memory runs out.
        blocks: module path of the block list, where it is not found.
        final_norm: module path of the final norm, or ``none``, where it is not found.
        attention: module path, within a block, of what returns ``attn.k``, where it is not found.
        mlp: the same of ``mlp.k``.
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
    sites = wanted_sites(sites)
    token_metrics = wanted_token_metrics(token_metrics)
    views, seed = check_number("views", views, 0, MOST_VIEWS), check_number("seed", seed, 0)
    batch_tokens = check_number("batch-tokens", batch_tokens, 1)
    max_length = None if max_length is None else check_number("max-length", max_length, 1)
    device = str(device)  # torch.device will do
    check_texts(device=device, blocks=blocks, final_norm=final_norm, revision=revision)
    check_texts(attention=attention, mlp=mlp)
    check_switches(
        drop_first_token=drop_first_token, keep_tokens=keep_tokens, allow_pickle=allow_pickle,
        trust_remote_code=trust_remote_code, overwrite=overwrite, chat_template=chat_template,
        deterministic=deterministic,
    )  # fmt: skip
    check_choices(
        view_kind=view_kind, special_tokens=special_tokens, prompt_tokens=prompt_tokens,
        on_truncate=on_truncate, dtype=dtype, part=part, tokenizer=tokenizer,
    )  # fmt: skip
    manner = Manner(
        Wrapping(check_prompt(prompt), chat_template), special_tokens, prompt_tokens, drop_first_token,
        on_truncate, deterministic, batch_tokens,
    )  # fmt: skip
    if is_hub_id(model):
        listener.remote(model)
    source = find_model(model, revision, trust_remote_code=trust_remote_code)
    if part == "decoder":
        source = replace(source, name=f"{source.name} (decoder)")
    reading: dict[str, Any] = {
        "text_columns": text_columns, "view_column": view_column, "score_column": score_column,
        "label_column": label_column, "split": split, "limit": limit, "quoting": quoting,
        "encoding": encoding,
    }  # fmt: skip
    corpus = texts if isinstance(texts, Corpus) else read_corpus(texts, **reading)
    asked = Asked(
        layers, wanted, make_view_plan(corpus, views, seed, view_kind), token_metrics, keep_tokens, sites
    )
    check_perturbation(perturbation, with_views=asked.views is not None)
    structure: dict[str, Any] = {"blocks": blocks, "final_norm": final_norm, "part": part}
    paths = {"attention": attention, "mlp": mlp}  # told only where given: older caches do not know them
    structure |= {name: given for name, given in paths.items() if given is not None}
    changes = {} if perturbation is None else {"perturbation": perturbation.identity()}
    request = manner.identity() | structure | changes | {
        "model": source.identity,
        "tokenizer": tokenizer_identity(tokenizer) if tokenizer is not None else "own",
        "view_recipe": RECIPE,
        "max_length": max_length,
        "dtype": [dtype, device],
    }  # fmt: skip
    hit = finished_cache(target, request, asked, corpus)
    if hit is not None:
        if on_truncate == "error":
            refuse_cut_rows(
                hit.rows["truncated"].to_numpy(dtype=bool), hit.manifest["identity"]["max_length"]
            )
        listener.hit(hit)
        return hit
    check_writable(target)
    loading: dict[str, Any] = {
        "dtype": dtype, "device": device, "max_length": max_length, "revision": revision, "part": part,
    }  # fmt: skip
    loaded = load_model(
        source, model, tokenizer=tokenizer, allow_pickle=allow_pickle, trust_remote_code=trust_remote_code,
        **loading,
    )  # fmt: skip
    basis = request | {"dtype": loaded.dtype, "max_length": loaded.max_length}
    if tokenizer is None:
        basis["tokenizer"] = tokenizer_identity(loaded.tokenizer)
    places = {"model": _place_of(model), "texts": _place_of(texts)}
    reading["limit"] = None if limit is None else int(limit)  # which may be numpy's
    options = (reading if places["texts"] else {}) | loading | structure | changes | manner.options()
    made_of = places | {"options": options}
    origin = {"request": request, "made_of": made_of}
    backbone = Backbone(loaded.model, blocks=blocks, final_norm=final_norm, attention=attention, mlp=mlp)
    _fill(
        target,
        _Given(source.name, backbone, loaded, corpus, asked, manner, perturbation, basis, origin),
        listener,
        overwrite=overwrite,
    )
    return LayerCache(target)


@dataclass(frozen=True)
class _Given:
    """All that an extraction is made from, loaded."""

    name: str
    backbone: Backbone
    loaded: LoadedModel
    corpus: Corpus
    asked: Asked
    manner: Manner
    perturbation: Perturbation | None
    basis: dict[str, Any]
    origin: dict[str, Any]


def _fill(target: Path, given: _Given, listener: Listener, *, overwrite: bool) -> None:
    """Write what the folder lacks of what is asked for."""
    backbone, loaded, corpus, asked, manner = (
        given.backbone, given.loaded, given.corpus, given.asked, given.manner,
    )  # fmt: skip
    held = find_held(target, given.basis, asked.views, corpus)
    chosen = backbone.layers(asked.layers, asked.sites)
    if held:
        chosen = backbone.layers([*(layer.name for layer in chosen), *held.identity["layers"]])
    view_plan = held.with_views(asked.views) if held else asked.views
    check_dropout(view_plan, backbone)
    streams = make_streams(
        corpus, view_plan, loaded, manner.wrapping, in_pieces=manner.in_pieces,
        perturbation=given.perturbation,
    )  # fmt: skip
    table = streams[0].table
    if manner.on_truncate == "error":
        refuse_cut_rows(streams[0].spread(table.truncated), loaded.max_length)
    policy, poolings, sinks = manner.token_policy(
        backbone, table, asked.poolings, held.sinks if held else None, loaded.tokenizer.cls_token_id
    )
    all_metrics, keep_tokens = {*asked.token_metrics}, asked.keep_tokens
    if held:
        poolings = list(dict.fromkeys([*held.identity["pooling"], *poolings]))
        all_metrics |= {*held.identity["token_metrics"]}
        keep_tokens = keep_tokens or held.identity["keep_tokens"]
    token_metrics = tuple(name for name in TOKEN_METRICS if name in all_metrics)
    identity = given.basis | {
        "corpus": corpus.sha256,
        "layers": [layer.name for layer in chosen],
        "pooling": poolings,
        "views": view_plan.identity() if view_plan else None,
        "token_metrics": sorted(token_metrics),
        "keep_tokens": keep_tokens,
        "sinks": [list(policy.sinks.positions), list(policy.sinks.token_ids)],
    }
    widths = {layer.name: backbone.width(layer) for layer in chosen}
    if token_metrics and PROMPT_VECTOR in poolings:
        token_metrics = (*token_metrics, *PUBLISHED_TOKEN_METRICS)
    content = Content(widths, poolings, policy, token_metrics, keep_tokens, streams)
    job = Job(
        backbone,
        chosen,
        content,
        manner.batch_tokens,
        equal_lengths=manner.deterministic,
        starts=held.starts if held else (),
        planned_rows=held.rows if held else 0,
    )
    notes = (
        *corpus.notes,
        *unknown_tokens_note(table, loaded.tokenizer),
        *bos_eos_note(table, loaded.tokenizer),
    )
    layout = given.origin | {
        "identity": identity,
        "model": _describe_model(given.name, backbone),
        "corpus": _describe_corpus(corpus, notes),
        "rows": corpus.n_texts,
        "layers": list(widths),
        "widths": widths,
        "poolings": poolings,
        "views": [stream.view for stream in streams[1:]],
        "token_metrics": sorted(token_metrics),
        "sinks": sinks.as_dict() if sinks else None,
        "starts": [start for start, _ in job.bounds],
        "planned_shards": len(job.bounds),
        "versions": versions(),
    }
    adds_to = held.identity if held else None
    with CacheWriter(target, layout, overwrite=overwrite, adds_to=adds_to) as writer:
        added = held.additions(identity, corpus.n_texts) if held else ()
        plan = job.plan(given.name, (*added, *notes), loaded.max_length, sinks)
        plan = replace(plan, finished_shards=len(writer.finished), bytes_there=writer.bytes_there)
        check_space(target, plan)
        listener.plan(plan)
        job.run(writer, listener)
        writer.finish(rows_frame(corpus, content, writer.nonfinite, writer.recovered))


def _place_of(what: Any) -> str | None:
    """Where a model or corpus can be found again: a path from the root, or an id; ``None`` for objects."""
    what = what.given if isinstance(what, OpenedModel) else what
    if not isinstance(what, str | Path) or str(what) == "-":
        return None
    path = Path(what).expanduser()
    return str(path.resolve()) if path.exists() else str(what)


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
