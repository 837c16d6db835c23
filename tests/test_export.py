"""Exported folders give the vectors of the cache, hold no more than they need, and load where they say."""

from __future__ import annotations

import json
import subprocess
import sys

import mteb
import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from typer.testing import CliRunner

from layerscope.cli.main import app
from layerscope.errors import CacheError, LayerscopeError, ModelError, UsageError
from layerscope.evaluate.mteb.tasks import find_tasks, load_data, quiet
from layerscope.evaluate.sts import evaluate_sts
from layerscope.exporting import export
from layerscope.extraction import extract
from layerscope.frames import read_frame, write_frame
from layerscope.learn import LearnedPooling, save_pooling
from layerscope.select import fit_correction, pick_layers
from tests.families import FAMILIES
from tests.test_mteb import write_sts
from tests.tiny import TEXTS, make_model, make_tokenizer

POOLINGS = ["mean", "last", "first", "max", "weighted-mean"]


def saved(folder, family="bert", special=True):
    make_model(family).save_pretrained(folder)
    make_tokenizer(special=special).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return {
        name: saved(tmp_path_factory.mktemp("models") / name, name)
        for name in ("bert", "llama", "gpt2", "gpt_neox")
    }


def encoded(exported, texts=TEXTS, **options):
    model = SentenceTransformer(
        str(exported.path), device="cpu", trust_remote_code=not exported.plain, local_files_only=True
    )
    return model.encode(list(texts), show_progress_bar=False, **options)


