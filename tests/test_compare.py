from __future__ import annotations

import dcor
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau, pearsonr, spearmanr
from typer.testing import CliRunner

from layerscope.cli.main import app
from layerscope.compare.aligned import Criterion, align
from layerscope.compare.correlations import ALL_TASKS, STATISTICS, correlate_layers
from layerscope.compare.regret import (
    ALL,
    BEST_LAYER,
    ONE_LAYER,
    ORACLE,
    PER_TASK,
    RANDOM,
    WITHOUT_FIRST,
    holm,
    regret_table,
    verdict,
)
from layerscope.errors import FrameError, UsageError
from layerscope.evaluate.importing import import_table
from layerscope.plots import plot_correlations
from tests.conftest import SHARED

LAYERS = ["embed", *(f"block.{k}" for k in range(1, 7))]


def frames(values, scores, metric="dime", layers=LAYERS, **more):
    """Frames of (T, L) values and scores."""
    rows = []
    for task, (mine, score) in enumerate(zip(values, scores, strict=True)):
        for at, name in enumerate(layers):
            rows.append(
                {"model": "m", "name": f"t{task}", "layer": at, "layer_name": name,
                 "depth": at / (len(layers) - 1), "pooling": "mean", "value": mine[at], "score": score[at]}
            )  # fmt: skip
    frame = pd.DataFrame(rows)
    metrics = frame.drop(columns="score").rename(columns={"name": "corpus"}).assign(metric=metric, **more)
    rated = frame.drop(columns="value").rename(columns={"name": "task"}).assign(metric="main_score")
    return metrics, rated


def random_frames(tasks=8, seed=0, **more):
    rng = np.random.default_rng(seed)
    return frames(rng.normal(size=(tasks, 7)), rng.uniform(size=(tasks, 7)), **more)


def one(table, **where):
    rows = table
    for column, value in where.items():
        rows = rows[rows[column] == value]
    assert len(rows) == 1, rows
    return rows.iloc[0]


# Alignment


def test_tasks_and_layers_are_matched_by_name_whatever_their_order():
    metrics, scores = random_frames(3)
    [plain] = align(metrics, scores)
    [shuffled] = align(metrics.sample(frac=1, random_state=1), scores.sample(frac=1, random_state=2))
    assert plain.layers == shuffled.layers == LAYERS
    order = [shuffled.tasks.index(task) for task in plain.tasks]
    np.testing.assert_array_equal(plain.scores, shuffled.scores[order])
    np.testing.assert_array_equal(plain.values[Criterion("dime")], shuffled.values[Criterion("dime")][order])


def test_scores_of_normed_layers_go_with_the_metrics_of_their_blocks():
    metrics, scores = random_frames(2)
    names = {"embed": "normed.0", **{f"block.{k}": f"normed.{k}" for k in range(1, 6)}, "block.6": "norm"}
    normed = scores.assign(layer_name=scores["layer_name"].map(names))
    [found] = align(pd.concat([metrics, metrics[metrics["layer"] == 6].assign(layer_name="norm")]), normed)
    [plain] = align(metrics, scores)
    np.testing.assert_array_equal(found.values[Criterion("dime")], plain.values[Criterion("dime")])


def test_metrics_of_one_corpus_stand_for_every_task():
    metrics, scores = random_frames(4)
    [found] = align(metrics[metrics["corpus"] == "t0"].assign(corpus="wiki"), scores)
    assert len(found.tasks) == 4
    values = found.values[Criterion("dime")]
    assert (values == values[0]).all()


def test_a_metric_of_few_tasks_is_left_out_and_tasks_without_a_metric_are_too():
    metrics, scores = random_frames(8)
    rare = metrics[metrics["corpus"].isin(["t0", "t1"])].assign(metric="curvature")
    most = metrics[metrics["corpus"] != "t7"].assign(metric="lidar")
    [found] = align(pd.concat([metrics, rare, most]), scores)
    assert list(map(str, found.values)) == ["dime", "lidar"]
    assert found.tasks == [f"t{k}" for k in range(7)]
    assert "curvature left out: it has values for 2 of 8 tasks" in found.notes[0]
    assert "the 7 of 8 tasks" in found.notes[1]


