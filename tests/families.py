"""A tiny random model of every family that layerscope promises to read right, built from its config."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers as hf

from layerscope.backbone import Backbone
from layerscope.models import without_head

WORDS, WIDTH, BLOCKS, POSITIONS = 64, 32, 4, 64
FIRST_WORD = 5  # ids below are special in one family or another

_PLAIN = {
    "vocab_size": WORDS, "hidden_size": WIDTH, "num_hidden_layers": BLOCKS, "num_attention_heads": 4,
    "intermediate_size": 48, "max_position_embeddings": POSITIONS,
}  # fmt: skip
_GROUPED = {**_PLAIN, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_GEMMA = {**_GROUPED, "head_dim": 8, "sliding_window": 4}
_GPT2 = {
    "vocab_size": WORDS, "n_embd": WIDTH, "n_layer": BLOCKS, "n_head": 4, "n_positions": POSITIONS,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_MAMBA = {"vocab_size": WORDS, "hidden_size": WIDTH, "num_hidden_layers": BLOCKS, "state_size": 4}
_OPT = {
    "vocab_size": WORDS, "hidden_size": WIDTH, "num_hidden_layers": BLOCKS, "num_attention_heads": 4,
    "ffn_dim": 48, "max_position_embeddings": POSITIONS, "word_embed_proj_dim": WIDTH,
}  # fmt: skip
_DEBERTA = {
    **_PLAIN, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8,
    "norm_rel_ebd": "layer_norm", "share_att_key": True, "position_biased_input": False, "type_vocab_size": 0,
}  # fmt: skip
_BART = {
    "vocab_size": WORDS, "d_model": WIDTH, "encoder_layers": BLOCKS, "decoder_layers": 3,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
    "max_position_embeddings": POSITIONS,
}  # fmt: skip
_T5 = {
    "vocab_size": WORDS, "d_model": WIDTH, "d_kv": 8, "d_ff": 48, "num_layers": BLOCKS,
    "num_decoder_layers": 3, "num_heads": 4,
}  # fmt: skip


@dataclass(frozen=True)
class Family:
    """One family, and what is known of its models.

    Attributes:
        name: as people say it.
        config: makes the configuration.
        final_norm: whether a norm follows the last block.
        lists_embedding: whether ``hidden_states`` begins with what the first block receives.
        part: of an encoder-decoder, ``encoder`` or ``decoder``.
        blocks: how many run.
    """

    name: str
    config: Callable[..., Any]
    options: dict[str, Any] = field(default_factory=dict)
    final_norm: bool = False
    lists_embedding: bool = True
    part: str = "encoder"
    blocks: int = BLOCKS

    def model(self, seed: int = 0) -> Any:
        """A random model, its weights large enough that layers differ."""
        torch.manual_seed(seed)
        model = hf.AutoModel.from_config(self.config(**self.options)).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.mul_(3.0)
        return model


FAMILIES: tuple[Family, ...] = (
    Family("BERT", hf.BertConfig, _PLAIN),
    Family("RoBERTa", hf.RobertaConfig, {**_PLAIN, "pad_token_id": 1}),
    Family(
        "DistilBERT", hf.DistilBertConfig,
        {"vocab_size": WORDS, "dim": WIDTH, "n_layers": BLOCKS, "n_heads": 4, "hidden_dim": 48,
         "max_position_embeddings": POSITIONS},
    ),
    Family("ALBERT", hf.AlbertConfig, {**_PLAIN, "embedding_size": 16}),
    Family("ELECTRA", hf.ElectraConfig, {**_PLAIN, "embedding_size": 16}),
    Family("DeBERTa-v2", hf.DebertaV2Config, _DEBERTA),
    Family("MPNet", hf.MPNetConfig, {**_PLAIN, "pad_token_id": 1}),
    Family(
        "ModernBERT", hf.ModernBertConfig,
        {**_PLAIN, "global_attn_every_n_layers": 3, "local_attention": 8, "pad_token_id": 0,
         "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2},
        final_norm=True,
    ),
    Family("GPT-2", hf.GPT2Config, _GPT2, final_norm=True),
    Family("GPT-NeoX, Pythia", hf.GPTNeoXConfig, _PLAIN, final_norm=True),
    Family("OPT", hf.OPTConfig, _OPT, final_norm=True),
    Family("Llama, SmolLM", hf.LlamaConfig, _GROUPED, final_norm=True),
    Family("Mistral", hf.MistralConfig, {**_GROUPED, "sliding_window": 4}, final_norm=True),
    Family("Qwen2", hf.Qwen2Config, _GROUPED, final_norm=True),
    Family("Qwen3", hf.Qwen3Config, {**_GROUPED, "head_dim": 8}, final_norm=True),
    Family("Gemma 2", hf.Gemma2Config, _GEMMA, final_norm=True),
    Family("Gemma 3", hf.Gemma3TextConfig, _GEMMA, final_norm=True),
    Family("Phi", hf.PhiConfig, _PLAIN, final_norm=True),
    Family("Phi-3", hf.Phi3Config, _GROUPED, final_norm=True),
    Family("Mamba", hf.MambaConfig, _MAMBA, final_norm=True, lists_embedding=False),
    Family(
        "Mamba-2", hf.Mamba2Config,
        {**_MAMBA, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 8, "pad_token_id": 0,
         "bos_token_id": 1, "eos_token_id": 2},
        final_norm=True, lists_embedding=False,
    ),
    Family("T5, encoder", hf.T5Config, _T5, final_norm=True),
    Family("T5, decoder", hf.T5Config, _T5, final_norm=True, part="decoder", blocks=3),
    Family("BART, encoder", hf.BartConfig, _BART),
    Family("BART, decoder", hf.BartConfig, _BART, part="decoder", blocks=3),
)  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """How the layers that layerscope captures compare with what transformers says they are.

    Attributes:
        blocks: module path of the block list.
        final_norm: module path of the final norm, or ``None``.
        layers: names, in order.
        difference: the largest difference to ``hidden_states``, over the largest entry of the layer.
        in_a_batch: the largest difference that a longer neighbour and padding make, likewise.
    """

    blocks: str
    final_norm: str | None
    layers: list[str]
    difference: float
    in_a_batch: float


def read(family: Family) -> Reading:
    """Capture every layer of a random model, alone and in a padded batch, and compare."""
    whole = family.model()
    backbone = Backbone(without_head(whole, family.part))
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(FIRST_WORD, WORDS, (1, 9), generator=generator)
    alone = _capture(backbone, ids, torch.ones_like(ids, dtype=torch.bool))
    padded = torch.zeros((2, 14), dtype=torch.int64)
    padded[0, :9], padded[1] = ids, torch.randint(FIRST_WORD, WORDS, (14,), generator=generator)
    real = torch.ones_like(padded, dtype=torch.bool)
    real[0, 9:] = False
    together = _capture(backbone, padded, real)
    expected = _hidden_states(family, whole, ids)
    found = [name for name in alone if name != f"block.{family.blocks}" or "norm" not in alone]
    if not family.lists_embedding:  # block.k stands where others have block.k-1, and nothing is before it
        found = [name for name in alone if name != "embed"]
    assert len(found) == len(expected)
    return Reading(
        backbone.structure.blocks_path,
        backbone.structure.norm_path,
        list(alone),
        max(_distance(alone[name], states) for name, states in zip(found, expected, strict=True)),
        max(_distance(alone[name], together[name][:1, :9]) for name in alone),
    )


def _capture(backbone: Backbone, ids: torch.Tensor, real: torch.Tensor) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    backbone.run(
        ids, real, backbone.layers("all"), lambda layer, states: found.update({layer.name: states.clone()})
    )
    return found


def _hidden_states(family: Family, whole: Any, ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
    with torch.inference_mode():
        if family.part == "decoder":
            output = whole(input_ids=ids, decoder_input_ids=ids, output_hidden_states=True)
            return tuple(output.decoder_hidden_states)
        return tuple(without_head(whole)(input_ids=ids, output_hidden_states=True).hidden_states)


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).abs().max() / one.abs().max())
