from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from layerscope.analysis import analyze, compare_layers, vectors
from layerscope.errors import MetricError, UsageError
from layerscope.frames import LAYER_PAIR_COLUMNS, METRIC_COLUMNS, read_frame, write_frame
from layerscope.metrics import METRICS, MetricSpec, Undefined, cka, get_metric, infonce, spectral
from layerscope.metrics.alpha_req import power_law
from layerscope.resampling import bootstrap_means, half_samples, interval, subsample_spread
from layerscope.select import LayerSelector, pick_layers
from tests.caches import make_cache

SETS = [spec.name for spec in METRICS if spec.kind != "tokens"]
NEEDS_VIEWS = [spec.name for spec in METRICS if spec.kind in ("pair", "views")]
NAN = float("nan")


def normal(n=12, d=5, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def spec_of(function, kind="samples", **more):
    """A metric for these tests: any function of the rows."""
    facts = {
        "name": "mine", "label": "", "kind": kind, "direction": "higher", "variant": "v",
        "invariances": frozenset(), "bounds": lambda n, d: (0.0, 1.0), "minimum_n": 1, "formula": "",
        "reads": "", "source": "",
    }  # fmt: skip
    return MetricSpec(function=function, **(facts | more))


COUNT = spec_of(lambda Z: float(len(Z)))
TOTAL = spec_of(lambda Z: float(Z.sum()))


def two_of_each(path, n, d):
    """Two layers, two poolings, two views."""
    names = [f"{pooling}/{layer}" for pooling in ("mean", "last") for layer in ("embed", "block.1")]
    texts, first, second = (
        {name: normal(n, d, seed + k) for k, name in enumerate(names)} for seed in (0, 10, 20)
    )
    return make_cache(path, texts, n_blocks=2, views={"view.0": first, "view.1": second})


@pytest.fixture
def cache(tmp_path):
    """Two layers, two poolings, two views, twelve texts."""
    return two_of_each(tmp_path / "cache", 12, 5)


@pytest.fixture
def large_cache(tmp_path):
    """The same with as many texts and dimensions as any metric needs."""
    return two_of_each(tmp_path / "cache", 24, 13)


def only(frame, **where):
    """The one row where the columns have these values."""
    rows = frame
    for column, value in where.items():
        rows = rows[rows[column] == value]
    assert len(rows) == 1
    return rows.iloc[0]


# The frame


def test_rows_are_in_the_order_of_metrics_poolings_and_computation(tmp_path):
    layers = ["norm", "block.10", "block.2", "embed"]
    arrays = {f"{pooling}/{layer}": normal(4, 2) for pooling in ("mean", "cls") for layer in layers}
    frame = analyze(
        make_cache(tmp_path / "cache", arrays, n_blocks=10),
        ["effective_rank", "dataset_entropy"],
        draws=0,
        workers=3,
    )
    assert list(frame.columns) == list(METRIC_COLUMNS)
    assert frame.index.tolist() == list(range(16))
    assert frame["layer_name"].tolist() == ["embed", "block.2", "block.10", "norm"] * 4
    assert frame["layer"].tolist() == [0, 2, 10, 10] * 4
    assert frame["depth"].tolist() == [0.0, 0.2, 1.0, 1.0] * 4
    assert frame["pooling"].tolist() == (["mean"] * 4 + ["cls"] * 4) * 2
    assert frame["metric"].tolist() == ["effective_rank"] * 8 + ["dataset_entropy"] * 8


def test_every_row_says_what_was_measured(tmp_path):
    arrays = {"mean/embed": normal(6, 2), "mean/block.1": normal(6, 4)}
    cache = make_cache(tmp_path / "cache", arrays, n_blocks=1, model="gpt", corpus="sts")
    frame = analyze(cache, ["dataset_entropy"], draws=0)
    assert frame[["model", "corpus"]].drop_duplicates().to_numpy().tolist() == [["gpt", "sts"]]
    assert frame["variant"].unique().tolist() == [get_metric("dataset_entropy").variant]
    assert frame["d"].tolist() == [2, 4]
    assert frame["n"].tolist() == [6, 6]
    assert frame["reason"].tolist() == ["", ""]


def test_all_metrics_and_poolings_where_none_are_named(cache):
    frame = analyze(cache, draws=0)
    assert list(dict.fromkeys(frame["metric"])) == [spec.name for spec in METRICS]
    vectors = frame[frame["metric"].isin(SETS)]
    assert vectors.groupby(["metric", "pooling"]).size().tolist() == [2] * len(SETS) * 2


def test_a_metric_or_pooling_asked_for_twice_is_measured_once(cache):
    frame = analyze(cache, ["dataset_entropy"] * 2, pooling=["last", "last"], draws=0)
    assert frame[["pooling", "layer_name"]].to_numpy().tolist() == [["last", "embed"], ["last", "block.1"]]


# Values


@pytest.mark.parametrize("name", SETS)
def test_values_are_the_metrics_own_on_the_rows_of_the_cache(large_cache, name):
    frame = analyze(large_cache, [name], pooling=["last"], draws=0, seed=3)
    spec = get_metric(name)
    for layer in large_cache.layers:
        texts, *views = (
            large_cache.layer(layer, "last", view).astype(np.float64) for view in (None, "view.0", "view.1")
        )
        arguments = {"samples": [texts], "pair": views, "views": [np.stack(views, axis=1)]}[spec.kind]
        expected = spec.function(*arguments, **({"seed": 3} if spec.seeded else {}))
        assert only(frame, layer_name=layer)["value"] == pytest.approx(expected, rel=1e-12)


def test_with_one_view_the_text_is_the_other(tmp_path):
    text, view = normal(), normal(seed=1)
    cache = make_cache(
        tmp_path / "cache", {"mean/embed": text}, n_blocks=1, views={"only": {"mean/embed": view}}
    )
    pair = spec_of(lambda X, Y: float(X[0, 0] + 10 * Y[0, 0]), kind="pair")
    stack = spec_of(lambda V: float(V[0, 0, 0] + 10 * V[0, 1, 0]), kind="views", name="stack")
    frame = analyze(cache, [pair, stack], draws=0)
    assert frame["value"].tolist() == pytest.approx([float(text[0, 0]) + 10 * float(view[0, 0])] * 2)


def test_of_three_views_a_pair_takes_two_and_a_set_all(tmp_path):
    views = {f"v{k}": {"mean/embed": np.full((4, 2), k)} for k in (1, 2, 3)}
    cache = make_cache(tmp_path / "cache", {"mean/embed": np.zeros((4, 2))}, n_blocks=1, views=views)
    pair = spec_of(lambda X, Y: float(10 * X[0, 0] + Y[0, 0]), kind="pair")
    stack = spec_of(lambda V: float(V[0, :, 0] @ [100, 10, 1]), kind="views", name="stack")
    assert analyze(cache, [pair, stack], draws=0)["value"].tolist() == [12, 123]


def test_metrics_get_float64_that_is_their_own(tmp_path):
    def spoil(Z):
        assert Z.dtype == np.float64
        Z += 1
        return float(Z.sum())

    cache = make_cache(tmp_path / "cache", {"mean/embed": np.ones((4, 1))}, n_blocks=1)
    frame = analyze(cache, [spec_of(spoil), spec_of(lambda Z: float(Z.sum()), name="next")], draws=0)
    assert frame["value"].tolist() == [8, 4]


def test_the_number_of_workers_and_shards_changes_nothing(tmp_path):
    arrays = {f"mean/{layer}": normal(seed=k) for k, layer in enumerate(["embed", "block.1", "norm"])}
    one, three = (make_cache(tmp_path / str(shards), arrays, n_blocks=1, shards=shards) for shards in (1, 3))
    frame = analyze(one, SETS, draws=4, workers=1)
    pd.testing.assert_frame_equal(frame, analyze(three, SETS, draws=4, workers=3))


def test_progress_counts_every_layer_and_pooling(cache):
    calls = []
    analyze(cache, ["dataset_entropy"], draws=0, progress=lambda *call: calls.append(call))
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"metrics": ["dataset_entrpy"]}, "did you mean 'dataset_entropy'"),
        ({"pooling": ["maen"]}, "no pooling 'maen': did you mean 'mean'"),
        ({"draws": -1}, "--draws is -1"),
        ({"device": "tpu"}, "--device tpu: choose auto, cpu or cuda"),
        ({"draws": 10**20}, "--draws is 100000000000000000000: 100,000 are more than any interval needs"),
        ({"draws": 2.5}, "--draws is 2.5: it must be a whole number"),
        ({"draws": "many"}, "--draws is many"),
        ({"seed": -1}, "--seed is -1"),
        ({"workers": 0}, "workers is 0"),
        ({"metrics": []}, "metrics is empty"),
        ({"metrics": [None]}, "expected names or MetricSpecs, got None"),
        ({"metrics": ["dime"], "pooling": []}, "nothing to compute"),
    ],
)
def test_what_makes_no_sense_is_refused(cache, options, says):
    with pytest.raises(UsageError, match=says):
        analyze(cache, **options)


