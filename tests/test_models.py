"""Knowing which model it is, and refusing what is not whole."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoModel

from layerscope.errors import ModelError, UsageError
from layerscope.extraction import extract
from layerscope.models import find_model, load_model
from tests.tiny import TEXTS, make_model, make_tokenizer


@pytest.fixture
def folder(tmp_path):
    make_model("bert").save_pretrained(tmp_path / "m")
    make_tokenizer().save_pretrained(tmp_path / "m")
    return tmp_path / "m"


def test_identity_follows_the_content_not_the_path(folder, tmp_path):
    first = find_model(folder).identity
    folder.rename(tmp_path / "elsewhere")
    assert find_model(tmp_path / "elsewhere").identity == first
    config = tmp_path / "elsewhere" / "config.json"
    config.write_text(config.read_text().replace('"layer_norm_eps": 1e-12', '"layer_norm_eps": 1e-5'))
    assert find_model(tmp_path / "elsewhere").identity != first


def test_identity_of_a_loaded_model_follows_its_weights():
    one, same, other = make_model("bert"), make_model("bert"), make_model("bert", seed=1)
    assert find_model(one).identity == find_model(same).identity != find_model(other).identity


def test_maximum_length_is_the_least_of_all_limits(folder):
    source = find_model(folder)
    assert load_model(source).max_length == 64
    assert load_model(source, max_length=10).max_length == 10
    assert load_model(source, max_length=1000).max_length == 64
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 32}))
    assert load_model(find_model(folder)).max_length == 32


def test_positions_that_start_after_the_padding_index_are_subtracted(tmp_path):
    from transformers import RobertaConfig, RobertaModel

    from tests.tiny import SIZE

    model = RobertaModel(
        RobertaConfig(**SIZE, num_hidden_layers=2, max_position_embeddings=34, pad_token_id=1)
    )
    loaded = load_model(find_model(model), model, tokenizer=make_tokenizer())
    assert loaded.max_length == 32


def test_a_head_is_taken_off():
    from transformers import BertForSequenceClassification

    from tests.tiny import CONFIGS

    model = BertForSequenceClassification(CONFIGS["bert"])
    assert load_model(find_model(model), model, tokenizer=make_tokenizer()).model is model.bert


def test_refusals(tmp_path, folder):
    with pytest.raises(ModelError, match="no model folder at"):
        find_model(tmp_path / "nowhere")
    (tmp_path / "x.bin").write_bytes(b"")
    with pytest.raises(ModelError, match="is a file"):
        find_model(tmp_path / "x.bin")
    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match=r"no config\.json"):
        find_model(folder)
    with pytest.raises(UsageError, match="not int"):
        find_model(3)


def test_pickled_weights_need_the_flag(folder):
    import torch
    from safetensors.torch import load_file

    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="cannot load the model"):
        load_model(find_model(folder))
    assert load_model(find_model(folder), allow_pickle=True).dtype == "float32"


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama"])
def test_a_folder_without_tokenizer_files_is_refused(family, tmp_path):
    make_model(family).save_pretrained(tmp_path / "m")
    with pytest.raises(ModelError, match=r"the model's own tokenizer \(tokenizer\.json, .* pass tokenizer="):
        load_model(find_model(tmp_path / "m"))


def test_a_tokenizer_of_special_tokens_alone_is_refused_however_small_the_model():
    from transformers import BertConfig, BertModel, BertTokenizer

    from tests.tiny import SIZE

    small = BertModel(BertConfig(**SIZE | {"vocab_size": 8}, num_hidden_layers=1))
    with pytest.raises(ModelError, match="the tokenizer knows no words at all"):
        load_model(find_model(small), small, tokenizer=BertTokenizer())


def test_a_revision_of_a_loaded_model_is_refused():
    with pytest.raises(UsageError, match="this one is loaded already"):
        find_model(make_model("bert"), revision="main")
    with pytest.raises(UsageError, match="revision is 3"):
        find_model("owner/name", revision=3)


def test_a_tokenizer_of_another_model_is_refused():
    from transformers import BertConfig, BertModel

    from tests.tiny import SIZE

    larger = BertModel(BertConfig(**SIZE | {"vocab_size": 100}, num_hidden_layers=1))
    with pytest.raises(ModelError, match="the tokenizer has 36 tokens and the model 100"):
        load_model(find_model(larger), larger, tokenizer=make_tokenizer())


def test_token_ids_beyond_the_model_are_told(tmp_path):
    from transformers import BertConfig, BertModel

    from layerscope.extraction import extract
    from tests.tiny import SIZE

    smaller = BertModel(BertConfig(**SIZE | {"vocab_size": 30}, num_hidden_layers=1))
    with pytest.raises(ModelError, match=r"gives token 3\d, and the model knows 30 tokens"):
        extract(smaller, ["the cat"], path=tmp_path / "c", tokenizer=make_tokenizer())
    assert not (tmp_path / "c").exists()


@pytest.fixture
def adapter(folder, tmp_path):
    peft = pytest.importorskip("peft")
    base = AutoModel.from_pretrained(folder)
    adapted = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["query", "value"])).eval()
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.fill_(0.5)
    adapted.save_pretrained(tmp_path / "adapter")
    make_tokenizer().save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter", adapted


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_an_adapter_is_loaded_onto_its_base_model(adapter, folder, tmp_path):
    path, adapted = adapter
    cache = extract(path, TEXTS[:2], path=tmp_path / "c", pooling="last")
    plain = extract(folder, TEXTS[:2], path=tmp_path / "plain", pooling="last")
    ids = torch.tensor([make_tokenizer()(TEXTS[0])["input_ids"]])
    with torch.inference_mode():
        expected = adapted(input_ids=ids, output_hidden_states=True).hidden_states
    for layer, states in zip(cache.layers, expected, strict=True):
        np.testing.assert_allclose(cache.layer(layer)[0], states[0, -1], rtol=1e-4, atol=1e-5)
    assert not np.allclose(cache.layer("block.2"), plain.layer("block.2"))


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_an_adapter_is_another_model_when_its_base_is(adapter, folder):
    path, _ = adapter
    first = find_model(path).identity
    make_model("bert", seed=1).save_pretrained(folder)
    assert find_model(path).identity != first
    folder.rename(folder.with_name("gone"))
    with pytest.raises(ModelError, match=r"the adapter .* needs its base model: no model folder at"):
        find_model(path)


def test_code_that_comes_with_a_model_runs_only_where_it_is_trusted(folder):
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {
        "AutoConfig": "modeling_own.OwnConfig", "AutoModel": "modeling_own.Own",
    }}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "modeling_own.py").write_text(
        "from transformers import BertConfig, BertModel\n\n"
        "class OwnConfig(BertConfig):\n    model_type = 'own'\n\n"
        "class Own(BertModel):\n    config_class = OwnConfig\n"
    )
    with pytest.raises(ModelError, match="--trust-remote-code"):
        load_model(find_model(folder))
    loaded = load_model(find_model(folder), trust_remote_code=True)
    assert type(loaded.model).__name__ == "Own"
    before = find_model(folder).identity
    with (folder / "modeling_own.py").open("a") as file:
        file.write("\n# changed\n")
    assert find_model(folder).identity != before


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.filterwarnings("ignore:MatMul8bitLt")
def test_a_quantised_folder_is_read_layer_by_layer(bits, tmp_path):
    pytest.importorskip("bitsandbytes")
    from transformers import BitsAndBytesConfig, LlamaConfig, LlamaModel

    torch.manual_seed(0)
    sizes = {"hidden_size": 128, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 3}
    tokenizer = make_tokenizer()
    LlamaModel(LlamaConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(tmp_path / "m")
    config = BitsAndBytesConfig(load_in_8bit=bits == 8, load_in_4bit=bits == 4)
    model = AutoModel.from_pretrained(tmp_path / "m", quantization_config=config, device_map="cpu")
    model.save_pretrained(tmp_path / "q")
    for folder in ("m", "q"):
        tokenizer.save_pretrained(tmp_path / folder)
    cache = extract(tmp_path / "q", ["the cat sat"], path=tmp_path / "c", pooling="last")
    ids = torch.tensor([tokenizer("the cat sat")["input_ids"]])
    with torch.no_grad():
        states = model.eval()(ids, output_hidden_states=True).hidden_states
    whole = extract(tmp_path / "m", ["the cat sat"], path=tmp_path / "d", pooling="last")
    assert cache.manifest["identity"]["model"] != whole.manifest["identity"]["model"]
    for layer, state in zip(["embed", "block.1", "block.2"], states, strict=False):
        np.testing.assert_allclose(cache.layer(layer)[0], state[0, -1].float().numpy(), rtol=1e-3, atol=1e-3)
        assert np.allclose(cache.layer(layer), whole.layer(layer), atol=0.3)
        assert layer == "embed" or not np.allclose(cache.layer(layer), whole.layer(layer), atol=1e-5)
