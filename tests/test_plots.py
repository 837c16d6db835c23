"""Figures: what they show, what they refuse, and that they leave nothing behind."""

from __future__ import annotations

import itertools
import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from layerscope.errors import FrameError, UsageError
from layerscope.plots import (
    figure_svg,
    plot_heatmap,
    plot_layer_weights,
    plot_metric,
    plot_metric_against_score,
    plot_metrics,
    plot_metrics_against_score,
    plot_scores,
    save_figure,
)
from tests.drawn import legend_texts, lines, marks, tick_texts, tight_box
from tests.plot_frames import LABELS, baselines, decoder, encoder, pick


@pytest.fixture(scope="module")
def small():
    return encoder()


@pytest.fixture(scope="module")
def deep():
    return decoder()


def test_metric_has_one_line_per_pooling_and_labelled_axes(small):
    ax = plot_metric(small[0], "dataset_entropy", labels=LABELS)
    assert [line.get_label() for line in lines(ax)] == ["mean", "last"]
    assert ax.get_ylabel() == "Dataset entropy (nats)"
    assert ax.get_xlabel() == "layer (k = block.k)"
    assert tick_texts(ax) == ["embed", "1", "2", "3", "4", "5", "6"]
    assert legend_texts(ax) == ["mean", "last"]


def test_metric_draws_the_values_and_the_interval_of_the_frame(small):
    frame = small[0]
    ax = plot_metric(frame, "uniformity")
    rows = frame[(frame["metric"] == "uniformity") & (frame["pooling"] == "mean")]
    np.testing.assert_array_equal(lines(ax)[0].get_xydata(), rows[["layer", "value"]].to_numpy(float))
    band = ax.collections[0].get_paths()[0].get_extents()
    assert (band.y0, band.y1) == (rows["ci_low"].min(), rows["ci_high"].max())


def test_a_notebook_shows_figures_though_pyplot_was_never_imported(small):
    for figure in (plot_metric(small[0], "uniformity").figure, plot_metrics(small[0])):
        assert figure._repr_png_().startswith(b"\x89PNG")


def test_lines_differ_in_colour_dash_and_marker(deep):
    first, second = lines(plot_metric(deep[0], "dataset_entropy"))
    for looks in ("get_color", "get_marker"):
        assert getattr(first, looks)() != getattr(second, looks)()
    assert first.is_dashed() != second.is_dashed()


def test_rows_in_any_order_give_the_same_line(small):
    shuffled = small[0].sample(frac=1, random_state=0)
    ordered = {line.get_label(): line.get_xydata() for line in lines(plot_metric(small[0], "uniformity"))}
    for line in lines(plot_metric(shuffled, "uniformity")):
        np.testing.assert_array_equal(line.get_xydata(), ordered[line.get_label()])


def test_deep_model_thins_its_ticks_and_sets_the_norm_apart(deep):
    ax = plot_metric(deep[0], "dataset_entropy")
    assert tick_texts(ax) == ["embed", "5", "10", "15", "20", "25", "30", "norm"]
    assert all(line.get_xdata().max() == 32 for line in lines(ax))  # not joined to the norm
    assert [float(norm.get_xdata()[0]) for norm in marks(ax, "norm")] == [pytest.approx(33.92)] * 2
    assert len(marks(ax, "gap")) == 1


@pytest.mark.parametrize("n_blocks", [1, 6, 8, 12, 16, 24, 28, 32, 36, 40, 48, 61, 80, 126])
def test_tick_labels_never_touch(n_blocks):
    names = ["embed", *(f"block.{k}" for k in range(1, n_blocks + 1)), "norm"]
    blocks = [*range(n_blocks + 1), n_blocks]
    frame = pd.DataFrame(
        {"layer": blocks, "layer_name": names, "depth": np.array(blocks) / n_blocks, "pooling": "mean",
         "metric": "m", "value": np.arange(len(names))}
    )  # fmt: skip
    ax = plot_metric(frame, "m")
    ax.figure.canvas.draw()
    boxes = [tight_box(tick, ax.figure) for tick in ax.get_xticklabels()]
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


