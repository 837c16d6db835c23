"""Every layer on MTEB tasks, on tiny models and tiny data; MiniLM against mteb's own run."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import datasets
import mteb
import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr
from typer.testing import CliRunner

from layerscope.cli.main import app
from layerscope.errors import CacheError, CorpusError, UsageError
from layerscope.evaluate.differences import best_against_last, with_differences
from layerscope.evaluate.importing import import_results
from layerscope.evaluate.mteb.local_data import load_local_data
from layerscope.evaluate.mteb.run import evaluate_mteb
from layerscope.evaluate.mteb.tasks import find_tasks, load_data, quiet
from layerscope.extraction import extract
from layerscope.frames import SCORE_COLUMNS, as_frame, frame_rows
from tests.conftest import SHARED
from tests.tiny import WORDS, make_model, make_tokenizer

NAMES = ["embed", "block.1", "block.2", "block.3", "block.4"]
LETTERS = WORDS[4:]


def sentences(count, seed=0, words=4):
    """Different texts of known words."""
    rng = np.random.default_rng(seed)
    texts = dict.fromkeys(" ".join(rng.choice(LETTERS, words)) for _ in range(4 * count))
    return list(texts)[:count]


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_sts(folder, pairs=14, name="STSBenchmark", seed=0):
    texts, rng = sentences(2 * pairs, seed), np.random.default_rng(seed)
    rows = [
        {"sentence1": one, "sentence2": other, "score": float(rng.uniform(0, 5))}
        for one, other in zip(texts[::2], texts[1::2], strict=True)
    ]
    write_rows(folder / name / "test.jsonl", rows)
    return rows


def write_classes(folder, name="Banking77Classification", labels=3, each=12):
    for split, seed in (("train", 1), ("test", 2)):
        texts = sentences(labels * each, seed)
        write_rows(
            folder / name / f"{split}.jsonl",
            [{"text": text, "label": at % labels} for at, text in enumerate(texts)],
        )


def write_retrieval(folder, name="SciFact", ranked=False):
    place = folder / name
    documents, queries = sentences(12, 3, words=6), sentences(4, 4)
    write_rows(
        place / "corpus.jsonl",
        [{"_id": f"d{k}", "title": "cat", "text": text} for k, text in enumerate(documents)],
    )
    write_rows(place / "queries.jsonl", [{"_id": f"q{k}", "text": text} for k, text in enumerate(queries)])
    (place / "qrels").mkdir()
    lines = ["query-id\tcorpus-id\tscore", *(f"q{k}\td{3 * k}\t1" for k in range(4)), "q0\td1\t1"]
    (place / "qrels/test.tsv").write_text("\n".join(lines) + "\n")
    if ranked:
        write_rows(
            place / "top_ranked/test.jsonl",
            [{"query-id": f"q{k}", "corpus-ids": [f"d{k}", f"d{3 * k}", "d1", "d11"]} for k in range(4)],
        )


def write_clusters(folder, name="TwentyNewsgroupsClustering.v2"):
    texts = sentences(120, 5)
    write_rows(
        folder / name / "test.jsonl",
        [{"sentences": text, "labels": f"group {at % 3}"} for at, text in enumerate(texts)],
    )


def write_duplicates(folder, name="TwitterURLCorpus"):
    texts = sentences(40, 6)
    write_rows(
        folder / name / "test.jsonl",
        [
            {"sentence1": one, "sentence2": other, "labels": at % 2}
            for at, (one, other) in enumerate(zip(texts[::2], texts[1::2], strict=True))
        ],
    )


WRITERS = {
    "STSBenchmark": write_sts,
    "Banking77Classification": write_classes,
    "SciFact": write_retrieval,
    "SciDocsRR": lambda folder: write_retrieval(folder, "SciDocsRR", ranked=True),
    "TwentyNewsgroupsClustering.v2": write_clusters,
    "TwitterURLCorpus": write_duplicates,
}


@pytest.fixture
def data(tmp_path):
    return tmp_path / "data"


def tiny(family="bert"):
    return {"model": make_model(family), "tokenizer": make_tokenizer()}


def run(tmp_path, data, tasks=("STSBenchmark",), family="bert", **more):
    options = {"draws": 0} | tiny(family) | more
    model = options.pop("model")
    return evaluate_mteb(model, tasks, results=tmp_path / "results", task_data=data, **options)


def score(frame, layer, **where):
    rows = frame[frame["layer_name"] == layer]
    for column, value in where.items():
        rows = rows[rows[column] == value]
    assert len(rows) == 1
    return rows["score"].iloc[0]


class Lookup:
    """mteb's encoder protocol from a cache that was extracted in one go: an independent peer."""

    def __init__(self, cache, texts, layer, pooling="mean"):
        vectors = cache.layer(layer, pooling)
        self.vector_of = {text: vectors[row] for row, text in enumerate(texts)}
        self.mteb_model_meta = mteb.models.ModelMeta.create_empty()

    def encode(self, inputs, **_):
        return np.stack([self.vector_of[text] for batch in inputs for text in batch["text"]])

    def similarity(self, one, other):
        return mteb.similarity_functions.cos_sim(one, other)

    def similarity_pairwise(self, one, other):
        return mteb.similarity_functions.pairwise_cos_sim(one, other)


