"""Texts in two dimensions: coordinates that the vectors give, drawn as they are."""

from __future__ import annotations

import importlib.util

import numpy as np
import pandas as pd
import pytest

from layerscope.analysis import project_layers
from layerscope.errors import FrameError, UsageError
from layerscope.plots import plot_embeddings, save_figure
from tests.caches import make_cache
from tests.drawn import legend_texts

N, D = 40, 8


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(0)
    scale = np.array([9.0, 5.0, *[0.5] * (D - 2)])
    return {f"mean/{name}": rng.normal(size=(N, D)) * scale + 3 for name in ("embed", "block.1", "block.2")}


@pytest.fixture(scope="module")
def cache(vectors, tmp_path_factory):
    texts = ["" if row == 5 else f"text {row}" for row in range(N)]
    broken = {name: array.copy() for name, array in vectors.items()}
    broken["mean/block.1"][7, 2] = np.inf
    kinds = [f"kind {row % 3}" if row % 10 else None for row in range(N)]
    folder = tmp_path_factory.mktemp("projection") / "cache"
    return make_cache(folder, broken, n_blocks=2, texts=texts, columns={"label": kinds, "topic": range(N)})


def panels(figure):
    return [ax for ax in figure.axes if ax.lines]


def drawn(ax):
    return np.concatenate([line.get_xydata() for line in ax.lines])


def test_pca_is_the_singular_vectors_of_the_centred_rows(cache, vectors):
    frame = project_layers(cache, ["block.2"])
    used = np.delete(vectors["mean/block.2"].astype(np.float32).astype(float), 5, axis=0)
    left, singular, _ = np.linalg.svd(used - used.mean(axis=0), full_matrices=False)
    found = frame.dropna(subset="x")[["x", "y"]].to_numpy()
    np.testing.assert_allclose(np.abs(found), np.abs(left[:, :2] * singular[:2]), rtol=1e-9)
    assert frame["explained"].iloc[0] == pytest.approx((singular[:2] ** 2).sum() / (singular**2).sum())


def test_rows_without_a_vector_have_a_reason_and_no_coordinates(cache):
    frame = project_layers(cache, "all")
    assert frame.groupby("layer_name", sort=False).size().to_dict() == dict.fromkeys(cache.layers, N)
    missing = frame[frame["x"].isna()]
    assert list(zip(missing["layer_name"], missing["row"], missing["reason"], strict=True)) == [
        ("embed", 5, "empty text"), ("block.1", 5, "empty text"), ("block.1", 7, "not finite"),
        ("block.2", 5, "empty text"),
    ]  # fmt: skip
    assert (frame.loc[frame["x"].notna(), "reason"] == "").all()


def test_layers_are_named_or_counted_and_spread_where_not_given(cache):
    assert project_layers(cache)["layer_name"].unique().tolist() == ["embed", "block.1", "block.2"]
    assert project_layers(cache, "block.2, 0")["layer_name"].unique().tolist() == ["block.2", "embed"]
    assert project_layers(cache, [-1])["layer_name"].unique().tolist() == ["block.2"]


def test_few_of_many_texts_are_the_same_at_every_layer(cache):
    frame = project_layers(cache, "all", texts=20)
    rows = frame.groupby("layer_name")["row"].apply(list)
    assert len(rows["embed"]) == 20
    assert rows["embed"] == rows["block.1"] == rows["block.2"] == sorted(rows["embed"])
    assert rows["embed"] != project_layers(cache, "embed", texts=20, seed=1)["row"].tolist()


def test_labels_come_from_a_column_or_a_list(cache):
    of_column = project_layers(cache, "embed")["label"]
    assert of_column.isna().tolist()[:3] == [True, False, False]
    assert of_column.tolist()[1:3] == ["kind 1", "kind 2"]
    assert project_layers(cache, "embed", labels="topic")["label"].tolist()[:2] == ["0", "1"]
    assert project_layers(cache, "embed", labels=["a"] * N)["label"].unique().tolist() == ["a"]


def test_what_makes_no_sense_is_refused_in_one_line(cache, tmp_path):
    few = make_cache(tmp_path / "few", {"mean/embed": np.eye(3)}, n_blocks=1)
    same = make_cache(tmp_path / "same", {"mean/embed": np.ones((9, 4))}, n_blocks=1)
    cases = [
        (cache, {"labels": "topc"}, UsageError, "did you mean 'topic'"),
        (cache, {"labels": ["a"]}, UsageError, "1 labels for 40 texts"),
        (cache, {"layers": "block.9"}, UsageError, "block.9"),
        (cache, {"layers": "7"}, UsageError, "layer 7 does not exist"),
        (cache, {"method": "tsne"}, UsageError, "method is 'tsne'"),
        (cache, {"pooling": "last"}, UsageError, "no pooling 'last'"),
        (cache, {"texts": 1}, UsageError, "texts is 1"),
        (few, {}, FrameError, "3 texts have a vector at layer embed"),
        (same, {}, FrameError, "all 9 texts have the same vector"),
    ]  # fmt: skip
    for of, options, kind, says in cases:
        with pytest.raises(kind) as raised:
            project_layers(of, **options)
        assert says in str(raised.value)
        assert "\n" not in str(raised.value)