def test_frame_without_norm_has_no_norm_on_its_axis(small):
    ax = plot_metric(small[0], "dataset_entropy")
    assert not marks(ax, "gap")
    assert not marks(ax, "norm")


def test_missing_values_are_gaps_with_a_cross(deep):
    ax = plot_metric(deep[0], "dime")
    for line in lines(ax):
        assert np.isnan(line.get_ydata()[13:16]).all()
    assert [list(cross.get_xdata()) for cross in marks(ax, "missing")] == [[13, 14, 15]] * 2
    assert "no value" in legend_texts(ax)


def test_metric_without_any_value_says_why(deep):
    ax = plot_metric(deep[0], "anisotropy")
    assert [text.get_text().replace("\n", " ") for text in ax.texts] == ["no layer has a value: zero trace"]


def test_a_value_between_missing_ones_keeps_its_marker():
    values = np.full(40, np.nan)
    values[17] = 1.0
    frame = pd.DataFrame(
        {"layer": range(40), "layer_name": ["embed", *(f"block.{k}" for k in range(1, 40))],
         "depth": np.arange(40) / 39, "pooling": "mean", "metric": "m", "value": values}
    )  # fmt: skip
    assert 17 in lines(plot_metric(frame, "m"))[0].get_markevery()


def test_inner_norms_are_a_line_of_their_own(small):
    rows = small[0][small[0]["metric"] == "uniformity"]
    normed = rows[rows["layer"] > 0].assign(
        layer_name=lambda frame: frame["layer_name"].str.replace("block", "normed")
    )
    ax = plot_metric(pd.concat([rows, normed]), "uniformity")
    assert [line.get_label() for line in lines(ax)] == [
        "mean", "mean, final norm applied", "last", "last, final norm applied",
    ]  # fmt: skip


def test_picks_are_ringed_on_the_line_of_their_pooling(deep):
    metrics, _, picks = deep
    ax = plot_metric(metrics, "dataset_entropy", picks=picks)
    drawn = {line.get_label(): dict(line.get_xydata()) for line in lines(ax)}
    rings = [tuple(ring.get_xydata()[0]) for ring in marks(ax, "pick")]
    assert rings == [(3, drawn["mean"][3]), (12, drawn["mean-nosink"][12])]
    assert "picked (mean): block.3, no clear winner" in legend_texts(ax)


def test_clear_pick_is_not_called_unclear(small):
    ax = plot_metric(small[0], "dataset_entropy", picks=small[2])
    assert "picked (mean): block.4" in legend_texts(ax)


def test_another_metrics_pick_is_not_ringed(small):
    assert not marks(plot_metric(small[0], "effective_rank", picks=small[2]), "pick")


def test_pick_without_a_layer_is_not_drawn(small):
    picks = pd.DataFrame([pick("m", 6, "mean", "dime", "block.1")]).assign(layer_name=None, model=None)
    assert not marks(plot_metric(small[0], "dime", picks=picks), "pick")


def test_recipes_tell_lines_of_one_pooling_apart(small):
    rows = small[0][(small[0]["metric"] == "uniformity") & (small[0]["pooling"] == "mean")]
    both = pd.concat([rows, rows.assign(variant="rows=center-unit;alpha=2")])
    assert legend_texts(plot_metric(both, "uniformity")) == ["mean, alpha=1", "mean, alpha=2"]


def test_minimal_frame_from_elsewhere_is_enough():
    frame = pd.DataFrame(
        {"layer": [0, 1], "layer_name": ["embed", "block.1"], "depth": [0.0, 1.0], "pooling": "cls",
         "metric": "my_metric", "value": [1.0, 2.0]}
    )  # fmt: skip
    assert plot_metric(frame, "my_metric").get_ylabel() == "my metric"
    assert len(plot_metrics(frame).axes) == 1


def test_names_with_a_dollar_sign_are_drawn_as_they_are(small):
    ax = plot_scores(small[1].assign(task="cost_$x^"))
    assert "cost_$x^" in [ax.get_title("left")]
    assert figure_svg(ax.figure)


