from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from layerscope.depth_rules import DEPTH_RULES, rule_layer
from layerscope.errors import FrameError, UsageError
from layerscope.frames import (
    METRIC_COLUMNS,
    PICK_COLUMNS,
    SCORE_COLUMNS,
    as_frame,
    read_frame,
    write_frame,
)
from layerscope.layers import make_layer, standard_layers
from layerscope.metrics import METRICS
from layerscope.resampling import interval
from layerscope.select import LayerSelector, correction_hint, pick_layers, with_costs
from layerscope.select.selector import FEWEST_TEXTS

NAN = float("nan")
VALUES = st.lists(st.floats(-9, 9) | st.just(NAN), min_size=1, max_size=8).filter(
    lambda values: not np.all(np.isnan(values))
)


def metrics_frame(values, draws=None, layers=None, **more):
    """One metric, a row a layer: embed, block.1 …; ``draws`` (b, layers)."""
    layers = layers or standard_layers(max(1, len(values) - 1), has_norm=False)
    n_blocks = max([int(name.split(".")[1]) for name in layers if "." in name], default=1)
    drawn = [None] * len(values) if draws is None else np.asarray(draws, dtype=float).T.tolist()
    facts = {
        "model": "m", "corpus": "c", "pooling": "mean", "metric": "participation_ratio", "variant": "v",
        "reason": "", "n": 90,
    }  # fmt: skip
    return as_frame(
        [
            facts
            | {
                "layer": make_layer(name, n_blocks).blocks,
                "layer_name": name,
                "value": value,
                "draws": column,
            }
            | {"depth": make_layer(name, n_blocks).depth}
            | more
            for name, value, column in zip(layers, values, drawn, strict=False)
        ],
        METRIC_COLUMNS,
    )


def fit(frame, *args, **kwargs):
    return LayerSelector(*args, **kwargs).fit(frame)


# The pick


@pytest.mark.parametrize("spec", METRICS, ids=lambda spec: spec.name)
def test_every_metric_is_picked_in_its_own_direction(spec):
    selector = fit(metrics_frame([2.0, 1.0, 3.0], metric=spec.name), spec.name)
    assert selector.layer_ == {"higher": "block.2", "lower": "block.1"}[spec.direction]
    assert selector.direction_ == spec.direction


def test_the_direction_can_be_turned():
    frame = metrics_frame([2.0, 1.0, 3.0])
    assert fit(frame, direction="higher").layer_ == "block.2"
    assert fit(frame, direction="lower").layer_ == "block.1"


@settings(deadline=None, max_examples=60)
@given(values=VALUES, direction=st.sampled_from(["higher", "lower"]))
def test_the_pick_is_the_first_best_layer_that_has_a_value(values, direction):
    assume(np.sum(~np.isnan(values)) == 1 or np.nanmax(values) - np.nanmin(values) > 1e-6)
    selector = fit(metrics_frame(values), direction=direction)
    best = np.nanargmax(values) if direction == "higher" else np.nanargmin(values)
    assert selector.layer_index_ == best
    assert selector.value_ == values[best]
    assert selector.n_layers_ == np.sum(~np.isnan(values))
    assert selector.ranking_["value"].notna().all()


def test_all_that_is_known_of_a_pick():
    selector = fit(metrics_frame([1.0, 5.0, 3.0, NAN, 4.0]))
    assert (selector.layer_, selector.layer_index_, selector.depth_) == ("block.1", 1, 0.25)
    assert (selector.value_, selector.runner_up_) == (5.0, "block.4")
    assert selector.ranking_["layer_name"].tolist() == ["block.1", "block.4", "block.2", "embed"]
    assert (selector.pooling_, selector.variant_) == ("mean", "v")


def test_layers_with_one_value_tie_and_there_is_no_clear_winner():
    draws = np.random.default_rng(0).normal(size=(50, 1)) + [0.0, 1.0, 1.0]
    selector = fit(metrics_frame([0.0, 1.0, 1.0], draws))
    assert (selector.layer_, selector.runner_up_) == ("block.1", "block.2")
    assert selector.difference_[0] == 0
    assert not selector.clear_


