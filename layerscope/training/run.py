"""train(): a model, texts and a design in; a trained sentence-transformers folder out."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from layerscope.backbone import Backbone
from layerscope.checkup import TEXTS
from layerscope.corpus import Corpus, read_corpus
from layerscope.errors import CorpusError, ModelError, check_whole, count_of
from layerscope.exporting.cutting import check_loaded, save_cut
from layerscope.exporting.folders import free_folder, put_in_place, quiet, scratch_folder
from layerscope.exporting.reading import TextReading
from layerscope.files import check_writable, write_atomic, write_text
from layerscope.layers import standard_layers
from layerscope.models import DType, LoadedModel, find_model, load_model
from layerscope.training.adapters import add_lora, merge_lora
from layerscope.training.designs import Design, find_design
from layerscope.training.scored_pairs import ScoredPairs

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Progress = Callable[[int, int], None]
FEWEST = 8
_TOLERANCE = 1e-4
_WARM_UP = 0.1


@dataclass(frozen=True)
class Trained:
    """What was trained.

    Attributes:
        path: the folder, as ``SentenceTransformer(path, trust_remote_code=True)`` loads it.
        design: how.
        n_examples: how many examples an epoch has.
        trainable: how many parameters were trained.
        history: frame with ``epoch``, ``loss`` (the mean of the epoch's steps) and ``dev`` (Spearman of
            cosine with human scores, NaN without a dev set); epoch 0 is before any training.
        best_epoch: the epoch that was kept.
    """

    path: Path
    design: Design
    n_examples: int
    trainable: int
    history: pd.DataFrame
    best_epoch: int


def train(
    model: Any,
    corpus: Any,
    *,
    path: str | Path,
    design: str | Path | Design = "multi-layer-bidirectional",
    dev: Any = None,
    tokenizer: Any = None,
    text_columns: Sequence[str] = (),
    limit: int | None = None,
    epochs: int = 1,
    batch_size: int = 64,
    learning_rate: float | None = None,
    max_length: int | None = 64,
    seed: int = 0,
    dtype: DType = "auto",
    device: str = "auto",
    blocks: str | None = None,
    final_norm: str | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
    progress: Progress | None = None,
) -> Trained:
    """Train a model end to end for a pooling, with in-batch negatives and hard negatives where there are any.

    The loss is the cross-entropy of cosines times the design's scale. Single texts are their own positives,
    told apart by dropout (SimCSE). Adapters are merged into the weights before the folder is written.

    Args:
        model: a hub id, a folder, a .gguf file, or a loaded model (then ``tokenizer`` too), which is not
            changed.
        corpus: what ``read_corpus`` takes: triplets, pairs or single texts.
        path: the folder to write, new or empty.
        design: the name of one that comes with layerscope, a .toml file, or a ``Design``.
        dev: scored pairs, as ``read_corpus`` takes them; the epoch with the best Spearman is kept.
        tokenizer: needed with a loaded model.
        text_columns: of ``corpus``; guessed where not given.
        limit: only the first examples of ``corpus``.
        epochs: passes over the examples.
        batch_size: examples in a step.
        learning_rate: the design's where not given.
        max_length: texts are cut at so many tokens.
        seed: of the new weights, dropout and the order of examples.
        dtype: of the weights.
        device: where to train.
        blocks: module path of the block list, where it is not found.
        final_norm: module path of the final norm, or ``none``, where it is not found.
        revision: of the model on the hub.
        allow_pickle: also load weights from pickles.
        trust_remote_code: run Python code that comes with the model.
        progress: called with steps done and planned.

    Raises:
        UsageError: a design or number that cannot be.
        CorpusError: too few examples, or a dev set without scores.
        ModelError: packages that are missing, or a model that cannot be saved as a folder.
    """
    target = free_folder(path)
    chosen = design if isinstance(design, Design) else find_design(design)
    for name, value, least in (("epochs", epochs, 1), ("batch_size", batch_size, 2), ("seed", seed, 0)):
        check_whole(name, value, least)
    if importlib.util.find_spec("accelerate") is None:
        raise ModelError("training needs accelerate: pip install 'layerscope[train]'")
    examples = _examples(read_corpus(corpus, text_columns=text_columns, limit=limit))
    judge = None if dev is None else ScoredPairs(read_corpus(dev))
    source = find_model(model, revision, trust_remote_code=trust_remote_code)
    loaded = load_model(
        source, model, tokenizer=tokenizer, dtype=dtype, device=device, max_length=max_length,
        revision=revision, allow_pickle=allow_pickle, trust_remote_code=trust_remote_code,
    )  # fmt: skip
    backbone = Backbone(loaded.model, blocks=blocks, final_norm=final_norm)
    check_writable(target)
    with scratch_folder(target) as scratch, torch.random.fork_rng(), quiet():
        torch.manual_seed(seed)
        whole = build(loaded, backbone, chosen, scratch / "start")
        if chosen.lora_rank:
            add_lora(_inner(whole), chosen.lora_rank, chosen.lora_alpha)
        history, best = _run(
            whole, examples, judge, chosen, scratch,
            epochs=epochs, batch_size=batch_size, rate=learning_rate or chosen.learning_rate, seed=seed,
            progress=progress or (lambda done, total: None),
        )  # fmt: skip
        trainable = sum(p.numel() for p in whole.parameters() if p.requires_grad)
        if chosen.lora_rank:
            merge_lora(_inner(whole))
        whole.eval().save(str(scratch / "folder"), create_model_card=False)
        _check_reload(whole, scratch / "folder")
        write_atomic(scratch / "folder" / "history.csv", lambda file: history.to_csv(file, index=False))
        trained = Trained(target, chosen, len(examples), trainable, history, best)
        write_text(scratch / "folder" / "README.md", _card(trained, source.name))
        put_in_place(scratch / "folder", target)
    return trained


def build(loaded: LoadedModel, backbone: Backbone, design: Design, folder: Path) -> SentenceTransformer:
    """The model of a design before training; ``folder`` gets a copy of the weights that it starts from."""
    from sentence_transformers import SentenceTransformer

    from layerscope.exporting.modules import LatentPooling, LayerMix, LayerStates, TokenPooling

    structure = backbone.structure
    if design.is_mix:
        names = standard_layers(structure.n_blocks, structure.has_norm)
        layers = [name for name in names if name != f"block.{structure.n_blocks}" or not structure.has_norm]
        layers = layers[1:] if design.pooling == "multi-layer" else layers
    else:
        layers = ["norm" if structure.has_norm else f"block.{structure.n_blocks}"]
    save_cut(loaded, structure, structure.n_blocks, folder)
    states = LayerStates(
        str(folder),
        layers=layers,
        blocks=structure.blocks_path,
        final_norm=structure.norm_path or "none",
        attention=design.attention,
        max_seq_length=loaded.max_length,
        model_kwargs={"dtype": torch.float32},
    )
    check_loaded(loaded, states.model)
    width = backbone.width(backbone.layers([layers[-1]])[0])
    tokens = TextReading().token_options(loaded.tokenizer)
    pooling: Any
    if design.is_mix:
        pooling = LayerMix(design.pooling, len(layers), width, design.token_poolings, design.sizes, **tokens)
    elif design.pooling == "latent":
        pooling = LatentPooling(width, design.sizes, **tokens)
    else:
        pooling = TokenPooling(width, design.pooling, **tokens)
    return SentenceTransformer(
        modules=[states, pooling], device=str(backbone.device), similarity_fn_name="cosine"
    )


def _inner(whole: SentenceTransformer) -> Any:
    """The transformers model inside."""
    return whole[0].model


def _run(
    whole: SentenceTransformer,
    examples: Any,
    judge: ScoredPairs | None,
    design: Design,
    scratch: Path,
    *,
    epochs: int,
    batch_size: int,
    rate: float,
    seed: int,
    progress: Progress,
) -> tuple[pd.DataFrame, int]:
    """Train in place and leave the best epoch's weights; how it went, and which epoch that is."""
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from transformers import TrainerCallback

    history: list[dict[str, float]] = [{"epoch": 0, "loss": float("nan"), "dev": _dev(judge, whole)}]
    best = {"epoch": 0, "dev": history[0]["dev"]}
    kept: dict[str, Tensor] = _trainable(whole) if judge else {}
    losses: list[float] = []

    class Watcher(TrainerCallback):
        """Notes losses, scores every epoch, and keeps the weights of the best."""

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if logs and "loss" in logs:
                losses.append(float(logs["loss"]))

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            progress(int(state.global_step), int(state.max_steps))

        def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            whole.eval()
            dev = _dev(judge, whole)
            whole.train()
            mean = float(np.mean(losses)) if losses else float("nan")
            history.append({"epoch": len(history), "loss": mean, "dev": dev})
            losses.clear()
            if judge is None or dev > best["dev"]:
                best.update(epoch=len(history) - 1, dev=dev)
                kept.update(_trainable(whole) if judge else {})

    steps = max(1, -(-len(examples) // batch_size)) * epochs
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(scratch / "trainer"),
        num_train_epochs=epochs,
        per_device_train_batch_size=batch_size,
        learning_rate=rate,
        warmup_steps=round(_WARM_UP * steps),
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=seed,
        use_cpu=whole.device.type == "cpu",
    )
    # The card is ours: with an example set, none are looked for, under a progress bar of its own.
    whole.model_card_data.widget = [{"text": ""}]
    trainer = SentenceTransformerTrainer(
        model=whole,
        args=arguments,
        train_dataset=examples,
        loss=MultipleNegativesRankingLoss(whole, scale=design.scale),
        callbacks=[Watcher()],
    )
    from transformers.trainer_callback import PrinterCallback

    trainer.remove_callback(PrinterCallback)
    trainer.train()
    if kept:
        whole.load_state_dict(kept, strict=False)
    return pd.DataFrame(history), int(best["epoch"])


def _trainable(whole: SentenceTransformer) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in whole.named_parameters() if p.requires_grad}