def test_names_in_scripts_that_the_font_lacks_are_no_error(small):
    assert figure_svg(plot_scores(small[1].assign(task="意味的類似度")).figure)


def test_metrics_grid_has_a_panel_per_metric(deep):
    figure = plot_metrics(deep[0], deep[2], labels=LABELS)
    assert [ax.get_ylabel().replace("\n", " ") for ax in figure.axes] == list(LABELS.values())
    assert {ax.get_xlabel() for ax in figure.axes} == {"depth (share of blocks run)"}
    assert tick_texts(figure.axes[0]) == ["0", "0.5", "1", "norm"]
    assert legend_texts(figure.axes[0]) == [
        "mean / tokens", "mean-nosink / tokens-nosink", "picked layer", "no value",
    ]  # fmt: skip


def test_grid_shows_models_of_different_depth_on_one_axis(small, deep):
    both = pd.concat([small[0], deep[0]])
    figure = plot_metrics(both[both["metric"] == "uniformity"])
    assert {line.get_xdata().max() for line in lines(figure.axes[0])} == {1.0}


def test_scores_mark_picks_and_baselines(small):
    _, scores, picks = small
    ax = plot_scores(scores, picks)
    assert ax.get_title("left") == "STS-B"
    assert "Spearman" in ax.get_ylabel()
    assert [ring.get_xdata()[0] for ring in marks(ax, "pick")] == [4, 2]
    assert [line.get_xdata()[0] for line in marks(ax, "baseline")] == [3, 4, 6]
    assert [text.get_text() for text in ax.texts] == ["middle", "2/3", "last", "A", "B"]


def test_scores_star_the_layers_that_beat_the_last_one(small):
    scores = small[1]
    better = scores["layer_name"].isin(["block.2", "block.3"])
    gains = scores.assign(vs_last=better * 0.1, vs_last_p=better.map({True: 0.01, False: 0.5}))
    ax = plot_scores(gains)
    assert [list(star.get_xdata()) for star in marks(ax, "better")] == [[2, 3]] * scores["pooling"].nunique()
    assert "better than the last layer, p < 0.05" in legend_texts(ax)
    assert not marks(plot_scores(gains.assign(vs_last=-gains["vs_last"])), "better")


def test_letters_tell_the_picks_of_a_legend_apart(small):
    ax = plot_scores(small[1], small[2])
    named = [text for text in legend_texts(ax) if " by " in text]
    assert named == ["A: block.4 (mean) by dataset entropy", "B: block.2 (mean) by uniformity"]
    assert legend_texts(ax).count("picked layer") == 1
    assert [letter.xy[0] for letter in marks(ax, "letter")] == [4, 2]


@pytest.mark.parametrize("n_blocks", [1, 2, 6, 7, 8, 9, 10, 11, 12])
def test_grid_names_the_layers_of_a_shallow_model(n_blocks):
    layers = ["embed", *(f"block.{k}" for k in range(1, n_blocks + 1)), "norm"]
    blocks = np.array([*range(n_blocks + 1), n_blocks])
    rows = {"layer": blocks, "layer_name": layers, "depth": blocks / n_blocks, "pooling": "mean"}
    frame = pd.concat([pd.DataFrame(rows).assign(metric=name, value=blocks) for name in "abc"])
    figure = plot_metrics(frame)
    figure.canvas.draw()
    for ax in figure.axes:
        assert ax.get_xlabel() == "layer (k = block.k)"
        assert (tick_texts(ax)[0], tick_texts(ax)[-1]) == ("embed", "norm")
        boxes = [tight_box(tick, figure) for tick in ax.get_xticklabels()]
        assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


def test_scores_of_both_variants_are_lines_of_their_own(deep):
    ax = plot_scores(deep[1], deep[2])
    assert [line.get_label() for line in lines(ax)] == [
        "mean, raw", "mean-nosink, raw", "mean, center", "mean-nosink, center",
    ]  # fmt: skip