@pytest.mark.parametrize("values", [[0.0, 0.0], [2.0, 2.0 + 1e-12, NAN, 2.0], [-3.0] * 5])
def test_where_all_layers_tie_none_is_picked(values):
    with pytest.raises(FrameError, match=f"all {np.sum(~np.isnan(values))} layers have the same value"):
        fit(metrics_frame(values))
    picks = pick_layers(metrics_frame(values))
    pick = picks[picks["kind"] == "criterion"].iloc[0]
    assert pick["layer_name"] is None or pick["layer_name"] != pick["layer_name"]
    assert "the same value" in pick["reason"]


def test_of_many_layers_with_one_value_the_first_comes_first():
    selector = fit(metrics_frame([0.0] + [1.0] * 40))
    assert selector.ranking_["layer"].tolist() == [*range(1, 41), 0]


def test_a_single_layer_has_no_runner_up():
    selector = fit(metrics_frame([NAN, 1.0], draws=[[1, 1], [2, 2]]))
    assert selector.layer_ == "block.1"
    assert selector.runner_up_ is None
    assert np.isnan([selector.support_, *selector.difference_]).all()
    assert not selector.clear_
    assert np.isnan(selector.as_record()["runner_up_value"])


# How sure it is


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6), higher=st.booleans())
def test_support_is_the_share_of_resamples_that_agree(seed, higher):
    rng = np.random.default_rng(seed)
    values, draws = rng.normal(size=4), rng.normal(size=(15, 4))
    draws[rng.random(size=draws.shape) < 0.1] = NAN
    draws[0] = [0, 1, 2, 3]
    selector = fit(metrics_frame(values, draws), direction="higher" if higher else "lower")
    agree, count = 0, 0
    for drawn in draws:
        if not np.isnan(drawn).all():
            count += 1
            agree += selector.layer_index_ == (np.nanargmax(drawn) if higher else np.nanargmin(drawn))
    assert selector.support_ == pytest.approx(agree / count)


def test_a_resample_without_a_value_agrees_with_no_one():
    selector = fit(metrics_frame([1.0, 2.0], [[NAN, NAN], [0.0, 1.0], [1.0, 0.0], [1.0, NAN]]))
    assert selector.support_ == pytest.approx(1 / 3)


def test_resamples_without_any_value_give_no_support():
    selector = fit(metrics_frame([1.0, 2.0], [[NAN, NAN]] * 10))
    assert np.isnan(selector.support_)
    assert not selector.clear_


def test_the_layer_that_most_resamples_pick_is_named():
    selector = fit(metrics_frame([1.0, 2.0, 0.0], [[1, 0, 0]] * 6 + [[0, 1, 0]] * 3 + [[0, 0, 1]]))
    assert (selector.layer_, selector.support_) == ("block.1", pytest.approx(0.3))
    assert (selector.most_picked_, selector.most_picked_support_) == ("embed", pytest.approx(0.6))


def test_of_few_texts_nothing_is_said_of_certainty():
    frame = metrics_frame([1.0, 2.0], [[1, 2], [1, 2]]).assign(n=FEWEST_TEXTS)
    assert fit(frame).support_ == 1
    few = fit(frame.assign(n=[FEWEST_TEXTS, FEWEST_TEXTS - 1]))
    assert (few.layer_, few.n_) == ("block.1", FEWEST_TEXTS - 1)
    assert np.isnan([few.support_, *few.difference_]).all()
    assert not few.clear_
    assert few.as_record()["reason"] == f"fewer than {FEWEST_TEXTS} texts"


@pytest.mark.parametrize("direction", ["higher", "lower"])
def test_the_difference_to_the_runner_up_is_paired(direction):
    rng = np.random.default_rng(0)
    draws = 10 * rng.normal(size=(80, 1)) + 0.01 * rng.normal(size=(80, 3)) + [1.0, 2.0, 3.0]
    selector = fit(metrics_frame([1.0, 2.0, 3.0], draws), direction=direction)
    pick = 2 if direction == "higher" else 0
    expected = interval({"higher": 1.0, "lower": -1.0}[direction], draws[:, pick] - draws[:, 1])
    assert selector.difference_ == pytest.approx(({"higher": 1.0, "lower": -1.0}[direction], *expected))
    assert selector.difference_[2] - selector.difference_[1] < 0.1
    assert selector.support_ == 1
    assert selector.clear_


