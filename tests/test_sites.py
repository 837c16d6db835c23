"""Attention and MLP outputs as layers of a cache: stored, measured, drawn, and never picked."""

import numpy as np
import pandas as pd
import pytest
import torch

import layerscope as ls
from layerscope.errors import FrameError, UsageError
from layerscope.extraction import Listener, extract
from layerscope.layer_pooling.kinds import LAYER_POOLINGS
from layerscope.learn.states import choose_layers
from layerscope.plots import plot_metric, plot_sites
from layerscope.select import LayerSelector, pick_layers, with_costs
from tests.tiny import TEXTS, make_model, make_tokenizer

SITES = ("block", "attn", "mlp")


def run(path, model=None, **options):
    return extract(
        make_model("bert") if model is None else model,
        TEXTS,
        path=path,
        tokenizer=make_tokenizer(),
        **options,
    )


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return run(tmp_path_factory.mktemp("sites") / "cache", sites=SITES)


@pytest.fixture(scope="module")
def frame(cache):
    return ls.analyze(cache, ["participation_ratio", "prompt_entropy"], draws=10, workers=1)


def test_pooled_rows_are_means_of_what_a_hook_sees(cache):
    model, tokenizer = make_model("bert"), make_tokenizer()
    seen = {}
    for site, module in (
        ("attn.2", model.encoder.layer[1].attention.output.dense),
        ("mlp.3", model.encoder.layer[2].output.dense),
    ):
        module.register_forward_hook(lambda _, __, out, site=site: seen.update({site: out[0]}))
    assert cache.layers == [
        "embed", *(f"{site}.{k}" for k in range(1, 5) for site in ("attn", "mlp", "block")),
    ]  # fmt: skip
    for row, text in enumerate(TEXTS):
        with torch.inference_mode():
            model(**tokenizer(text, return_tensors="pt", return_token_type_ids=False))
        for site, states in seen.items():
            np.testing.assert_allclose(
                cache.layer(site, "mean")[row], states.mean(dim=0).numpy(), rtol=1e-4, atol=1e-5
            )


def test_the_default_is_what_it_was_and_sites_are_added_to_it(cache, tmp_path):
    plain = run(tmp_path / "cache")
    assert "attention" not in plain.manifest["request"]
    assert plain.layers == [name for name in cache.layers if name.startswith(("embed", "block"))]
    identity = plain.manifest["identity"]
    more = run(tmp_path / "cache", sites="attn,block")
    assert {key: value for key, value in more.manifest["identity"].items() if key != "layers"} == {
        key: value for key, value in identity.items() if key != "layers"
    }
    for name in more.layers:
        np.testing.assert_array_equal(more.layer(name), cache.layer(name))
    heard = []

    class Hits(Listener):
        def hit(self, cache):
            heard.append(cache)

    run(tmp_path / "cache", sites="attn", listener=Hits())
    assert len(heard) == 1


def test_sites_of_some_blocks(tmp_path):
    found = run(tmp_path / "cache", layers="block.2,block.3", sites="mlp")
    assert found.layers == ["mlp.2", "mlp.3"]
    assert found.layer_info("mlp.2").depth == 0.5


def test_bad_sites_are_one_line(tmp_path):
    with pytest.raises(UsageError, match="--sites: no site is called 'atn': did you mean 'attn'"):
        run(tmp_path / "cache", sites="block,atn")
    with pytest.raises(UsageError, match=r"--attention: a BertLayer has no module 'atention'; the nearest"):
        run(tmp_path / "cache", sites="attn", attention="atention")


def test_every_site_is_measured(frame, cache):
    for metric in ("participation_ratio", "prompt_entropy"):
        rows = frame[frame["metric"] == metric].set_index("layer_name")
        assert set(rows.index) == set(cache.layers)
        assert rows["value"].notna().all()
    rows = frame[frame["metric"] == "participation_ratio"].set_index("layer_name")
    assert rows.loc["attn.2", "layer"] == rows.loc["block.2", "layer"] == 2
    assert rows.loc["attn.2", "value"] != rows.loc["block.2", "value"]


def test_only_the_residual_stream_is_picked(frame):
    best = frame.assign(value=np.where(frame["layer_name"] == "attn.2", 1e6, frame["value"]))
    own = frame[~frame["layer_name"].str.match("attn|mlp")]
    for one, other in ((best, own),):
        chosen = LayerSelector("participation_ratio").fit(one)
        assert chosen.layer_ == LayerSelector("participation_ratio").fit(other).layer_
        assert chosen.n_layers_ == 5
        assert pick_layers(one)["layer_name"].tolist() == pick_layers(other)["layer_name"].tolist()
    with pytest.raises(FrameError, match="only outputs of attention and MLPs"):
        pick_layers(frame[frame["layer_name"].str.startswith("attn")])


def test_the_best_score_of_a_site_is_no_cost(frame):
    picks = pick_layers(frame[frame["metric"] == "participation_ratio"])
    names = ["embed", *(f"block.{k}" for k in range(1, 5)), "attn.1"]
    scores = frame[frame["metric"] == "participation_ratio"].drop_duplicates("layer_name")
    scores = scores[scores["layer_name"].isin(names)].rename(columns={"value": "score"})
    scores = scores.assign(
        metric="cosine_spearman", variant="raw", score=np.where(scores["layer_name"] == "attn.1", 1.0, 0.5)
    )
    assert with_costs(picks, scores)["best_score"].dropna().unique().tolist() == [0.5]


def test_a_figure_has_a_line_a_site(frame):
    ax = plot_sites(frame, "participation_ratio")
    labels = [text.get_text() for text in ax.figure.legends[0].get_texts()]
    assert labels == ["residual stream", "attention output", "MLP output"]
    lines = {line.get_label(): line for line in ax.lines if line.get_label() in labels}
    rows = frame[frame["metric"] == "participation_ratio"].set_index("layer_name")["value"]
    np.testing.assert_array_equal(lines["attention output"].get_xdata(), [1, 2, 3, 4])
    np.testing.assert_array_equal(
        lines["attention output"].get_ydata(), [rows[f"attn.{k}"] for k in range(1, 5)]
    )
    assert len({line.get_color() for line in lines.values()}) == 3
    several = plot_metric(frame, "participation_ratio")
    assert [text.get_text() for text in several.figure.legends[0].get_texts()] == [
        "mean, residual stream", "mean, attention output", "mean, MLP output",
    ]  # fmt: skip


def test_figures_of_other_frames_are_refused(frame):
    plain = frame[~frame["layer_name"].str.match("attn|mlp")]
    with pytest.raises(FrameError, match="the residual stream only: extract it with --sites"):
        plot_sites(plain, "participation_ratio")
    with pytest.raises(FrameError, match="no rows of pooling 'men'"):
        plot_sites(frame, "participation_ratio", pooling="men")
    with pytest.raises(FrameError, match="several models"):
        plot_sites(pd.concat([frame, frame.assign(model="another")]), "participation_ratio")


def test_a_site_is_no_layer_to_export_or_to_mix(cache, tmp_path):

    assert not [
        name for name in choose_layers(cache, LAYER_POOLINGS[0], None) if name.startswith(("attn", "mlp"))
    ]
    with pytest.raises(
        UsageError, match=r"attn\.2 is what a part of a block adds, at which no model can be cut"
    ):
        ls.export(make_model("bert"), layer="attn.2", path=tmp_path / "out", tokenizer=make_tokenizer())