def test_baselines_at_one_layer_share_their_label(small):
    picks = pd.DataFrame(baselines("sentence-transformers/all-MiniLM-L6-v2", 6, False, "mean"))
    ax = plot_scores(small[1], picks.assign(layer_name="block.3"))
    assert [text.get_text() for text in ax.texts] == ["last, middle, 2/3"]


def test_scatter_labels_every_point_with_its_layer(small):
    metrics, scores, _ = small
    ax = plot_metric_against_score(metrics, scores, "dataset_entropy", labels=LABELS)
    assert sorted(text.get_text() for text in ax.texts) == sorted(["embed", *"123456"] * 2)
    assert ax.get_xlabel() == "Dataset entropy (nats)"
    assert ax.get_ylabel().startswith("STS-B: Spearman")
    assert ax.figure.legends[0].get_title().get_text() == "number beside a point: layer (k = block.k)"


def test_scatter_joins_metric_and_score_of_the_same_layer_and_pooling(small):
    metrics, scores, _ = small
    ax = plot_metric_against_score(metrics, scores, "uniformity")
    value = metrics[(metrics["metric"] == "uniformity") & (metrics["pooling"] == "last")].set_index("layer")[
        "value"
    ]
    score = scores[scores["pooling"] == "last"].set_index("layer")["score"]
    np.testing.assert_array_equal(lines(ax)[1].get_xydata(), np.column_stack([value, score]))


def test_scatter_labels_do_not_cover_each_other(small):
    ax = plot_metric_against_score(small[0], small[1], "dataset_entropy")
    ax.figure.canvas.draw()
    boxes = [tight_box(text, ax.figure) for text in ax.texts]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_scatter_sets_token_metrics_against_the_mean(deep):
    ax = plot_metric_against_score(deep[0], deep[1], "curvature")
    assert [line.get_label() for line in lines(ax)] == ["tokens", "tokens-nosink"]
    assert "embed" not in [text.get_text() for text in ax.texts]  # it has no value


def test_scatter_takes_the_variant_that_is_asked_for(deep):
    raw = plot_metric_against_score(deep[0], deep[1], "uniformity")
    centred = plot_metric_against_score(deep[0], deep[1], "uniformity", variant="center")
    shift = lines(centred)[0].get_ydata() - lines(raw)[0].get_ydata()
    np.testing.assert_allclose(shift, 0.06)
    with pytest.raises(FrameError, match=r"'other'.*known: raw, center"):
        plot_metric_against_score(deep[0], deep[1], "uniformity", variant="other")


def test_scatter_grid_leaves_out_metrics_without_values(deep):
    figure = plot_metrics_against_score(deep[0], deep[1])
    assert len(figure.axes) == 5
    with pytest.raises(FrameError, match="'anisotropy'"):
        plot_metric_against_score(deep[0], deep[1], "anisotropy")


def test_heatmap_scales_each_row_and_prints_values_where_they_fit(small):
    ax = plot_heatmap(small[0], labels=LABELS)
    mesh = next(child for child in ax.get_children() if isinstance(child, QuadMesh))
    cells = mesh.get_array()
    assert cells.shape == (11, 7)
    np.testing.assert_array_equal(cells.min(axis=1), 0)
    np.testing.assert_array_equal(cells.max(axis=1), 1)
    assert len(marks(ax, "missing")) == 2
    assert marks(ax, "cell")[0].get_text() == "4.50"
    assert tick_texts(ax) == ["embed", "1", "2", "3", "4", "5", "6"]


def test_heatmap_says_how_it_is_scaled(deep):
    ax = plot_heatmap(deep[0], labels=LABELS)
    label = ax.figure.axes[-1].get_xlabel()
    assert "scaled over its layers" in label
    assert "hatched = no value" in label
    assert not marks(ax, "cell")  # too narrow
    assert tick_texts(ax)[-2:] == ["30", "norm"]
    assert len(marks(ax, "missing")) == 2 * 34 + 2 * 3 + 2


def test_heatmap_row_of_equal_values_says_so(small):
    rows = small[0][small[0]["metric"] == "uniformity"].assign(value=1.0)
    assert [tick.get_text() for tick in plot_heatmap(rows).get_yticklabels()] == [
        "mean (all equal)", "last (all equal)",
    ]  # fmt: skip