def test_an_interval_that_holds_zero_is_not_clear():
    draws = np.random.default_rng(0).normal(size=(80, 2)) + [0.0, 1.0]
    selector = fit(metrics_frame([0.0, 1.0], draws))
    assert selector.support_ > 0.5
    assert selector.difference_[1] < 0 < selector.difference_[2]
    assert not selector.clear_


def test_a_pick_that_most_resamples_do_not_share_is_not_clear():
    # A biased resample can favour another layer although the difference is steady.
    rng = np.random.default_rng(0)
    draws = 0.01 * rng.normal(size=(80, 3)) + [0.0, 1.0, 2.0]
    selector = fit(metrics_frame([0.0, 3.0, 2.0], draws))
    assert selector.difference_[1] > 0
    assert selector.support_ == 0
    assert not selector.clear_


@pytest.mark.parametrize(
    "spoil",
    [
        lambda frame: frame.drop(columns="draws"),
        lambda frame: frame.assign(draws=[[1.0, 2.0], None]),
        lambda frame: frame.assign(draws=[[1.0, 2.0], [1.0]]),
        lambda frame: frame.assign(draws=[[], []]),
    ],
    ids=["no column", "one layer without", "unequal", "none"],
)
def test_without_resamples_for_all_layers_nothing_is_said_of_certainty(spoil):
    selector = fit(spoil(metrics_frame([1.0, 2.0], [[1, 2], [1, 2]])))
    assert selector.layer_ == "block.1"
    assert np.isnan([selector.support_, *selector.difference_]).all()
    assert not selector.clear_


def test_a_layer_without_value_takes_no_part_in_the_resamples():
    frame = metrics_frame([1.0, NAN, 2.0], [[1, 9, 2], [1, 9, 2]])
    frame.loc[1, "draws"] = None
    assert fit(frame).support_ == 1


# What it asks of the frame


def test_the_selector_follows_scikit_learn():
    selector = LayerSelector("lidar", direction="lower", pooling="cls", variant="x")
    assert clone(selector).get_params() == selector.get_params() == {
        "criterion": "lidar", "direction": "lower", "pooling": "cls", "variant": "x",
    }  # fmt: skip
    assert selector.set_params(criterion="dime").criterion == "dime"
    with pytest.raises(NotFittedError):
        selector.as_record()
    frame = metrics_frame([1.0, 2.0])
    other = LayerSelector()
    assert other.fit(frame) is other
    assert not hasattr(clone(other), "layer_")
    assert set(vars(LayerSelector())) == set(selector.get_params())


def test_fitting_leaves_the_frame_and_the_options_alone():
    frame = metrics_frame([1.0, 3.0, 2.0], np.eye(3))
    before = frame.copy(deep=True)
    selector = fit(frame)
    pd.testing.assert_frame_equal(frame, before)
    assert (selector.direction, selector.pooling, selector.variant) == (None, None, None)


@settings(deadline=None, max_examples=20)
@given(order=st.permutations(range(5)))
def test_the_order_of_rows_does_not_matter(order):
    frame = metrics_frame([3.0, 1.0, 5.0, NAN, 4.0])
    assert fit(frame.iloc[list(order)]).ranking_["layer_name"].tolist() == [
        "block.2", "block.4", "embed", "block.1",
    ]  # fmt: skip


def test_a_pick_is_the_same_from_a_csv(tmp_path):
    frame = metrics_frame([1.0, 3.0, 2.0], np.eye(3))
    found = fit(read_frame(write_frame(frame, tmp_path / "m")[1], "metrics"))
    assert (found.layer_, found.runner_up_, found.value_) == ("block.1", "block.2", 3.0)


@pytest.mark.parametrize("variant", ["absent", NAN, None, ""])
def test_a_table_from_elsewhere_needs_no_variant(variant):
    frame = metrics_frame([1.0, 3.0, 2.0])[["layer", "layer_name", "depth", "pooling", "metric", "value"]]
    if variant != "absent":
        frame = frame.assign(variant=variant)
    assert fit(frame).layer_ == "block.1"
    assert pick_layers(frame)["layer_name"].iloc[0] == "block.1"


