"""Several criteria together, choice by labels, how many labels that needs, and corrections of vectors."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata, spearmanr
from sklearn.base import clone

from layerscope.errors import FrameError, UsageError
from layerscope.evaluate.labels import label_curve
from layerscope.evaluate.sts import evaluate_sts
from layerscope.select import LayerSelector, RankAggregateSelector, fit_correction
from tests.caches import make_cache

NAMES = ["embed", "block.1", "block.2", "block.3"]


def frame_of(values, directions=None, draws=None, n=100):
    """A metrics frame from criterion -> values of the layers; ``draws`` from criterion -> (draws, layers)."""
    records = []
    for metric, row in values.items():
        for at, value in enumerate(row):
            records.append(
                {"model": "m", "corpus": "c", "layer": at, "layer_name": NAMES[at], "depth": at / 3,
                 "pooling": "mean", "metric": metric, "variant": "", "value": value, "n": n,
                 "direction": (directions or {}).get(metric, "higher"),
                 "draws": None if draws is None else np.asarray(draws[metric])[:, at].tolist()}
            )  # fmt: skip
    return pd.DataFrame(records)


def test_the_layer_with_the_best_mean_rank_is_picked():
    frame = frame_of({"a": [1, 4, 3, 2], "b": [4, 1, 2, 3]}, {"b": "lower"})
    selector = RankAggregateSelector(["a", "b"]).fit(frame)
    assert (selector.layer_, selector.value_, selector.runner_up_) == ("block.1", 1.0, "block.2")
    assert selector.ranks_.set_index("layer_name")["mean"].to_dict() == {
        "block.1": 1, "block.2": 2, "block.3": 3, "embed": 4,
    }  # fmt: skip
    assert selector.ranking_["layer_name"].tolist() == ["block.1", "block.2", "block.3", "embed"]
    assert selector.clear_ is False
    assert selector.as_record()["criterion"] == "rank aggregate of a, b"
    turned = RankAggregateSelector(["a", "b"], {"a": "lower", "b": "higher"}).fit(frame)
    assert turned.layer_ == "embed"


def test_a_layer_that_is_first_in_every_resample_is_clearly_ahead():
    rng = np.random.default_rng(0)
    base = np.array([3.0, 9.0, 2.0, 1.0])  # block.1 is far ahead; the runner-up falls behind now and then
    draws = {name: base + rng.normal(size=(100, 4)) * [2.0, 0.1, 0.1, 0.1] for name in "ab"}
    selector = RankAggregateSelector(["a", "b"]).fit(frame_of({"a": base, "b": base}, draws=draws))
    leads = np.array(selector.ranking_["draws"].tolist())[:2]
    assert (leads[0] < leads[1]).all()
    assert (selector.layer_, selector.runner_up_, selector.support_) == ("block.1", "embed", 1.0)
    difference, low, high = selector.difference_
    assert (low, high) == tuple(np.quantile(leads[0] - leads[1], [0.025, 0.975]))
    assert low < difference == high == -1
    assert selector.clear_ is True
    assert bool(selector.as_record()["clear"]) is True


@given(st.lists(st.lists(st.integers(0, 5), min_size=4, max_size=4), min_size=2, max_size=4))
def test_ranks_are_those_of_a_loop(rows):
    rows = [row for row in rows if len(set(row)) > 1]
    if len(rows) < 2:
        return
    values = {f"m{at}": row for at, row in enumerate(rows)}
    expected = np.mean([rankdata([-v for v in row]) for row in rows], axis=0)
    if np.ptp(expected) == 0:
        with pytest.raises(FrameError, match="nothing to choose by"):
            RankAggregateSelector(list(values)).fit(frame_of(values))
        return
    selector = RankAggregateSelector(list(values)).fit(frame_of(values))
    found = selector.ranks_.set_index("layer_name")["mean"]
    np.testing.assert_allclose([found[name] for name in NAMES], expected)
    assert selector.value_ == pytest.approx(expected.min())


def test_support_ranks_every_resample_anew():
    rng = np.random.default_rng(0)
    values = {"a": [1.0, 4, 3, 2], "b": [1.0, 3.5, 3.4, 0]}
    draws = {name: np.array(row) + 0.8 * rng.normal(size=(50, 4)) for name, row in values.items()}
    selector = RankAggregateSelector(["a", "b"]).fit(frame_of(values, draws=draws))
    best = 0
    for at in range(50):
        ranks = [rankdata(-draws[name][at]) for name in values]
        order = np.mean(ranks, axis=0)
        best += int(order[1] == order.min())
    # A tie of mean ranks goes to the layer ranked first, which block.1 is.
    assert selector.support_ == pytest.approx(best / 50)
    assert 0.3 < selector.support_ < 1


def test_layers_without_a_value_of_a_criterion_are_out():
    frame = frame_of({"a": [1, 9, 3, 2], "b": [1, np.nan, 3, 2]})
    assert RankAggregateSelector(["a", "b"]).fit(frame).layer_ == "block.2"
    with pytest.raises(FrameError, match="no layer has a value of all of a, b"):
        RankAggregateSelector(["a", "b"]).fit(
            frame_of({"a": [1, 2, np.nan, np.nan], "b": [np.nan, np.nan, 1, 2]})
        )


def test_conventions_and_refusals():
    one = RankAggregateSelector(["a", "b"], {"a": "lower"}, "mean")
    assert clone(one).get_params() == one.get_params()
    frame = frame_of({"a": [1, 2, 3, 4], "b": [1, 2, 3, 4]})
    for criteria in (["a"], "a", ["a", "a"]):
        with pytest.raises(UsageError, match="two or more different"):
            RankAggregateSelector(criteria).fit(frame)
    with pytest.raises(UsageError, match="which end of 'c' is better is not known"):
        RankAggregateSelector(["a", "c"]).fit(frame)


# --- choosing by labels -------------------------------------------------------------------------------


def pair_cache(path, pairs=120, seed=0):
    """Layers of which block.2 follows the scores best."""
    rng = np.random.default_rng(seed)
    scores = rng.uniform(0, 5, pairs)
    arrays = {}
    for name, noise in zip(NAMES, (3.0, 1.0, 0.15, 0.6), strict=True):
        angle = (5 - scores) / 5 * np.pi / 2 + noise * rng.normal(size=pairs)
        x = np.zeros((2 * pairs, 4))
        x[::2, 0] = 1
        x[1::2, 0], x[1::2, 1] = np.cos(angle), np.sin(angle)
        arrays[f"mean/{name}"] = x
    return make_cache(path, arrays, n_blocks=3, pairs=True, columns={"score": np.repeat(scores, 2)})


def test_the_best_layer_of_a_labelled_set_is_picked(tmp_path):
    cache = pair_cache(tmp_path / "c")
    scores = evaluate_sts(cache, draws=200)
    picked = LayerSelector.from_scores(scores)
    raw = scores[(scores["metric"] == "cosine_spearman") & (scores["variant"] == "raw")]
    assert picked.layer_ == raw.loc[raw["score"].idxmax(), "layer_name"] == "block.2"
    assert picked.support_ > 0.95
    assert picked.clear_
    assert picked.criterion == "cosine_spearman"
    assert LayerSelector.from_scores(scores, "cosine_pearson", variant="center").fit is not None
    two = pd.concat([scores, scores.assign(task="other")])
    with pytest.raises(FrameError, match="several values of task"):
        LayerSelector.from_scores(two)
    with pytest.raises(FrameError, match="did you mean 'cosine_pearson'"):
        LayerSelector.from_scores(scores, "cosine_pearso")


def test_the_cost_of_few_labels_falls_as_they_grow(tmp_path):
    cache = pair_cache(tmp_path / "c")
    curve = label_curve(cache, sizes=(5, 20, 60, 90), repeats=100)
    assert curve["pairs"].tolist() == [5, 20, 60]  # more than half of the pairs is left out
    assert curve["regret"].is_monotonic_decreasing
    assert curve["best"].is_monotonic_increasing
    assert (curve["regret_low"] >= 0).all()
    assert (curve["regret_high"] >= curve["regret_low"]).all()
    assert curve["best"].iloc[-1] > 0.95
    pd.testing.assert_frame_equal(curve, label_curve(cache, sizes=(5, 20, 60, 90), repeats=100))


def test_one_draw_of_the_curve_equals_a_loop(tmp_path):
    cache = pair_cache(tmp_path / "c", pairs=40)
    curve = label_curve(cache, sizes=(10,), repeats=1, seed=5)
    order = np.random.default_rng(5).permutation(40)
    scores = cache.rows["score"].to_numpy()[::2]
    cosines = []
    for name in NAMES:
        x = np.asarray(cache.layer(name), dtype=float)
        cosines.append(
            np.sum(x[::2] * x[1::2], axis=1)
            / np.linalg.norm(x[::2], axis=1)
            / np.linalg.norm(x[1::2], axis=1)
        )
    few = [spearmanr(c[order[:10]], scores[order[:10]]).statistic for c in cosines]
    rest = [spearmanr(c[order[10:]], scores[order[10:]]).statistic for c in cosines]
    assert curve["regret"].item() == pytest.approx(max(rest) - rest[int(np.argmax(few))], abs=1e-6)


def test_too_few_pairs_give_no_curve(tmp_path):
    cache = pair_cache(tmp_path / "c", pairs=5)
    with pytest.raises(UsageError, match="too few for a curve"):
        label_curve(cache, sizes=(5,))
    with pytest.raises(UsageError, match="repeats is 0"):
        label_curve(cache, repeats=0)


# --- corrections --------------------------------------------------------------------------------------


def vectors(n=50, d=8, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * np.arange(1, d + 1) ** 2 + 7


def test_centring_takes_the_mean_out():
    x = vectors()
    np.testing.assert_allclose(fit_correction(x, "center").apply(x).mean(axis=0), 0, atol=1e-9)
    np.testing.assert_array_equal(fit_correction(x, "none").apply(x), x)


def test_components_are_taken_out_as_by_an_svd():
    x = vectors()
    centred = x - x.mean(axis=0)
    u, s, vt = np.linalg.svd(centred, full_matrices=False)
    s[:2] = 0
    np.testing.assert_allclose(fit_correction(x, "components", 2).apply(x), u * s @ vt, atol=1e-8)
    assert len(fit_correction(vectors(d=8), "components").directions) == 1
    assert len(fit_correction(vectors(n=300, d=250), "components").directions) == 2


def test_dimensions_of_largest_variance_are_zero():
    x = vectors()
    found = fit_correction(x, "dimensions", 2).apply(x)
    assert np.abs(found[:, -2:]).max() == 0
    np.testing.assert_allclose(found[:, :-2], (x - x.mean(axis=0))[:, :-2], atol=1e-9)


@given(st.sampled_from(["none", "center", "components", "dimensions"]), st.integers(0, 99))
def test_a_correction_is_affine_and_doing_it_twice_is_doing_it_once(kind, seed):
    x = vectors(seed=seed)
    correction = fit_correction(x, kind)
    matrix, shift = correction.as_affine()
    np.testing.assert_allclose(correction.apply(x), x @ matrix.T + shift, atol=1e-8)
    np.testing.assert_allclose(matrix @ matrix, matrix, atol=1e-10)
    assert correction.n == 50


def test_rows_that_are_not_finite_are_left_out():
    x = vectors()
    y = np.vstack([x, np.full((2, 8), np.nan)])
    np.testing.assert_allclose(fit_correction(y, "center").centre, x.mean(axis=0))
    assert np.isnan(fit_correction(y, "center").apply(y)[-1]).all()


@pytest.mark.parametrize(
    ("rows", "kind", "count", "message"),
    [
        (vectors(), "centre", None, "did you mean 'center'"),
        (vectors(1), "center", None, "two texts or more, and 1 have"),
        (vectors(), "components", 8, "below 8"),
        (vectors(), "components", 0, "count is 0"),
        (vectors(), "dimensions", 1.5, "count is 1.5"),
    ],
)
def test_corrections_that_cannot_be(rows, kind, count, message):
    with pytest.raises(UsageError, match=message):
        fit_correction(rows, kind, count)
