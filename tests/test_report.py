"""The report: what a reader finds in it, and what must never be in it."""

from __future__ import annotations

import itertools
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from layerscope.errors import CacheError, FrameError
from layerscope.plots import plot_metric
from layerscope.report import write_report
from layerscope.report.corpus import count_rows
from layerscope.report.inline_svg import Inliner
from layerscope.report.readings import read_layers
from tests.plot_frames import DESCRIPTIONS, LABELS, decoder, encoder, pick, rows_frame

VOID = {"meta", "link", "img", "br", "hr", "input"}
EVIL = '<script>alert("x")</script>&\'"'


class Page(HTMLParser):
    """Checks that every element is closed, and collects tags, text and ids."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.words, self.tables, self.cells = [], [], [], [], []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)
            if self.cells and {"td", "th"} & set(self.open):
                self.cells[-1][-1] += data

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    @property
    def drawings(self):
        return [attrs for attrs in self.attributes("svg") if attrs["class"] == "drawing"]

    def attributes(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]

    def row(self, head):
        return next(cells for cells in self.cells if cells and cells[0] == head)


def write(folder, frames, **more):
    metrics, scores, picks = frames
    given = {"scores": scores, "picks": picks, "labels": LABELS, "descriptions": DESCRIPTIONS} | more
    return write_report(folder / "report.html", metrics=metrics, **given).read_text(encoding="utf-8")


def slim(frames):
    """The same frames with two metrics: fewer figures to draw."""
    metrics, scores, picks = frames
    return metrics[metrics["metric"].isin(["dataset_entropy", "dime"])].reset_index(drop=True), scores, picks


@pytest.fixture(scope="module")
def small_html(tmp_path_factory):
    return write(
        tmp_path_factory.mktemp("small"), encoder(), rows=rows_frame(),
        provenance={"n_draws": 100, "model revision": "abc123", "options": {"seed": 0, "cased": True}},
        commands=["layerscope report cache -o 'report.html'"],
    )  # fmt: skip


@pytest.fixture(scope="module")
def small(small_html):
    return Page(small_html)


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    sinks = {"positions": [0], "token_ids": [], "largest_ratio": 412.34}
    return Page(write(tmp_path_factory.mktemp("deep"), decoder(), provenance={"sinks": sinks}))


def test_page_is_well_formed_and_says_what_it_is(small_html, small):
    assert small_html.startswith("<!DOCTYPE html>")
    assert small.attributes("html") == [{"lang": "en"}]
    assert "Which layer of sentence-transformers/all-MiniLM-L6-v2 to use" in small.text
    assert [name for name, _ in small.tags].count("h1") == 1
    ids = [attrs["id"] for _, attrs in small.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    targets = {attrs["href"].removeprefix("#") for attrs in small.attributes("a")}
    assert targets <= set(ids)


def test_headings_do_not_skip_a_level(small):
    levels = [int(name[1]) for name, _ in small.tags if re.fullmatch("h[1-6]", name)]
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_nothing_is_fetched(small_html, small):
    assert "http://" not in small_html
    assert "https://" not in small_html
    assert "//" not in re.sub(r'data:[^"]*', "", "".join(re.findall(r'(?:src|href)="[^"]*"', small_html)))
    assert "@import" not in small_html
    assert set(re.findall(r"url\(.", small_html)) == {"url(#"}
    assert {attrs["href"] for attrs in small.attributes("link")} == {"data:,"}


def test_pick_comes_first_with_its_criterion_direction_and_certainty(small):
    assert (
        "block.4 Picked by Dataset entropy: of all layers, this one has the highest value, 4.52. "
        "How sure: picked in 93 of 100 subsamples. Clearly ahead of the runner-up, block.5." in small.text
    )
    assert small.text.index("Picked by") < small.text.index("Scores by layer")
    assert "The 2 criteria do not agree: they pick 2 layers, and 1 of them picks this one." in small.text


def test_pick_is_priced_next_to_the_baselines(small):
    assert (
        "It scores 0.732 (Spearman of cosine similarity with gold score, STS-B, 500 pairs); "
        "the best layer, block.5, scores 0.750, so this pick costs 0.018." in small.text
    )
    assert "The fixed rule “2/3 depth” takes the same layer" in small.text
    assert small.row("Dataset entropy, higher is better")[1:4] == ["block.4", "0.732", "0.018"]
    assert small.row("Uniformity, lower is better")[4] == (
        "picked in 41 of 100 subsamples; no clear winner: runner-up block.3"
    )
    assert small.row("last layer") == ["last layer", "block.6", "0.680", "0.070", "a fixed rule"]
    assert small.row("middle layer")[1] == "block.3"
    assert small.row("2/3 depth")[1] == "block.4"
    assert small.row("best layer by score")[1:3] == ["block.5", "0.750"]


def test_page_is_honest_about_criteria(small):
    assert "No guarantee." in small.text
    assert "Compare it with the baselines" in small.text


def test_unclear_pick_is_called_unclear(deep):
    assert "No clear winner: runner-up block.4." in deep.text
    assert "picked in 60% of the subsamples" in deep.text  # how many there were is not known


def test_without_subsamples_nothing_is_said_of_certainty(tmp_path):
    metrics, scores, picks = slim(encoder())
    page = Page(write(tmp_path, (metrics, scores, picks.assign(support=np.nan, clear=False))))
    assert "How sure: unknown, no subsamples were drawn. The runner-up is block.5." in page.text
    assert "No clear winner" not in page.text


@pytest.mark.parametrize(
    ("score", "sentence"),
    [
        (0.741, "On these scores the fixed rule “middle layer” (block.3, 0.741) does better than this pick"),
        (0.731, "That is more than the best fixed rule, “middle layer” (block.3, 0.731)."),
    ],
)
def test_a_fixed_rule_that_beats_the_pick_is_named(tmp_path, score, sentence):
    metrics, scores, picks = slim(encoder())
    picks = picks[picks["criterion"] != "2/3 depth"].reset_index(drop=True)
    picks.loc[picks["criterion"] == "middle layer", "score"] = score
    picks = picks.assign(cost_low=0.004, cost_high=0.03)
    page = Page(write(tmp_path, (metrics, scores, picks)))
    assert sentence in page.text
    assert "so this pick costs 0.018 [0.004, 0.030]." in page.text


def test_subsamples_that_pick_another_layer_are_explained(tmp_path):
    metrics, scores, picks = slim(encoder())
    picks = picks.assign(support=0.02, most_picked="block.6", most_picked_support=0.91, clear=False, n=300)
    page = Page(write(tmp_path, (metrics, scores, picks)))
    assert (
        "How sure: picked in 2% of the subsamples (halves of 300 texts); most often they pick block.6 (91%), "
        "so the pick depends on how many texts there are. No clear winner" in page.text
    )


def test_too_few_texts_are_the_reason_why_nothing_is_said_of_certainty(tmp_path):
    metrics, scores, picks = slim(encoder())
    few = picks.assign(support=np.nan, clear=False, reason="fewer than 20 texts")
    page = Page(write(tmp_path, (metrics, scores, few)))
    assert "How sure: unknown, fewer than 20 texts." in page.text
    assert page.row("Uniformity, lower is better")[4] == "unknown: fewer than 20 texts"


def test_criteria_without_a_pick_for_one_reason_share_a_row(tmp_path):
    metrics, scores, picks = slim(encoder())
    missing = picks.iloc[:2].assign(layer_name=None, criterion=["dime", "lidar"], clear=False)
    missing["reason"] = [f"no layer has a value of '{name}': no views" for name in ("dime", "lidar")]
    page = Page(write(tmp_path, (metrics, scores, pd.concat([picks, missing]))))
    assert page.row("DiME, lidar")[-1] == "no layer has a value: no views"
    assert page.text.count("no views") == 1


def test_both_poolings_are_side_by_side_and_sinks_explained(deep):
    assert [attrs.get("class") for attrs in deep.attributes("article")] == ["card", "card"]
    assert "Pooling mean : average over all tokens" in deep.text
    assert "Pooling mean-nosink : average over the tokens, attention sinks left out" in deep.text
    assert "position 0 (the first token is 0), up to 412 times a text's median norm" in deep.text


def test_models_without_sink_pooling_say_nothing_of_sinks(small):
    assert "Sink tokens" not in small.text


def test_token_criteria_stand_on_the_card_of_their_mean(tmp_path):
    metrics, scores, picks = slim(decoder())
    token_picks = pd.DataFrame([
        pick("meta/decoder-1B", 32, "tokens-nosink", "curvature", "block.9", direction="lower", support=0.5),
    ])  # fmt: skip
    page = Page(write(tmp_path, (metrics, scores, pd.concat([picks, token_picks]))))
    assert len(page.attributes("article")) == 2
    assert page.row("Curvature of the path of token states, lower is better")[1] == "block.9"


def test_no_layer_picked_gives_the_reason(tmp_path):
    metrics, _, picks = slim(encoder())
    none = picks.iloc[:1].assign(layer_name=None, clear=False, reason="every layer is constant")
    page = Page(write(tmp_path, (metrics, None, none)))
    assert "No layer was picked: every layer is constant." in page.text
    assert "Without scores on labelled data" in page.text


def test_metrics_alone_make_a_report(tmp_path):
    page = Page(write(tmp_path, (encoder()[0], None, None)))
    assert "What the layers of sentence-transformers/all-MiniLM-L6-v2 represent" in page.text
    assert "The pick" not in page.text
    assert "Scores" not in page.text


def test_figures_stand_in_the_page_with_a_text_for_those_who_cannot_see_them(small, deep):
    for page, count in ((small, 1 + 6 + 1 + 6), (deep, 1 + 6 + 1 + 5)):
        assert len(page.drawings) == count
        for drawing in page.drawings:
            assert drawing["role"] == "img"
            assert len(drawing["aria-label"]) > 20
    assert "Not drawn" in deep.text  # anisotropy against scores: it has no values
    assert "no layer has both a value of 'anisotropy' and a score" in deep.text


def test_whatever_a_figure_refers_to_is_in_the_page(small_html):
    found = set(re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', small_html))
    names = {name for pair in found for name in pair if name}
    assert len(names) > 50
    assert names <= set(re.findall(r' id="([^"]*)"', small_html))


def test_figures_take_no_style_to_the_page(small_html):
    assert small_html.count("<style") == 1
    assert "<metadata" not in small_html


def readings_of(html, figure):
    """The texts to point at in the first figure whose description begins like that."""
    drawing = html[html.index(f'aria-label="{figure}') :]
    return re.findall(r"<title>(.*?)</title>", drawing[: drawing.index("</svg>")], re.DOTALL)


def test_every_layer_of_a_curve_tells_the_values_of_the_frame(small_html):
    metrics = encoder()[0]
    rows = metrics[metrics["metric"] == "dataset_entropy"]
    texts = readings_of(small_html, "Dataset entropy (nats) by layer")
    assert [text.splitlines()[0] for text in texts] == ["embed", *(f"block.{k}" for k in range(1, 7))]
    for text in texts:
        layer, *lines = text.splitlines()
        assert len(lines) == 2
        for line in lines:
            pooling, value, low, high = re.fullmatch(
                r"(\w+): (\S+), 95% interval (\S+) to (\S+)", line
            ).groups()
            row = rows[(rows["layer_name"] == layer) & (rows["pooling"] == pooling)].iloc[0]
            assert [float(value), float(low), float(high)] == pytest.approx(
                row[["value", "ci_low", "ci_high"]].tolist(), rel=1e-4
            )


def test_a_layer_without_a_value_has_a_place_and_tells_why(small_html):
    assert '="nan"' not in small_html
    assert readings_of(small_html, "DiME (nats) by layer")[0] == (
        "embed\nmean: no value: constant\nlast: no value: constant"
    )


def test_scores_and_points_tell_their_values(small_html):
    scores = encoder()[1]
    best = scores[(scores["layer_name"] == "block.2") & (scores["pooling"] == "mean")].iloc[0]
    text = readings_of(small_html, "Score on STS-B")[2].splitlines()[1]
    assert text.startswith(f"mean: {best['score']:.5f}, 95% interval")
    point = readings_of(small_html, "DiME (nats) against the score")[0].splitlines()
    assert point[0] == "block.1 (mean)"
    assert re.fullmatch(r"DiME: −?\d+\.\d+", point[1])
    assert re.fullmatch(r"score: 0\.\d{5}", point[2])


def test_marked_values_lie_on_the_line_that_is_drawn():
    metrics = encoder()[0]
    rows = metrics[(metrics["metric"] == "uniformity") & (metrics["pooling"] == "mean")]
    ax = plot_metric(rows, "uniformity", labels=LABELS)
    svg = ElementTree.fromstring(Inliner().inline(ax.figure, "uniformity", read_layers(rows, "value"), ax))
    line = next(part for part in svg.iter("g") if part.get("id", "").startswith("f1-line.0.0:"))
    drawn = re.findall(r"[ML] (\S+) (\S+)", line.find("path").get("d"))
    dots = [
        (part.find("circle").get("cx"), part.find("circle").get("cy"))
        for part in svg.iter("g")
        if part.get("class") == "reading"
    ]
    np.testing.assert_allclose(np.array(dots, dtype=float), np.array(drawn, dtype=float), atol=0.6)


def test_two_figures_share_letters_and_nothing_else():
    inliner = Inliner()
    one, two = (inliner.inline(plot_metric(encoder()[0], "dime").figure, "dime") for _ in range(2))
    ids = [set(re.findall(r' id="([^"]*)"', svg)) for svg in (one, two)]
    assert ids[0]
    assert not ids[0] & ids[1]
    assert set(re.findall(r"#(DejaVuSans[^\"]*)", one + two)) <= set(
        re.findall(r' id="([^"]*)"', inliner.shared())
    )


def test_names_that_xml_cannot_hold_are_drawn_all_the_same(tmp_path):
    metrics, scores, picks = slim(encoder())
    name = "a\x1b[31m--><b>x</b>"
    html = write(tmp_path, (metrics, scores.assign(task=name), picks))
    assert "<b>x" not in html
    assert len(Page(html).drawings) == 1 + 2 + 1 + 2


def test_every_table_has_a_caption_and_scoped_heads(small):
    names = [name for name, _ in small.tags]
    assert names.count("table") == names.count("caption")
    assert all(attrs.get("scope") in ("row", "col") for attrs in small.attributes("th"))


def test_values_have_sensible_digits_an_interval_and_a_sort_key(small, small_html):
    assert small.row("embed")[1] == "4.504.41 to 4.63"
    assert small.row("embed")[2] == "289280 to 301"
    assert 'title="95% interval 4.41 to 4.63; n = 500; d = 576"' in small_html
    keys = [float(attrs["data-sort"]) for attrs in small.attributes("td") if attrs.get("data-sort")]
    value = encoder()[0]["value"]
    assert set(keys) >= set(value.dropna())


def test_missing_values_are_a_dash_with_a_reason(small, small_html):
    assert small.row("embed")[3] == "–1"
    assert 'data-sort="" title="constant">–<sup>1</sup>' in small_html
    assert "No value: 1 constant." in small.text


def test_data_report_counts_what_is_wrong(small):
    assert small.row("texts")[1] == "8"
    assert small.row("tokens")[1:3] == ["601", "0 to 512 in a text"]
    assert small.row("cut at the maximum length")[1] == "1"
    assert small.row("empty")[1] == "1"
    assert small.row("duplicates of an earlier text")[1] == "2"
    assert small.row("not finite (NaN or infinite) somewhere")[1:3] == [
        "1", "in 2 layers: block.13, block.14",
    ]  # fmt: skip


def test_data_report_says_which_rows_are_wrong(small):
    assert small.row("cut at the maximum length")[3].split()[0] == "2"
    assert "4 (= 0), 5 (= 0)" in small.row("duplicates of an earlier text")[3]
    assert "6 (block.13, block.14)" in small.row("not finite (NaN or infinite) somewhere")[3]


def test_a_long_list_of_rows_is_cut_short_with_a_way_to_the_rest():
    rows = pd.DataFrame({"row": range(100, 150), "truncated": [True] * 45 + [False] * 5})
    cut = next(count for count in count_rows(rows) if count.query == "truncated")
    assert (cut.count, cut.rows[0], len(cut.rows), cut.more) == ("45", "100", 20, 25)
    assert len(rows.query(cut.query)) == 45


def test_every_query_of_the_data_report_finds_the_rows_it_counts():
    rows = rows_frame().assign(undefined=["", "mean", "", "mean,last", "", "", "", ""])
    for count in count_rows(rows):
        if count.query:
            assert len(rows.query(count.query)) == int(count.count) > 0
            assert len(count.rows) == int(count.count)


def test_rows_without_flags_are_counted_only():
    assert [count.name for count in count_rows(pd.DataFrame({"row": [0, 1]}))] == ["texts"]


def test_recipes_descriptions_provenance_and_commands_are_there(small):
    assert small.row("Dataset entropy (nats)dataset_entropy")[1:] == [
        DESCRIPTIONS["dataset_entropy"], "rows=center-unit;alpha=1",
        "sts-b; n = 500; d = 576; pooling mean, last",
    ]  # fmt: skip
    assert small.row("model revision")[1] == "abc123"
    assert small.row("options")[1] == "seed: 0; cased: yes"
    assert small.row("subsamples")[1] == "100"
    assert "layerscope report cache -o 'report.html'" in small.text


def test_everything_from_users_is_escaped(tmp_path):
    metrics, scores, picks = slim(encoder())
    metrics = metrics.assign(model=EVIL, corpus=EVIL, variant=EVIL, reason=EVIL)
    frames = (
        metrics,
        scores.assign(task=EVIL, model=EVIL),
        picks.assign(model=EVIL, criterion=EVIL, runner_up=EVIL),
    )
    more = {"provenance": {EVIL: EVIL}, "commands": [EVIL], "labels": {"dime": EVIL}}
    html = write(tmp_path, frames, rows=rows_frame(), descriptions={"dime": EVIL}, **more)
    assert "alert(" in html
    assert "<script>alert" not in html
    assert html.count("<script>") == 1
    assert Page(html).row(EVIL)


def test_title_is_escaped_and_used(tmp_path):
    page = Page(write(tmp_path, slim(encoder()), title="Mine & <yours>"))
    assert re.match(r"Mine & <yours> Skip to the \w+ Mine & <yours> ", page.text)


def test_report_is_the_same_every_time(tmp_path):
    assert write(tmp_path, slim(encoder())) == write(tmp_path, slim(encoder()))


def test_frames_are_not_changed(tmp_path):
    given, kept = slim(encoder()), slim(encoder())
    write(tmp_path, given)
    for frame, original in zip(given, kept, strict=True):
        pd.testing.assert_frame_equal(frame, original)


def test_frames_read_from_csv_give_the_same_report(tmp_path):
    frames = slim(encoder())
    for place, frame in enumerate(frames):
        frame.drop(columns="draws", errors="ignore").to_csv(tmp_path / f"{place}.csv", index=False)
    read = tuple(pd.read_csv(tmp_path / f"{place}.csv") for place in range(3))
    assert write(tmp_path, read) == write(tmp_path, frames)


def test_two_models_have_tables_and_cards_of_their_own(tmp_path):
    (m1, s1, p1), (m2, s2, p2) = slim(encoder()), slim(decoder())
    page = Page(write(tmp_path, (pd.concat([m1, m2]), pd.concat([s1, s2]), pd.concat([p1, p2]))))
    assert "Metrics: model meta/decoder-1B, pooling mean" in page.text
    assert len(page.attributes("article")) == 3


def test_several_tasks_have_a_figure_each(tmp_path):
    metrics, scores, picks = slim(encoder())
    page = Page(write(tmp_path, (metrics, pd.concat([scores, scores.assign(task="SICK-R")]), picks)))
    assert len([one for one in page.drawings if one["aria-label"].startswith("Score on")]) == 2
    assert "Only the first of 2 tasks is drawn" in page.text


def test_infinite_values_are_missing(tmp_path):
    metrics, scores, picks = slim(encoder())
    metrics.loc[0, "value"] = np.inf
    page = Page(write(tmp_path, (metrics, scores, picks)))
    assert page.row("embed")[1] == "–1"


def test_empty_metrics_are_refused(tmp_path):
    with pytest.raises(FrameError, match="no rows"):
        write_report(tmp_path / "report.html", metrics=encoder()[0].iloc[:0])


def test_failure_to_write_leaves_the_old_report(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("mine")
    with pytest.raises(CacheError, match="a file stands where a folder is needed"):
        write_report(blocked / "report.html", metrics=encoder()[0])
    assert blocked.read_text() == "mine"


def test_a_name_cannot_turn_the_page_around(tmp_path):
    metrics, scores, picks = slim(encoder())
    name = "model \u202ekcab\u2066"
    frames = metrics.assign(model=name, corpus=name), scores.assign(model=name), picks.assign(model=name)
    page = Page(write(tmp_path, frames, provenance={name: name}, commands=[name]))
    assert "Which layer of model \ufffdkcab\ufffd to use" in page.text
    assert not set("\u202e\u2066") & set(page.text)