@pytest.mark.parametrize("draw", [plot_metric, lambda frame, name: plot_scores(frame, metric=name)])
def test_unknown_metric_names_the_nearest(small, draw):
    frame = small[0] if draw is plot_metric else small[1]
    wrong = "dataset_entrpy" if draw is plot_metric else "cosine_spearmn"
    right = "dataset_entropy" if draw is plot_metric else "cosine_spearman"
    with pytest.raises(FrameError, match=f"did you mean '{right}'"):
        draw(frame, wrong)


@pytest.mark.parametrize(
    "draw", [plot_metrics, plot_heatmap, lambda frame: plot_metric(frame, "dime"), plot_scores]
)
def test_empty_frame_is_refused(small, draw):
    frame = small[1] if draw is plot_scores else small[0]
    with pytest.raises(FrameError, match="no rows"):
        draw(frame.iloc[:0])


def test_missing_column_is_named(small):
    with pytest.raises(FrameError, match=r"lacks the column\(s\) pooling"):
        plot_metric(small[0].drop(columns="pooling"), "dime")


def test_two_values_for_one_layer_are_refused(small):
    twice = pd.concat([small[0], small[0]])
    with pytest.raises(FrameError, match="two values for layer embed of 'mean'"):
        plot_metric(twice, "dime")


def test_too_many_lines_are_refused(small):
    many = pd.concat([small[1].assign(task=f"task {k}") for k in range(20)])
    with pytest.raises(FrameError, match="40 lines are too many"):
        plot_scores(many)


def test_draws_into_given_axes_and_changes_no_global_state(small):
    before = dict(mpl.rcParams)
    figure = Figure()
    ax = figure.add_subplot()
    assert plot_metric(small[0], "dime", ax=ax) is ax
    assert ax.get_legend() is not None
    assert not figure.legends
    assert dict(mpl.rcParams) == before


def test_frames_are_not_changed(small):
    metrics, scores, picks = (frame.copy() for frame in small)
    plot_metrics(metrics, picks)
    plot_scores(scores, picks)
    plot_metric_against_score(metrics, scores, "dime")
    for frame, original in zip((metrics, scores, picks), small, strict=True):
        pd.testing.assert_frame_equal(frame, original)


def test_text_is_never_smaller_than_seven_points(deep):
    metrics, scores, picks = deep
    panels = [plot_metric(metrics, "dime", picks=picks), plot_scores(scores, picks), plot_heatmap(metrics)]
    panels.append(plot_metric_against_score(metrics, scores, "dime"))
    for figure in (panel.figure for panel in panels):
        assert min(text.get_fontsize() for text in figure.findobj(mpl.text.Text) if text.get_text()) >= 7


def test_text_stays_inside_the_figure(deep):
    metrics, scores, picks = deep
    for figure in (plot_metric(metrics, "curvature", picks=picks, labels=LABELS).figure,
                   plot_scores(scores, picks).figure, plot_metrics(metrics, picks, labels=LABELS),
                   plot_heatmap(metrics, labels=LABELS).figure):  # fmt: skip
        figure.canvas.draw()
        drawn = figure.get_tightbbox()
        assert drawn.x0 > -0.01
        assert drawn.y0 > -0.01
        assert drawn.x1 < figure.get_figwidth() + 0.01
        assert drawn.y1 < figure.get_figheight() + 0.01


def test_save_writes_each_format_and_keeps_dots_in_the_name(small, tmp_path):
    figure = plot_metric(small[0], "dime").figure
    paths = save_figure(figure, tmp_path / "new" / "block.4")
    assert [path.name for path in paths] == ["block.4.png", "block.4.svg"]
    assert paths[0].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["block.4.png", "block.4.svg"]


def test_unknown_format_is_refused_before_anything_is_written(small, tmp_path):
    with pytest.raises(UsageError, match="did you mean 'svg'"):
        save_figure(plot_metric(small[0], "dime").figure, tmp_path / "figure", ("png", "svgz"))
    assert not list(tmp_path.iterdir())