def all_texts(data, task):
    """Every text that a task may ask for, as mteb gives it to a model."""
    rows = [
        json.loads(line) for path in (data / task).rglob("*.jsonl") for line in path.read_text().splitlines()
    ]
    fields = ("text", "sentence1", "sentence2", "sentences")
    found = [row[field] for row in rows for field in fields if field in row]
    return list(dict.fromkeys(found + [f"{row['title']} {row['text']}" for row in rows if "title" in row]))


# Scores


def test_sts_scores_are_spearman_of_cosine_of_the_cached_vectors(tmp_path, data):
    rows = write_sts(data)
    frame = run(tmp_path, data)
    assert list(frame.columns) == list(SCORE_COLUMNS)
    assert frame["layer_name"].tolist() == NAMES
    texts = [row[side] for row in rows for side in ("sentence1", "sentence2")]
    cache = extract(**tiny(), texts=texts, path=tmp_path / "cache")
    for name in NAMES:
        pairs = np.asarray(cache.layer(name, "mean"), dtype=np.float64).reshape(len(rows), 2, -1)
        cosine = [a @ b / np.sqrt((a @ a) * (b @ b)) for a, b in pairs]
        expected = spearmanr(cosine, [row["score"] for row in rows]).statistic
        assert score(frame, name) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("task", list(WRITERS))
def test_every_kind_of_task_scores_every_layer_as_mteb_does_afresh(tmp_path, data, task):
    WRITERS[task](data)
    frame = run(tmp_path, data, [task], draws=60)
    texts = all_texts(data, task)
    cache = extract(**tiny(), texts=texts, path=tmp_path / "cache", token_metrics=())
    for name in NAMES:
        with quiet():
            [fresh] = find_tasks([task])
            load_data(fresh, data)
            found = mteb.evaluate(
                Lookup(cache, texts, name), fresh, cache=None, co2_tracker=False, show_progress_bar=False
            )
        assert score(frame, name) == pytest.approx(found.task_results[0].main_score, abs=2e-6)
    assert frame["n"].notna().all(), frame["reason"].unique()  # the items make up the score
    assert frame["ci_low"].notna().all()
    assert (frame["ci_low"] <= frame["score"]).all()


@pytest.mark.parametrize("task", ["STSBenchmark", "Banking77Classification"])
def test_local_files_give_the_numbers_of_the_tasks_own_loader(tmp_path, data, task):
    WRITERS[task](data)
    ours = find_tasks([task])[0]
    load_local_data(data, ours)
    hub = tmp_path / "hub"  # a data set as the hub has it
    hub.mkdir()
    for path in (data / task).iterdir():
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        datasets.Dataset.from_list(rows).to_parquet(hub / f"{path.stem}.parquet")
    theirs = find_tasks([task])[0]
    theirs.metadata = theirs.metadata.model_copy(update={"dataset": {"path": str(hub), "revision": "local"}})
    with quiet():
        theirs.load_data()
    for split in theirs.dataset:
        assert ours.dataset[split].to_dict() == theirs.dataset[split].to_dict()


