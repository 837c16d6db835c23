"""Learned poolings: objectives against references, fitting that learns, stops, repeats, saves and refuses."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from layerscope.errors import CacheError, CorpusError, FrameError, UsageError
from layerscope.evaluate.differences import paired_difference
from layerscope.evaluate.sts import evaluate_sts
from layerscope.learn import LearnedPooling, contrastive_loss, cosent_loss, load_pooling, save_pooling
from tests.caches import make_cache

D, LAYERS = 16, ["embed", "block.1", "block.2", "block.3", "block.4"]
GOOD = "block.2"
"""The one layer whose vectors say what a text is about."""


def cosine(x, y):
    return float(x @ y / math.sqrt((x @ x) * (y @ y)))


# --- objectives ---------------------------------------------------------------------------------------


def random_vectors(count, seed):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(count, D)))


@pytest.mark.parametrize("hard", [False, True])
def test_contrastive_loss_equals_the_loop_and_sentence_transformers(hard):
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    a, p, n = (random_vectors(6, seed) for seed in range(3))
    found = contrastive_loss(a, p, n if hard else None, temperature=0.05)
    candidates = [*p, *n] if hard else [*p]
    losses = []
    for i in range(6):
        scores = [math.exp(cosine(a[i], c) / 0.05) for c in candidates]
        losses.append(-math.log(scores[i] / sum(scores)))
    assert float(found) == pytest.approx(float(np.mean(losses)), rel=1e-9)
    reference = MultipleNegativesRankingLoss(None, scale=20.0)
    theirs = reference.compute_loss_from_embeddings([a, p, n] if hard else [a, p], None)
    assert float(found) == pytest.approx(float(theirs), rel=1e-6)


def test_texts_that_are_the_same_are_no_negatives():
    a, p = random_vectors(4, 0), random_vectors(4, 1)
    p[1] = p[0]
    same = torch.eye(4, dtype=torch.bool)
    same[0, 1] = same[1, 0] = True
    without = contrastive_loss(a, p, same=same)
    assert float(without) < float(contrastive_loss(a, p))
    losses = []
    for i, others in enumerate([[0, 2, 3], [1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3]]):
        scores = {j: math.exp(cosine(a[i], p[j]) / 0.05) for j in others}
        losses.append(-math.log(scores[i] / sum(scores.values())))
    assert float(without) == pytest.approx(float(np.mean(losses)), rel=1e-9)


def test_cosent_equals_the_loop_and_sentence_transformers():
    from sentence_transformers.sentence_transformer.losses import CoSENTLoss

    x, y, scores = random_vectors(7, 0), random_vectors(7, 1), torch.tensor([3.0, 1, 4, 1, 5, 2, 2])
    cosines = [cosine(*pair) for pair in zip(x, y, strict=True)]
    total = 1.0
    for i in range(7):
        for j in range(7):
            if scores[i] > scores[j]:
                total += math.exp((cosines[j] - cosines[i]) / 0.05)
    found = cosent_loss(x, y, scores)
    assert float(found) == pytest.approx(math.log(total), rel=1e-9)
    theirs = CoSENTLoss(None, scale=20.0).compute_loss_from_embeddings([x, y], scores.double())
    assert float(found) == pytest.approx(float(theirs), rel=1e-6)


# --- fitting ------------------------------------------------------------------------------------------


def world(groups, size, seed, poolings=("mean", "cls")):
    """Embeddings where one layer knows the topic, and larger layers hold noise alone."""
    rng = np.random.default_rng(seed)
    topics = rng.normal(size=(groups, D))
    other = rng.normal(size=(groups, D))
    sides = [topics, topics + 0.3 * rng.normal(size=(groups, D)), other][:size]
    meaning = np.stack(sides, axis=1).reshape(-1, D)
    embeddings = {}
    for pooling in poolings:
        for at, layer in enumerate(LAYERS):
            noise = rng.normal(size=meaning.shape)
            embeddings[f"{pooling}/{layer}"] = meaning + 2 if layer == GOOD else 10.0**at * (noise + 5)
    return embeddings


@pytest.fixture
def triplets(tmp_path):
    groups = 400
    columns = {"triplet": np.arange(3 * groups) // 3, "side": np.arange(3 * groups) % 3}
    return make_cache(tmp_path / "triplets", world(groups, 3, 0), n_blocks=4, columns=columns, shards=3)


@pytest.fixture
def scored(tmp_path):
    """Pairs of which half are alike, with scores that say so."""
    embeddings = world(60, 2, 1)
    for name, values in embeddings.items():
        if name.endswith(GOOD):
            values[1::4] = np.random.default_rng(2).normal(size=values[1::4].shape) + 2
    scores = np.repeat(np.where(np.arange(60) % 2 == 0, 1.0, 4.0) + np.linspace(0, 0.5, 60), 2)
    return make_cache(tmp_path / "pairs", embeddings, n_blocks=4, pairs=True, columns={"score": scores})


OPTIONS = {
    "scalar-mix": {"learning_rate": 0.1},
    "layer-attention": {"learning_rate": 3e-3},
    "multi-layer": {"learning_rate": 1e-2, "sizes": {"latents": 4, "heads": 2, "head_width": 8}},
}


@pytest.mark.parametrize("kind", OPTIONS)
def test_fitting_finds_the_layer_that_knows(kind, triplets, scored):
    steps = []
    fitted = LearnedPooling(kind, batch_size=32, epochs=8, patience=8, **OPTIONS[kind]).fit(
        triplets, dev=scored, progress=lambda done, total: steps.append((done, total))
    )
    assert fitted.objective_ == "triplets"
    assert fitted.n_examples_ == 400
    assert fitted.dev_metric_ == "cosine_spearman"
    history = fitted.history_
    assert history["loss"].iloc[-1] < history["loss"].iloc[1]
    assert history["dev"][fitted.best_epoch_] == history["dev"].max()
    assert history["dev"].max() > history["dev"][0]
    weights = fitted.layer_weights_
    assert weights["layer_name"].tolist() == fitted.layers_
    assert weights["weight"].sum() == pytest.approx(1)
    if kind != "layer-attention":  # whose queries are noise at all other layers, as its last token is
        assert weights.nlargest(1, "weight")["layer_name"].item() == GOOD
    assert steps[0][0] == 1
    assert steps[-1] == (1, 1)
    vectors = fitted.transform(scored)
    assert vectors.shape == (120, D)
    scores = evaluate_sts(scored, pooling="mean", learned={"mix": fitted}, draws=60)
    scores = scores[(scores["metric"] == "cosine_spearman") & (scores["variant"] == "raw")]
    mine = scores[scores["pooling"] == "mix"].iloc[0]
    assert mine["score"] == pytest.approx(history["dev"].max(), abs=1e-6)
    last = scores[(scores["pooling"] == "mean") & (scores["layer_name"] == "block.4")].iloc[0]
    gain = paired_difference(mine, last)
    assert gain["difference"] == pytest.approx(mine["score"] - last["score"])
    assert gain["low"] < gain["difference"] < gain["high"]
    assert gain["p"] < 0.05 or kind == "layer-attention"


def test_layers_of_a_kind_are_those_of_hidden_states(triplets, tmp_path):
    assert LearnedPooling("scalar-mix", epochs=1).fit(triplets).layers_ == LAYERS
    assert LearnedPooling("multi-layer", epochs=1).fit(triplets).layers_ == LAYERS[1:]
    embeddings = {
        f"mean/{name}": v
        for name, v in zip([*LAYERS, "norm"], np.random.default_rng(0).normal(size=(6, 90, D)), strict=True)
    }
    columns = {"triplet": np.arange(90) // 3, "side": np.arange(90) % 3}
    cache = make_cache(tmp_path / "normed", embeddings, n_blocks=4, columns=columns)
    assert LearnedPooling("scalar-mix", epochs=1).fit(cache).layers_ == [*LAYERS[:4], "norm"]


def test_the_same_seed_gives_the_same_mix_and_leaves_torchs_state(triplets):
    before = torch.random.get_rng_state()
    one, two, other = (
        LearnedPooling("layer-attention", epochs=2, seed=seed).fit(triplets) for seed in (3, 3, 4)
    )
    assert torch.equal(before, torch.random.get_rng_state())
    np.testing.assert_array_equal(one.transform(triplets), two.transform(triplets))
    assert np.abs(one.transform(triplets) - other.transform(triplets)).max() > 1e-3


def test_no_training_is_worse_than_the_start(triplets, scored):
    """An absurd learning rate is undone: the best epoch is kept, and it may be none."""
    fitted = LearnedPooling("scalar-mix", learning_rate=1e4, epochs=3).fit(triplets, dev=scored)
    assert fitted.history_["dev"][fitted.best_epoch_] == fitted.history_["dev"].max()
    patient = LearnedPooling("scalar-mix", learning_rate=1e-9, epochs=50, patience=2).fit(
        triplets, dev=scored
    )
    assert len(patient.history_) < 20


@pytest.mark.parametrize("objective", ["pairs", "scores"])
def test_objectives_of_pairs(objective, scored):
    fitted = LearnedPooling("scalar-mix", objective, epochs=6, batch_size=16, learning_rate=0.1).fit(scored)
    assert fitted.objective_ == objective
    assert fitted.history_["dev"].max() > fitted.history_["dev"][0]
    assert LearnedPooling("scalar-mix", epochs=1).fit(scored).objective_ == "scores"


def test_views_are_examples(tmp_path):
    rng = np.random.default_rng(0)
    texts = {f"mean/{name}": rng.normal(size=(60, D)) for name in LAYERS}
    view = {
        name: values + (0.1 if name.endswith(GOOD) else 3) * rng.normal(size=values.shape)
        for name, values in texts.items()
    }
    for views in ({"view-1": view}, {"view-1": view, "view-2": texts}):
        cache = make_cache(tmp_path / f"v{len(views)}", texts, n_blocks=4, views=views)
        fitted = LearnedPooling("scalar-mix", epochs=8, batch_size=20, learning_rate=0.2).fit(cache)
        assert fitted.objective_ == "views"
        assert fitted.layer_weights_.nlargest(1, "weight")["layer_name"].item() == GOOD


def test_conventions_of_scikit_learn(triplets):
    one = LearnedPooling("multi-layer", sizes={"latents": 2}, epochs=1)
    assert clone(one).get_params() == one.get_params()
    assert one.fit(triplets) is one
    np.testing.assert_array_equal(one.fit_transform(triplets), one.transform(triplets))


def test_empty_texts_are_left_out_and_have_no_vector(tmp_path):
    texts = [f"text {i}" for i in range(90)]
    texts[4] = " "
    columns = {"triplet": np.arange(90) // 3, "side": np.arange(90) % 3}
    cache = make_cache(tmp_path / "c", world(30, 3, 0), n_blocks=4, columns=columns, texts=texts)
    fitted = LearnedPooling("scalar-mix", epochs=1).fit(cache)
    assert fitted.n_examples_ == 26  # 29 less the held-out tenth
    vectors = fitted.transform(cache)
    assert np.isnan(vectors[4]).all()
    assert np.isfinite(np.delete(vectors, 4, axis=0)).all()


# --- saving -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_saved_pooling_gives_the_same_vectors(kind, triplets, tmp_path):
    fitted = LearnedPooling(kind, epochs=1, **OPTIONS[kind]).fit(triplets)
    folder = save_pooling(fitted, tmp_path / "mix")
    again = load_pooling(folder)
    np.testing.assert_array_equal(fitted.transform(triplets), again.transform(triplets))
    pd.testing.assert_frame_equal(fitted.layer_weights_, again.layer_weights_)
    pd.testing.assert_frame_equal(fitted.history_, again.history_)
    assert again.get_params() == fitted.get_params()
    assert {path.name for path in folder.iterdir()} == {
        "config.json", "model.safetensors", "layer_weights.csv", "history.csv",
    }  # fmt: skip
    assert json.loads((folder / "config.json").read_text())["made_of"]["model"] == "tiny"


def test_damaged_folders_are_refused(triplets, tmp_path):
    folder = save_pooling(LearnedPooling("scalar-mix", epochs=1).fit(triplets), tmp_path / "mix")
    with pytest.raises(FrameError, match="no fitted pooling at"):
        load_pooling(tmp_path / "none")
    config = json.loads((folder / "config.json").read_text())
    for change, message in (
        ({"format": "x"}, "does not describe a fitted pooling"),
        ({"schema": 99}, "newer layerscope"),
        ({"layers": ["embed"]}, "is damaged"),
    ):
        (folder / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(FrameError, match=message):
            load_pooling(folder)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(FrameError, match="is damaged"):
        load_pooling(folder)


# --- refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "layer-atention"}, "did you mean 'layer-attention'"),
        ({"objective": "tripletts"}, "did you mean 'triplets'"),
        ({"layers": ["block.2"]}, "two layers or more"),
        ({"layers": ["block.2", "block.9"]}, "holds no layer 'block.9'"),
        ({"pooling": "max"}, "extract with --pooling max"),
        ({"kind": "layer-attention", "token_pooling": "last"}, "extract with --pooling last"),
        ({"epochs": 0}, "epochs is 0"),
        ({"batch_size": 1}, "batch_size is 1"),
        ({"learning_rate": -1.0}, "learning_rate is -1.0"),
        ({"temperature": float("inf")}, "temperature is inf"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"device": "tpu9"}, "--device tpu9"),
        ({"sizes": {"latents": 2}}, "has no size 'latents'"),
    ],
)
def test_options_that_cannot_be(options, message, triplets):
    with pytest.raises(UsageError, match=message):
        LearnedPooling(**{"kind": "scalar-mix", **options}).fit(triplets)


def test_a_cache_without_the_tokens_says_how_to_extract_them(tmp_path):
    columns = {"triplet": np.arange(90) // 3, "side": np.arange(90) % 3}
    cache = make_cache(tmp_path / "c", world(30, 3, 0, poolings=("mean",)), n_blocks=4, columns=columns)
    with pytest.raises(UsageError, match=r"extract with --pooling mean,cls \(mean,last for a decoder\)"):
        LearnedPooling("layer-attention").fit(cache)


@pytest.mark.parametrize(
    ("objective", "how"),
    [
        ("triplets", "three --text-column"),
        ("scores", "--score-column"),
        ("pairs", "two --text-column"),
        ("views", "--views 2"),
        ("auto", "--views 2"),
    ],
)
def test_a_cache_without_examples_says_how_to_extract_them(objective, how, tmp_path):
    cache = make_cache(tmp_path / "c", world(30, 3, 0), n_blocks=4)
    with pytest.raises(CorpusError, match=how):
        LearnedPooling("scalar-mix", objective).fit(cache)


def test_one_example_is_not_enough(tmp_path):
    cache = make_cache(
        tmp_path / "c", world(1, 3, 0), n_blocks=4, columns={"triplet": [0] * 3, "side": [0, 1, 2]}
    )
    with pytest.raises(CorpusError, match="1 usable example"):
        LearnedPooling("scalar-mix").fit(cache)


def test_constant_layers_are_refused(tmp_path):
    columns = {"triplet": np.arange(90) // 3, "side": np.arange(90) % 3}
    constant = {f"mean/{name}": np.ones((90, D)) for name in LAYERS}
    cache = make_cache(tmp_path / "c", constant, n_blocks=4, columns=columns)
    with pytest.raises(CacheError, match="the same states"):
        LearnedPooling("scalar-mix").fit(cache)


def test_scores_that_are_all_alike_are_refused(tmp_path):
    cache = make_cache(
        tmp_path / "c", world(30, 2, 0), n_blocks=4, pairs=True, columns={"score": np.ones(60)}
    )
    with pytest.raises(CorpusError, match="the same score for all pairs"):
        LearnedPooling("scalar-mix", "scores").fit(cache)


def test_another_model_is_refused(triplets, tmp_path):
    other = make_cache(
        tmp_path / "o",
        world(60, 2, 1),
        n_blocks=4,
        pairs=True,
        columns={"score": np.arange(120.0)},
        model="other",
    )
    with pytest.raises(CacheError, match="the dev cache is of the model other"):
        LearnedPooling("scalar-mix").fit(triplets, dev=other)
    with pytest.raises(CacheError, match="fitted on tiny"):
        LearnedPooling("scalar-mix", epochs=1).fit(triplets).transform(other)


def test_a_dev_cache_without_scores_is_refused(triplets):
    with pytest.raises(CorpusError, match="no pairs with scores"):
        LearnedPooling("scalar-mix").fit(triplets, dev=triplets)


def test_an_interrupted_fit_leaves_nothing_and_says_so(triplets, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from layerscope.cli.main import app

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(LearnedPooling, "_loss", stop)
    words = ["fit", str(triplets.path), "--pooling-model", "scalar-mix", "-o", str(tmp_path / "mix")]
    done = CliRunner().invoke(app, words, standalone_mode=False)
    assert "nothing was written; run the same command again" in done.output + done.stderr
    assert not (tmp_path / "mix").exists()