@pytest.mark.parametrize("column", ["model", "corpus"])
def test_values_of_several_models_or_corpora_are_not_compared(column):
    frame = pd.concat([metrics_frame([1.0, 2.0]), metrics_frame([3.0, 4.0], **{column: "other"})])
    with pytest.raises(FrameError, match=rf"several values of {column} \({column[0]}, other\)"):
        fit(frame)


def two_poolings(first, second):
    return pd.concat([metrics_frame([1.0, 2.0], pooling=first), metrics_frame([4.0, 3.0], pooling=second)])


@pytest.mark.parametrize(
    ("poolings", "chosen"),
    [
        (("mean", "last"), "mean"),
        (("last", "mean"), "last"),
        (("mean", "mean-nosink"), "mean-nosink"),
        (("tokens", "tokens-nosink"), "tokens-nosink"),
    ],
)
def test_without_a_wish_the_pooling_without_sinks_or_the_first_is_taken(poolings, chosen):
    selector = fit(two_poolings(*poolings))
    assert selector.pooling_ == chosen
    assert selector.layer_ == ("embed" if chosen == poolings[1] else "block.1")


def test_the_pooling_that_was_asked_for_is_taken():
    assert fit(two_poolings("mean", "mean-nosink"), pooling="mean").layer_ == "block.1"


def test_several_variants_need_a_choice():
    frame = pd.concat([metrics_frame([1.0, 2.0]), metrics_frame([2.0, 1.0], variant="w")])
    with pytest.raises(UsageError, match=r"several variants .*\['v', 'w'\]"):
        fit(frame)
    assert fit(frame, variant="w").layer_ == "embed"


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        (
            {"criterion": "participation_rato", "direction": "lower"},
            UsageError,
            "did you mean 'participation_ratio'",
        ),
        ({"criterion": "mine"}, UsageError, "which end of 'mine' is better is not known"),
        ({"direction": "up"}, UsageError, "direction is 'up'"),
        ({"pooling": "maen"}, UsageError, "no pooling 'maen': did you mean 'mean'"),
        ({"variant": "w"}, UsageError, "no variant 'w': known: v"),
    ],
)
def test_what_is_not_known_is_refused(options, error, says):
    with pytest.raises(error, match=says):
        fit(metrics_frame([1.0, 2.0]), **options)


def test_two_values_for_one_layer_are_refused():
    with pytest.raises(FrameError, match="several values of 'participation_ratio' for one layer"):
        fit(pd.concat([metrics_frame([1.0, 2.0])] * 2))


@pytest.mark.parametrize(("reason", "says"), [("constant", "constant$"), ("", "all are missing$")])
def test_without_any_value_there_is_no_pick_but_a_reason(reason, says):
    with pytest.raises(FrameError, match=f"no layer has a value of 'participation_ratio': {says}"):
        fit(metrics_frame([NAN, NAN], reason=reason))


# Picks frame


def test_every_criterion_and_rule_within_every_pooling():
    frame = pd.concat(
        [
            metrics_frame([1.0, 2.0, 3.0], metric=metric, pooling=pooling)
            for metric in ("uniformity", "participation_ratio")
            for pooling in ("mean", "last")
        ]
    )
    picks = pick_layers(frame)
    assert list(picks.columns) == list(PICK_COLUMNS)
    assert picks[["kind", "criterion", "pooling", "layer_name"]].to_numpy().tolist() == [
        ["criterion", "participation_ratio", "mean", "block.2"],
        ["criterion", "participation_ratio", "last", "block.2"],
        ["criterion", "uniformity", "mean", "embed"],
        ["criterion", "uniformity", "last", "embed"],
        ["baseline", "last layer", "mean", "block.2"],
        ["baseline", "middle layer", "mean", "block.1"],
        ["baseline", "2/3 depth", "mean", "block.1"],
        ["baseline", "last layer", "last", "block.2"],
        ["baseline", "middle layer", "last", "block.1"],
        ["baseline", "2/3 depth", "last", "block.1"],
    ]