def test_svg_is_the_same_every_time_and_undated(small):
    first, second = (figure_svg(plot_scores(small[1], small[2]).figure) for _ in range(2))
    assert first == second
    assert "<dc:date>" not in first
    ids = [part.split('"')[0] for part in first.split(' id="')[1:]]
    assert len(ids) == len(set(ids))


def test_importing_plots_imports_no_matplotlib():
    code = "import sys, layerscope.plots; print('matplotlib' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_plotting_never_imports_pyplot():
    code = (
        "import sys, pandas; from tests.plot_frames import encoder; from layerscope.plots import *;"
        "m, s, p = encoder();"
        "plot_metrics(m, p); plot_scores(s, p); plot_heatmap(m); plot_metrics_against_score(m, s);"
        "plot_models(m, 'dime'); plot_models_grid(m); plot_heatmap(m);"
        "plot_training(pandas.concat([m.assign(step=k) for k in (1, 2)]), ['dime'], pooling='mean');"
        "pairs = m.query('metric == \\'dime\\' and pooling == \\'mean\\'').assign(other_layer_name='embed');"
        "plot_layer_pairs(pairs);"
        "plot_embeddings(pairs.assign(row=0, x=0.0, y=0.0, label='a', explained=0.5));"
        "plot_selection_stability(pairs.assign(criterion='dime', share=0.5, picked=False));"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_names_that_are_longer_than_the_figure_is_wide_are_broken(small):
    frame = small[0][small[0]["metric"] == "uniformity"]
    ax = plot_metric(pd.concat([frame.assign(model=letter * 100) for letter in "ab"]), "uniformity")
    ax.figure.draw_without_rendering()
    (legend,) = ax.figure.legends
    box, page = legend.get_window_extent(), ax.figure.bbox
    assert page.x0 - 1 <= box.x0 < box.x1 <= page.x1 + 1
    assert page.y0 - 1 <= box.y0
    assert all("\n" in text for text in legend_texts(ax))


def test_many_layer_weights_have_the_width_of_a_page():
    names = [f"block.{k}" for k in range(1, 31)]
    one = pd.DataFrame(
        {"layer_name": names, "layer": range(1, 31), "depth": np.arange(1, 31) / 30, "weight": 1 / 30}
    )
    both = pd.concat([one.assign(kind="scalar-mix"), one.assign(kind="multi-layer")])
    assert (
        plot_layer_weights(both).figure.get_figwidth() > 1.8 * plot_layer_weights(one).figure.get_figwidth()
    )


def test_layer_weights_are_bars_over_the_layers():
    names = ["embed", "block.1", "block.2", "norm"]
    frame = pd.DataFrame(
        {"layer": [0, 1, 2, 2], "layer_name": names, "depth": [0, 0.5, 1, 1], "weight": [0.1, 0.2, 0.3, 0.4]}
    )
    ax = plot_layer_weights(frame)
    assert [bar.get_height() for bar in ax.patches] == [0.1, 0.2, 0.3, 0.4]
    places = [bar.get_x() + bar.get_width() / 2 for bar in ax.patches]
    assert places[:3] == pytest.approx([0, 1, 2])
    assert places[3] > 3  # the norm stands apart
    assert tick_texts(ax) == ["embed", "1", "2", "norm"]
    assert legend_texts(ax) == ["equal shares"]
    both = pd.concat([frame.assign(kind="scalar-mix"), frame.assign(kind="multi-layer", weight=0.25)])
    ax = plot_layer_weights(both)
    assert len(ax.patches) == 8
    assert legend_texts(ax) == ["scalar-mix", "multi-layer", "equal shares"]
    lefts = sorted((bar.get_x(), bar.get_x() + bar.get_width()) for bar in ax.patches)
    assert all(one[1] <= other[0] + 1e-9 for one, other in itertools.pairwise(lefts))  # none hides another
    assert figure_svg(ax.figure)
    with pytest.raises(FrameError, match=r"lacks the column\(s\) weight"):
        plot_layer_weights(frame.drop(columns="weight"))