def test_normalised_vectors_and_prompts_are_other_scores_in_folders_of_their_own(tmp_path, data):
    write_retrieval(data)
    plain = run(tmp_path, data, ["SciFact"])
    prompted = run(tmp_path, data, ["SciFact"], query_prompt="the cat ")
    assert not np.allclose(plain["score"], prompted["score"])
    unit = run(tmp_path, data, ["SciFact"], normalize=True)
    assert set(unit["variant"]) == {"unit"}
    np.testing.assert_allclose(plain["score"], unit["score"], atol=1e-5)  # a cosine does not mind
    folders = list((tmp_path / "results/results").glob("*/*"))
    assert len(folders) == 3 * len(NAMES)


def test_a_document_prompt_does_not_touch_queries(tmp_path, data):
    write_retrieval(data)
    run(tmp_path, data, ["SciFact"], document_prompt="the ")
    texts = [pd.read_parquet(path)["text"].tolist() for path in (tmp_path / "results").rglob("texts.parquet")]
    assert sorted(map(len, texts)) == [4, 12]


# One run of the model


def test_the_model_sees_every_text_once_whatever_the_number_of_layers_and_tasks(tmp_path, data):
    rows = write_sts(data)
    write_sts(data, name="STS12")  # the same texts again
    parts = tiny()
    seen = []
    parts["model"].register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    evaluate_mteb(
        parts["model"], ["STSBenchmark", "STS12"], tokenizer=parts["tokenizer"], results=tmp_path / "r",
        task_data=data, draws=0, pooling=["mean", "max"],
    )  # fmt: skip
    probes = 3 * 2  # the structure is looked for with two texts, for the layers and in two extractions
    assert sum(seen) == 2 * len(rows) + probes


def test_a_second_run_reads_what_is_there_and_a_lost_file_alone_is_made_again(tmp_path, data, monkeypatch):
    write_sts(data)
    first = run(tmp_path, data, draws=60)
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "results/results").rglob("*.*")}

    def never(*_, **__):
        raise AssertionError("scored again")

    with monkeypatch.context() as patched:
        patched.setattr("mteb.evaluate", never)
        second = run(tmp_path, data, draws=60)
    pd.testing.assert_frame_equal(first, second)
    assert files == {path: path.stat().st_mtime_ns for path in (tmp_path / "results/results").rglob("*.*")}
    lost = next(path for path in files if path.name == "STSBenchmark.json" and "block.2" in str(path)
                and path.parent.name != "items")  # fmt: skip
    lost.unlink()
    third = run(tmp_path, data, draws=60)
    pd.testing.assert_frame_equal(first, third)
    assert lost.is_file()


def test_an_interrupted_run_goes_on(tmp_path, data, monkeypatch):
    write_sts(data)
    whole = run(tmp_path / "whole", data)
    calls = []
    real = mteb.evaluate

    def stop(*args, **kwargs):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr("mteb.evaluate", stop)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, data)
    pd.testing.assert_frame_equal(run(tmp_path, data), whole)
    assert len(calls) == 3 + 3  # the two layers that were scored are not again


def test_results_are_mtebs_own_strict_and_name_layer_and_pooling(tmp_path, data):
    write_retrieval(data)
    frame = run(tmp_path, data, ["SciFact"])

    def refuse(name):
        raise AssertionError(f"{name} in JSON")

    files = list((tmp_path / "results/results").glob("*/*/SciFact.json"))
    assert len(files) == len(NAMES)
    for path in files:
        json.loads(path.read_text(), parse_constant=refuse)
        loaded = mteb.results.TaskResult.from_disk(path)
        layer = next(name for name in NAMES if f"__{name}__mean" in path.parent.parent.name)
        assert path.parent.name.startswith(f"{layer}-mean-raw-")
        assert loaded.scores["test"][0]["main_score"] == pytest.approx(score(frame, layer), abs=1e-6)
    back = import_results(tmp_path / "results")
    merged = back.merge(frame, on=["model", "task", "layer_name", "pooling", "split", "subset"])
    assert len(merged) == len(NAMES)
    np.testing.assert_allclose(merged["score_x"], merged["score_y"], atol=1e-6)
    assert (merged["depth_x"] == merged["depth_y"]).all()
    assert set(back["variant"]) == {"raw"}


