"""A cached row is the text's own hidden states, whatever the batch, the neighbours and the padding."""

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from layerscope.analysis import analyze
from layerscope.cache import LayerCache
from layerscope.errors import CacheError, CorpusError, ModelError, UsageError
from layerscope.extraction import Listener, extract
from layerscope.extraction import job as job_module
from layerscope.metrics.prompt_entropy import prompt_entropy as our_prompt_entropy
from layerscope.metrics.published.curvature import curvature
from layerscope.metrics.published.entropy import prompt_entropy
from layerscope.models import find_model, load_model
from layerscope.tensors import read_tensor
from tests.tiny import CONFIGS, TEXTS, make_model, make_tokenizer

POOLINGS = ["mean", "last", "first", "max", "weighted-mean"]


def alone(model, tokenizer, text: str) -> list[np.ndarray]:
    """Hidden states of one text by itself, unpadded, (t, d) a layer."""
    ids = tokenizer(text, truncation=True, max_length=64)["input_ids"]
    with torch.inference_mode():
        states = model(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states
    return [layer[0].double().numpy() for layer in states]


def pooled(states: np.ndarray) -> dict[str, np.ndarray]:
    weights = np.arange(1, len(states) + 1)[:, None]
    return {
        "mean": states.mean(0),
        "last": states[-1],
        "first": states[0],
        "max": states.max(0),
        "weighted-mean": (states * weights).sum(0) / weights.sum(),
    }


def assert_rows_match(cache: LayerCache, model, tokenizer, texts, tolerance=1e-5) -> None:
    has_norm = "norm" in cache.layers
    n_blocks = cache.manifest["model"]["n_blocks"]
    names = ["embed", *(f"block.{k}" for k in range(1, n_blocks))] + [
        "norm" if has_norm else f"block.{n_blocks}"
    ]
    for row, text in enumerate(texts):
        states = alone(model, tokenizer, text)
        assert len(states) == len(names)
        for name, layer in zip(names, states, strict=True):
            for pooling, expected in pooled(layer).items():
                if pooling in cache.poolings:
                    found = cache.layer(name, pooling)[row]
                    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
                    assert error < tolerance, (row, name, pooling, error)


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("padding_side", ["left", "right"])
@pytest.mark.parametrize("batch_tokens", [1, 60, 4096])
def test_rows_equal_hidden_states_of_the_text_alone(family, padding_side, batch_tokens, tmp_path):
    model, tokenizer = make_model(family), make_tokenizer(padding_side)
    cache = extract(
        model, TEXTS, path=tmp_path / "c", tokenizer=tokenizer, pooling=POOLINGS, batch_tokens=batch_tokens
    )
    assert_rows_match(cache, model, tokenizer, TEXTS)


def test_neighbours_do_not_change_a_row(tmp_path):
    model, tokenizer = make_model("gpt2"), make_tokenizer()
    together = extract(model, TEXTS, path=tmp_path / "a", tokenizer=tokenizer)
    alone_ = extract(model, [TEXTS[3]], path=tmp_path / "b", tokenizer=tokenizer)
    np.testing.assert_allclose(together.layer("norm")[3], alone_.layer("norm")[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("family", CONFIGS)
def test_model_and_tokenizer_are_left_as_they_were(family, tmp_path):
    model, tokenizer = make_model(family).train(), make_tokenizer("left")
    tokenizer("warm up", truncation=True, max_length=5, padding="max_length")
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    flags = [module.training for module in model.modules()]
    config, backend = model.config.to_dict(), tokenizer.backend_tokenizer.to_str()
    attributes = {name for module in model.modules() for name in vars(module)}
    extract(model, TEXTS, path=tmp_path / "c", tokenizer=tokenizer, views=1)
    assert model.config.to_dict() == config
    assert [module.training for module in model.modules()] == flags
    assert {name for module in model.modules() for name in vars(module)} == attributes
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert all(torch.equal(weights[name], tensor) for name, tensor in model.state_dict().items())
    assert tokenizer.backend_tokenizer.to_str() == backend
    assert tokenizer.padding_side == "left"


def test_minilm_rows_equal_hidden_states(minilm, tmp_path):
    texts = ["A man is playing a guitar.", "Hello", "The quick brown fox jumps over the lazy dog " * 3, "a b"]
    loaded = load_model(find_model(minilm))
    cache = extract(minilm, texts, path=tmp_path / "c", pooling=POOLINGS, batch_tokens=200)
    assert cache.layers == ["embed", *(f"block.{k}" for k in range(1, 7))]
    assert_rows_match(cache, loaded.model.eval(), loaded.tokenizer, texts)


@pytest.mark.smol
def test_smollm2_rows_equal_hidden_states_and_block_30_is_not_norm(smollm2, tmp_path):
    texts = ["A man is playing a guitar.", "Hello", "The stock market fell sharply on Monday, analysts said."]
    loaded = load_model(find_model(smollm2))
    cache = extract(smollm2, texts, path=tmp_path / "c", pooling=POOLINGS, token_metrics=())
    assert cache.layers[-2:] == ["block.30", "norm"]
    assert_rows_match(cache, loaded.model.eval(), loaded.tokenizer, texts)
    assert not np.allclose(cache.layer("block.30"), cache.layer("norm"))


@pytest.mark.smol
def test_gguf_file_gives_the_same_rows_as_its_safetensors_copy(smollm2, smollm2_gguf, tmp_path):
    texts = ["A man is playing a guitar."]
    options = {"layers": "0,1,norm", "token_metrics": (), "pooling": "mean"}
    one = extract(smollm2_gguf, texts, path=tmp_path / "gguf", **options)
    other = extract(smollm2, texts, path=tmp_path / "folder", **options)
    np.testing.assert_allclose(one.layer("norm"), other.layer("norm"), rtol=1e-6)


@pytest.mark.smol
def test_sinks_are_found_and_the_published_table_holds(smollm2, shared_sts, tmp_path):
    """The first 60 pairs are enough to see it: layer 14 is useless with the sink and good without."""
    from layerscope.evaluate.sts import evaluate_sts

    cache = extract(
        smollm2,
        shared_sts / "stsbenchmark-test.tsv",
        path=tmp_path / "c",
        limit=60,
        layers="block.14",
        token_metrics=(),
    )
    assert cache.poolings == ["mean", "mean-nosink"]
    assert cache.manifest["sinks"]["positions"] == [0]
    assert cache.manifest["sinks"]["largest_ratio"] > 50
    assert (cache.rows["sink_tokens"] == 1).all()
    scores = evaluate_sts(cache, draws=0).set_index(["pooling", "variant", "metric"])["score"]
    assert scores["mean-nosink", "raw", "cosine_spearman"] > scores["mean", "raw", "cosine_spearman"] + 0.2
    dropped = extract(
        smollm2,
        shared_sts / "stsbenchmark-test.tsv",
        path=tmp_path / "d",
        limit=60,
        layers="block.14",
        token_metrics=(),
        drop_first_token=True,
    )
    assert dropped.poolings == ["mean"]
    np.testing.assert_allclose(dropped.layer("block.14"), cache.layer("block.14", "mean-nosink"), rtol=1e-5)


def test_layer_subset_equals_the_full_pass(tmp_path):
    model, tokenizer = make_model("llama"), make_tokenizer()
    full = extract(model, TEXTS, path=tmp_path / "full", tokenizer=tokenizer)
    part = extract(model, TEXTS, path=tmp_path / "part", tokenizer=tokenizer, layers="1,2")
    assert part.layers == ["block.1", "block.2"]
    np.testing.assert_array_equal(part.layer("block.2"), full.layer("block.2"))


def test_duplicates_run_once_and_rows_stay_in_order(tmp_path, monkeypatch):
    texts = [TEXTS[0], TEXTS[1], TEXTS[0], TEXTS[2], TEXTS[1], TEXTS[0]]
    model, tokenizer = make_model("bert"), make_tokenizer()
    monkeypatch.setattr(job_module, "SHARD_BYTES", 2 * 5 * 32 * 4 + 200)
    ran = []
    model.register_forward_pre_hook(
        lambda _, args, kwargs: ran.append(kwargs["input_ids"].shape[0]), with_kwargs=True
    )
    cache = extract(model, texts, path=tmp_path / "c", tokenizer=tokenizer, pooling="mean", keep_tokens=True)
    assert len(cache.manifest["shards"]) > 1
    assert sum(ran[1:]) == 3  # the first run finds the structure, then each distinct text runs once
    assert cache.rows["duplicate_of"].tolist() == [pd.NA, pd.NA, 0, pd.NA, 1, 0]
    assert_rows_match(cache, model, tokenizer, texts)
    values, offsets = cache.tokens("block.2")
    for row, text in enumerate(texts):
        expected = alone(model, tokenizer, text)[2]
        np.testing.assert_allclose(values[offsets[row] : offsets[row + 1]], expected, rtol=1e-4, atol=1e-5)
    metrics = cache.token_metrics.query("layer_name == 'block.3'").set_index("row")["prompt_entropy"]
    assert metrics[0] == metrics[2] == metrics[5] != metrics[1]


def test_prompt_vectors_bring_the_token_metrics_of_the_published_recipe(tmp_path):
    model, tokenizer = make_model("bert"), make_tokenizer()
    texts = [*TEXTS, ""]
    options = {"tokenizer": tokenizer, "pooling": ["mean", "prompt-vector"]}
    cache = extract(model, texts, path=tmp_path / "c", keep_tokens=True, **options)
    frame = analyze(cache, recipe="published", draws=5)
    for metric, function in (("prompt_entropy", prompt_entropy), ("curvature", curvature)):
        found = frame[frame["metric"] == metric].set_index("layer_name")
        for layer in cache.layers:
            states, offsets = cache.tokens(layer)
            expected = [function(states[offsets[row] : offsets[row + 1]]) for row in range(len(TEXTS))]
            assert found["value"][layer] == pytest.approx(np.mean(expected), rel=1e-9)
            assert found["n"][layer] == len(TEXTS)
            assert found["ci_low"][layer] < found["value"][layer] < found["ci_high"][layer]
    none = extract(model, texts, path=tmp_path / "none", token_metrics=(), **options)
    reasons = analyze(none, "curvature", recipe="published")["reason"]
    assert set(reasons) == {"not computed during extraction"}


def test_empty_texts_keep_their_place(tmp_path):
    model, tokenizer = make_model("bert"), make_tokenizer()
    cache = extract(model, [TEXTS[0], " ", TEXTS[1]], path=tmp_path / "c", tokenizer=tokenizer)
    assert cache.rows["empty"].tolist() == [False, True, False]
    assert np.isnan(cache.layer("block.4")[1]).all()
    assert np.isfinite(cache.layer("block.4")[[0, 2]]).all()
    assert cache.rows["nonfinite"].tolist() == ["", "", ""]


def test_a_prompt_changes_the_rows_and_its_tokens_can_stay_out_of_them(tmp_path):
    model, tokenizer = make_model("bert"), make_tokenizer()
    states = alone(model, tokenizer, "on a " + TEXTS[0])[3]
    options = {"tokenizer": tokenizer, "prompt": "on a "}
    kept = extract(model, TEXTS, path=tmp_path / "a", **options)
    dropped = extract(model, TEXTS, path=tmp_path / "b", prompt_tokens="drop", **options)
    np.testing.assert_allclose(kept.layer("block.3")[0], states.mean(0), rtol=1e-4, atol=1e-5)
    expected = np.delete(states, [1, 2], axis=0).mean(0)
    np.testing.assert_allclose(dropped.layer("block.3")[0], expected, rtol=1e-4, atol=1e-5)
    assert (kept.rows["kept_tokens"] - dropped.rows["kept_tokens"]).tolist() == [2] * len(TEXTS)


def test_texts_that_would_be_cut_can_be_an_error(tmp_path):
    model, tokenizer = make_model("bert"), make_tokenizer()
    options = {"tokenizer": tokenizer, "path": tmp_path / "c", "max_length": 9}
    with pytest.raises(CorpusError, match=r"row 2 and 2 more: longer than 9 tokens: .*--on-truncate warn"):
        extract(model, TEXTS, on_truncate="error", **options)
    assert not (tmp_path / "c").exists()
    assert extract(model, TEXTS, **options).rows["truncated"].sum() == 3
    with pytest.raises(CorpusError, match="row 2 and 2 more"):
        extract(model, TEXTS, on_truncate="error", **options)
    with pytest.raises(UsageError, match="--on-truncate cut: choose warn, error or chunk"):
        extract(model, TEXTS, on_truncate="cut", **options)


@pytest.mark.parametrize("batch_tokens", [4096, 10])
def test_long_texts_run_in_pieces_that_are_pooled_by_their_tokens(tmp_path, batch_tokens):
    model, tokenizer = make_model("bert"), make_tokenizer()
    texts = [*TEXTS, TEXTS[2]]
    poolings = ["mean", "last", "first", "max"]
    cache = extract(
        model, texts, path=tmp_path / "c", tokenizer=tokenizer, max_length=9, on_truncate="chunk",
        pooling=poolings, keep_tokens=True, batch_tokens=batch_tokens,
    )  # fmt: skip
    assert cache.rows["pieces"].tolist() == [1, 1, 3, 1, 1, 2, 1, 3, 3]
    assert not cache.rows["truncated"].any()
    words = TEXTS[2].split()
    parts = [" ".join(words[start : start + 7]) for start in range(0, len(words), 7)]
    pieces = [alone(model, tokenizer, part)[3] for part in parts]
    together = np.concatenate(pieces)
    expected = {
        "mean": together.mean(0), "max": together.max(0), "first": pieces[0][0], "last": pieces[-1][-1]
    }  # fmt: skip
    for pooling, vector in expected.items():
        for row in (2, 8):
            np.testing.assert_allclose(cache.layer("block.3", pooling)[row], vector, rtol=1e-4, atol=1e-5)
    assert cache.rows["tokens"][2] == len(together) == len(words) + 6
    values, offsets = cache.tokens("block.3")
    np.testing.assert_allclose(values[offsets[2] : offsets[3]], together, rtol=1e-4, atol=1e-5)
    entropies = [our_prompt_entropy(piece) for piece in pieces]
    metrics = cache.token_metrics.query("layer_name == 'block.3'").set_index("row")["prompt_entropy"]
    assert metrics[2] == pytest.approx(
        np.average(entropies, weights=[len(piece) for piece in pieces]), abs=1e-5
    )
    short = extract(model, TEXTS[:2], path=tmp_path / "short", tokenizer=tokenizer, pooling=poolings)
    np.testing.assert_allclose(cache.layer("block.4")[:2], short.layer("block.4"), rtol=1e-4, atol=1e-5)


def test_running_out_of_memory_on_pieces_halves_the_batch_too(tmp_path):
    model, tokenizer = make_model("bert"), make_tokenizer()
    options = {"tokenizer": tokenizer, "max_length": 9, "on_truncate": "chunk", "pooling": "mean"}
    expected = extract(model, TEXTS[2:3], path=tmp_path / "a", **options)
    sizes = []

    def refuse_large(_, args, kwargs):
        sizes.append(kwargs["input_ids"].numel())
        if sizes[-1] > 18:
            raise torch.OutOfMemoryError("no more")

    model.register_forward_pre_hook(refuse_large, with_kwargs=True)
    cache = extract(model, TEXTS[2:3], path=tmp_path / "b", **options)
    assert max(sizes) == 27
    np.testing.assert_allclose(cache.layer("block.4"), expected.layer("block.4"), rtol=1e-4, atol=1e-5)


def test_first_tokens_of_all_pieces_are_left_out_alike(tmp_path):
    model, tokenizer = make_model("bert"), make_tokenizer()
    cache = extract(
        model, TEXTS[2:3], path=tmp_path / "c", tokenizer=tokenizer, max_length=9, on_truncate="chunk",
        drop_first_token=True, views=1, deterministic=True,
    )  # fmt: skip
    assert cache.rows["kept_tokens"].tolist() == [cache.rows["tokens"][0] - 3]
    assert np.isfinite(cache.layer("block.4", view="augment.1")).all()


def test_a_row_that_is_not_finite_is_run_again_alone_and_then_in_float32(tmp_path):
    tokenizer = make_tokenizer()
    plain = extract(make_model("bert").bfloat16(), TEXTS, path=tmp_path / "plain", tokenizer=tokenizer)

    def spoil(model, when):
        def hook(_, args, output):
            return output * torch.nan if when(args[0]) else output

        model.encoder.layer[1].register_forward_hook(hook)
        return model

    crowd = spoil(make_model("bert").bfloat16(), lambda states: len(states) > 1)
    narrow = spoil(
        make_model("bert").bfloat16(),
        lambda states: states.shape[1] == 3 and states.dtype == torch.bfloat16,
    )
    weights = {name: tensor.clone() for name, tensor in narrow.state_dict().items()}
    alone_again = extract(crowd, TEXTS, path=tmp_path / "crowd", tokenizer=tokenizer, batch_tokens=30)
    wider = extract(narrow, TEXTS, path=tmp_path / "narrow", tokenizer=tokenizer, batch_tokens=1)
    assert "alone" in set(alone_again.rows["recovered"])
    assert wider.rows["recovered"].tolist() == ["", "float32", "", "", "", "", "", ""]
    for cache in (alone_again, wider):
        assert (cache.rows["nonfinite"] == "").all()
        np.testing.assert_allclose(cache.layer("block.4"), plain.layer("block.4"), rtol=0.1, atol=0.1)
    assert {name: tensor.dtype for name, tensor in narrow.state_dict().items()} == {
        name: tensor.dtype for name, tensor in weights.items()
    }
    assert all(torch.equal(tensor, weights[name]) for name, tensor in narrow.state_dict().items())


def test_a_row_that_does_not_fit_in_float32_stays_flagged(tmp_path, monkeypatch):
    model, tokenizer = make_model("llama").to(torch.bfloat16), make_tokenizer()
    marked = int(tokenizer("dog", add_special_tokens=False)["input_ids"][0])

    def spoil(module, args, kwargs, output):
        ids = module.seen
        states = output[0] if isinstance(output, tuple) else output
        states[(ids == marked).any(dim=1)] = float("nan")

    def note(_, args, kwargs):
        model.layers[0].seen = kwargs["input_ids"]

    model.layers[0].register_forward_hook(spoil, with_kwargs=True)
    model.register_forward_pre_hook(note, with_kwargs=True)

    @contextlib.contextmanager
    def refuse(_):
        raise torch.OutOfMemoryError
        yield

    monkeypatch.setattr(job_module, "in_float32", refuse)
    cache = extract(model, ["a cat", "a dog", "a mat"], path=tmp_path / "c", tokenizer=tokenizer)
    assert cache.rows["nonfinite"].tolist()[1].startswith("block.1")
    assert cache.rows["recovered"].tolist() == ["", "", ""]


def test_what_a_model_raises_in_the_middle_is_one_line_and_leaves_nothing(tmp_path):
    model, tokenizer = make_model("bert"), make_tokenizer()

    def refuse(_, args, kwargs):
        if kwargs["input_ids"].shape[1] > 8:
            raise RuntimeError("shape '[4, -1]' is invalid\nfor input of size 9")

    model.register_forward_pre_hook(refuse, with_kwargs=True)
    with pytest.raises(ModelError, match=r"BertModel failed on a batch of \d+ texts? of up to") as caught:
        extract(model, TEXTS, path=tmp_path / "c", tokenizer=tokenizer, pooling="mean")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "c").exists()


def test_dropout_views_differ_and_come_again_while_all_else_is_in_evaluation_mode(tmp_path):
    model, tokenizer = make_model("bert"), make_tokenizer()
    options = {"tokenizer": tokenizer, "views": 2, "view_kind": "dropout"}
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    cache = extract(model, TEXTS, path=tmp_path / "c", **options)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not any(module.training for module in model.modules())
    assert_rows_match(cache, model, tokenizer, TEXTS)
    assert cache.views == ["dropout.1", "dropout.2"]
    one, two = (cache.layer("block.4", view=view) for view in cache.views)
    texts = cache.layer("block.4")
    for other in (two, texts):
        assert (np.abs(one - other).max(axis=1) > 1e-3).all()
    again = extract(model, TEXTS, path=tmp_path / "again", **options)
    np.testing.assert_array_equal(again.layer("block.4", view="dropout.2"), two)
    other_seed = extract(model, TEXTS, path=tmp_path / "seed", seed=1, **options)
    assert not np.allclose(other_seed.layer("block.4", view="dropout.2"), two)
    with pytest.raises(UsageError, match="--view-kind dropout: LlamaModel drops nothing"):
        extract(make_model("llama"), TEXTS, path=tmp_path / "llama", **options)
    with pytest.raises(UsageError, match="--view-kind column: choose augment, crop or dropout"):
        extract(model, TEXTS, path=tmp_path / "d", tokenizer=tokenizer, views=2, view_kind="column")


def test_deterministic_runs_see_no_padding(tmp_path):
    model, tokenizer = make_model("bert"), make_tokenizer()
    masks = []
    handle = model.register_forward_pre_hook(
        lambda _, args, kwargs: masks.append(kwargs["attention_mask"]), with_kwargs=True
    )
    cache = extract(model, TEXTS, path=tmp_path / "c", tokenizer=tokenizer, deterministic=True)
    handle.remove()
    assert all(mask.all() for mask in masks)
    assert len(masks) > 3
    assert_rows_match(cache, model, tokenizer, TEXTS)


def test_special_tokens_and_first_token_can_be_left_out(tmp_path):
    model, tokenizer = make_model("bert"), make_tokenizer()
    states = alone(model, tokenizer, TEXTS[0])[3]
    kept = extract(model, TEXTS[:1], path=tmp_path / "a", tokenizer=tokenizer, special_tokens="drop")
    np.testing.assert_allclose(kept.layer("block.3")[0], states[1:-1].mean(0), rtol=1e-4, atol=1e-5)
    first = extract(model, TEXTS[:1], path=tmp_path / "b", tokenizer=tokenizer, drop_first_token=True)
    np.testing.assert_allclose(first.layer("block.3")[0], states[1:].mean(0), rtol=1e-4, atol=1e-5)


def test_a_text_with_no_token_left_is_flagged_and_missing(tmp_path):
    model, tokenizer = make_model("llama"), make_tokenizer(special=False)
    cache = extract(model, ["cat", TEXTS[0]], path=tmp_path / "c", tokenizer=tokenizer, drop_first_token=True)
    assert cache.rows["undefined"].tolist() == ["mean", ""]
    assert np.isnan(cache.layer("norm")[0]).all()
    assert cache.rows["nonfinite"].tolist() == ["", ""]


def test_truncated_texts_are_flagged_and_cut(tmp_path):
    model, tokenizer = make_model("bert"), make_tokenizer()
    cache = extract(model, ["cat " * 100, "cat"], path=tmp_path / "c", tokenizer=tokenizer)
    assert cache.rows["truncated"].tolist() == [True, False]
    assert cache.rows["tokens"].tolist() == [64, 3]
    short = extract(model, TEXTS, path=tmp_path / "d", tokenizer=tokenizer, max_length=5)
    assert short.rows["tokens"].max() == 5


def test_a_row_that_is_not_finite_is_named_with_its_layers(tmp_path):
    model, tokenizer = make_model("llama"), make_tokenizer(special=False)
    model.layers[1].register_forward_hook(
        lambda _, __, out: out.masked_fill(torch.arange(out.shape[1])[None, :, None] == 9, float("nan"))
    )
    cache = extract(
        model, [TEXTS[1], TEXTS[2]], path=tmp_path / "c", tokenizer=tokenizer, pooling="mean", batch_tokens=1
    )
    flagged = cache.rows["nonfinite"].tolist()
    assert flagged[0] == ""
    assert flagged[1].split(",") == ["block.2", "block.3", "block.4", "norm"]


def test_views_are_other_texts_in_the_same_rows(tmp_path):
    model, tokenizer = make_model("bert"), make_tokenizer()
    cache = extract(model, TEXTS, path=tmp_path / "c", tokenizer=tokenizer, views=2)
    assert cache.views == ["augment.1", "augment.2"]
    assert cache.layer("block.4", view="augment.1").shape == cache.layer("block.4").shape
    frame = pd.DataFrame({"text": TEXTS, "other": TEXTS[::-1]})
    column = extract(
        model, frame, path=tmp_path / "d", tokenizer=tokenizer, text_columns=["text"], view_column="other"
    )
    np.testing.assert_allclose(
        column.layer("block.2", view="column"), column.layer("block.2")[::-1], rtol=1e-4, atol=1e-5
    )


def test_token_metrics_equal_those_of_the_states_alone(tmp_path):
    from layerscope.metrics.curvature import curvature
    from layerscope.metrics.prompt_entropy import prompt_entropy

    model, tokenizer = make_model("gpt2"), make_tokenizer()
    cache = extract(model, TEXTS, path=tmp_path / "c", tokenizer=tokenizer)
    table = cache.token_metrics.set_index(["row", "layer_name"])
    for row, text in enumerate(TEXTS):
        states = alone(model, tokenizer, text)[2]
        assert table.loc[(row, "block.2"), "prompt_entropy"] == pytest.approx(
            prompt_entropy(states), rel=1e-4
        )
        assert table.loc[(row, "block.2"), "curvature"] == pytest.approx(curvature(states), rel=1e-4)


def test_running_out_of_memory_halves_the_batch_and_goes_on(tmp_path, monkeypatch):
    model, tokenizer = make_model("bert"), make_tokenizer()
    sizes = []

    def refuse_large(_, args, kwargs):
        sizes.append(kwargs["input_ids"].numel())
        if sizes[-1] > 40:
            raise torch.OutOfMemoryError("no more")

    expected = extract(model, TEXTS, path=tmp_path / "a", tokenizer=tokenizer, pooling="mean")
    handle = model.register_forward_pre_hook(refuse_large, with_kwargs=True)
    cache = extract(model, TEXTS, path=tmp_path / "b", tokenizer=tokenizer, pooling="mean")
    assert max(sizes) > 40
    np.testing.assert_allclose(cache.layer("block.4"), expected.layer("block.4"), rtol=1e-4, atol=1e-5)
    handle.remove()
    model.register_forward_pre_hook(
        lambda _, args, kwargs: (
            (_ for _ in ()).throw(torch.OutOfMemoryError("no")) if kwargs["input_ids"].numel() > 16 else None
        ),
        with_kwargs=True,
    )
    with pytest.raises(ModelError, match="does not fit in memory: set --max-length lower"):
        extract(model, TEXTS, path=tmp_path / "c", tokenizer=tokenizer, pooling="mean")


# Identity, hits and resuming


class _Seen(Listener):
    def __init__(self) -> None:
        self.hits = self.plans = 0
        self.finished_shards = -1

    def hit(self, cache):
        self.hits += 1

    def plan(self, plan):
        self.plans += 1
        self.finished_shards = plan.finished_shards


def test_the_same_extraction_twice_is_a_hit(tmp_path):
    model, tokenizer = make_model("bert"), make_tokenizer()
    seen = _Seen()
    for _ in range(2):
        extract(model, TEXTS, path=tmp_path / "c", tokenizer=tokenizer, listener=seen)
    assert (seen.plans, seen.hits) == (1, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"drop_first_token": True},
        {"special_tokens": "drop"},
        {"max_length": 9},
        {"prompt": "query: "},
        {"deterministic": True},
        {"on_truncate": "chunk"},
        {"texts": TEXTS[::-1]},
        {"model": 1},
    ],
)
def test_anything_that_changes_a_number_is_another_extraction(change, tmp_path):
    tokenizer = make_tokenizer()
    extract(make_model("bert"), TEXTS, path=tmp_path / "c", tokenizer=tokenizer)
    before = (tmp_path / "c" / "manifest.json").read_bytes()
    model = make_model("bert", seed=change.pop("model", 0))
    texts = change.pop("texts", TEXTS)
    with pytest.raises(CacheError, match=r"holds another extraction .*--overwrite"):
        extract(model, texts, path=tmp_path / "c", tokenizer=tokenizer, **change)
    assert (tmp_path / "c" / "manifest.json").read_bytes() == before
    extract(model, texts, path=tmp_path / "c", tokenizer=tokenizer, overwrite=True, **change)
    assert LayerCache(tmp_path / "c").verify() == []