def test_token_metrics_go_with_the_mean_of_the_same_tokens():
    metrics, scores = random_frames(2)
    [found] = align(metrics.assign(pooling="tokens"), scores)
    assert found.pooling == "mean"
    with pytest.raises(FrameError, match="no metric is of the pooling 'mean'"):
        align(metrics.assign(pooling="last"), scores)


def test_subsets_are_averaged_only_where_the_whole_has_no_score():
    metrics, scores = random_frames(1)
    parts = [
        scores.assign(subset=name, score=scores["score"] + shift) for name, shift in (("a", 1), ("b", 2))
    ]
    [split] = align(metrics, pd.concat(parts))
    np.testing.assert_allclose(split.scores[0], scores["score"] + 1.5)
    [whole] = align(metrics, pd.concat([*parts, scores.assign(subset="all")]))
    np.testing.assert_allclose(whole.scores[0], scores["score"])


def test_variants_are_criteria_of_their_own_until_one_is_chosen():
    metrics, scores = random_frames(2)
    both = pd.concat([metrics.assign(variant="raw"), metrics.assign(variant="scaled")])
    assert list(map(str, align(both, scores)[0].values)) == ["dime (raw)", "dime (scaled)"]
    assert list(map(str, align(both, scores, variant="raw")[0].values)) == ["dime"]
    with pytest.raises(UsageError, match="did you mean 'scaled'"):
        align(both, scores, variant="scale")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"corpus": "other"}, None),
        ({"model": "other"}, "the scores are of the model m, the metrics of other"),
        ({"layer_name": "normed.3"}, "no layer in common"),
    ],
)
def test_frames_with_nothing_in_common_are_refused(change, error):
    metrics, scores = random_frames(2)
    changed = metrics.assign(**change)
    if error is None:  # several corpora, none a task
        changed = changed.assign(corpus=metrics["corpus"] + "x")
        error = "no task in common"
    if "layer_name" in change:
        changed = changed[changed["layer"] == 3]
        scores = scores[scores["layer"] != 3]
    with pytest.raises(FrameError, match=error):
        align(changed, scores)


# Correlations


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=4, max_size=12))
def test_statistics_are_those_of_scipy_and_dcor(pairs):
    x, y = (np.array(side, dtype=float) for side in zip(*pairs, strict=True))
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        assert all(np.isnan(statistic(x[None], y)[0]) for statistic in STATISTICS.values())
        return
    expected = {
        "spearman": spearmanr(x, y).statistic, "kendall": kendalltau(x, y).statistic,
        "pearson": pearsonr(x, y).statistic, "distance": dcor.distance_correlation(x, y),
    }  # fmt: skip
    for name, statistic in STATISTICS.items():
        assert statistic(x[None], y)[0] == pytest.approx(expected[name], abs=1e-9)


def test_a_metric_that_rises_with_the_score_correlates_fully_and_one_apart_from_it_does_not():
    scores = np.linspace(0, 1, 7) + np.arange(8)[:, None]
    [found] = align(*frames(scores**3, scores))
    table = correlate_layers(found, permutations=499)
    mean = one(table, task=ALL_TASKS, statistic="spearman")
    assert mean["value"] == 1
    assert mean["p"] < 0.02
    assert (mean["ci_low"], mean["ci_high"]) == (1, 1)
    rng = np.random.default_rng(0)
    [noise] = align(*frames(rng.normal(size=(8, 7)), rng.normal(size=(8, 7))))
    assert one(correlate_layers(noise, permutations=499), task=ALL_TASKS, statistic="spearman")["p"] > 0.05