def test_the_decisive_criterion_comes_first_and_the_others_as_in_the_frame():
    names = ["uniformity", "alignment", "participation_ratio"]
    picks = pick_layers(pd.concat([metrics_frame([1.0, 2.0], metric=name) for name in names]))
    assert picks["criterion"].tolist()[:3] == ["participation_ratio", "uniformity", "alignment"]


def ranked_frame(**more):
    """A frame that has what the rank aggregate adds up; ranks of block.1 are 2, 1, 1, of block.2 1, 2, 3."""
    values = {"dime": [3.0, 2, 1], "participation_ratio": [1.0, 2, 3], "uniformity": [-1.0, -3, -2],
              "isoscore": [0.2, 0.3, 0.1]}  # fmt: skip
    rng = np.random.default_rng(0)
    return pd.concat(
        [metrics_frame(row, 0.01 * rng.normal(size=(40, 3)) + row, metric=name, **more)
         for name, row in values.items()]
    )  # fmt: skip


def test_the_rank_aggregate_is_decisive_where_the_frame_has_what_it_adds_up():
    picks = pick_layers(ranked_frame())
    assert picks["criterion"].tolist()[:3] == ["rank_aggregate", "participation_ratio", "dime"]
    first = picks.iloc[0]
    assert (first["layer_name"], first["direction"], first["runner_up"]) == ("block.1", "lower", "block.2")
    assert first["value"] == pytest.approx(4 / 3)
    assert first["support"] == 1
    assert first["variant"] == "participation_ratio, uniformity, isoscore"
    by_name = pick_layers(ranked_frame(), ["dime", "rank_aggregate"])
    assert by_name["criterion"].tolist()[:2] == ["dime", "rank_aggregate"]
    assert by_name.iloc[1].to_dict() == first.to_dict()


def test_a_rank_aggregate_that_cannot_be_is_refused_in_one_line():
    with pytest.raises(UsageError, match="rank_aggregate needs participation_ratio, uniformity, isoscore"):
        pick_layers(metrics_frame([1.0, 2.0]), ["rank_aggregate"])
    with pytest.raises(UsageError, match="rank_aggregate has no direction"):
        pick_layers(ranked_frame(), ["rank_aggregate"], {"rank_aggregate": "higher"})


def test_every_pooling_has_a_rank_aggregate_of_its_own_and_a_tie_has_a_reason():
    frame = pd.concat([ranked_frame(), ranked_frame(pooling="last").assign(value=1.0)])
    picks = pick_layers(frame).iloc[:2]
    assert picks["pooling"].tolist() == ["mean", "last"]
    assert picks["layer_name"].tolist()[0] == "block.1"
    assert pd.isna(picks["layer_name"].iloc[1])
    assert "nothing to choose by" in picks["reason"].iloc[1]


@pytest.mark.parametrize(("cosine", "says"), [(0.49, False), (0.5, True), (float("nan"), False)])
def test_a_correction_is_proposed_where_vectors_point_the_same_way(cosine, says):
    crowded = metrics_frame([0.9, cosine, 0.1], metric="anisotropy")
    frame = pd.concat([ranked_frame(), crowded, crowded.assign(pooling="last", value=0.9)])
    pick = pick_layers(frame, ["rank_aggregate"]).iloc[0]
    hint = correction_hint(frame, pick)
    assert (hint is not None) == says
    if says:
        assert "block.1 (mean)" in hint
        assert "mean cosine 0.50" in hint
    assert correction_hint(ranked_frame(), pick) is None


def test_a_pick_says_all_that_the_selector_knows():
    draws = 0.01 * np.random.default_rng(0).normal(size=(40, 3)) + [1.0, 3.0, 2.0]
    frame = metrics_frame([1.0, 3.0, 2.0], draws)
    row = pick_layers(frame).iloc[0]
    expected = {
        "model": "m", "corpus": "c", "pooling": "mean", "kind": "criterion",
        "criterion": "participation_ratio", "metric": "participation_ratio", "variant": "v",
        "direction": "higher", "layer": 1,
        "layer_name": "block.1", "depth": 0.5, "value": 3.0, "runner_up": "block.2", "runner_up_value": 2.0,
        "support": 1.0, "most_picked": "block.1", "most_picked_support": 1.0, "clear": True, "n": 90,
        "reason": "",
    }  # fmt: skip
    assert row.to_dict() == expected