def test_dtype_is_part_of_the_identity_and_a_loaded_model_keeps_its_own(tmp_path):
    model, tokenizer = make_model("bert"), make_tokenizer()
    model.save_pretrained(tmp_path / "m")
    tokenizer.save_pretrained(tmp_path / "m")
    cache = extract(tmp_path / "m", TEXTS, path=tmp_path / "c")
    half = extract(tmp_path / "m", TEXTS, path=tmp_path / "d", dtype="bfloat16")
    assert half.layer("block.4").dtype == np.float32
    assert 0 < np.abs(half.layer("block.4") - cache.layer("block.4")).max() < 0.5
    with pytest.raises(CacheError, match="different: dtype"):
        extract(tmp_path / "m", TEXTS, path=tmp_path / "c", dtype="bfloat16")
    with pytest.raises(UsageError, match="a loaded model keeps its own"):
        extract(model, TEXTS, path=tmp_path / "e", tokenizer=tokenizer, dtype="bfloat16")


def test_retrained_weights_at_the_same_path_are_another_model(tmp_path):
    folder = tmp_path / "model"
    make_model("bert").save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    extract(folder, TEXTS, path=tmp_path / "c")
    stamp = (folder / "model.safetensors").stat()
    make_model("bert", seed=1).save_pretrained(folder)
    os.utime(folder / "model.safetensors", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    with pytest.raises(CacheError, match="different: model"):
        extract(folder, TEXTS, path=tmp_path / "c")


def test_a_folder_with_other_files_is_refused_and_untouched(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(CacheError, match="not empty and not a cache"):
        extract(make_model("bert"), TEXTS, path=tmp_path, tokenizer=make_tokenizer(), overwrite=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_folder_that_cannot_take_the_cache_is_told_before_the_model_is_loaded(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("the model was loaded")

    monkeypatch.setattr("layerscope.extraction.run.load_model", refuse)
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="is a file: give a folder"):
        extract(make_model("bert"), TEXTS, path=tmp_path / "file", tokenizer=make_tokenizer())
    with pytest.raises(CacheError, match="not empty and not a cache"):
        extract(make_model("bert"), TEXTS, path=tmp_path, tokenizer=make_tokenizer())
    with pytest.raises(CacheError, match=r"a file stands where a folder is needed.* -o"):
        extract(make_model("bert"), TEXTS, path=tmp_path / "file" / "c", tokenizer=make_tokenizer())
    with pytest.raises(CacheError, match=r"could not write .*too long"):
        extract(make_model("bert"), TEXTS, path=tmp_path / ("c" * 300), tokenizer=make_tokenizer())
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_disk_that_cannot_be_written_is_told_before_the_model_is_loaded(tmp_path, monkeypatch):
    model, tokenizer = make_model("bert"), make_tokenizer()
    done = extract(model, TEXTS, path=tmp_path / "done", tokenizer=tokenizer)

    def refuse_file(**_):
        raise PermissionError(errno.EROFS, "Read-only file system")

    def refuse_model(*_, **__):
        raise AssertionError("the model was loaded")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse_file)
    monkeypatch.setattr("layerscope.extraction.run.load_model", refuse_model)
    for path, changed in (("new", {}), ("done", {"pooling": "max"})):
        with pytest.raises(CacheError, match=rf"no permission to write .*{path}: choose another .* -o"):
            extract(model, TEXTS, path=tmp_path / path, tokenizer=tokenizer, **changed)
    again = extract(model, TEXTS, path=tmp_path / "done", tokenizer=tokenizer)  # which is there already
    assert again.layers == done.layers


def test_one_name_or_number_will_do_where_a_list_is_taken(tmp_path):
    one = extract(
        make_model("bert"), TEXTS, path=tmp_path / "c", tokenizer=make_tokenizer(),
        layers=2, pooling="max", token_metrics="curvature",
    )  # fmt: skip
    assert (one.layers, one.poolings) == (["block.2"], ["max"])
    assert list(one.token_metrics.columns) == ["row", "layer_name", "tokens", "curvature"]


def test_numbers_of_numpy_and_a_device_of_torch_are_taken_as_those_of_python(tmp_path):
    model, tokenizer = make_model("bert"), make_tokenizer()
    model.save_pretrained(tmp_path / "m")
    tokenizer.save_pretrained(tmp_path / "m")
    seen = _Seen()
    for whole, device in ((int, "cpu"), (np.int64, torch.device("cpu"))):
        numbers = {"layers": 2, "views": 1, "seed": 3, "limit": 4, "max_length": 9, "batch_tokens": 50}
        options = {name: whole(value) for name, value in numbers.items()}
        extract(tmp_path / "m", TEXTS, path=tmp_path / "c", device=device, listener=seen, **options)
    assert (seen.plans, seen.hits) == (1, 1)


def test_views_count_in_the_size_that_is_told_before_the_run(tmp_path):
    sizes = {}

    class Ear(Listener):
        def plan(self, plan):
            sizes[len(plan.views)] = plan.bytes

    for views in (0, 2):
        extract(make_model("bert"), TEXTS, path=tmp_path / str(views), tokenizer=make_tokenizer(),
                views=views, token_metrics=(), listener=Ear())  # fmt: skip
    assert sizes == {0: 4 * 5 * 32 * len(TEXTS), 2: 3 * 4 * 5 * 32 * len(TEXTS)}


def test_texts_that_the_tokenizer_does_not_know_are_told(tmp_path):
    notes = []

    class Ear(Listener):
        def plan(self, plan):
            notes.extend(plan.notes)

    known, unknown = ["the cat", "a dog"], ["Das Haus", "ist rot a"]
    for number, texts in enumerate((known, unknown)):
        extract(make_model("bert"), texts, path=tmp_path / str(number), tokenizer=make_tokenizer(),
                listener=Ear())  # fmt: skip
    assert [note for note in notes if "unknown" in note] == [
        "80% of the tokens are unknown to the tokenizer: is it the model's, and the language right?"
    ]


def test_a_line_of_a_megabyte_is_cut_like_any_other(tmp_path):
    cache = extract(
        make_model("bert"), ["cat " * 250_000, "dog"], path=tmp_path / "c", tokenizer=make_tokenizer()
    )
    assert cache.rows["truncated"].tolist() == [True, False]


def test_unknown_names_are_usage_errors_and_leave_no_folder(tmp_path):
    model, tokenizer = make_model("bert"), make_tokenizer()
    for options, message in [
        ({"pooling": "mena"}, "did you mean 'mean'"),
        ({"layers": "block.9"}, "the model has 4 blocks"),
        ({"layers": "norm"}, "no final norm"),
        ({"token_metrics": ("curvatur",)}, "did you mean 'curvature'"),
        ({"views": -1}, "--views is -1"),
        ({"batch_tokens": 0}, "--batch-tokens is 0"),
        ({"max_length": 0}, "--max-length is 0"),
        ({"max_length": 2}, r"--max-length is 2: it must be more than the 2 tokens"),
        ({"max_length": 2, "special_tokens": "drop"}, r"--max-length is 2"),
        ({"views": 65}, "--views is 65: it must be from 0 to 64"),
        ({"views": "2"}, "--views is '2': it must be a whole number"),
        ({"views": 1.5}, "--views is 1.5"),
        ({"seed": -1}, "--seed is -1"),
        ({"special_tokens": "x"}, "--special-tokens x: choose keep or drop"),
        ({"dtype": "int8"}, "--dtype int8: choose auto, float32 or bfloat16"),
        ({"pooling": None}, "pooling must be"),
        ({"pooling": []}, "no pooling selected"),
        ({"layers": None}, "selects nothing"),
        ({"layers": " "}, "selects nothing"),
        ({"layers": []}, "selects nothing"),
        ({"tokenizer": "bert-base"}, "tokenizer must be a loaded"),
        ({"texts": {"a": 1}}, "the corpus is of type dict"),
        ({"texts": {"a"}}, "the corpus is of type set"),
        ({"texts": ""}, "the corpus is ''"),
        ({"texts": 3}, "the corpus is of type int"),
        ({"texts": b"cat"}, "the corpus is of type bytes"),
        ({"text_columns": 3}, "text_columns is 3: give the column's name as text"),
        ({"view_column": ["a"]}, r"view_column is \['a'\]"),
        ({"limit": "3"}, "limit is '3'"),
        ({"limit": 2.5}, "limit is 2.5"),
        ({"encoding": None}, "encoding is None"),
        ({"layers": True}, "selects nothing"),
        ({"layers": b"all"}, "selects nothing"),
        ({"token_metrics": None}, "token_metrics must be a name or a list of names, .* not None"),
        ({"token_metrics": [["curvature"]]}, "did you mean 'curvature'"),
        ({"blocks": 3}, "blocks is 3: give a name as text"),
        ({"final_norm": ""}, "final_norm is '': give a name as text"),
        ({"drop_first_token": "no"}, "drop_first_token is 'no': it must be True or False"),
        ({"overwrite": 1}, "overwrite is 1: it must be True or False"),
        ({"listener": print}, "listener must be a layerscope.extraction.Listener"),
        ({"texts": None}, "the corpus is None"),
        ({"final_norm": "embeddings"}, "does not take the hidden states of a block"),
        ({"final_norm": "embedings"}, "no module 'embedings'; the nearest are embeddings"),
        ({"blocks": "encoder.leyer"}, "no module 'encoder.leyer'; the nearest are encoder.layer"),
    ]:
        given = {"texts": TEXTS, "tokenizer": tokenizer} | options
        with pytest.raises(UsageError, match=message):
            extract(model, path=tmp_path / "c", **given)
        assert not (tmp_path / "c").exists()
    for path in (None, 3, " ", b"c", "a\0b"):
        with pytest.raises(UsageError, match="path must be the folder"):
            extract(model, TEXTS, path=path, tokenizer=tokenizer)
    model.save_pretrained(tmp_path / "m")
    tokenizer.save_pretrained(tmp_path / "m")
    for device in ("abacus", "meta"):
        with pytest.raises(UsageError, match=f"--device {device} cannot be used here: choose auto, cpu"):
            extract(tmp_path / "m", TEXTS, path=tmp_path / "c", device=device)
    with pytest.raises(UsageError, match="--revision is for models on the hub"):
        extract(tmp_path / "m", TEXTS, path=tmp_path / "c", revision="main")
    with pytest.raises(UsageError, match="the model has no name"):
        extract("", TEXTS, path=tmp_path / "c")
    with pytest.raises(UsageError, match="tokenizer="):
        extract(make_model("bert"), TEXTS, path=tmp_path / "c")
    with pytest.raises(UsageError, match="no classification token"):
        extract(
            make_model("llama"),
            TEXTS,
            path=tmp_path / "c",
            tokenizer=make_tokenizer(special=False),
            pooling="cls",
        )


def test_a_full_disk_is_told_before_the_run_starts(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 100})())
    with pytest.raises(CacheError, match=r"needs .* but only 100 bytes are free"):
        extract(make_model("bert"), TEXTS, path=tmp_path / "c", tokenizer=make_tokenizer())