# Resamples


def test_draws_are_the_metric_on_half_samples(cache):
    frame = analyze(cache, ["uniformity"], pooling=["mean"], draws=7, seed=4)
    parts = half_samples(np.arange(12), draws=7, seed=4)
    for layer in cache.layers:
        row = only(frame, layer_name=layer)
        Z = cache.layer(layer, "mean").astype(np.float64)
        expected = [get_metric("uniformity").function(Z[part]) for part in parts]
        assert row["draws"] == pytest.approx(expected, rel=1e-12)
        assert (row["ci_low"], row["ci_high"]) == pytest.approx(interval(row["value"], np.array(expected)))


def test_an_odd_number_of_rows_widens_the_interval_by_what_the_smaller_half_asks(tmp_path):
    cache = make_cache(tmp_path / "cache", {"mean/embed": normal(5)}, n_blocks=1)
    row = analyze(cache, [TOTAL], draws=20).iloc[0]
    expected = interval(row["value"], np.array(row["draws"]), subsample_spread(5, 2))
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(expected)


@pytest.mark.parametrize("name", NEEDS_VIEWS)
def test_the_views_of_a_text_are_drawn_with_it(tmp_path, name):
    # Where both views are the same, a draw that separated them would be far from this.
    arrays = {"mean/embed": normal()}
    cache = make_cache(tmp_path / "cache", arrays, n_blocks=1, views={"a": arrays, "b": arrays})
    spec = get_metric(name)
    row = analyze(cache, [name], draws=3).iloc[0]
    for drawn, part in zip(row["draws"], half_samples(np.arange(12), draws=3, seed=0), strict=True):
        Z = normal().astype(np.float64)[part]
        arguments = [Z, Z] if spec.kind == "pair" else [np.stack([Z, Z], axis=1)]
        assert drawn == pytest.approx(spec.function(*arguments, **({"seed": 0} if spec.seeded else {})))


