from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr, rankdata, spearmanr

from layerscope.errors import CorpusError, UsageError
from layerscope.evaluate.correlation import pearson, spearman, weighted_ranks
from layerscope.evaluate.sts import evaluate_sts, read_subsets
from layerscope.frames import SCORE_COLUMNS
from layerscope.resampling import interval
from tests.caches import make_cache

NAN = float("nan")
MISSING = ["score", "ci_low", "ci_high"]


def pairs_cache(path, arrays, gold=None, **more):
    """A cache of pairs with ``gold`` (pairs,) as its scores; ``arrays`` by layer or by pooling/layer."""
    named = {name if "/" in name else f"mean/{name}": array for name, array in arrays.items()}
    columns = {} if gold is None else {"score": np.repeat(gold, 2)}
    return make_cache(path, named, **({"n_blocks": 2, "pairs": True, "columns": columns} | more))


def draw_pairs(n=30, d=4, seed=0):
    """Vectors (2n, d) off the origin, and a score (n,) that agrees a little with their cosines."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(2 * n, d)).astype(np.float32) + 1
    return vectors, cosines(vectors) + rng.normal(scale=0.5, size=n)


def cosines(vectors):
    pairs = vectors.astype(np.float64).reshape(len(vectors) // 2, 2, -1)
    return np.array([x @ y / np.sqrt((x @ x) * (y @ y)) for x, y in pairs])


def with_cosines(cosine):
    """Vectors of pairs (2n, 2) with the given cosines, one of each pair along the first axis."""
    vectors = np.zeros((2 * len(cosine), 2))
    vectors[::2, 0] = 1
    vectors[1::2] = np.stack([cosine, np.sqrt(1 - np.square(cosine))], axis=1)
    return vectors


def only(frame, **where):
    """The one row of these, of the raw Spearman where nothing else is said."""
    rows = frame
    for column, value in ({"variant": "raw", "metric": "cosine_spearman"} | where).items():
        rows = rows[rows[column] == value]
    assert len(rows) == 1
    return rows.iloc[0]


# Values


def test_correlations_are_scipys(tmp_path):
    vectors, gold = draw_pairs()
    frame = evaluate_sts(pairs_cache(tmp_path / "cache", {"embed": vectors}, gold), draws=0)
    centred = vectors.astype(np.float64) - vectors.astype(np.float64).mean(axis=0)
    for variant, x in (("raw", cosines(vectors)), ("center", cosines(centred))):
        found = {name: only(frame, variant=variant, metric=name) for name in set(frame["metric"])}
        assert found["cosine_spearman"]["score"] == pytest.approx(spearmanr(x, gold).statistic, abs=1e-12)
        assert found["cosine_pearson"]["score"] == pytest.approx(pearsonr(x, gold).statistic, abs=1e-12)


@pytest.mark.parametrize(("sign", "score"), [(1, 1.0), (-1, -1.0)])
def test_an_order_like_peoples_is_one_and_its_reverse_minus_one(tmp_path, sign, score):
    cosine = np.linspace(-0.9, 0.9, 8)
    cache = pairs_cache(tmp_path / "cache", {"embed": with_cosines(cosine)}, np.exp(3 * sign * cosine))
    frame = evaluate_sts(cache, draws=40)
    row = only(frame)
    assert row["score"] == pytest.approx(score, abs=1e-12)
    assert abs(only(frame, metric="cosine_pearson")["score"]) < 0.99
    assert -1 <= row["ci_low"] <= row["ci_high"] <= 1


def test_the_length_of_vectors_does_not_matter_and_of_the_order_only_the_order(tmp_path):
    vectors, gold = draw_pairs()
    lengths = np.exp(np.random.default_rng(1).normal(size=(60, 1)))
    first, second = (
        only(evaluate_sts(pairs_cache(tmp_path / name, {"embed": array}, scores), draws=20))
        for name, array, scores in (("a", vectors, gold), ("b", lengths * vectors, np.exp(gold)))
    )
    assert first["score"] == pytest.approx(second["score"])
    assert first["draws"] == pytest.approx(second["draws"])


def test_centring_undoes_a_common_offset(tmp_path):
    vectors, gold = draw_pairs()
    arrays = {"embed": vectors, "block.1": vectors + np.float32(64)}
    frame = evaluate_sts(pairs_cache(tmp_path / "cache", arrays, gold), draws=0)
    for variant, same in (("center", True), ("raw", False)):
        scores = [only(frame, variant=variant, layer_name=name)["score"] for name in arrays]
        assert bool(abs(scores[0] - scores[1]) < 0.02) == same


WEIGHTED = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 3)), min_size=2, max_size=12
)


@settings(deadline=None, max_examples=150)
@given(rows=WEIGHTED)
def test_weights_are_repetitions(rows):
    x, y, weights = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    long_x, long_y = (np.repeat(column, weights.astype(int)) for column in (x, y))
    first = np.cumsum(weights) - weights  # where each value stands first among the repeated ones
    ranks = weighted_ranks(x, weights[None])[0][weights > 0]
    np.testing.assert_array_equal(ranks, rankdata(long_x)[first[weights > 0].astype(int)])
    for ours, scipys in ((spearman, spearmanr), (pearson, pearsonr)):
        found = ours(x, y, weights[None])[0]
        if len(set(long_x)) < 2 or len(set(long_y)) < 2:
            assert np.isnan(found)
        else:
            assert found == pytest.approx(scipys(long_x, long_y).statistic, abs=1e-12)


@pytest.mark.parametrize("value", [0.1, 0.7, 1 / 3, 1e10 / 3])
def test_a_resample_of_one_pair_alone_has_no_correlation(value):
    x, y = np.array([value, 0.2, 0.5]), np.array([0.3, value / 7, 0.9])
    for correlate in (pearson, spearman):
        assert np.isnan(correlate(x, y, np.array([[3.0, 0, 0], [0, 3, 0], [0, 0, 7], [0, 0, 0]]))).all()


def test_many_weights_are_each_on_their_own():
    rng = np.random.default_rng(0)
    x, y, weights = rng.normal(size=9), rng.normal(size=9), rng.integers(0, 3, size=(20, 9)).astype(float)
    together = spearman(x, y, weights)
    np.testing.assert_allclose(together, [spearman(x, y, row[None])[0] for row in weights], atol=1e-12)


# The frame


def test_a_row_for_every_layer_pooling_variant_and_metric(tmp_path):
    names = [
        f"{pooling}/{layer}" for pooling in ("last", "mean") for layer in ("norm", "block.10", "block.2")
    ]
    vectors, gold = draw_pairs(5)
    cache = pairs_cache(
        tmp_path / "cache", dict.fromkeys(names, vectors), gold, n_blocks=10, model="gpt", corpus="stsb"
    )
    frame = evaluate_sts(cache, draws=0)
    assert list(frame.columns) == list(SCORE_COLUMNS)
    assert frame["pooling"].tolist() == ["last"] * 12 + ["mean"] * 12
    assert frame["layer_name"].tolist() == (["block.2"] * 4 + ["block.10"] * 4 + ["norm"] * 4) * 2
    assert frame["layer"].tolist() == ([2] * 4 + [10] * 8) * 2
    assert frame["depth"].tolist() == ([0.2] * 4 + [1.0] * 8) * 2
    assert frame["variant"].tolist() == ["raw", "raw", "center", "center"] * 6
    assert frame["metric"].tolist() == ["cosine_spearman", "cosine_pearson"] * 12
    assert set(frame["model"]) == {"gpt"}
    assert set(frame["task"]) == {"stsb"}
    assert set(frame["n"]) == {5}
    assert set(frame["reason"]) == {""}


def test_poolings_and_the_name_of_the_task_can_be_chosen(tmp_path):
    vectors, gold = draw_pairs(5)
    arrays = {"mean/embed": vectors, "last/embed": vectors[::-1]}
    cache = pairs_cache(tmp_path / "cache", arrays, gold)
    frame = evaluate_sts(cache, pooling=["last"], task="mine", draws=0)
    assert set(frame["pooling"]) == {"last"}
    assert set(frame["task"]) == {"mine"}
    assert only(frame)["score"] == pytest.approx(spearmanr(cosines(vectors[::-1]), gold).statistic)


def test_scores_come_from_the_column_or_from_the_caller(tmp_path):
    vectors, gold = draw_pairs()
    cache = pairs_cache(
        tmp_path / "cache", {"embed": vectors}, gold, columns={"similarity": np.repeat(gold, 2)}
    )
    by_name = evaluate_sts(cache, score_column="similarity", draws=5)
    given = evaluate_sts(cache, list(gold), draws=5)
    pd.testing.assert_frame_equal(by_name, given)
    assert only(evaluate_sts(cache, -gold, draws=0))["score"] == pytest.approx(-only(given)["score"])


# Resamples


def test_draws_and_intervals_are_of_a_bootstrap_over_pairs(tmp_path):
    vectors, gold = draw_pairs(200)
    gold[:40] = NAN
    row = only(evaluate_sts(pairs_cache(tmp_path / "cache", {"embed": vectors}, gold), draws=50, seed=7))
    x = cosines(vectors)
    drawn = np.random.default_rng(7).integers(200, size=(50, 200))
    slow = [spearmanr(x[rows[rows >= 40]], gold[rows[rows >= 40]]).statistic for rows in drawn]
    assert row["draws"] == pytest.approx(slow, abs=1e-9)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(interval(row["score"], np.array(slow)))


def test_all_layers_and_poolings_share_their_resamples(tmp_path):
    vectors, gold = draw_pairs()
    names = [f"{pooling}/{layer}" for pooling in ("mean", "last") for layer in ("embed", "block.1")]
    frame = evaluate_sts(pairs_cache(tmp_path / "cache", dict.fromkeys(names, vectors), gold), draws=6)
    for _, group in frame.groupby(["variant", "metric"]):
        assert len({tuple(draws) for draws in group["draws"]}) == 1
        assert len(set(group["draws"].iloc[0])) == 6


def test_another_seed_changes_the_draws_but_not_the_scores(tmp_path):
    vectors, gold = draw_pairs()
    cache = pairs_cache(tmp_path / "cache", {"embed": vectors}, gold)
    first, again, other = (evaluate_sts(cache, draws=6, seed=seed) for seed in (1, 1, 2))
    pd.testing.assert_frame_equal(first, again)
    assert first["score"].tolist() == other["score"].tolist()
    assert first["draws"].tolist() != other["draws"].tolist()


def test_without_draws_there_are_no_intervals(tmp_path):
    vectors, gold = draw_pairs()
    frame = evaluate_sts(pairs_cache(tmp_path / "cache", {"embed": vectors}, gold), draws=0)
    assert frame["score"].notna().all()
    assert frame[["ci_low", "ci_high", "draws"]].isna().to_numpy().all()


def test_intervals_stay_within_what_a_correlation_can_be(tmp_path):
    cosine = np.array([0.1, 0.2, 0.3, 0.35])
    cache = pairs_cache(tmp_path / "cache", {"embed": with_cosines(cosine)}, [1.0, 2.0, 4.0, 3.0])
    frame = evaluate_sts(cache, draws=200)
    assert frame["ci_low"].notna().all()
    assert frame[["ci_low", "ci_high"]].to_numpy().min() >= -1
    assert frame[["ci_low", "ci_high"]].to_numpy().max() == 1


def all_pairs_of_few(path, n_texts=8):
    """All pairs of few texts; every cosine and score leans on an effect of each of its two texts."""
    rng = np.random.default_rng(0)
    texts = list(itertools.combinations(range(n_texts), 2))
    vectors = rng.normal(size=(n_texts, 3))
    effect = rng.normal(size=n_texts)
    rows = [text for pair in texts for text in pair]
    gold = cosines(vectors[rows]) + np.array([effect[a] + effect[b] for a, b in texts])
    return pairs_cache(path, {"embed": vectors[rows]}, gold, texts=[f"text {text}" for text in rows])


def test_pairs_that_share_texts_are_drawn_by_text(tmp_path):
    cache = all_pairs_of_few(tmp_path / "cache")
    auto, pairs, texts = (
        only(evaluate_sts(cache, draws=300, resample=how)) for how in ("auto", "pairs", "texts")
    )
    assert auto["draws"] == texts["draws"] != pairs["draws"]
    assert np.nanstd(texts["draws"]) > 1.3 * np.nanstd(pairs["draws"])
    assert texts["score"] == pairs["score"]


def test_pairs_of_their_own_texts_are_drawn_as_pairs(tmp_path):
    vectors, gold = draw_pairs()
    cache = pairs_cache(tmp_path / "cache", {"embed": vectors}, gold)
    auto, pairs, texts = (
        only(evaluate_sts(cache, draws=5, resample=how)) for how in ("auto", "pairs", "texts")
    )
    assert auto["draws"] == pairs["draws"] != texts["draws"]


def test_a_drawn_text_brings_all_its_pairs(tmp_path):
    # Of three texts, all pairs: only where each is drawn once (6 draws of 27) is there more than one pair.
    cosine = {(0, 1): 0.9, (0, 2): 0.5, (1, 2): 0.1}
    vectors = np.concatenate([with_cosines([value]) for value in cosine.values()])
    cache = pairs_cache(
        tmp_path / "cache",
        {"embed": vectors},
        [1.0, 3.0, 2.0],
        texts=[f"text {text}" for pair in cosine for text in pair],
    )
    draws = only(evaluate_sts(cache, draws=600, resample="texts"))["draws"]
    defined = np.array(draws)[~np.isnan(draws)]
    assert len(defined) / 600 == pytest.approx(6 / 27, abs=0.04)
    assert defined == pytest.approx(np.full(len(defined), -0.5))


# Pairs that are left out


def test_pairs_without_a_score_are_left_out(tmp_path):
    vectors, gold = draw_pairs()
    gold[[3, 8, 9]] = NAN
    row = only(evaluate_sts(pairs_cache(tmp_path / "cache", {"embed": vectors}, gold), draws=20))
    there = np.isfinite(gold)
    assert row["n"] == 27
    assert row["score"] == pytest.approx(spearmanr(cosines(vectors)[there], gold[there]).statistic)
    assert np.isfinite(row["draws"]).all()


@pytest.mark.parametrize("variant", ["raw", "center"])
def test_pairs_with_an_empty_text_or_no_token_are_left_out(tmp_path, variant):
    vectors, gold = draw_pairs()
    texts = [f"text {row}" if row != 5 else " " for row in range(60)]
    cache = pairs_cache(
        tmp_path / "cache", {"embed": vectors}, gold, texts=texts, undefined={0: ["mean"], 1: ["mean"]}
    )
    row = only(evaluate_sts(cache, draws=0), variant=variant)
    kept = vectors.astype(np.float64)[[row for row in range(60) if row not in (0, 1, 5)]]
    moved = vectors.astype(np.float64) - (kept.mean(axis=0) if variant == "center" else 0)
    there = np.delete(np.arange(30), [0, 2])
    assert row["n"] == 28
    assert row["reason"] == ""
    assert row["score"] == pytest.approx(spearmanr(cosines(moved)[there], gold[there]).statistic)


def test_pairs_with_a_zero_vector_have_no_cosine(tmp_path):
    vectors, gold = draw_pairs()
    vectors[[4, 21]] = 0
    frame = evaluate_sts(pairs_cache(tmp_path / "cache", {"embed": vectors}, gold), draws=10)
    there = np.delete(np.arange(30), [2, 10])
    assert only(frame)["n"] == 28
    nonzero = np.where(vectors.any(axis=1, keepdims=True), vectors, 1)
    assert only(frame)["score"] == pytest.approx(spearmanr(cosines(nonzero)[there], gold[there]).statistic)
    assert only(frame, variant="center")["n"] == 30


# Missing values


@pytest.mark.parametrize("bad", [NAN, np.inf])
def test_a_row_that_is_not_finite_makes_its_layer_missing_by_name(tmp_path, bad):
    vectors, gold = draw_pairs()
    gold[0] = NAN
    broken = vectors.copy()
    broken[[1, 17, 40], 2] = bad
    arrays = {"mean/embed": vectors, "mean/block.1": broken, "last/block.1": vectors, "last/embed": vectors}
    frame = evaluate_sts(pairs_cache(tmp_path / "cache", arrays, gold), draws=5)
    at = (frame["layer_name"] == "block.1") & (frame["pooling"] == "mean")
    assert set(frame["reason"][at]) == {"not finite: row 1 and 2 more"}
    assert frame[at][MISSING].isna().to_numpy().all()
    assert set(frame["reason"][~at]) == {""}
    assert frame[~at][MISSING].notna().to_numpy().all()


def test_constant_embeddings_have_a_reason(tmp_path):
    cache = pairs_cache(tmp_path / "cache", {"embed": np.full((20, 3), 0.1)}, np.arange(10.0))
    frame = evaluate_sts(cache, draws=5)
    assert frame[MISSING].isna().to_numpy().all()
    assert set(frame[frame["variant"] == "raw"]["reason"]) == {"constant: all pairs have the same cosine"}
    assert set(frame[frame["variant"] == "center"]["reason"]) == {"constant: every vector is zero"}
    assert frame["draws"].isna().all()


def test_vectors_of_one_direction_have_no_order(tmp_path):
    lengths = np.exp(np.random.default_rng(0).normal(size=(20, 1)))
    cache = pairs_cache(tmp_path / "cache", {"embed": lengths * [0.1, 0.7, 0.3]}, np.arange(10.0))
    row = only(evaluate_sts(cache, draws=5))
    assert row["reason"] == "constant: all pairs have the same cosine"
    assert np.isnan(row["score"])


def test_zero_vectors_have_a_reason(tmp_path):
    frame = evaluate_sts(pairs_cache(tmp_path / "cache", {"embed": np.zeros((8, 3))}, np.arange(4.0)))
    assert set(frame["reason"]) == {"constant: every vector is zero"}
    assert set(frame["n"]) == {0}


def test_equal_scores_have_no_order(tmp_path):
    vectors, _ = draw_pairs()
    frame = evaluate_sts(pairs_cache(tmp_path / "cache", {"embed": vectors}, np.full(30, 2.5)), draws=5)
    assert set(frame["reason"]) == {"all human scores are equal"}
    assert frame[MISSING].isna().to_numpy().all()


@pytest.mark.parametrize(
    ("without", "reason"),
    [(range(6), "no vectors"), (range(1, 6), "fewer than two"), ([0, 2], "fewer than two")],
)
def test_too_few_vectors_are_a_reason(tmp_path, without, reason):
    vectors, gold = draw_pairs(3)
    cache = pairs_cache(
        tmp_path / "cache", {"embed": vectors}, gold, undefined={row: ["mean"] for row in without}
    )
    row = only(evaluate_sts(cache, draws=5))
    assert row["reason"].startswith(reason)
    assert row[MISSING].isna().all()


# What it asks of the cache


def test_a_corpus_of_single_texts_has_no_pairs(tmp_path):
    vectors, gold = draw_pairs()
    cache = pairs_cache(tmp_path / "cache", {"embed": vectors}, gold, pairs=False)
    with pytest.raises(CorpusError, match="single texts, not pairs: extract with two --text-column"):
        evaluate_sts(cache)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"score_column": "gold"}, CorpusError, r"no column 'gold': extract with --score-column .*score.*\)"),
        ({"scores": np.zeros(29)}, UsageError, r"one per pair \(30\), got shape \(29,\)"),
        ({"scores": np.zeros((30, 1))}, UsageError, r"got shape \(30, 1\)"),
        ({"scores": [NAN] * 29 + [1.0]}, CorpusError, "fewer than two scored pairs"),
        ({"pooling": ["maen"]}, UsageError, "no pooling 'maen': did you mean 'mean'"),
        ({"draws": -1}, UsageError, "--draws is -1"),
        ({"draws": 1.5}, UsageError, "--draws is 1.5: it must be a whole number"),
        ({"seed": -1}, UsageError, "--seed is -1"),
        ({"pooling": []}, UsageError, "pooling is empty"),
        ({"pooling": [None]}, UsageError, "expected the name of a pooling, got None"),
        ({"scores": ["much"] * 30}, UsageError, "scores: expected numbers, one per pair"),
        ({"scores": [1.0] * 29 + [np.inf]}, UsageError, "the score of pair 29 is infinite"),
        ({"score_column": "undefined"}, UsageError, "'undefined' is layerscope's own"),
        ({"score_column": "word"}, CorpusError, "'word' of .* holds no scores: that of pair 0 is 'a'"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, options, error, says):
    vectors, gold = draw_pairs()
    cache = pairs_cache(
        tmp_path / "cache",
        {"embed": vectors},
        gold,
        columns={"score": np.repeat(gold, 2), "word": ["a"] * 60},
    )
    with pytest.raises(error, match=says):
        evaluate_sts(cache, **options)


def test_a_path_and_the_name_of_one_pooling_will_do(tmp_path):
    vectors, gold = draw_pairs()
    cache = pairs_cache(tmp_path / "cache", {"embed": vectors}, gold)
    frame = evaluate_sts(cache, pooling=["mean"], draws=2)
    pd.testing.assert_frame_equal(evaluate_sts(str(cache.path), pooling="mean", draws=np.int64(2)), frame)
    with pytest.raises(UsageError, match="path of one, got list"):
        evaluate_sts([1, 2])


# Subsets


def test_subsets_have_scores_of_their_own_and_a_plain_mean(tmp_path):
    vectors, gold = draw_pairs(60)
    cache = pairs_cache(tmp_path / "cache", {"block.1": vectors}, gold)
    names = ["a"] * 20 + ["b"] * 40
    frame = evaluate_sts(cache, subsets=names, draws=60)
    assert frame["subset"].unique().tolist() == ["all", "a", "b", "mean"]
    x = cosines(vectors)
    expected = {
        "all": spearmanr(x, gold).statistic, "a": spearmanr(x[:20], gold[:20]).statistic,
        "b": spearmanr(x[20:], gold[20:]).statistic,
    }  # fmt: skip
    expected["mean"] = (expected["a"] + expected["b"]) / 2
    for subset, value in expected.items():
        row = only(frame, subset=subset)
        assert row["score"] == pytest.approx(value, abs=1e-12)
        assert row["ci_low"] < value < row["ci_high"]
    assert only(frame, subset="mean")["n"] == 60
    whole = evaluate_sts(cache, draws=60)
    assert only(frame, subset="all")["ci_low"] == only(whole)["ci_low"]


def test_a_subset_without_a_score_leaves_the_mean_without_one(tmp_path):
    vectors, gold = draw_pairs(10)
    gold[:5] = 1.0
    cache = pairs_cache(tmp_path / "cache", {"block.1": vectors}, gold)
    frame = evaluate_sts(cache, subsets=["a"] * 5 + ["b"] * 5, draws=0)
    assert np.isnan(only(frame, subset="mean")["score"])
    assert only(frame, subset="mean")["reason"] == "all human scores are equal"


@pytest.mark.parametrize(
    ("subsets", "error"),
    [
        (["a"] * 3, "expected one per pair"),
        ("nowhere", "no column 'nowhere' of subsets"),
        (["all"] * 10, "as the aggregate is"),
    ],
)
def test_bad_subsets_are_refused(tmp_path, subsets, error):
    cache = pairs_cache(tmp_path / "cache", {"block.1": draw_pairs(10)[0]}, draw_pairs(10)[1])
    with pytest.raises(UsageError, match=error):
        evaluate_sts(cache, subsets=subsets)


def test_runs_of_rows_are_read_from_a_table(tmp_path):
    table = tmp_path / "subsets.tsv"
    table.write_text("file\tsubset\tfirst_row\trows\nx.tsv\tb\t2\t1\nx.tsv\ta\t0\t2\ny.tsv\tc\t0\t9\n")
    assert read_subsets(table, "x", 3) == ["a", "a", "b"]
    with pytest.raises(CorpusError, match="do not cover the 4 pairs of 'x' exactly"):
        read_subsets(table, "x", 4)
    with pytest.raises(CorpusError, match="names no file 'z'"):
        read_subsets(table, "z", 3)
    (tmp_path / "bad.tsv").write_text("subset\tstart\na\t0\n")
    with pytest.raises(CorpusError, match=r"lacks the column\(s\) first_row, rows"):
        read_subsets(tmp_path / "bad.tsv", "x", 3)


def test_the_subsets_of_the_shared_sets_cover_them(shared_sts):
    for year in range(12, 17):
        file = shared_sts / f"sts{year}-test.tsv"
        pairs = len(file.read_text("utf-8").rstrip("\n").split("\n")) - 1
        assert len(set(read_subsets(shared_sts / "subsets.tsv", file.stem, pairs))) >= 3


def test_every_layer_is_set_against_the_last(tmp_path):
    vectors, gold = draw_pairs(60)
    worse = vectors + np.random.default_rng(1).normal(scale=3, size=vectors.shape).astype(np.float32)
    cache = pairs_cache(tmp_path / "cache", {"block.1": vectors, "block.2": worse}, gold)
    row = (
        evaluate_sts(cache, draws=200)
        .query("layer_name == 'block.1' and metric == 'cosine_spearman'")
        .iloc[0]
    )
    assert row["vs_last"] > 0
    assert row["vs_last_low"] <= row["vs_last"] <= row["vs_last_high"]
    assert row["vs_last_p"] < 0.05