def test_all_tasks_are_permuted_alike():
    """Ten copies of one task say no more than one of them does."""
    rng = np.random.default_rng(3)
    value, score = rng.normal(size=7), rng.normal(size=7)
    [many] = align(*frames([value] * 10, [score] * 10))
    table = correlate_layers(many, permutations=499)
    spearman = table[table["statistic"] == "spearman"]
    assert spearman["p"].nunique() == 1


def test_constant_metrics_and_few_layers_have_reasons():
    metrics, scores = random_frames(7)
    [found] = align(metrics.assign(value=1.0), scores)
    table = correlate_layers(found, permutations=9)
    assert table["value"].isna().all()
    assert set(table["reason"]) == {"constant over the layers"}
    kept = metrics.assign(value=metrics["value"].where(metrics["layer"] < 3))
    [few] = align(kept, scores)
    assert set(correlate_layers(few, permutations=9)["reason"]) == {"values at 3 layers, fewer than 4"}


def test_a_layer_without_a_value_does_not_count():
    metrics, scores = random_frames(7)
    missing = metrics.assign(value=metrics["value"].where(metrics["layer"] > 0))
    without = correlate_layers(align(missing, scores)[0], permutations=99)
    cut = correlate_layers(
        align(metrics[metrics["layer"] > 0], scores[scores["layer"] > 0])[0], permutations=99
    )
    pd.testing.assert_series_equal(without["value"], cut["value"])


# Regret


def slow_pick(values, highest):
    """Which layer a loop over the layers would take; the first of equal ones."""
    best = None
    for at, value in enumerate(values):
        if np.isnan(value):
            continue
        if best is None or (value > values[best] if highest else value < values[best]):
            best = at
    return best


@pytest.mark.parametrize("seed", range(3))
def test_regret_is_what_loops_find(seed):
    rng = np.random.default_rng(seed)
    values, scores = rng.normal(size=(9, 7)), rng.uniform(size=(9, 7))
    values[:, 0] = np.nan if seed == 2 else values[:, 0]
    [aligned] = align(*frames(values, scores))
    table = regret_table(aligned, draws=200)
    for direction in ("higher", "lower"):
        for layers, first in ((ALL, 0), (WITHOUT_FIRST, 1)):
            picked = [first + slow_pick(row[first:], direction == "higher") for row in values]
            mine = np.mean([row[at] for row, at in zip(scores, picked, strict=True)])
            where = {"criterion": "dime", "direction": direction, "scope": PER_TASK, "layers": layers}
            for reference, expected in {
                "last layer": scores[:, 6].mean(), "middle layer": scores[:, 3].mean(),
                "2/3 depth": scores[:, 4].mean(), RANDOM: scores.mean(),
                BEST_LAYER: scores.mean(axis=0).max(), ORACLE: scores.max(axis=1).mean(),
            }.items():  # fmt: skip
                row = one(table, reference=reference, **where)
                assert row["score"] == pytest.approx(mine)
                assert row["reference_score"] == pytest.approx(expected)
                assert row["difference"] == pytest.approx(mine - expected)


def test_one_layer_is_the_one_of_the_best_mean_rank():
    values = np.array([[3, 2, 1, 0, 0, 0, 0], [2, 3, 1, 0, 0, 0, 0], [0, 3, 4, 1, 1, 1, 1]] * 2, dtype=float)
    scores = np.random.default_rng(0).uniform(size=values.shape)
    [aligned] = align(*frames(values, scores))
    row = one(
        regret_table(aligned, draws=0), criterion="dime", direction="higher", scope=ONE_LAYER, layers=ALL,
        reference="last layer",
    )  # fmt: skip
    assert row["layer_name"] == "block.1"
    assert row["score"] == pytest.approx(scores[:, 1].mean())


def test_holm_is_never_below_the_p_value_nor_out_of_order():
    p_values = [0.001, 0.2, 0.04, 0.01, 0.9]
    corrected = holm(p_values)
    assert corrected == pytest.approx([0.005, 0.4, 0.12, 0.04, 0.9])
    assert holm([]) == []


