"""Training end to end on tiny random models: every design learns, reloads and says what was wrong."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch
from sentence_transformers import SentenceTransformer
from typer.testing import CliRunner

from layerscope.backbone import Backbone
from layerscope.cli.main import app
from layerscope.corpus import read_corpus
from layerscope.errors import CacheError, CorpusError, ModelError, UsageError
from layerscope.exporting.modules import everyone_sees_everyone
from layerscope.training import design_names, find_design, train
from layerscope.training.adapters import add_lora, merge_lora
from layerscope.training.scored_pairs import ScoredPairs
from layerscope.training.significance import compare_trained
from tests.tiny import make_model, make_tokenizer

FIVE = [
    "last-token-causal", "last-layer-causal", "multi-layer-causal", "last-layer-bidirectional",
    "multi-layer-bidirectional",
]  # fmt: skip
LETTERS = list("abcdefghijklmnop")


def triplets(count=48, seed=0):
    """Anchor and positive share three letters, the negative none."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        order = rng.permutation(LETTERS)
        rows.append([" ".join(order[:4]), " ".join([*order[:3], order[4]]), " ".join(order[5:9])])
    return pd.DataFrame(rows, columns=["anchor", "positive", "negative"])


def scored_pairs(count=30):
    table = triplets(count, seed=1)
    alike = table[["anchor", "positive"]].set_axis(["sentence1", "sentence2"], axis=1).assign(score=4.0)
    other = table[["anchor", "negative"]].set_axis(["sentence1", "sentence2"], axis=1).assign(score=1.0)
    return pd.concat([alike, other], ignore_index=True)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "llama"
    make_model("llama").save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


def load(folder):
    return SentenceTransformer(str(folder), device="cpu", trust_remote_code=True, local_files_only=True)


@pytest.mark.parametrize("name", [*FIVE, "layer-attention"])
def test_every_design_learns_and_reloads(name, llama, tmp_path):
    steps = []
    trained = train(
        llama, triplets(), path=tmp_path / "out", design=name, dev=scored_pairs(), epochs=4, batch_size=16,
        learning_rate=3e-3, progress=lambda done, total: steps.append((done, total)),
    )  # fmt: skip
    history = trained.history
    assert history["epoch"].tolist() == [*range(5)]
    assert history["loss"].iloc[-1] < history["loss"].iloc[1]
    assert history["dev"][trained.best_epoch] == history["dev"].max()
    assert steps[-1] == (12, 12)
    assert trained.n_examples == 48
    model = load(trained.path)
    texts = triplets()["anchor"].tolist()
    vectors = model.encode(texts, show_progress_bar=False)
    assert vectors.shape == (48, 32)
    np.testing.assert_allclose(vectors, load(trained.path).encode(texts, show_progress_bar=False), atol=1e-6)
    np.testing.assert_allclose(vectors, model.encode(texts, batch_size=1, show_progress_bar=False), atol=1e-4)
    saved = pd.read_csv(trained.path / "history.csv")
    assert saved["dev"].max() == pytest.approx(history["dev"].max())
    assert not [key for key in model[0].model.state_dict() if "lora" in key]
    assert ScoredPairs(read_corpus(scored_pairs())).spearman(model) == pytest.approx(
        history["dev"].max(), abs=1e-6
    )
    assert "epoch kept" not in (trained.path / "README.md").read_text()
    assert f"epoch {trained.best_epoch} kept" in (trained.path / "README.md").read_text()


def test_the_five_designs_come_along():
    assert set(FIVE) < set(design_names())
    designs = [find_design(name) for name in FIVE]
    assert {(one.attention, one.pooling) for one in designs} == {
        ("own", "last"), ("own", "latent"), ("own", "multi-layer"), ("bidirectional", "latent"),
        ("bidirectional", "multi-layer"),
    }  # fmt: skip
    assert {(one.lora_rank, one.lora_alpha, one.scale) for one in designs} == {(16, 32, 20.0)}