def test_the_rows_of_a_pair_are_drawn_together(tmp_path):
    numbers = np.arange(12) // 2
    cache = make_cache(tmp_path / "cache", {"mean/embed": numbers[:, None]}, n_blocks=1, pairs=True)
    torn = spec_of(lambda Z: float(np.sum(np.unique(Z, return_counts=True)[1] != 2)))
    frame = analyze(cache, [torn, spec_of(COUNT.function, name="count")], draws=30)
    assert set(only(frame, metric="mine")["draws"]) == {0.0}
    assert set(only(frame, metric="count")["draws"]) == {6.0}


def test_a_pair_is_drawn_together_where_other_rows_are_left_out(tmp_path):
    numbers = np.arange(12) // 2
    texts = ["", *(f"text {row}" for row in range(1, 12))]
    cache = make_cache(
        tmp_path / "cache", {"mean/embed": numbers[:, None]}, n_blocks=1, pairs=True, texts=texts
    )
    torn = spec_of(lambda Z: float(np.sum(np.unique(Z[Z > 0], return_counts=True)[1] != 2)))
    assert set(analyze(cache, [torn], draws=30)["draws"].iloc[0]) == {0.0}


def test_all_layers_and_poolings_share_their_resamples(tmp_path):
    names = [f"{pooling}/{layer}" for pooling in ("mean", "last") for layer in ("embed", "block.1", "norm")]
    cache = make_cache(tmp_path / "cache", dict.fromkeys(names, normal()), n_blocks=1)
    draws = analyze(cache, ["dataset_entropy"], draws=5)["draws"]
    assert len({tuple(drawn) for drawn in draws}) == 1
    assert len(set(draws[0])) == 5


def test_another_seed_changes_the_draws_but_not_the_values(cache):
    first, again, other = (analyze(cache, ["dataset_entropy"], draws=5, seed=seed) for seed in (1, 1, 2))
    pd.testing.assert_frame_equal(first, again)
    assert first["value"].tolist() == other["value"].tolist()
    assert first["draws"].tolist() != other["draws"].tolist()


def test_a_metric_that_draws_says_its_seed_and_uses_it(cache):
    first, second = (analyze(cache, ["dime", "lidar"], draws=0, seed=seed) for seed in (0, 21))
    assert first[first["metric"] == "dime"]["value"].tolist() != (
        second[second["metric"] == "dime"]["value"].tolist()
    )
    assert "seed=21" in only(second, metric="dime", layer_name="embed", pooling="mean")["variant"]
    assert "seed=21" not in only(second, metric="lidar", layer_name="embed", pooling="mean")["variant"]


def test_without_draws_there_are_no_intervals(cache):
    frame = analyze(cache, ["dataset_entropy"], draws=0)
    assert frame[["ci_low", "ci_high", "draws"]].isna().to_numpy().all()
    assert frame["value"].notna().all()


def test_a_draw_without_a_value_is_missing_and_too_many_give_no_interval(tmp_path):
    def undefined_below(limit):
        def function(Z):
            if Z.min() < limit:
                raise Undefined("too low")
            return 1.0

        return function

    cache = make_cache(tmp_path / "cache", {"mean/embed": np.arange(1, 11)[:, None]}, n_blocks=1)
    whole = spec_of(lambda Z: 1.0 if len(Z) == 10 or Z.min() > 1 else NAN)
    never = spec_of(lambda Z: 1.0 if len(Z) == 10 else NAN, name="never")
    frame = analyze(cache, [whole, never, spec_of(undefined_below(2), name="no")], draws=40)
    half = only(frame, metric="mine")
    assert 5 < np.isnan(half["draws"]).sum() < 35
    assert np.isnan(only(frame, metric="never")["draws"]).all()
    assert np.isnan(only(frame, metric="never")["ci_low"])
    assert only(frame, metric="never")["value"] == 1
    assert only(frame, metric="no")["reason"] == "too low"