def test_a_criterion_that_knows_the_scores_is_said_to_beat_the_depth_rules():
    rng = np.random.default_rng(1)
    scores = rng.uniform(size=(20, 7))
    table = regret_table(align(*frames(scores, scores))[0])
    assert "beat the best depth rule" in verdict(table)
    assert "highest dime (per task)" in verdict(table)
    row = one(table, criterion="dime", direction="higher", scope=PER_TASK, layers=ALL, reference="last layer")
    assert row["p_holm"] < 0.05
    assert row["ci_low"] > 0


def test_a_criterion_of_noise_is_said_not_to_and_few_tasks_say_nothing():
    rng = np.random.default_rng(5)
    scores = rng.uniform(size=(20, 1)) + np.linspace(0, 1, 7) + rng.normal(scale=0.01, size=(20, 7))
    noise = rng.normal(size=(20, 7))
    assert "none of 8 criteria beats the best depth rule, the last layer" in verdict(
        regret_table(align(*frames(noise, scores))[0])
    )
    few = regret_table(align(*frames(noise[:3], scores[:3]))[0])
    assert few["p"].isna().all()
    assert "with so few tasks nothing can be said" in verdict(few)


# The published scores


@pytest.fixture(scope="module")
def published():
    folder = SHARED / "golden" / "published"
    if not folder.is_dir():
        pytest.skip(f"the published scores are not at {folder}")
    return folder


FACTS = {
    "Pythia-14m": [33.68, 38.96, 34.69, 33.38, 33.37, 33.38, 32.10],
    "Pythia-70m": [39.71, 42.28, 39.41, 39.48, 39.55, 39.10, 39.26],
    "Pythia-160m": [42.94, 45.78, 44.01, 44.79, 44.06, 44.52, 43.44],
}


def test_the_known_facts_of_the_published_scores(published):
    _, metrics = import_table(published / "metrics.csv.gz", tasks=published / "tasks.csv")
    _, scores = import_table(published / "scores.csv")
    found = {
        aligned.model: regret_table(aligned, draws=0) for aligned in align(metrics, scores, variant="raw")
    }
    assert set(found) == set(FACTS)
    for model, table in found.items():
        first = table[(table["reference"] == "last layer") & (table["layers"] == ALL)]
        rules = [
            one(first, criterion=name)["score"] for name in ("last layer", BEST_LAYER, RANDOM, "middle layer")
        ]
        lowest = [
            one(first, criterion=name, direction="lower", scope=PER_TASK)["score"]
            for name in ("dime", "dataset_entropy", "infonce")
        ]
        np.testing.assert_allclose(100 * np.array(rules + lowest), FACTS[model], atol=0.02)
        assert first["n"].unique() == [26]


def test_the_command_prints_them_and_leaves_tables_and_figures(published, tmp_path):
    arguments = [
        "compare", str(published / "metrics.csv.gz"), str(published / "scores.csv"),
        "--tasks", str(published / "tasks.csv"), "--variant", "raw", "--permutations", "19",
        "-o", str(tmp_path / "out"),
    ]  # fmt: skip
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    for figures in FACTS.values():
        assert all(f"{figure:.2f}" in result.stdout for figure in figures)
    assert result.stdout.count("best depth rule") == 3
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".png", ".svg", ".parquet", ".csv"}


def test_the_heat_map_stars_what_is_beyond_chance_and_hatches_what_is_missing():
    scores = np.linspace(0, 1, 7) + np.arange(8)[:, None]
    values = scores.copy()
    values[2] = 1.0  # constant: no correlation
    table = correlate_layers(align(*frames(values, scores))[0])
    panel = plot_correlations(table)
    tags = [artist.get_gid() or "" for artist in panel.get_children()]
    assert sum("missing" in name for name in tags) == 1
    assert any("★" in text.get_text() for text in panel.texts)
    assert panel.get_xticklabels()[-1].get_text() == "mean"
    with pytest.raises(FrameError, match="did you mean 'spearman'"):
        plot_correlations(table, "spearmen")