def assert_same(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def module_types(exported):
    return [module["type"] for module in json.loads((exported.path / "modules.json").read_text())]


PLACES = [
    ("bert", "embed", True), ("bert", "block.2", True), ("bert", "block.4", True),
    ("llama", "embed", False), ("llama", "block.2", False), ("llama", "block.4", False),
    ("llama", "normed.2", True), ("llama", "norm", True),
    ("gpt2", "block.3", False), ("gpt2", "normed.3", True), ("gpt_neox", "block.1", False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("family", "layer", "plain", "pooling"),
    [
        *((*place, "mean") for place in PLACES),
        *(("llama", "normed.2", True, name) for name in POOLINGS[1:]),
        *(("gpt2", "block.3", False, name) for name in POOLINGS[1:]),
    ],
)
def test_vectors_are_those_of_the_cache(family, layer, plain, pooling, models, tmp_path):
    cache = extract(
        models[family], TEXTS, path=tmp_path / "c", layers=[layer], pooling=pooling, token_metrics=()
    )
    exported = export(models[family], path=tmp_path / "out", layer=layer, pooling=pooling)
    assert_same(encoded(exported), cache.layer(layer, pooling))
    assert exported.plain is plain
    assert all(name.startswith("sentence_transformers.") for name in module_types(exported)) is plain
    assert exported.error <= 1e-5
    assert exported.alternative == (
        None if plain else "norm" if layer == "block.4" else f"normed.{cache.layer_info(layer).blocks}"
    )


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_family_is_cut_right_or_refused_in_one_line(family, tmp_path):
    layer = "normed.2" if family.final_norm else "block.2"
    model = family.model()
    model.save_pretrained(tmp_path / "m")
    make_tokenizer().save_pretrained(tmp_path / "m")
    cache = extract(
        tmp_path / "m",
        TEXTS,
        path=tmp_path / "c",
        layers=[layer],
        pooling="mean",
        token_metrics=(),
        part=family.part,
    )
    if getattr(model.config, "is_encoder_decoder", False):
        with pytest.raises(LayerscopeError) as caught:
            export(tmp_path / "m", path=tmp_path / "out", layer=layer, cache=cache)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "out").exists()
        return
    exported = export(tmp_path / "m", path=tmp_path / "out", layer=layer, cache=cache)
    assert_same(encoded(exported), cache.layer(layer))


@pytest.mark.parametrize(("family", "layer"), [("bert", "block.2"), ("llama", "normed.2")])
def test_plain_folders_load_where_layerscope_is_not_installed(family, layer, models, tmp_path):
    exported = export(models[family], path=tmp_path / "out", layer=layer)
    program = (
        "import sys; sys.modules['layerscope'] = None\n"
        "import warnings; warnings.simplefilter('ignore')\n"
        "from sentence_transformers import SentenceTransformer\n"
        f"model = SentenceTransformer({str(exported.path)!r}, device='cpu')\n"
        f"print(model.encode({TEXTS!r}, show_progress_bar=False).sum(axis=1).tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(json.loads(done.stdout), encoded(exported).sum(axis=1), rtol=1e-4)


def test_only_the_blocks_needed_are_written(models, tmp_path):
    full = export(models["llama"], path=tmp_path / "full", layer="norm")
    half = export(models["llama"], path=tmp_path / "half", layer="normed.2")
    raw = export(models["llama"], path=tmp_path / "raw", layer="block.2")
    block = sum(p.numel() for p in make_model("llama").layers[0].parameters())
    assert full.parameters == full.full_parameters == half.full_parameters
    assert half.parameters == raw.parameters == full.parameters - 2 * block
    assert full.bytes - half.bytes == pytest.approx(2 * block * 4, rel=0.1)
    assert json.loads((half.path / "config.json").read_text())["num_hidden_layers"] == 2
    assert (half.blocks, half.n_blocks) == (2, 4)
    assert half.speed > 0


def test_the_callers_model_is_left_as_it_was(tmp_path):
    model, tokenizer = make_model("llama"), make_tokenizer(padding_side="left")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    config = model.config.to_dict()
    export(model, tokenizer=tokenizer, path=tmp_path / "out", layer="normed.1")
    assert len(model.layers) == model.config.num_hidden_layers == 4
    assert model.config.to_dict() == config
    assert tokenizer.padding_side == "left"
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    "options",
    [
        {"special_tokens": "drop"},
        {"drop_first_token": True},
        {"prompt": "the cat "},
        {"max_length": 6},
        {"special_tokens": "drop", "drop_first_token": True, "prompt": "dog "},
    ],
)
@pytest.mark.parametrize("pooling", ["mean", "prompt-vector"])
def test_texts_are_put_as_they_were_to_the_cache(options, pooling, models, tmp_path):
    texts = [text for text in TEXTS if len(text.split()) > 2]
    cache = extract(models["llama"], texts, path=tmp_path / "c", pooling=pooling, token_metrics=(), **options)
    exported = export(models["llama"], path=tmp_path / "out", layer="block.3", cache=cache)
    assert_same(encoded(exported, texts), cache.layer("block.3", pooling))


def test_sinks_of_the_cache_are_left_out(tmp_path):
    """The first token, made a sink, is in no vector of mean-nosink, alone or in a batch."""
    model = make_model("llama")
    with torch.no_grad():
        model.embed_tokens.weight[2] *= 500  # [CLS] begins every text
    model.save_pretrained(tmp_path / "m")
    make_tokenizer().save_pretrained(tmp_path / "m")
    cache = extract(tmp_path / "m", TEXTS * 3, path=tmp_path / "c", token_metrics=())
    assert cache.manifest["identity"]["sinks"] == [[0], []]
    layers = ["all", "normed.2"]
    cache = extract(tmp_path / "m", TEXTS * 3, path=tmp_path / "c", layers=layers, token_metrics=())
    exported = export(tmp_path / "m", path=tmp_path / "out", layer="normed.2", cache=cache)
    assert (exported.pooling, exported.plain) == ("mean-nosink", False)
    assert_same(encoded(exported), cache.layer("normed.2", "mean-nosink")[: len(TEXTS)])
    assert_same(encoded(exported, batch_size=1), cache.layer("normed.2", "mean-nosink")[: len(TEXTS)])
    assert np.abs(encoded(exported) - cache.layer("normed.2", "mean")[: len(TEXTS)]).max() > 1e-2


@pytest.mark.parametrize(
    ("correct", "normalize"),
    [("center", False), ("center", True), ("components", True), ("dimensions", False)],
)
def test_corrections_are_built_in(correct, normalize, models, tmp_path):
    cache = extract(models["bert"], TEXTS, path=tmp_path / "c", pooling="mean", token_metrics=())
    count = None if correct == "center" else 2
    options = {"correct": correct, "correct_count": count, "normalize": normalize}
    exported = export(models["bert"], path=tmp_path / "out", layer="block.2", cache=cache, **options)
    vectors = np.asarray(cache.layer("block.2"), dtype=np.float64)
    expected = fit_correction(vectors, correct, count).apply(vectors)
    if normalize:
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert_same(encoded(exported), expected)
    assert exported.plain


@pytest.mark.parametrize("family", ["bert", "llama"])
@pytest.mark.parametrize("kind", ["scalar-mix", "layer-attention", "multi-layer"])
def test_learned_mixes_are_exported(kind, family, models, tmp_path):
    rng = np.random.default_rng(0)
    words = [" ".join(rng.choice(list("abcdefghij"), 5)) for _ in range(90)]
    table = [
        dict(zip(("anchor", "positive", "negative"), words[i : i + 3], strict=True)) for i in range(0, 90, 3)
    ]
    file = tmp_path / "triplets.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in table))
    cache = extract(models[family], file, path=tmp_path / "c", pooling=["mean", "last"], token_metrics=())
    fitted = LearnedPooling(kind, epochs=2, batch_size=16).fit(cache)
    folder = save_pooling(fitted, tmp_path / "mix")
    exported = export(models[family], path=tmp_path / "out", learned=folder)
    assert_same(encoded(exported, words), fitted.transform(cache))
    assert not exported.plain
    assert exported.alternative is None
    card = (exported.path / "README.md").read_text()
    assert "fitted on 27 examples" in card
    assert "trust_remote_code=True" in card


def test_an_exported_layer_passes_through_mteb(models, tmp_path):
    write_sts(tmp_path / "data")
    exported = export(models["llama"], path=tmp_path / "out", layer="block.2")
    [task] = find_tasks(["STSBenchmark"])
    load_data(task, tmp_path / "data")
    model = SentenceTransformer(str(exported.path), device="cpu", trust_remote_code=True)
    with quiet():
        result = mteb.evaluate(model, task, cache=None, co2_tracker=False, show_progress_bar=False)
    score = result.task_results[0].scores["test"][0]["main_score"]
    cache = extract(
        models["llama"],
        tmp_path / "data/STSBenchmark/test.jsonl",
        path=tmp_path / "c",
        layers=["block.2"],
        pooling="mean",
        token_metrics=(),
    )
    frame = evaluate_sts(cache, draws=0).query("metric == 'cosine_spearman' and variant == 'raw'")
    assert score == pytest.approx(frame["score"].item(), abs=1e-4)


# --- the command line ---------------------------------------------------------------------------------


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), standalone_mode=False)