# Which rows


def test_empty_texts_are_left_out_and_n_says_so(tmp_path):
    array = np.arange(1.0, 7.0)[:, None]
    texts = ["a", "", "c", "  ", "e", "f"]
    cache = make_cache(tmp_path / "cache", {"mean/embed": array}, n_blocks=1, texts=texts)
    row = analyze(cache, [TOTAL], draws=4).iloc[0]
    assert (row["value"], row["n"], row["reason"]) == (1 + 3 + 5 + 6, 4, "")
    assert not np.isnan(row["draws"]).any()


def test_rows_without_a_token_for_a_pooling_are_left_out_of_that_pooling_only(tmp_path):
    array = np.arange(1.0, 7.0)[:, None]
    cache = make_cache(
        tmp_path / "cache",
        {"mean/embed": array, "mean-nosink/embed": array},
        n_blocks=1,
        undefined={0: ["mean-nosink"], 4: ["mean-nosink"]},
    )
    frame = analyze(cache, [TOTAL], draws=0)
    assert frame[["pooling", "value", "n"]].to_numpy().tolist() == [["mean", 21, 6], ["mean-nosink", 15, 4]]


def test_rows_whose_view_has_no_token_are_left_out_of_metrics_of_views_only(tmp_path):
    array = np.arange(1.0, 7.0)[:, None]
    cache = make_cache(
        tmp_path / "cache",
        {"mean/embed": array},
        n_blocks=1,
        views={"a": {"mean/embed": array}, "b": {"mean/embed": array}},
        undefined={1: ["b/mean"], 2: ["a/mean"], 3: ["a/last"]},
    )
    pair = spec_of(lambda X, Y: float(X.sum() + 100 * Y.sum()), kind="pair", name="pair")
    frame = analyze(cache, [TOTAL, pair], draws=0)
    assert frame[["value", "n"]].to_numpy().tolist() == [[21, 6], [16 * 101, 4]]


def test_a_duplicate_counts_as_often_as_it_occurs_or_once(tmp_path):
    array = np.array([[1.0], [2.0], [1.0], [4.0], [1.0]])
    texts = ["a", "b", "a", "c", "a"]
    cache = make_cache(tmp_path / "cache", {"mean/embed": array}, n_blocks=1, texts=texts)
    kept, dropped = (analyze(cache, [TOTAL], draws=4, duplicates=how).iloc[0] for how in ("keep", "drop"))
    assert (kept["value"], kept["n"]) == (9, 5)
    assert (dropped["value"], dropped["n"]) == (7, 3)


def test_a_large_metric_takes_a_stated_subsample(tmp_path):
    arrays = {f"mean/{layer}": np.arange(50.0)[:, None] for layer in ("embed", "block.1")}
    cache = make_cache(tmp_path / "cache", arrays, n_blocks=1)

    def fingerprint(Z):
        assert np.all(np.diff(Z[:, 0]) > 0)
        return float(2.0 ** -Z[:, 0] @ np.ones(len(Z)))

    limited, unlimited = spec_of(fingerprint, max_n=10), spec_of(fingerprint, max_n=50, name="all")
    frame = analyze(cache, [limited, unlimited], draws=4, seed=1)
    few, whole = (frame[frame["metric"] == name] for name in ("mine", "all"))
    assert few["n"].tolist() == [10, 10]
    assert few["variant"].tolist() == ["v;subsample=10"] * 2
    assert few["value"].nunique() == 1
    assert few["value"].iloc[0] != analyze(cache, [limited], draws=0, seed=2)["value"].iloc[0]
    assert few["value"].iloc[0] == analyze(cache, [limited], draws=0, seed=1)["value"].iloc[0]
    assert whole["n"].tolist() == [50, 50]
    assert whole["variant"].tolist() == ["v"] * 2


# Missing values


@pytest.mark.parametrize(
    ("rows", "bad", "reason"),
    [([7], NAN, "not finite: row 7"), ([9, 3, 4], np.inf, "not finite: row 3 and 2 more")],
)
def test_a_row_that_is_not_finite_makes_its_layer_missing_by_name(tmp_path, rows, bad, reason):
    broken = normal()
    broken[rows, 2] = bad
    arrays = {"mean/embed": normal(), "mean/block.1": broken, "mean/norm": normal(seed=1)}
    texts = [f"text {k}" if k != 0 else "" for k in range(12)]
    frame = analyze(
        make_cache(tmp_path / "cache", arrays, n_blocks=1, texts=texts), ["dataset_entropy"], draws=3
    )
    assert frame["value"].isna().tolist() == [False, True, False]
    assert frame["reason"].tolist() == ["", reason, ""]
    assert frame["ci_low"].isna().tolist() == [False, True, False]
    assert frame["n"].tolist() == [11] * 3
    assert frame["draws"].iloc[1] is None


