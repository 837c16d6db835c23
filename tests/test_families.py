"""Layers are read right in every family, and models that cannot be read right are refused by name."""

import pytest
import torch
import transformers as hf

from layerscope.backbone import Backbone
from layerscope.errors import LayerscopeError, ModelError, UsageError
from layerscope.extraction import extract
from tests.families import FAMILIES, WIDTH, WORDS, read
from tests.tiny import TEXTS, make_model, make_tokenizer


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_layers_are_those_of_transformers_alone_and_in_a_batch(family):
    reading = read(family)
    assert reading.difference < 1e-5
    assert reading.in_a_batch < 1e-4
    names = ["embed", *(f"block.{k}" for k in range(1, family.blocks + 1))]
    assert reading.layers == names + (["norm"] if family.final_norm else [])


def test_a_cache_of_a_decoder_says_so(tmp_path):
    family = next(family for family in FAMILIES if family.name == "BART, decoder")
    model, tokenizer = family.model(), make_tokenizer()
    decoder = extract(model, TEXTS, path=tmp_path / "decoder", tokenizer=tokenizer, part="decoder")
    encoder = extract(model, TEXTS, path=tmp_path / "encoder", tokenizer=tokenizer)
    assert decoder.model.endswith("(decoder)")
    assert (decoder.layers[-1], encoder.layers[-1]) == ("block.3", "block.4")
    with pytest.raises(LayerscopeError, match="another"):
        extract(model, TEXTS, path=tmp_path / "decoder", tokenizer=tokenizer)
    with pytest.raises(UsageError, match="--part decoder: BertModel is no encoder-decoder"):
        extract(make_model("bert"), TEXTS, path=tmp_path / "c", tokenizer=tokenizer, part="decoder")
    with pytest.raises(UsageError, match="--part middle: choose encoder or decoder"):
        extract(model, TEXTS, path=tmp_path / "c", tokenizer=tokenizer, part="middle")


SMALL = {
    "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 64,
}  # fmt: skip
REFUSED = {
    "token first": (
        lambda: hf.XLNetModel(
            hf.XLNetConfig(vocab_size=WORDS, d_model=WIDTH, n_layer=2, n_head=4, d_inner=48)
        ),
        r"XLNetModel: what the first block receives has the shape \(8, 2, 32\) for 2 texts of 8 tokens",
    ),
    "shorter inside": (
        lambda: hf.CanineModel(
            hf.CanineConfig(**SMALL, num_hash_functions=4, num_hash_buckets=64, local_transformer_stride=8)
        ),
        r"CanineModel: what the first block receives has the shape \(2, 2, 32\)",
    ),
    "blocks of blocks": (
        lambda: hf.FunnelModel(
            hf.FunnelConfig(
                vocab_size=WORDS, d_model=WIDTH, block_sizes=[2, 2], n_head=4, d_head=8, d_inner=48
            )
        ),
        r"FunnelModel .*candidates: encoder.blocks \(2\).*--blocks PATH",
    ),
    "fails": (
        lambda: hf.NystromformerModel(
            hf.NystromformerConfig(**SMALL, vocab_size=WORDS, segment_means_seq_len=24, num_landmarks=3)
        ),
        "NystromformerModel cannot run 2 texts of 8 tokens .*: it is of no kind that layerscope knows",
    ),
}


@pytest.mark.parametrize(("model", "says"), REFUSED.values(), ids=REFUSED)
def test_models_that_cannot_be_pooled_are_refused_by_name(model, says):
    torch.manual_seed(0)
    with pytest.raises(ModelError, match=says):
        Backbone(model())