def test_bidirectional_attention_lets_the_first_token_see_the_last():
    model = make_model("llama")
    backbone = Backbone(model)
    [layer] = backbone.layers(["norm"])
    ids = torch.tensor([[5, 6, 7, 8, 0], [5, 6, 7, 9, 0]])
    mask = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 1, 0]])
    own = backbone.states([layer], input_ids=ids, attention_mask=mask, use_cache=False)["norm"]
    torch.testing.assert_close(own[0, 0], own[1, 0])  # causal: the last token is not seen
    both = everyone_sees_everyone(mask, torch.float32)
    free = backbone.states([layer], input_ids=ids, attention_mask=both, use_cache=False)["norm"]
    assert (free[0, 0] - free[1, 0]).abs().max().item() > 1e-3
    ids[:, 4] = 11  # padding is hidden still
    again = backbone.states([layer], input_ids=ids, attention_mask=both, use_cache=False)["norm"]
    torch.testing.assert_close(free[:, :4], again[:, :4])


def test_a_merged_adapter_gives_the_vectors_of_the_adapted_model():
    model = make_model("llama")
    ids = torch.arange(5, 25).reshape(2, 10)
    before = model(input_ids=ids).last_hidden_state
    add_lora(model, 4, 8)
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)
    torch.testing.assert_close(model(input_ids=ids).last_hidden_state, before)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    adapted = model.eval()(input_ids=ids).last_hidden_state
    assert (adapted - before).abs().max().item() > 1e-2
    merge_lora(model)
    torch.testing.assert_close(model(input_ids=ids).last_hidden_state, adapted, atol=1e-4, rtol=1e-4)
    assert not [name for name in model.state_dict() if "lora" in name or "base_layer" in name]


def test_single_texts_are_told_apart_by_dropout(tmp_path):
    """SimCSE: with dropout the two passes differ, so that there is something to learn."""
    model = make_model("bert")
    texts = triplets()["anchor"].tolist()
    trained = train(
        model, texts, tokenizer=make_tokenizer(), path=tmp_path / "out", design="layer-attention", epochs=2,
        batch_size=16, learning_rate=1e-3,
    )  # fmt: skip
    assert trained.history["loss"].iloc[1] > 0.01
    assert trained.best_epoch == 2  # without a dev set the last one is kept
    assert np.isnan(trained.history["dev"]).all()
    assert trained.trainable > sum(p.numel() for p in model.parameters())


def test_the_callers_model_and_draws_are_left_alone(tmp_path):
    model = make_model("llama")
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    before = torch.random.get_rng_state()
    for at in range(2):
        train(
            model, triplets(16), tokenizer=make_tokenizer(), path=tmp_path / f"out{at}", batch_size=8,
            design="last-layer-causal",
        )  # fmt: skip
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())
    texts = triplets()["anchor"].tolist()
    one, two = (load(tmp_path / f"out{at}").encode(texts, show_progress_bar=False) for at in range(2))
    np.testing.assert_allclose(one, two, atol=1e-6)