def _dev(judge: ScoredPairs | None, whole: SentenceTransformer) -> float:
    return float("nan") if judge is None else judge.spearman(whole)


def _examples(corpus: Corpus) -> Any:
    """The corpus as a data set with a column a side; groups with an empty text are left out."""
    from datasets import Dataset

    size = 3 if "triplet" in corpus.rows else 2 if corpus.is_pairs else 1
    texts = np.array(corpus.texts, dtype=object).reshape(-1, size)
    texts = texts[~corpus.rows["empty"].to_numpy(dtype=bool).reshape(-1, size).any(axis=1)]
    if len(texts) < FEWEST:
        raise CorpusError(
            f"{corpus.name} has {count_of(len(texts), 'example')} without an empty text: at least {FEWEST} "
            "are needed, and thousands to learn anything"
        )
    columns = dict(zip(("anchor", "positive", "negative"), texts.T.tolist(), strict=False))
    return Dataset.from_dict(columns if size > 1 else columns | {"positive": columns["anchor"]})


def _check_reload(whole: SentenceTransformer, folder: Path) -> None:
    """Refuse a folder that does not give the trained model's vectors.

    Raises:
        ModelError: it does not.
    """
    from sentence_transformers import SentenceTransformer

    device = str(whole.device)
    again = SentenceTransformer(str(folder), device=device, trust_remote_code=True, local_files_only=True)
    expected, found = (one.encode(list(TEXTS), show_progress_bar=False) for one in (whole, again))
    error = float(np.abs(found - expected).max() / np.abs(expected).max())
    if not error <= _TOLERANCE:
        raise ModelError(f"the trained folder would give other vectors than the model (off by {error:.1e})")