def test_a_pick_becomes_a_folder_whose_card_says_how(models, tmp_path):
    from layerscope.analysis import analyze

    cache = extract(models["bert"], TEXTS * 4, path=tmp_path / "c", token_metrics=())
    picks = pick_layers(analyze(cache, ["participation_ratio", "uniformity"], draws=50))
    write_frame(picks, tmp_path / "picks.parquet")
    result = run(
        "export",
        models["bert"],
        "--picks",
        tmp_path / "picks.parquet",
        "--criterion",
        "uniformity",
        "-o",
        tmp_path / "out",
    )
    assert result.exception is None, result.exception
    pick = picks[picks["criterion"] == "uniformity"].iloc[0]
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"The layer {pick['layer_name']} of" in card
    assert "by uniformity, lower is better" in card
    assert "on texts, 32 texts" in card
    assert "library_name: sentence-transformers" in card.split("---")[1]
    assert str(tmp_path) not in card


def test_fit_and_export_commands(models, tmp_path):
    rng = np.random.default_rng(1)
    rows = [[" ".join(rng.choice(list("abcdefghij"), 4)) for _ in range(3)] for _ in range(40)]
    file = tmp_path / "t.tsv"
    file.write_text("anchor\tpositive\tnegative\n" + "".join("\t".join(row) + "\n" for row in rows))
    assert run("extract", models["llama"], file, "-o", tmp_path / "c").exception is None
    done = run(
        "fit", tmp_path / "c", "--pooling-model", "scalar-mix", "--epochs", "2", "-o", tmp_path / "mix"
    )
    assert done.exception is None, done.exception
    assert "scalar-mix of 5 layers (mean)" in done.output
    assert "How much each layer counts" in done.output
    assert (tmp_path / "mix" / "layer_weights.svg").read_text().startswith("<?xml")
    done = run("export", models["llama"], "--fitted", tmp_path / "mix", "-o", tmp_path / "out")
    assert done.exception is None, done.exception
    assert "where layerscope is installed" in done.output
    again = run(
        "fit", tmp_path / "c", "--pooling-model", "scalar-mix", "--epochs", "1", "-o", tmp_path / "mix"
    )
    assert again.exception is None  # its own folder may be replaced
    taken = run("fit", tmp_path / "c", "-o", tmp_path / "out")
    assert isinstance(taken.exception, CacheError)
    assert "no fitted pooling" in str(taken.exception)