def test_differences_of_designs_are_tested(llama, tmp_path):
    names = ["last-token-causal", "multi-layer-bidirectional"]
    for name in names:
        epochs = 1 if name == names[0] else 4
        train(
            llama,
            triplets(),
            path=tmp_path / name,
            design=name,
            epochs=epochs,
            batch_size=16,
            learning_rate=3e-3,
        )
    folders = {name: tmp_path / name for name in names}
    table = compare_trained(folders, scored_pairs(), draws=200).set_index("name")
    assert table["score"].between(-1, 1).all()
    difference = table["score"].iloc[1] - table["score"].iloc[0]
    row = table.iloc[1]
    assert row["difference"] == pytest.approx(difference)
    assert row["low"] <= row["difference"] <= row["high"]
    assert 0 < row["p"] <= row["p_holm"] <= 1
    assert np.isnan(table["difference"].iloc[0])
    same = compare_trained({"a": tmp_path / names[0], "b": tmp_path / names[0]}, scored_pairs(), draws=60)
    assert same["difference"].iloc[1] == 0
    with pytest.raises(UsageError, match="two trained folders or more"):
        compare_trained({"a": "x"}, scored_pairs())
    with pytest.raises(UsageError, match="did you mean 'multi-layer-bidirectional'"):
        compare_trained(folders, scored_pairs(), baseline="multi-layer-bidirectionl")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"design": "multi-layer-casual"}, UsageError, "did you mean 'multi-layer-causal'"),
        ({"epochs": 0}, UsageError, "epochs is 0"),
        ({"batch_size": 1}, UsageError, "batch_size is 1"),
        ({"corpus": triplets(3)}, CorpusError, "has 3 examples"),
        ({"dev": triplets(9)}, CorpusError, "holds no pairs with scores"),
        ({"dev": scored_pairs().assign(score=1.0)}, CorpusError, "fewer than two different scores"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(options, error, message, llama, tmp_path):
    corpus = options.pop("corpus", triplets())
    with pytest.raises(error, match=message) as caught:
        train(llama, corpus, path=tmp_path / "out", **options)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_is_refused(llama, tmp_path):
    (tmp_path / "x").touch()
    with pytest.raises(CacheError, match="not an empty folder"):
        train(llama, triplets(), path=tmp_path)


def test_missing_packages_are_named(llama, tmp_path, monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    for package in ("accelerate", "peft"):
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name, *rest, gone=package: None if name == gone else find(name, *rest),
        )
        with pytest.raises(ModelError, match=rf"needs {package}: pip install 'layerscope\[train\]'"):
            train(llama, triplets(), path=tmp_path / "out")


GOOD = {"description": "mine", "attention": "own", "layers": "last", "pooling": "latent"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"atention": "own"}, "did you mean 'attention'"),
        ({"attention": "causal"}, "attention is 'causal'"),
        ({"pooling": "mena"}, "did you mean 'mean'"),
        ({"layers": "all"}, "goes with a mix of layers"),
        ({"pooling": "multi-layer", "layers": "all"}, "multi-layer takes 1 of"),
        ({"pooling": "multi-layer", "token_poolings": ["mean"]}, "goes with a mix of layers"),
        ({"lora_rank": -1}, "lora_rank is -1"),
        ({"scale": "x"}, "scale is 'x'"),
        ({"description": 3}, "'description' is missing or no text"),
    ],
)
def test_design_files_are_checked(change, message, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in (GOOD | change).items()))
    with pytest.raises(UsageError, match=message):
        find_design(file)


def test_a_design_file_of_ones_own(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(
        'description = "mine"\nattention = "own"\nlayers = "last"\npooling = "latent"\n[sizes]\nlatents = 3\n'
    )
    assert find_design(file).sizes == {"latents": 3}
    assert find_design(file).name == "mine"
    file.write_text("description = ")
    with pytest.raises(UsageError, match="not a readable TOML file"):
        find_design(file)


def test_the_train_command(llama, tmp_path):
    file = tmp_path / "t.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in triplets(24).to_dict("records")))
    pairs = tmp_path / "dev.csv"
    scored_pairs().to_csv(pairs, index=False)
    words = [
        "train",
        llama,
        file,
        "--design",
        "last-layer-bidirectional",
        "--dev",
        pairs,
        "--epochs",
        "2",
        "--batch-size",
        "8",
        "-o",
        tmp_path / "out",
    ]
    done = CliRunner().invoke(app, list(map(str, words)), standalone_mode=False)
    assert done.exception is None, done.exception
    assert "latents attend over the tokens of the last layer, bidirectional attention" in done.output
    assert f"wrote {tmp_path / 'out'}" in done.output


def test_an_interrupted_training_leaves_nothing(llama, tmp_path):
    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(llama, triplets(), path=tmp_path / "out", batch_size=16, progress=stop)
    assert list(tmp_path.iterdir()) == []