def test_final_norm_applied_or_not_is_a_choice_of_layers(tmp_path, data):
    write_sts(data, pairs=60)
    frame = run(tmp_path, data, family="llama", layers="block.2,normed.2,norm")
    assert frame["layer_name"].tolist() == ["block.2", "normed.2", "norm"]
    assert frame["score"].nunique() == 3


# What goes wrong


def test_constant_layers_have_a_reason_and_no_result(tmp_path, data):
    write_sts(data)
    frame = run(tmp_path, data, pooling="first", layers="0,1")
    assert np.isnan(score(frame, "embed"))
    assert frame["reason"].tolist()[0] == "constant: all texts have the same vector"
    assert frame_rows(frame)[0]["score"] is None
    assert not list((tmp_path / "results").rglob("*embed*/*/STSBenchmark.json"))
    assert np.isfinite(score(frame, "block.1"))


def test_a_task_of_ones_own_scores_like_the_same_rows_under_a_known_name(tmp_path, data):
    from mteb.tasks.sts.eng.sts_benchmark_sts import STSBenchmarkSTS

    rows = write_sts(data)

    class Own(STSBenchmarkSTS):
        metadata = STSBenchmarkSTS.metadata.model_copy(update={"name": "OwnPairs"})

        def load_data(self, **_):
            self.dataset = {"test": datasets.Dataset.from_list(rows)}
            self.data_loaded = True

    known = run(tmp_path / "known", data)
    own = evaluate_mteb(**tiny(), tasks=[Own()], results=tmp_path / "own", draws=0)
    assert own["task"].unique().tolist() == ["OwnPairs"]
    for name in NAMES:
        assert score(own, name) == score(known, name)


def test_unknown_tasks_and_benchmarks_are_named_with_the_nearest():
    with pytest.raises(UsageError, match="mteb has no task 'STSBenchmrk': did you mean 'STSBenchmark'"):
        find_tasks(["STSBenchmrk"])
    with pytest.raises(UsageError, match=r"mteb has no benchmark 'MTEB\(eng, v7\)': did you mean"):
        find_tasks([], "MTEB(eng, v7)")
    with pytest.raises(UsageError, match="no task is named"):
        find_tasks([])


def test_a_benchmark_is_its_tasks_and_a_task_comes_once():
    tasks = find_tasks(["STSBenchmark"], "MTEB(eng, v2)")
    names = [task.metadata.name for task in tasks]
    assert len(names) == len(set(names)) > 30
    assert not any(task.is_aggregate for task in tasks)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"layers": "1,2,1"}, r"the layer block\.1 is named twice in --layers: name it once"),
        ({"layers": "2,-1,block.4"}, r"block\.4 is named twice in --layers, as -1 and block\.4"),
        ({"layers": "block.9"}, "layer 'block.9' does not exist"),
        ({"pooling": "meen"}, "did you mean 'mean'"),
        ({"pooling": "mean,mean"}, "a pooling is named twice"),
        ({"draws": -1}, "--draws is -1"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path, data, options, error):
    write_sts(data)
    with pytest.raises(UsageError, match=error):
        run(tmp_path, data, **options)


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ([{"sentence1": "a", "sentence2": "b"}] * 2, r"lacks the column\(s\) score that STSBenchmark needs"),
        ([{"sentence1": "a", "sentence2": "b", "score": 1}], "has 1 row: a score needs at least 2"),
        ([{"sentence1": "a", "sentence2": "b", "score": "x"}] * 2, "line 1: the score 'x' is not a number"),
        ([{"sentence1": None, "sentence2": "b", "score": 1}] * 2, "line 1: the sentence1 is missing"),
    ],
)
def test_files_that_do_not_fit_the_task_are_named(tmp_path, data, rows, error):
    write_rows(data / "STSBenchmark/test.jsonl", rows)
    with pytest.raises(CorpusError, match=error):
        run(tmp_path, data)