def test_a_view_that_is_not_finite_makes_its_layer_missing_for_metrics_of_views_only(tmp_path):
    broken = normal(24, 13)
    broken[5] = np.inf
    views = {"a": {"mean/embed": normal(24, 13)}, "b": {"mean/embed": broken}}
    cache = make_cache(tmp_path / "cache", {"mean/embed": normal(24, 13)}, n_blocks=1, views=views)
    frame = analyze(cache, SETS, draws=0)
    needs = frame["metric"].isin(NEEDS_VIEWS)
    assert set(frame["reason"][needs]) == {"not finite: row 5"}
    assert set(frame["reason"][~needs]) == {""}


@pytest.mark.parametrize("name", ["dataset_entropy", "effective_rank"])
def test_a_constant_layer_is_reported_as_constant(tmp_path, name):
    arrays = {"mean/embed": np.full((6, 3), 0.1), "mean/block.1": normal(6, 3)}
    frame = analyze(make_cache(tmp_path / "cache", arrays, n_blocks=1), [name], draws=2)
    assert frame["reason"].tolist() == ["constant", ""]
    assert frame["value"].isna().tolist() == [True, False]


@pytest.mark.parametrize("texts", [["a", "", ""], ["", "", ""]])
def test_too_few_texts_are_a_reason(tmp_path, texts):
    cache = make_cache(tmp_path / "cache", {"mean/embed": normal(3)}, n_blocks=1, texts=texts)
    row = analyze(cache, ["dataset_entropy"], draws=2).iloc[0]
    assert np.isnan(row["value"])
    assert row["reason"] == "fewer than 2 samples"
    assert row["n"] == sum(bool(text) for text in texts)


@pytest.mark.parametrize("name", NEEDS_VIEWS)
def test_without_views_the_reason_says_how_to_get_them(tmp_path, name):
    cache = make_cache(tmp_path / "cache", {"mean/embed": normal()}, n_blocks=1)
    row = analyze(cache, [name], draws=2).iloc[0]
    assert np.isnan(row["value"])
    assert "--views 2" in row["reason"]