def test_criteria_come_as_asked_for_with_their_directions():
    frame = pd.concat([metrics_frame([1.0, 2.0], metric=name) for name in ("participation_ratio", "mine")])
    picks = pick_layers(frame, ["mine", "participation_ratio", "mine"], {"mine": "lower"})
    chosen = picks[picks["kind"] == "criterion"]
    assert chosen[["criterion", "direction", "layer_name"]].to_numpy().tolist() == [
        ["mine", "lower", "embed"],
        ["participation_ratio", "higher", "block.1"],
    ]


def test_a_criterion_that_the_frame_lacks_is_refused():
    with pytest.raises(UsageError, match="no metric 'participation_rato': did you mean"):
        pick_layers(metrics_frame([1.0, 2.0]), ["participation_rato"])


def test_every_variant_is_a_pick_of_its_own():
    frame = pd.concat([metrics_frame([1.0, 2.0]), metrics_frame([2.0, 1.0], variant="w")])
    picks = pick_layers(frame)
    assert picks[picks["kind"] == "criterion"][["variant", "layer_name"]].to_numpy().tolist() == [
        ["v", "block.1"],
        ["w", "embed"],
    ]
    assert (picks["kind"] == "baseline").sum() == 3


def test_a_criterion_without_values_has_no_layer_but_a_reason():
    frame = pd.concat(
        [metrics_frame([1.0, 2.0]), metrics_frame([NAN, NAN], metric="dime", reason="no views")]
    )
    picks = pick_layers(frame)
    row = picks[picks["criterion"] == "dime"].iloc[0]
    assert pd.isna(row["layer_name"])
    assert pd.isna(row["layer"])
    assert "no views" in row["reason"]
    assert not row["clear"]
    assert (row["metric"], row["pooling"], row["variant"]) == ("dime", "mean", "v")


def test_every_model_and_corpus_has_picks_of_its_own():
    frame = pd.concat(
        [
            metrics_frame(values, model=model, corpus=corpus)
            for values, model, corpus in [
                ([1.0, 2.0], "b", "x"), ([2.0, 1.0], "a", "x"), ([3.0, 1.0], "b", "y")
            ]
        ]
    )  # fmt: skip
    picks = pick_layers(frame)
    chosen = picks[picks["kind"] == "criterion"]
    assert chosen[["model", "corpus", "layer_name"]].to_numpy().tolist() == [
        ["b", "x", "block.1"],
        ["a", "x", "embed"],
        ["b", "y", "embed"],
    ]
    assert picks.groupby(["model", "corpus"]).size().tolist() == [4, 4, 4]


def test_a_frame_that_does_not_name_its_corpus_has_picks_all_the_same():
    picks = pick_layers(metrics_frame([1.0, 2.0], corpus=None))
    assert picks["layer_name"].tolist() == ["block.1"] * 4
    assert set(picks["model"]) == {"m"}


# Depth rules


@pytest.mark.parametrize(
    ("n_blocks", "has_norm", "last", "middle", "two_thirds"),
    [
        (1, False, "block.1", "block.1", "block.1"),
        (6, False, "block.6", "block.3", "block.4"),
        (6, True, "norm", "block.3", "block.4"),
        (7, True, "norm", "block.4", "block.5"),
        (12, True, "norm", "block.6", "block.8"),
        (30, True, "norm", "block.15", "block.20"),
        (32, False, "block.32", "block.16", "block.21"),
    ],
)
def test_depth_rules_take_the_nearest_block(n_blocks, has_norm, last, middle, two_thirds):
    names = standard_layers(n_blocks, has_norm)
    depths = {name: make_layer(name, n_blocks).depth for name in names}
    expected = {"last layer": last, "middle layer": middle, "2/3 depth": two_thirds}
    for order in (names, names[::-1]):
        assert {rule: rule_layer(rule, order, depths) for rule in DEPTH_RULES} == expected