def test_a_raw_block_says_what_loads_without_layerscope(models, tmp_path):
    done = run("export", models["llama"], "--layer", "block.2", "-o", tmp_path / "out")
    assert "normed.2 is the same block with the norm" in done.output + done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "one of --layer, --picks and --fitted"),
        (["--layer", "block.1", "--fitted", "x"], "one of --layer, --picks and --fitted"),
        (["--layer", "block.1", "--criterion", "x"], "--criterion needs --picks"),
        (["--layer", "block.9"], "does not exist"),
        (["--layer", "blok.1"], "did you mean 'block.1'"),
        (["--layer", "block.1", "--pooling", "mena"], "did you mean 'mean'"),
        (["--layer", "block.1", "--pooling", "mean-nosink"], "give its --cache"),
        (["--layer", "block.1", "--correct", "center"], "give its --cache"),
    ],
)
def test_bad_usage_is_one_line_and_leaves_nothing(words, message, models, tmp_path):
    done = run("export", models["bert"], *words, "-o", tmp_path / "out")
    assert isinstance(done.exception, UsageError)
    assert message in str(done.exception)
    assert list(tmp_path.iterdir()) == []


def test_other_refusals(models, tmp_path):
    cache = extract(models["bert"], TEXTS, path=tmp_path / "c", token_metrics=())
    with pytest.raises(CacheError, match="of another model"):
        export(models["llama"], path=tmp_path / "out", layer="block.1", cache=cache)
    with pytest.raises(UsageError, match="holds the pooling mean, not max"):
        export(models["bert"], path=tmp_path / "out", layer="block.1", cache=cache, pooling="max")
    with pytest.raises(UsageError, match="no correction is called 'centre'"):
        export(models["bert"], path=tmp_path / "out", layer="block.1", cache=cache, correct="centre")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(CacheError, match="not an empty folder"):
        export(models["bert"], path=tmp_path / "full", layer="block.1")
    assert {path.name for path in tmp_path.iterdir()} == {"c", "full"}


def test_a_folder_that_gives_other_vectors_is_not_left_behind(models, tmp_path, monkeypatch):
    from layerscope.exporting import cutting as module

    whole = module.cut_model
    monkeypatch.setattr(
        module, "cut_model", lambda model, structure, blocks: whole(model, structure, max(1, blocks - 1))
    )
    with pytest.raises(ModelError, match=r"would give other vectors than block\.3"):
        export(models["bert"], path=tmp_path / "out", layer="block.3")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.smol
def test_smollm2_cut_in_half(smollm2, tmp_path):
    texts = ["The ferry leaves at noon.", "Rain.", "She planted two rows of beans along the fence."] * 2
    cache = extract(smollm2, texts, path=tmp_path / "c", layers=["block.15", "normed.15"], token_metrics=())
    for layer in ("block.15", "normed.15"):
        exported = export(smollm2, path=tmp_path / layer, layer=layer, pooling="mean", cache=cache)
        assert_same(encoded(exported, texts), cache.layer(layer, "mean"))
        assert exported.plain is (layer == "normed.15")


def test_minilm_cut_in_half(minilm, tmp_path):
    texts = ["The ferry leaves at noon.", "Rain.", "She planted two rows of beans along the fence."]
    cache = extract(minilm, texts, path=tmp_path / "c", token_metrics=())
    exported = export(minilm, path=tmp_path / "out", layer="block.3", cache=cache)
    assert_same(encoded(exported, texts), cache.layer("block.3"))
    assert exported.plain


def test_learned_mixes_are_scored_beside_the_layers(models, tmp_path):
    write_sts(tmp_path / "data", pairs=30)
    pairs = tmp_path / "data/STSBenchmark/test.jsonl"
    assert run("extract", models["bert"], pairs, "-o", tmp_path / "c").exception is None
    for name in ("one", "two"):
        options = ["--pooling-model", "scalar-mix", "--epochs", "1", "-o", tmp_path / name]
        assert run("fit", tmp_path / "c", *options).exception is None
    done = run(
        "evaluate",
        "sts",
        tmp_path / "c",
        "--draws",
        "60",
        "--fitted",
        tmp_path / "one",
        "--fitted",
        tmp_path / "two",
    )
    assert done.exception is None, done.exception
    assert "Learned mixes beside the best layer" in done.output
    table = done.output[done.output.index("Learned mixes") :]
    assert {"one", "two"} <= set(table.split())
    frame = read_frame(tmp_path / "c/frames/scores.parquet", "scores")
    assert set(frame["pooling"]) == {"mean", "one", "two"}
    (tmp_path / "x").mkdir()
    (tmp_path / "one").rename(tmp_path / "x" / "two")
    twice = run(
        "evaluate", "sts", tmp_path / "c", "--fitted", tmp_path / "two", "--fitted", tmp_path / "x/two"
    )
    assert "called 'two'" in str(twice.exception)
    taken = run("evaluate", "sts", tmp_path / "c", "--fitted", (tmp_path / "two").rename(tmp_path / "mean"))
    assert "as one of the cache is: rename it" in str(taken.exception)