def test_missing_files_and_unfetchable_data_say_what_is_needed(tmp_path, data, monkeypatch):
    (data / "Banking77Classification").mkdir(parents=True)
    with pytest.raises(CorpusError, match=r"train.tsv, test.tsv \(columns text, label\)"):
        run(tmp_path, data, ["Banking77Classification"])

    def offline(*_, **__):
        raise ConnectionError("offline")

    monkeypatch.setattr("mteb.abstasks.abstask.load_dataset", offline)
    with pytest.raises(
        CorpusError, match=r"STS12.* could not be fetched.*--task-data DIR with STS12/: test.tsv"
    ):
        run(tmp_path, data, ["STS12"])
    with pytest.raises(UsageError, match="is no folder"):
        run(tmp_path, tmp_path / "nowhere")


def test_a_query_without_a_text_is_named(tmp_path, data):
    write_retrieval(data)
    with (data / "SciFact/qrels/test.tsv").open("a") as stream:
        stream.write("q9\td1\t1\n")
    with pytest.raises(CorpusError, match=r"names the query 'q9', which .*queries\.jsonl lacks"):
        run(tmp_path, data, ["SciFact"])


def test_results_of_other_data_or_another_mteb_are_not_mixed(tmp_path, data):
    write_sts(data)
    run(tmp_path, data, layers="1")
    write_sts(data, seed=7)
    with pytest.raises(CacheError, match="was scored on other data than are given now"):
        run(tmp_path, data, layers="1")
    write_sts(data)
    [path] = (tmp_path / "results/results").glob("*/*/STSBenchmark.json")
    old = json.loads(path.read_text()) | {"mteb_version": "1.39.0"}
    path.write_text(json.dumps(old))
    with pytest.raises(CacheError, match=r"was written by mteb 1\.39\.0, this is"):
        run(tmp_path, data, layers="1")
    path.write_text("{")
    with pytest.raises(CacheError, match="is damaged"):
        run(tmp_path, data, layers="1")


# Better than the last layer?


def drawn(scores, noise=0.01, count=200, seed=0):
    rng = np.random.default_rng(seed)
    shared = rng.normal(scale=0.1, size=count)
    rows = [
        {"model": "m", "task": "t", "split": "test", "subset": "default", "layer": at, "layer_name": name,
         "depth": at / 4, "pooling": "mean", "metric": "main_score", "variant": "raw", "score": value,
         "draws": (value + shared + rng.normal(scale=noise, size=count)).tolist()}
        for at, (name, value) in enumerate(zip(NAMES, scores, strict=True))
    ]  # fmt: skip
    return as_frame(rows, SCORE_COLUMNS)


def test_a_layer_far_above_the_last_is_better_and_one_that_happens_to_be_is_not():
    frame = with_differences(drawn([0.2, 0.9, 0.3, 0.51, 0.5]))
    best = best_against_last(frame).iloc[0]
    assert best["layer_name"] == "block.1"
    assert best["vs_last"] == pytest.approx(0.4)
    assert best["vs_last_low"] > 0.35
    assert best["vs_last_p"] < 0.01
    near = frame[frame["layer_name"] == "block.3"].iloc[0]
    assert near["vs_last_p"] > 0.05
    last = frame[frame["layer_name"] == "block.4"].iloc[0]
    assert last["vs_last"] == 0
    assert np.isnan(last["vs_last_p"])


def test_the_p_value_counts_that_the_best_layer_was_chosen():
    """Of layers without any difference, the best is called better in about one study of twenty."""
    found = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        items = rng.normal(size=(30, 5))
        picks = rng.integers(30, size=(200, 30))
        draws = items[picks].mean(axis=1)
        frame = drawn(items.mean(axis=0))
        frame["draws"] = [draws[:, at].tolist() for at in range(5)]
        found.append(best_against_last(with_differences(frame)).iloc[0]["vs_last_p"])
    assert np.mean(np.nan_to_num(found, nan=1.0) < 0.05) < 0.1


# The command