def test_depth_rules_choose_among_the_layers_that_are_there():
    names = ["embed", "block.2", "block.10", "normed.6"]
    depths = dict(zip(names, [0.0, 0.2, 1.0, 0.6], strict=True))
    assert [rule_layer(rule, names, depths) for rule in DEPTH_RULES] == ["block.10", "block.2", "block.10"]
    assert rule_layer("middle layer", ["embed"], depths) == "embed"


@pytest.mark.parametrize(
    ("poolings", "with_rules"),
    [
        (["tokens", "mean", "tokens-nosink"], ["mean"]),
        (["tokens", "tokens-nosink"], ["tokens", "tokens-nosink"]),
    ],
)
def test_token_sets_have_depth_rules_only_where_there_are_no_vectors(poolings, with_rules):
    picks = pick_layers(pd.concat([metrics_frame([1.0, 2.0], pooling=name) for name in poolings]))
    assert list(dict.fromkeys(picks[picks["kind"] == "baseline"]["pooling"])) == with_rules


# Costs


def scores_frame(scores, draws=None, **more):
    frame = metrics_frame(scores, draws, **({"metric": "cosine_spearman", "variant": "raw"} | more))
    return frame.rename(columns={"value": "score"}).assign(task=more.get("task", "sts"))[
        [column for column in SCORE_COLUMNS if column not in ("split", "subset") and "vs_last" not in column]
    ]


def pick(layer_name, **more):
    return pd.DataFrame(
        [{"model": "m", "criterion": "x", "pooling": "mean", "layer_name": layer_name} | more]
    )


@settings(deadline=None, max_examples=60)
@given(scores=VALUES, data=st.data())
def test_the_cost_is_the_regret_and_never_negative(scores, data):
    chosen = data.draw(st.sampled_from([k for k, score in enumerate(scores) if not np.isnan(score)]))
    frame = scores_frame(scores)
    row = with_costs(pick(frame["layer_name"][chosen]), frame).iloc[0]
    assert row["cost"] == max(score - scores[chosen] for score in scores if not np.isnan(score)) >= 0
    assert row["best_layer_name"] == frame["layer_name"][np.nanargmax(scores)]
    assert (row["score"], row["best_score"]) == (scores[chosen], np.nanmax(scores))


@pytest.mark.parametrize("draws", [None, np.eye(3)])
def test_the_best_layer_costs_nothing_for_sure(draws):
    row = with_costs(pick("block.1"), scores_frame([0.1, 0.9, 0.5], draws)).iloc[0]
    assert (row["cost"], row["cost_low"], row["cost_high"]) == (0, 0, 0)


def test_the_interval_of_a_cost_is_paired():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(60, 1)) + 0.01 * rng.normal(size=(60, 3)) + [0.1, 0.9, 0.5]
    row = with_costs(pick("block.2"), scores_frame([0.1, 0.9, 0.5], draws)).iloc[0]
    expected = interval(0.9 - 0.5, draws[:, 1] - draws[:, 2])
    assert (row["cost_low"], row["cost_high"]) == pytest.approx(expected)
    assert 0.3 < row["cost_low"] < 0.4 < row["cost_high"] < 0.5


def test_without_resamples_a_cost_has_no_interval():
    row = with_costs(pick("embed"), scores_frame([0.1, 0.9])).iloc[0]
    assert row["cost"] == pytest.approx(0.8)
    assert np.isnan([row["cost_low"], row["cost_high"]]).all()


@pytest.mark.parametrize(("picked", "scored"), [("tokens", "mean"), ("tokens-nosink", "mean-nosink")])
def test_a_pick_by_token_states_is_scored_by_the_mean_of_the_same_tokens(picked, scored):
    other = "mean-nosink" if scored == "mean" else "mean"
    scores = pd.concat([scores_frame([0.1, 0.3], pooling=scored), scores_frame([0.9, 0.0], pooling=other)])
    row = with_costs(pick("embed", pooling=picked), scores).iloc[0]
    assert (row["score"], row["best_score"], row["best_layer_name"]) == (0.1, 0.3, "block.1")