@pytest.mark.parametrize("value", [NAN, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_no_value(cache, value):
    row = analyze(cache, [spec_of(lambda Z: value)], pooling=["mean"], draws=2).iloc[0]
    assert np.isnan(row["value"])
    assert row["reason"] == "the value is not finite"


# Token metrics


def token_cache(path, token_metrics, n=6, **more):
    layers = list(next(iter(next(iter(token_metrics.values())).values())))
    arrays = {f"mean/{layer}": normal(n) for layer in layers}
    arrays |= more.pop("arrays", {})
    return make_cache(path, arrays, n_blocks=1, token_metrics=token_metrics, **more)


def test_token_metrics_are_means_over_the_prompts_that_have_a_value(tmp_path):
    values = {"block.1": [1.0, 2.0, NAN, 4.0, 5.0, 6.0], "embed": [3.0] * 6}
    frame = analyze(
        token_cache(tmp_path / "cache", {"tokens": {"curvature": values}}), ["curvature"], draws=9
    )
    assert frame["layer_name"].tolist() == ["embed", "block.1"]
    assert frame["value"].tolist() == [3.0, 18 / 5]
    assert frame["n"].tolist() == [6, 5]
    assert frame["pooling"].tolist() == ["tokens"] * 2
    assert frame["d"].tolist() == [5, 5]
    table = np.array([values["embed"], values["block.1"]]).T
    draws = bootstrap_means(table, draws=9, seed=0)
    assert frame["draws"][1] == pytest.approx(draws[:, 1].tolist())
    assert (frame["ci_low"][1], frame["ci_high"][1]) == pytest.approx(interval(18 / 5, draws[:, 1]))


def test_the_first_token_counts_where_it_is_longest_and_a_largest_value_has_no_interval(tmp_path):
    values = {"first_token_norm_ratio": {"embed": [1.0, 7.0, NAN, 2.0, 3.0, 1.0]}}
    frame = analyze(token_cache(tmp_path / "cache", {"tokens": values}), "first_token_norm_ratio", draws=9)
    assert frame[["value", "n", "variant"]].values.tolist() == [[7.0, 5, "rows=raw;texts=largest"]]
    assert np.isnan(frame["ci_low"][0])
    assert frame["draws"].tolist() == [None]


def test_intervals_hold_nothing_that_cannot_be(tmp_path):
    """Half of the half-samples lack the one row that holds nearly all variance."""
    Z = np.random.default_rng(0).normal(size=(60, 12))
    Z[7] *= 300
    specs = [spec for spec in METRICS if spec.kind == "samples" and spec.name != "alpha_req"]
    frame = analyze(make_cache(tmp_path / "cache", {"mean/embed": Z}, n_blocks=1), specs, draws=40)
    for spec, row in zip(specs, frame.itertuples(), strict=True):
        low, high = spec.bounds(60, 12)
        assert low <= row.ci_low <= row.value <= row.ci_high <= high
    assert frame.set_index("metric")["ci_low"]["nesum"] == 1.0


def test_notes_say_what_a_value_rests_on(tmp_path):
    Z = np.random.default_rng(0).normal(size=(60, 30))
    Z[40:44] = Z[3]
    values = {"tokens": {"curvature": {"embed": [1.0, NAN, *[2.0] * 58]}}}
    cache = make_cache(tmp_path / "cache", {"mean/embed": Z}, n_blocks=1, token_metrics=values)
    names = ["alpha_req", "intrinsic_dimension_twonn", "curvature", "anisotropy"]
    notes = analyze(cache, names, draws=0).set_index("metric")["note"]
    fit = power_law(cache.layer("embed"))
    assert notes["alpha_req"] == f"R²={fit.r_squared:.3f}, indices 11 to {fit.last}"
    assert notes["intrinsic_dimension_twonn"] == "repeated rows left out: 4"
    assert notes["curvature"] == "no value for 1 of 60 texts"
    assert notes["anisotropy"] == ""


def test_each_token_set_is_a_pooling_of_its_own(tmp_path):
    sets = {
        name: {"curvature": {"embed": np.arange(6) + shift}, "prompt_entropy": {"embed": [shift] * 6}}
        for name, shift in (("tokens", 1.0), ("tokens-nosink", 2.0))
    }
    frame = analyze(token_cache(tmp_path / "cache", sets), ["prompt_entropy", "curvature"], draws=0)
    assert frame[["metric", "pooling", "value"]].to_numpy().tolist() == [
        ["prompt_entropy", "tokens", 1.0],
        ["prompt_entropy", "tokens-nosink", 2.0],
        ["curvature", "tokens", 3.5],
        ["curvature", "tokens-nosink", 4.5],
    ]


def test_token_metrics_leave_out_empty_texts_and_duplicates_where_asked(tmp_path):
    metrics = {"tokens": {"curvature": {"embed": [1.0, 2.0, 3.0, 1.0, 8.0, 16.0]}}}
    texts = ["a", "b", "c", "a", "", "f"]
    cache = token_cache(tmp_path / "cache", metrics, texts=texts, shards=2)
    kept, dropped = (
        analyze(cache, ["curvature"], draws=0, duplicates=how).iloc[0] for how in ("keep", "drop")
    )
    assert (kept["value"], kept["n"]) == (23 / 5, 5)
    assert (dropped["value"], dropped["n"]) == (22 / 4, 4)


def test_a_prompt_that_is_not_finite_is_never_silently_averaged(tmp_path):
    broken = normal(6)
    broken[[2, 4]] = np.inf
    values = {"embed": [1.0] * 6, "block.1": [1.0, NAN, NAN, 1.0, NAN, 1.0]}
    cache = token_cache(
        tmp_path / "cache", {"tokens": {"curvature": values}}, arrays={"mean/block.1": broken}
    )
    frame = analyze(cache, ["curvature"], draws=4)
    assert frame["reason"].tolist() == ["", "not finite: row 2 and 1 more"]
    assert frame["value"].isna().tolist() == [False, True]
    assert frame["ci_low"].isna().tolist() == [False, True]


def test_a_token_set_without_the_broken_token_keeps_its_value(tmp_path):
    broken = normal(6)
    broken[2] = np.inf
    sets = {
        "tokens": {"curvature": {"embed": [1.0, 1.0, NAN, 1.0, 1.0, 1.0]}},
        "tokens-nosink": {"curvature": {"embed": [2.0] * 6}},
    }
    frame = analyze(
        token_cache(tmp_path / "cache", sets, arrays={"mean/embed": broken}), ["curvature"], draws=0
    )
    assert frame["reason"].tolist() == ["not finite: row 2", ""]
    assert frame["n"].tolist() == [5, 6]


def test_a_token_metric_without_any_value_says_why(tmp_path):
    cache = token_cache(tmp_path / "cache", {"tokens": {"curvature": {"embed": [NAN] * 6}}})
    frame = analyze(cache, ["curvature", "prompt_entropy"], draws=4)
    assert frame["value"].isna().all()
    assert frame["reason"].tolist() == ["undefined for every text", "not computed during extraction"]
    assert frame["n"].tolist() == [0, 0]


def test_a_cache_without_token_metrics_says_so_for_every_layer(cache):
    frame = analyze(cache, ["curvature"], draws=4)
    assert frame["layer_name"].tolist() == ["embed", "block.1"]
    assert set(frame["reason"]) == {"not computed during extraction"}


def test_a_broken_row_outside_the_subsample_is_noticed(tmp_path):
    """DiME looks at 512 rows only, but a layer with a broken row anywhere has no value."""
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(600, 3)).astype(np.float32) for _ in range(2))
    inside = set(np.random.default_rng(0).permutation(600)[:512].tolist())
    outside = next(row for row in range(600) if row not in inside)
    x[outside] = np.nan
    views = {"augment.1": {"mean/embed": x}, "augment.2": {"mean/embed": y}}
    cache = make_cache(tmp_path / "c", {"mean/embed": y}, n_blocks=1, views=views)
    frame = analyze(cache, ["dime"], draws=0)
    assert f"row {outside}" in frame["reason"].iloc[0]


