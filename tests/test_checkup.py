"""The doctor tells the truth about good models, and about models broken on purpose."""

import json

import pytest
import torch
import transformers as hf

from layerscope.checkup import TEXTS, doctor
from layerscope.errors import UsageError
from tests.families import FAMILIES
from tests.tiny import TEXTS as TINY_TEXTS
from tests.tiny import make_model, make_tokenizer


def checks_of(model, **options):
    options.setdefault("tokenizer", make_tokenizer())
    return {check.name: check for check in doctor(model, TINY_TEXTS, **options)}


def not_passed(checks):
    return {name: check.status for name, check in checks.items() if check.status != "pass"}


@pytest.mark.parametrize("family", ["bert", "gpt2", "gpt_neox", "llama"])
def test_a_sound_model_passes(family):
    checks = checks_of(make_model(family))
    assert not_passed(checks) == {}
    assert "4 blocks" in checks["layers"].says
    assert "[CLS] and ends with [SEP]" in checks["special tokens"].says
    assert checks["length limit"].says.startswith("64 tokens")


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_no_family_is_called_broken(family):
    checks = checks_of(family.model(), part=family.part)
    assert "fail" not in not_passed(checks).values()
    assert checks["against transformers"].status == "pass"


def test_minilm_passes(minilm):
    checks = {check.name: check for check in doctor(minilm)}
    assert not_passed(checks) == {}
    assert "left padding changes states" in checks["padding side"].says


def test_smollm2_has_a_sink_and_outlier_dimensions(smollm2):
    checks = {check.name: check for check in doctor(smollm2, TEXTS[:4])}
    assert not_passed(checks) == {"first token": "warn", "outlier dimensions": "warn"}
    assert "use mean-nosink" in checks["first token"].says
    assert "norm; block.30 is before it" in checks["final norm"].says


def test_a_layer_of_nan_is_named():
    model = make_model("bert")
    with torch.no_grad():
        model.encoder.layer[2].output.dense.weight[0, 0] = torch.nan
    checks = checks_of(model)
    assert checks["finite"].status == "fail"
    assert checks["finite"].says == "NaN or infinity at block.3, block.4"
    assert not_passed(checks) == {"finite": "fail"}


def test_a_constant_layer_is_named():
    model = make_model("llama")

    def flatten(_, __, output):
        return torch.ones_like(output)

    model.layers[1].register_forward_hook(flatten)
    checks = checks_of(model)
    assert checks["constant"].status == "fail"
    assert "at block.2" in checks["constant"].says


def test_left_padding_with_absolute_positions_is_told():
    checks = checks_of(make_model("gpt2"), tokenizer=make_tokenizer(padding_side="left"))
    assert not_passed(checks) == {"padding side": "warn"}
    assert "the tokenizer pads on the left" in checks["padding side"].says
    assert not_passed(checks_of(make_model("llama"), tokenizer=make_tokenizer(padding_side="left"))) == {}


def test_a_model_that_mixes_texts_of_a_batch_fails():
    model = make_model("bert")
    model.encoder.layer[1].register_forward_hook(lambda _, __, output: output + output.mean(dim=0))
    checks = checks_of(model)
    assert checks["batch and neighbours"].status == "fail"
    assert "block." in checks["batch and neighbours"].says


def test_blocks_that_cannot_be_found_are_a_failed_check():
    config = hf.XLMConfig(vocab_size=64, emb_dim=32, n_layers=2, n_heads=4, max_position_embeddings=64)
    (check,) = doctor(hf.XLMModel(config), TINY_TEXTS, tokenizer=make_tokenizer())
    assert (check.name, check.status) == ("layers", "fail")
    assert "--blocks PATH" in check.says


def test_a_doubled_beginning_is_told():
    tokenizer = make_tokenizer()
    core = json.loads(tokenizer.backend_tokenizer.to_str())
    core["post_processor"]["single"].insert(0, core["post_processor"]["single"][0])
    tokenizer._tokenizer = type(tokenizer.backend_tokenizer).from_str(json.dumps(core))
    checks = checks_of(make_model("bert"), tokenizer=tokenizer)
    assert checks["special tokens"].status == "warn"
    assert "[CLS] [CLS]" in checks["special tokens"].says


def test_unknown_words_and_too_few_texts():
    words = [f"unheard{number}" for number in range(4)]
    checks = {check.name: check for check in doctor(make_model("bert"), words, tokenizer=make_tokenizer())}
    assert checks["vocabulary"].status == "warn"
    with pytest.raises(UsageError, match="at least two different"):
        doctor(make_model("bert"), ["same", "same"], tokenizer=make_tokenizer())