_CHILD = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from tests.tiny import TEXTS, make_model, make_tokenizer
from layerscope import cache, files
from layerscope.extraction import Listener, extract, job

job.SHARD_BYTES = 4000
moment, path = sys.argv[2], sys.argv[3]
die = lambda: os.kill(os.getpid(), signal.SIGKILL)

class Killer(Listener):
    count = 0
    def plan(self, plan):
        if moment == "planned":
            die()
    def progress(self, done, total):
        Killer.count += 1
        if moment == "computing" and Killer.count == 5:
            die()

replace, write_json = cache.Path.replace, cache.write_json
def dying_replace(self, target):
    if moment == "writing" and "00001.safetensors" in str(target):
        die()
    return replace(self, target)
def dying_json(path, value):
    if moment == "manifest" and len(value["shards"]) == 2:
        die()
    if moment == "finishing" and value["status"] == "complete":
        die()
    write_json(path, value)
cache.Path.replace, cache.write_json = dying_replace, dying_json
texts = [f"{a} {b}" for a in TEXTS for b in ("cat", "dog")] + TEXTS[:3]
extract(make_model("bert"), texts, path=path, tokenizer=make_tokenizer(), views=1, batch_tokens=50,
        keep_tokens=True, listener=Killer())
"""


def _extract_in_child(moment: str, path: Path) -> int:
    root = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-c", _CHILD, str(root), moment, str(path)]
    return subprocess.run(command, check=False, capture_output=True, timeout=120).returncode


def _contents(folder: Path) -> dict[str, bytes]:
    files = {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}
    manifest = json.loads(files["manifest.json"])
    manifest.pop("created")
    return files | {"manifest.json": json.dumps(manifest).encode()}


def test_killed_runs_go_on_and_end_as_an_uninterrupted_one(tmp_path):
    assert _extract_in_child("never", tmp_path / "whole") == 0
    whole = _contents(tmp_path / "whole")
    assert len(json.loads(whole["manifest.json"])["shards"]) >= 3
    for moment in ("planned", "computing", "writing", "manifest", "finishing"):
        path = tmp_path / moment
        assert _extract_in_child(moment, path) == -signal.SIGKILL, moment
        with pytest.raises(CacheError, match="unfinished"):
            LayerCache(path)
        assert _extract_in_child("never", path) == 0
        assert _contents(path) == whole, moment


def test_a_damaged_shard_is_named_and_only_it_is_redone(tmp_path, monkeypatch):
    monkeypatch.setattr(job_module, "SHARD_BYTES", 4000)
    model, tokenizer = make_model("bert"), make_tokenizer()
    cache = extract(model, TEXTS, path=tmp_path / "c", tokenizer=tokenizer)
    before = np.array(cache.layer("block.4"))
    shard = tmp_path / "c" / "embeddings" / "00001.safetensors"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 255
    shard.write_bytes(content)
    assert LayerCache(tmp_path / "c").verify() == [
        "embeddings/00001.safetensors: damaged (its checksum is not the one in the manifest)"
    ]
    shard.unlink()
    assert LayerCache(tmp_path / "c").verify() == ["embeddings/00001.safetensors: missing"]
    with pytest.raises(CacheError, match="verify"):
        LayerCache(tmp_path / "c").layer("block.4")
    seen = _Seen()
    mended = extract(model, TEXTS, path=tmp_path / "c", tokenizer=tokenizer, listener=seen)
    assert seen.finished_shards == len(mended.manifest["shards"]) - 1
    np.testing.assert_array_equal(mended.layer("block.4"), before)
    assert mended.verify() == []


def test_two_processes_cannot_write_one_folder(tmp_path):
    from layerscope.cache import CacheWriter

    layout = {"identity": {}, "planned_shards": 0}
    with (
        CacheWriter(tmp_path / "c", layout),
        pytest.raises(CacheError, match=rf"process {os.getpid()} on .* is writing to the cache"),
        CacheWriter(tmp_path / "c", layout),
    ):
        pass


def test_cache_files_open_without_layerscope(tmp_path):
    from safetensors.numpy import load_file

    model, tokenizer = make_model("bert"), make_tokenizer()
    cache = extract(model, TEXTS, path=tmp_path / "c", tokenizer=tokenizer, pooling=["mean", "max"])
    tensors = load_file(tmp_path / "c" / "embeddings" / "00000.safetensors")
    assert set(tensors) == {f"{pooling}/{layer}" for pooling in ("mean", "max") for layer in cache.layers}
    np.testing.assert_array_equal(tensors["max/block.2"], cache.layer("block.2", "max"))
    mapped = read_tensor(tmp_path / "c" / "embeddings" / "00000.safetensors", "mean/embed")
    assert isinstance(mapped, np.memmap)
    assert not cache.layer("embed").flags.writeable
    rows = pd.read_parquet(tmp_path / "c" / "rows.parquet")
    assert len(rows) == len(TEXTS)
    assert pd.read_parquet(tmp_path / "c" / "token_metrics")["layer_name"].nunique() == 5
    assert not list((tmp_path / "c").rglob("*.pkl"))