def test_an_unknown_way_with_duplicates_is_refused(tmp_path):
    cache = make_cache(tmp_path / "c", {"mean/embed": np.eye(4, dtype=np.float32)}, n_blocks=1)
    with pytest.raises(UsageError, match="keep or drop"):
        analyze(cache, ["dataset_entropy"], duplicates="ignore")


def test_a_path_and_one_name_will_do(cache):
    frame = analyze(cache, ["dataset_entropy"], pooling=["mean"], draws=2)
    same = analyze(str(cache.path), "dataset_entropy", pooling="mean", draws=np.int64(2), seed=np.int64(0))
    pd.testing.assert_frame_equal(same, frame)
    pd.testing.assert_frame_equal(
        analyze(cache.path, get_metric("dataset_entropy"), pooling="mean", draws=2), frame
    )
    with pytest.raises(UsageError, match="path of one, got NoneType"):
        analyze(None)


def test_a_layer_is_found_by_any_whole_number(cache):
    np.testing.assert_array_equal(cache.layer(np.int64(1)), cache.layer(1))
    with pytest.raises(UsageError, match="layer 99 does not exist"):
        cache.layer(np.int32(99))
    with pytest.raises(UsageError, match=r"expected the name of a layer, got 1\.0"):
        cache.layer(1.0)


def own_metric(**changes):
    return replace(get_metric("dataset_entropy"), name="mine", **changes)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"direction": "up"}, "metric 'mine': direction is 'up' .*higher, lower"),
        ({"kind": "sample"}, "metric 'mine': kind is 'sample' .*did you mean 'samples'"),
        ({"function": None}, "metric 'mine': its function is None"),
    ],
)
def test_a_metric_of_ones_own_is_checked(changes, says):
    with pytest.raises(UsageError, match=says):
        own_metric(**changes)


def test_two_metrics_of_one_name_are_refused(cache):
    with pytest.raises(UsageError, match="two different metrics are called 'dime'"):
        analyze(cache, ["dime", replace(own_metric(), name="dime")], draws=0)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda x: x.no_such_thing, "AttributeError: .*no_such_thing"),
        (lambda x: "much", "ValueError: .*much"),
    ],
)
def test_a_metric_that_fails_is_named_with_its_place(cache, function, says, workers):
    with pytest.raises(
        MetricError, match=rf"metric 'mine' failed at layer (embed|block\.1), pooling mean: {says}"
    ) as caught:
        analyze(cache, own_metric(function=function), draws=0, workers=workers)
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("direction", ["higher", "lower"])
def test_the_frame_carries_the_direction_of_a_metric_of_ones_own(cache, direction, tmp_path):
    frame = analyze(cache, own_metric(direction=direction), pooling="mean", draws=0)
    assert set(frame["direction"]) == {direction}
    back = read_frame(write_frame(frame, tmp_path / "m")[1], "metrics")
    selector = LayerSelector("mine").fit(back)
    assert selector.direction_ == direction
    assert selector.value_ == (back["value"].max() if direction == "higher" else back["value"].min())
    assert pick_layers(back)["direction"].iloc[0] == direction


# Shared work, and rows that do not fit in memory


def test_one_decomposition_serves_all_spectral_metrics(cache, monkeypatch):
    calls = []
    own = spectral.eigvalsh
    monkeypatch.setattr(spectral, "eigvalsh", lambda K: calls.append(len(K)) or own(K))
    names = [spec.name for spec in METRICS if spec.of_spectrum is not None and spec.rows == "center-unit"]
    assert len(names) > 1
    analyze(cache, names, pooling="mean", draws=6, workers=1)
    assert len(calls) == len(cache.layers) * (1 + 6)


def test_what_follows_from_another_metric_is_not_computed_again(cache, monkeypatch):
    calls = []
    own = infonce._loss
    monkeypatch.setattr(infonce, "_loss", lambda *given: calls.append(1) or own(*given))
    analyze(cache, ["infonce", "infonce_bound"], pooling="mean", draws=3, workers=1)
    assert len(calls) == len(cache.layers) * (1 + 3)