@pytest.mark.parametrize(
    "missing",
    [{"layer_name": "block.9"}, {"layer_name": None}, {"layer_name": "block.1"}, {"pooling": "cls"},
     {"model": "other"}],
)  # fmt: skip
def test_a_pick_without_a_score_has_no_cost(missing):
    row = with_costs(pick(**({"layer_name": "embed"} | missing)), scores_frame([0.1, NAN])).iloc[0]
    assert row[["score", "best_score", "cost", "cost_low", "cost_high", "best_layer_name"]].isna().all()


def test_costs_are_within_the_same_model():
    scores = pd.concat([scores_frame([0.9, 0.1], model="other"), scores_frame([0.2, 0.4])])
    row = with_costs(pick("embed"), scores).iloc[0]
    assert (row["score"], row["best_score"]) == (0.2, 0.4)


def test_costs_are_of_the_metric_and_variant_asked_for():
    scores = pd.concat(
        [
            scores_frame([0.1, 0.2]),
            scores_frame([0.3, 0.1], variant="center"),
            scores_frame([0.5, 0.4], metric="cosine_pearson"),
        ]
    )
    assert with_costs(pick("embed"), scores)["best_score"].item() == 0.2
    assert with_costs(pick("embed"), scores, variant="center")["best_score"].item() == 0.3
    assert with_costs(pick("embed"), scores, metric="cosine_pearson")["best_score"].item() == 0.5
    with pytest.raises(FrameError, match=r"no cosine_pearson \(center\)"):
        with_costs(pick("embed"), scores, metric="cosine_pearson", variant="center")


def test_scores_of_several_tasks_need_a_choice():
    scores = pd.concat([scores_frame([0.1, 0.2], task="a"), scores_frame([0.3, 0.1], task="b")])
    with pytest.raises(FrameError, match=r"several tasks \(a, b\)"):
        with_costs(pick("embed"), scores)


def test_costs_stand_beside_their_picks():
    picks = pd.concat([pick("embed"), pick("block.1"), pick("block.2")]).set_axis([5, 3, 5])
    before = picks.copy()
    found = with_costs(picks, scores_frame([0.1, 0.2, 0.4]))
    pd.testing.assert_frame_equal(picks, before)
    assert found.index.tolist() == [5, 3, 5]
    assert found["cost"].tolist() == pytest.approx([0.3, 0.2, 0.0])
    assert list(found.columns) == [
        *picks.columns, "score", "best_layer_name", "best_score", "cost", "cost_low", "cost_high",
    ]  # fmt: skip


@pytest.mark.parametrize("criterion", [None, 3])
def test_a_criterion_that_is_no_name_is_refused(criterion):
    with pytest.raises(UsageError, match=f"criterion is {criterion}"):
        LayerSelector(criterion).fit(metrics_frame([1.0, 2.0]))


def test_what_is_no_frame_is_refused():
    with pytest.raises(UsageError, match=r"expected a metrics frame, .* got NoneType"):
        LayerSelector().fit(None)
    with pytest.raises(FrameError, match=r"lacks the column\(s\) layer, layer_name"):
        LayerSelector().fit(pd.DataFrame({"metric": ["dime"]}))


def test_a_frame_that_contradicts_itself_in_direction_is_refused():
    frame = metrics_frame([1.0, 2.0]).assign(direction=["higher", "lower"])
    with pytest.raises(FrameError, match="'participation_ratio' that higher, lower is better"):
        LayerSelector().fit(frame)
    assert LayerSelector(direction="lower").fit(frame).layer_ == "embed"


def test_named_criteria_come_before_the_others_and_one_of_unknown_direction_has_a_reason():
    names = ("participation_ratio", "uniformity", "mine")
    frame = pd.concat([metrics_frame([1.0, 2.0], metric=name) for name in names])
    picks = pick_layers(frame, ["uniformity"], {"uniformity": "higher"}, others=True)
    picks = picks[picks["kind"] == "criterion"]
    assert picks["criterion"].tolist() == ["uniformity", "participation_ratio", "mine"]
    assert picks["layer_name"].isna().tolist() == [False, False, True]
    assert "which end of 'mine' is better is not known" in picks["reason"].iloc[2]
    with pytest.raises(UsageError, match="which end of 'mine'"):
        pick_layers(frame, ["mine"])