def test_the_command_scores_prints_and_goes_on(tmp_path, data):
    model, tokenizer = tiny().values()
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    write_sts(data)
    arguments = [
        "evaluate", "mteb", str(tmp_path / "model"), "--tasks", "STSBenchmark", "--task-data", str(data),
        "--results", str(tmp_path / "results"), "--layers", "1,-1", "--draws", "60",
    ]  # fmt: skip
    for _ in range(2):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.output
        assert "block.4" in done.stdout
        assert "best is" in done.stderr
    assert len(pd.read_parquet(tmp_path / "results/scores.parquet")) == 2
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert [row["layer_name"] for row in json.loads(done.stdout)] == ["block.1", "block.4"]


# A real model on real data


@pytest.fixture(scope="module")
def real_data(tmp_path_factory):
    """Small parts of public sets, laid out as --task-data wants them."""
    if not (SHARED / "data").is_dir():
        pytest.skip(f"the evaluation sets are not at {SHARED / 'data'}")
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
    import task_data

    folder = tmp_path_factory.mktemp("task-data")
    task_data.sts(SHARED / "data", folder)
    task_data.banking77(SHARED / "data", folder, 4)
    task_data.scifact(SHARED / "data", folder)
    task_data.titles(SHARED / "data", folder)
    return folder


def test_the_shared_sets_fit_their_tasks_and_are_those_of_mteb(real_data):
    for name in ("STSBenchmark", "SICK-R", *(f"STS{year}" for year in range(12, 17)), "SciFact"):
        [task] = find_tasks([name])
        load_local_data(real_data, task)
        stats = task.metadata.descriptive_stats["test"]
        if name == "SciFact":
            split = task.dataset["default"]["test"]
            assert len(split["corpus"]) == 5183
            assert len(split["queries"]) == len(split["relevant_docs"]) == 300
            continue
        rows = task.dataset["test"]
        assert len(rows) == stats["num_samples"]
        assert (
            sum(map(len, rows["sentence1"])) + sum(map(len, rows["sentence2"]))
            == stats["number_of_characters"]
        )
    [task] = find_tasks(["Banking77Classification"])
    load_local_data(real_data, task)
    assert len(task.dataset["test"]) == 160
    [task] = find_tasks(["TwentyNewsgroupsClustering.v2"])
    load_local_data(real_data, task)
    assert len(set(task.dataset["test"]["labels"])) == 20


def test_the_last_layer_of_minilm_scores_as_sentence_transformers_does(minilm, real_data, tmp_path):
    from sentence_transformers import SentenceTransformer

    few = tmp_path / "few"
    rows = (real_data / "STSBenchmark/test.tsv").read_text("utf-8").split("\n")
    (few / "STSBenchmark").mkdir(parents=True)
    (few / "STSBenchmark/test.tsv").write_text("\n".join(rows[:301]) + "\n", "utf-8")
    (few / "Banking77Classification").symlink_to(real_data / "Banking77Classification")
    (few / "SciFact/qrels").mkdir(parents=True)
    (few / "SciFact/queries.jsonl").symlink_to(real_data / "SciFact/queries.jsonl")
    with (real_data / "SciFact/qrels/test.tsv").open() as stream:
        judged = list(csv.DictReader(stream, delimiter="\t"))[:40]
    wanted = {row["corpus-id"] for row in judged}
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(row.values()) for row in judged)]
    (few / "SciFact/qrels/test.tsv").write_text("\n".join(lines) + "\n")
    documents = [
        json.loads(line) for line in (real_data / "SciFact/corpus.jsonl").read_text("utf-8").splitlines()
    ]
    kept = [row for at, row in enumerate(documents) if row["_id"] in wanted or at % 50 == 0]
    write_rows(few / "SciFact/corpus.jsonl", kept)
    tasks = ["STSBenchmark", "Banking77Classification", "SciFact"]
    frame = evaluate_mteb(
        minilm, tasks, results=tmp_path / "results", task_data=few, layers="-1", normalize=True, draws=0
    )
    peer = SentenceTransformer(str(minilm), device="cpu")
    for name in tasks:
        with quiet():
            [task] = find_tasks([name])
            load_data(task, few)
            found = mteb.evaluate(peer, task, cache=None, co2_tracker=False, show_progress_bar=False)
        assert score(frame, "block.6", task=name) == pytest.approx(found.task_results[0].main_score, abs=1e-4)