def _card(trained: Trained, name: str) -> str:
    design, history = trained.design, trained.history
    kept = history.iloc[trained.best_epoch]
    how = (
        f"LoRA (rank {design.lora_rank}, alpha {design.lora_alpha}), merged"
        if design.lora_rank
        else "all weights"
    )
    lines = [
        "---", "library_name: sentence-transformers", "pipeline_tag: sentence-similarity", "tags:",
        "- sentence-transformers", "- layerscope", "---", "", f"# {name}, {design.name}", "",
        f"{name}, trained by layerscope: {design.description}. It needs layerscope to be installed.", "",
        "```python", "from sentence_transformers import SentenceTransformer", "",
        f'model = SentenceTransformer("{trained.path.name}", trust_remote_code=True)', "```", "",
        "## How it was trained", "",
        f"- {count_of(trained.n_examples, 'example')} an epoch, {len(history) - 1} epochs, epoch "
        f"{trained.best_epoch} kept",
        f"- {how}; {trained.trainable:,} trained parameters",
        f"- loss of the last epoch {history['loss'].iloc[-1]:.4f}",
    ]  # fmt: skip
    if np.isfinite(kept["dev"]):
        lines.append(
            f"- Spearman on the dev set {kept['dev']:.4f}, before training {history['dev'].iloc[0]:.4f}"
        )
    return "\n".join(lines) + "\n"
