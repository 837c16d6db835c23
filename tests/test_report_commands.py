"""The commands that a report shows: those that were run, and they run."""

from __future__ import annotations

import html
import inspect
import re
import shlex
import shutil
import sys

import numpy as np
import pandas as pd
import pytest

from layerscope import cli
from layerscope.analysis import analyze
from layerscope.cache import LayerCache
from layerscope.extraction import extract
from layerscope.frames import read_frame, write_frame
from layerscope.report import Files, write_cache_report
from layerscope.report.commands import _ANALYZE_DEFAULTS, _VIEW_DEFAULTS, EXTRACT_DEFAULTS
from layerscope.select import pick_layers
from tests.tiny import make_model, make_tokenizer

WORDS = ["the cat sat", "dog on the mat", "a b c d", "cat", "the mat", "x y z", "on on on", "a dog sat"]
TEXTS = [f"{first} {second}" for first in WORDS for second in WORDS[:3]]
METRICS = ["participation_ratio", "uniformity"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a blank in its name, a tiny BERT and a table of texts."""
    folder = tmp_path_factory.mktemp("my work")
    make_model("bert").save_pretrained(folder / "tiny bert")
    make_tokenizer().save_pretrained(folder / "tiny bert")
    pd.DataFrame({"no": range(len(TEXTS)), "it's": TEXTS}).to_csv(folder / "texts.csv", index=False)
    return folder


@pytest.fixture
def run(monkeypatch):
    """Runs a line of the page in this process."""

    def call(line):
        words = shlex.split(line)
        assert words[0] == "layerscope"
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert not stop.value.code, line

    return call


def commands_of(page):
    """All commands of a page, those of the cards first."""
    found = re.findall(r"<pre[^>]*><code>(.*?)</code></pre>", page.read_text(encoding="utf-8"), re.DOTALL)
    return [html.unescape(re.sub("</?span>", "", command)) for command in found]


def test_defaults_are_those_of_extract():
    parameters = inspect.signature(extract).parameters
    known = EXTRACT_DEFAULTS | _VIEW_DEFAULTS
    assert {name: parameters[name].default for name in known} == known


def test_defaults_are_those_of_analyze():
    parameters = inspect.signature(analyze).parameters
    assert {name: parameters[name].default for name in _ANALYZE_DEFAULTS} == _ANALYZE_DEFAULTS


def test_commands_of_a_page_give_the_same_numbers_and_export_the_pick(folder, run, capsys):
    cache, frames = folder / "cache", folder / "cache" / "frames"
    given = [
        shlex.join(words)
        for words in (
            ["layerscope", "extract", f"{folder / 'tiny bert'}", f"{folder / 'texts.csv'}", "-o", f"{cache}",
             "--text-column", "it's", "--limit", "22", "--prompt", 'say "it": ',
             "--max-length", "9", "--layers", "embed,block.1,block.2,block.3", "--pooling", "last,mean",
             "--views", "2", "--view-kind", "crop", "--seed", "3", "--no-token-metrics"],
            ["layerscope", "analyze", f"{cache}", "--metric", METRICS[0], "--metric", METRICS[1],
             "--draws", "20", "--seed", "5", "--drop-duplicates"],
            ["layerscope", "report", f"{cache}", "--criterion", "uniformity", "--direction", "higher",
             "-o", f"{folder / 'page.html'}"],
        )
    ]  # fmt: skip
    for line in given:
        run(line)
    first = pd.read_parquet(frames / "metrics.parquet")
    *exports, extracting, analyzing, selecting, reporting = commands_of(folder / "page.html")
    identity = LayerCache(cache).manifest["identity"]
    page = (folder / "page.html").read_bytes()
    shutil.rmtree(cache)
    for line in (extracting, analyzing, selecting, reporting):
        run(line)
    assert LayerCache(cache).manifest["identity"] == identity
    second = pd.read_parquet(frames / "metrics.parquet")
    pd.testing.assert_frame_equal(first, second)
    assert second.attrs == first.attrs
    undated = re.compile(rb"<th scope=\"row\">extracted</th><td>[^<]*</td>")
    assert undated.sub(b"", (folder / "page.html").read_bytes()) == undated.sub(b"", page)
    assert len(exports) == 2
    picks = pd.read_parquet(frames / "picks.parquet")
    for line, pooling in zip(exports, ("last", "mean"), strict=True):
        words = shlex.split(line)
        assert words[words.index("--picks") + 1] == str(frames / "picks.parquet")
        words[-1] = str(folder / f"exported {pooling}")
        capsys.readouterr()
        run(shlex.join(words))
        layer = picks.query("kind == 'criterion' and pooling == @pooling")["layer_name"].iloc[0]
        card = (folder / f"exported {pooling}" / "README.md").read_text(encoding="utf-8")
        assert layer in card
        assert pooling in card


def report_of(cache, page, **analyzed):
    metrics = analyze(cache, METRICS, draws=0, workers=1, **analyzed)
    return metrics, write_cache_report(page, cache, metrics=metrics, picks=pick_layers(metrics))


def test_what_came_from_python_is_left_to_the_reader(tmp_path):
    cache = extract(
        make_model("bert"), TEXTS, path=tmp_path / "cache", tokenizer=make_tokenizer(), token_metrics=()
    )
    page = report_of(cache, tmp_path / "page.html")[1]
    export, extracting, *_ = commands_of(page)
    assert extracting == shlex.join(
        ["layerscope", "extract", "MODEL", "CORPUS", "-o", f"{tmp_path / 'cache'}", "--no-token-metrics"]
    )
    assert export.startswith("layerscope export MODEL --picks ")
    text = page.read_text(encoding="utf-8")
    assert "The texts came from Python" in text
    assert "The model was loaded in Python" in text


def test_options_that_are_numpys_are_kept_in_a_file(folder, tmp_path):
    cache = extract(folder / "tiny bert", TEXTS, path=tmp_path / "cache", token_metrics=())
    metrics = analyze(cache, METRICS, draws=np.int64(0), seed=np.int64(7), workers=1)
    write_frame(metrics, tmp_path / "metrics.parquet")
    assert read_frame(tmp_path / "metrics.parquet", "metrics").attrs["analyze"]["seed"] == 7


def test_a_frame_without_its_options_gives_those_that_it_shows(folder, tmp_path):
    cache = extract(folder / "tiny bert", TEXTS, path=tmp_path / "cache", token_metrics=())
    metrics, _ = report_of(cache, tmp_path / "page.html", seed=4)
    assert "--seed 4" in commands_of(tmp_path / "page.html")[2]
    metrics.to_csv(tmp_path / "metrics.csv", index=False)
    read = pd.read_csv(tmp_path / "metrics.csv")
    files = Files(tmp_path / "metrics.csv", tmp_path / "scores.csv", criteria=["uniformity"])
    page = write_cache_report(
        tmp_path / "page.html", cache, metrics=read, picks=pick_layers(read, ["uniformity"]), files=files
    )
    where = f"{tmp_path / 'metrics.csv'}"
    assert commands_of(page)[2:] == [
        f"layerscope analyze {tmp_path / 'cache'} --metric participation_ratio --metric uniformity --draws 0 "
        f"-o {where}",
        f"layerscope select {where} --scores {tmp_path / 'scores.csv'} --criterion uniformity",
        f"layerscope report {tmp_path / 'cache'} --metrics {where} --scores {tmp_path / 'scores.csv'} "
        f"--criterion uniformity -o {page}",
    ]
    assert "does not say with which options" in page.read_text(encoding="utf-8")


def test_a_pick_that_is_not_of_the_decisive_criterion_is_exported_by_name(folder, tmp_path):
    cache = extract(folder / "tiny bert", TEXTS, path=tmp_path / "cache", token_metrics=())
    metrics = analyze(cache, METRICS, draws=0, workers=1)
    picks = pick_layers(metrics)
    picks.loc[picks["criterion"] == picks["criterion"].iloc[0], "layer_name"] = None
    page = write_cache_report(tmp_path / "page.html", cache, metrics=metrics, picks=picks)
    layer = picks.dropna(subset="layer_name").iloc[0]["layer_name"]
    assert f"--layer {layer} --pooling mean --cache" in commands_of(page)[0]
    assert "--picks" not in commands_of(page)[0]


def test_commands_of_ones_own_take_the_place_of_the_stages(folder, tmp_path):
    cache = extract(folder / "tiny bert", TEXTS, path=tmp_path / "cache", token_metrics=())
    metrics = analyze(cache, METRICS, draws=0, workers=1)
    page = write_cache_report(tmp_path / "page.html", cache, metrics=metrics, commands=["make report"])
    assert commands_of(page) == ["make report"]
    assert "The texts came from Python" not in page.read_text(encoding="utf-8")


def test_what_an_export_cannot_repeat_is_not_offered(folder, tmp_path):
    cache = extract(
        folder / "tiny bert", TEXTS, path=tmp_path / "cache", token_metrics=(), prompt="the ",
        prompt_tokens="drop",
    )  # fmt: skip
    commands = commands_of(report_of(cache, tmp_path / "page.html")[1])
    assert [line.split()[1] for line in commands] == ["extract", "analyze", "select", "report"]
    assert "--prompt 'the ' --prompt-tokens drop" in commands[0]


def test_without_picks_there_is_nothing_to_select_or_export(folder, tmp_path):
    cache = extract(folder / "tiny bert", TEXTS, path=tmp_path / "cache", token_metrics=())
    metrics = analyze(cache, METRICS, draws=0, workers=1)
    page = write_cache_report(tmp_path / "page.html", cache, metrics=metrics)
    assert [line.split()[1] for line in commands_of(page)] == ["extract", "analyze", "report"]


def test_scores_of_the_same_pairs_are_made_again_too(folder, tmp_path, run):
    pairs = pd.DataFrame({"a": TEXTS[:20], "b": TEXTS[2:22], "rated": np.arange(20) % 6})
    pairs.to_csv(folder / "pairs.csv", index=False)
    cache, page = folder / "pairs", folder / "pairs.html"
    columns = ["--text-column", "a", "--text-column", "b", "--score-column", "rated"]
    words = ["layerscope", "extract", f"{folder / 'tiny bert'}", f"{folder / 'pairs.csv'}", "-o", f"{cache}"]
    run(shlex.join([*words, *columns, "--no-token-metrics"]))
    run(shlex.join(["layerscope", "analyze", f"{cache}", "--metric", METRICS[0], "--draws", "0"]))
    run(shlex.join(["layerscope", "evaluate", "sts", f"{cache}", "--draws", "30", "--task", "my pairs"]))
    run(shlex.join(["layerscope", "report", f"{cache}", "-o", f"{page}"]))
    scores = pd.read_parquet(cache / "frames" / "scores.parquet")
    *_, extracting, analyzing, scoring, selecting, reporting = commands_of(page)
    assert scoring.split()[:3] == ["layerscope", "evaluate", "sts"]
    shutil.rmtree(cache)
    for line in (extracting, analyzing, scoring, selecting, reporting):
        run(line)
    pd.testing.assert_frame_equal(pd.read_parquet(cache / "frames" / "scores.parquet"), scores)


def test_scores_of_other_texts_are_not_said_to_come_from_this_cache(folder, tmp_path):
    cache = extract(folder / "tiny bert", TEXTS, path=tmp_path / "cache", token_metrics=())
    metrics = analyze(cache, METRICS, draws=0, workers=1)
    scores = pd.DataFrame({
        "model": cache.model, "task": "other", "split": "", "subset": "all", "layer": 0,
        "layer_name": "embed", "depth": 0.0, "pooling": "mean", "metric": "cosine_spearman",
        "variant": "raw", "score": [0.5], "n": 9,
    })  # fmt: skip
    scores.attrs["evaluate_sts"] = {"corpus": "other", "score_column": "score", "draws": 0}
    page = write_cache_report(tmp_path / "page.html", cache, metrics=metrics, scores=scores)
    assert [line.split()[1] for line in commands_of(page)] == ["extract", "analyze", "report"]