def test_umap_says_which_package_it_needs(cache, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="pip install umap-learn"):
        project_layers(cache, method="umap")


@pytest.mark.filterwarnings("ignore")
def test_umap_keeps_two_far_groups_apart(tmp_path):
    pytest.importorskip("umap")
    rng = np.random.default_rng(0)
    points = rng.normal(size=(60, 5)) + 100 * (np.arange(60) % 2)[:, None]
    frame = project_layers(make_cache(tmp_path / "c", {"mean/embed": points}, n_blocks=1), method="umap")
    x = frame[["x", "y"]].to_numpy()
    inside = np.linalg.norm(x[::2] - x[::2].mean(axis=0), axis=1).max()
    assert np.linalg.norm(x[::2].mean(axis=0) - x[1::2].mean(axis=0)) > inside
    assert frame["explained"].isna().all()


def test_every_panel_shows_the_frames_points_once(cache):
    frame = project_layers(cache, "all")
    figure = plot_embeddings(frame)
    assert len(panels(figure)) == 3
    for ax, layer in zip(panels(figure), cache.layers, strict=True):
        rows = frame[(frame["layer_name"] == layer) & frame["x"].notna()]
        assert sorted(map(tuple, drawn(ax))) == sorted(map(tuple, rows[["x", "y"]].to_numpy()))
        share = round(100 * rows["explained"].iloc[0])
        assert ax.get_title("left") == f"{layer}: {share} % of variance"
        assert ax.get_aspect() == 1


def test_a_class_has_its_own_points_and_looks(cache):
    frame = project_layers(cache, "embed")
    ax = panels(plot_embeddings(frame))[0]
    by_label = {line.get_label(): line for line in ax.lines}
    assert legend_texts(ax) == ["kind 1", "kind 2", "kind 0", "no label"]
    for name in ("kind 0", "kind 1", "kind 2"):
        rows = frame[(frame["label"] == name) & frame["x"].notna()]
        np.testing.assert_array_equal(by_label[name].get_xydata(), rows[["x", "y"]].to_numpy())
    looks = {(line.get_color(), line.get_marker()) for line in ax.lines}
    assert len(looks) == 4


def test_ten_frequent_classes_have_looks_of_their_own_and_the_rest_are_other(cache):
    labels = [f"c{min(row, 12)}" for row in range(N)]
    ax = panels(plot_embeddings(project_layers(cache, "embed", labels=labels)))[0]
    assert legend_texts(ax)[0] == "c12"  # the most frequent first
    assert legend_texts(ax)[-1] == "other"
    assert len(legend_texts(ax)) == 11
    in_grey = {(line.get_marker(), line.get_markerfacecolor() == "white") for line in ax.lines}
    assert len(in_grey) == 11


def test_texts_that_are_left_out_are_counted_with_the_reason(cache):
    figure = plot_embeddings(project_layers(cache, "all"))
    assert figure.get_suptitle().endswith("\nleft out: 1 text (empty text), 1 text (not finite)")
    figure.canvas.draw()
    note = figure._suptitle.get_window_extent(figure.canvas.get_renderer())
    assert not any(note.overlaps(ax.get_tightbbox()) for ax in panels(figure))


def test_texts_without_labels_have_one_look_and_no_legend(vectors, tmp_path):
    plain = make_cache(tmp_path / "plain", vectors, n_blocks=2)
    figure = plot_embeddings(project_layers(plain))
    assert not figure.legends
    assert len(panels(figure)[0].lines) == 1


def test_wrong_frames_are_refused_in_one_line(cache):
    frame = project_layers(cache, "embed")
    for wrong, says in [
        (frame.drop(columns="x"), "lacks the column(s) x"),
        (frame.iloc[:0], "has no rows"),
        (pd.concat([frame, frame.assign(model="other")]), "several values of model"),
        (pd.concat([frame, frame.assign(pooling="last")]), "several values of pooling"),
        (frame.assign(x=np.nan), "no text of this frame has coordinates"),
    ]:
        with pytest.raises(FrameError) as raised:
            plot_embeddings(wrong)
        assert says in str(raised.value)
        assert "\n" not in str(raised.value)


def test_saves_in_three_formats(cache, tmp_path):
    written = save_figure(plot_embeddings(project_layers(cache)), tmp_path / "texts", ("png", "svg", "pdf"))
    assert [path.read_bytes()[:4] for path in written] == [b"\x89PNG", b"<?xm", b"%PDF"]