@pytest.mark.parametrize("shards", [1, 4])
def test_rows_that_do_not_fit_in_memory_are_streamed_to_the_same_values(tmp_path, monkeypatch, shards):
    arrays = {"mean/embed": normal(30), "mean/block.1": normal(30, seed=1)}
    views = {name: {key: rows + 0.3 * normal(30, seed=seed) for key, rows in arrays.items()}
             for seed, name in enumerate(("a", "b"))}  # fmt: skip
    cache = make_cache(tmp_path / "cache", arrays, n_blocks=1, views=views, shards=shards)
    whole = analyze(cache, SETS, draws=3, workers=1)
    monkeypatch.setattr(vectors, "_IN_MEMORY", 0)
    streamed = analyze(cache, SETS, draws=3, workers=1)
    pd.testing.assert_frame_equal(whole, streamed, rtol=1e-9)


def test_a_spec_made_from_another_is_measured_by_its_own_function(cache):
    double = replace(get_metric("dataset_entropy"), name="rows", function=lambda Z: float(len(Z)))
    assert analyze(cache, double, draws=0)["value"].tolist() == [12] * 4


def test_rows_that_are_not_finite_are_left_out_where_asked(tmp_path):
    rows = normal(9)
    broken = rows.copy()
    broken[[2, 5]] = NAN
    cache = make_cache(tmp_path / "cache", {"mean/embed": rows, "mean/block.1": broken}, n_blocks=1)
    frame = analyze(cache, [COUNT, "uniformity"], draws=4, nonfinite="exclude")
    first, second = (only(frame, metric="mine", layer_name=name) for name in ("embed", "block.1"))
    assert (first["value"], first["n"], first["variant"]) == (9, 9, "v")
    assert (second["value"], second["n"], second["variant"]) == (7, 7, "v;nonfinite=excluded:2")
    kept = get_metric("uniformity").function(np.delete(rows, [2, 5], axis=0))
    assert only(frame, metric="uniformity", layer_name="block.1")["value"] == pytest.approx(kept)
    with pytest.raises(UsageError, match="nonfinite is 'drop': it must be refuse or exclude"):
        analyze(cache, nonfinite="drop")


# Layers compared


@pytest.mark.parametrize("shards", [1, 3])
def test_layers_are_compared_in_pairs(tmp_path, shards):
    Z = normal(40, 6)
    turned = Z @ np.linalg.qr(normal(6, 6, 1))[0]
    broken = Z.copy()
    broken[7, 0] = np.inf
    arrays = {
        "mean/embed": Z, "mean/block.1": turned, "mean/block.2": normal(40, 6, 2),
        "mean/block.3": np.ones((40, 6)), "mean/block.4": broken,
    }  # fmt: skip
    cache = make_cache(tmp_path / "cache", arrays, n_blocks=4, shards=shards)
    frame = compare_layers(cache, batch=20)
    assert list(frame.columns) == list(LAYER_PAIR_COLUMNS)
    wide = frame.pivot(index="layer_name", columns="other_layer_name", values="value")
    assert wide.loc["embed", "block.1"] == pytest.approx(1, abs=1e-5)
    halves = cka.cka_matrix([[Z[:20], arrays["mean/block.2"][:20]], [Z[20:], arrays["mean/block.2"][20:]]])
    assert wide.loc["embed", "block.2"] == pytest.approx(halves[0, 1], abs=1e-9)
    np.testing.assert_array_equal(wide.to_numpy(), wide.T.to_numpy())
    reasons = frame.set_index(["layer_name", "other_layer_name"])["reason"]
    assert reasons["embed", "block.3"] == "constant"
    assert reasons["block.4", "embed"] == "not finite: row 7"
    assert reasons["embed", "block.1"] == ""
    with pytest.raises(UsageError, match="batch is 3"):
        compare_layers(cache, batch=3)
    with pytest.raises(UsageError, match="cka_linear is of all pairs of layers"):
        analyze(cache, "cka_linear")


def test_similarity_to_the_last_layer_is_measured_where_asked(tmp_path):
    arrays = {"mean/embed": normal(30, 4), "mean/block.1": normal(30, 4, 1)}
    cache = make_cache(tmp_path / "cache", arrays, n_blocks=1)
    frame = analyze(cache, "layer_similarity_to_last", draws=2)
    expected = cka.cka_linear(*(array.astype(np.float64) for array in arrays.values()))
    assert frame["value"].tolist() == pytest.approx([expected, 1.0], abs=1e-9)
    assert [len(draws) for draws in frame["draws"]] == [2, 2]
    assert "layer_similarity_to_last" not in set(analyze(cache, draws=0)["metric"])
