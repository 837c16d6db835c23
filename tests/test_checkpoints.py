"""Checkpoints of a training: the same as an extraction and analysis of each, in the order of their steps."""

import pandas as pd
import pytest
import torch

import layerscope as ls
from layerscope.errors import FrameError, LayerscopeError, UsageError
from layerscope.experiments.checkpoints import find_checkpoints, steps_of
from layerscope.frames import read_frame, write_frame
from layerscope.plots.style import pooling_family
from tests.test_cli import complaint, run  # noqa: F401
from tests.tiny import TEXTS, make_model, make_tokenizer

METRICS = ["prompt_entropy", "effective_rank", "anisotropy"]


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    """Three states of a model that learns to bring the vectors of all texts together."""
    folder, model, tokenizer = tmp_path_factory.mktemp("training"), make_model("bert"), make_tokenizer()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    batch = tokenizer(TEXTS, return_tensors="pt", padding=True)
    for step in range(11):
        if step in (2, 5, 10):
            model.save_pretrained(folder / f"checkpoint-{step}")
            tokenizer.save_pretrained(folder / f"checkpoint-{step}")
        states = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
        states.last_hidden_state.mean(1).var(0).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return folder


def folders(training, *steps):
    return [training / f"checkpoint-{step}" for step in steps]


@pytest.fixture(scope="module")
def frame(training, tmp_path_factory):
    return ls.analyze_checkpoints(
        folders(training, 10, 2, 5), TEXTS, path=tmp_path_factory.mktemp("all"), metrics=METRICS, draws=3
    )


def test_each_checkpoint_equals_an_extraction_and_analysis_of_its_own(training, frame, tmp_path):
    for step in (2, 10):
        cache = ls.extract(training / f"checkpoint-{step}", TEXTS, path=tmp_path / str(step))
        own = ls.analyze(cache, METRICS, draws=3)
        found = frame[frame["step"] == step].drop(columns=["revision", "step"])
        assert {*found["model"]} == {training.name}
        pd.testing.assert_frame_equal(found.assign(model=cache.model).reset_index(drop=True), own)


def test_steps_ascend_and_what_was_learned_shows(frame):
    assert frame[["revision", "step"]].drop_duplicates().to_numpy().tolist() == [
        ["checkpoint-2", 2], ["checkpoint-5", 5], ["checkpoint-10", 10],
    ]  # fmt: skip
    last = frame[(frame["metric"] == "anisotropy") & (frame["layer_name"] == "block.4")]
    assert last["value"].is_monotonic_increasing
    assert last["value"].nunique() == 3


def test_the_frame_is_read_again_and_nothing_is_picked_from_several_checkpoints(frame, tmp_path):
    path, _ = write_frame(frame, tmp_path / "metrics.parquet")
    assert len(read_frame(path, "metrics")) == len(frame)
    with pytest.raises(FrameError, match="several values"):
        ls.LayerSelector("effective_rank", pooling="mean").fit(frame)


def test_a_checkpoint_that_is_there_is_not_run_again(training, tmp_path, monkeypatch):
    options = {"path": tmp_path / "c", "metrics": ["effective_rank"], "draws": 0}
    first = ls.analyze_checkpoints(folders(training, 2, 5), TEXTS, **options)
    loaded = []
    load = ls.extraction.run.load_model
    monkeypatch.setattr(
        "layerscope.extraction.run.load_model",
        lambda source, *rest, **more: loaded.append(source.name) or load(source, *rest, **more),
    )
    told: list[str] = []
    second = ls.analyze_checkpoints(folders(training, 2, 5, 10), TEXTS, tell=told.append, **options)
    assert loaded == ["checkpoint-10"]
    assert told[0] == "checkpoint-2: is there already"
    pd.testing.assert_frame_equal(second[second["step"] < 10].reset_index(drop=True), first)


def test_revisions_of_a_hub_id_are_asked_for_one_by_one(tmp_path, monkeypatch):
    found = find_checkpoints("owner/name", ["step512", "step1000"])
    assert [(each.model, each.revision) for each in found] == [
        ("owner/name", "step512"), ("owner/name", "step1000"),
    ]  # fmt: skip
    asked = []

    def find(model, revision=None, **_):
        asked.append((model, revision))
        raise LayerscopeError("no network here")

    monkeypatch.setattr("layerscope.extraction.run.find_model", find)
    with pytest.raises(LayerscopeError, match="no network here"):
        ls.analyze_checkpoints("owner/name", TEXTS, path=tmp_path / "c", revisions=["step1000", "step512"])
    assert asked == [("owner/name", "step512")]


@pytest.mark.parametrize(
    ("names", "steps"),
    [
        (["checkpoint-200", "checkpoint-1000"], [200, 1000]),
        (["step1000-tokens4B", "step500-tokens2B"], [1000, 500]),
        (["v2-run-7", "v2-run-3"], [7, 3]),
        (["main", "step512"], [0, 1]),
        (["first", "second", "third"], [0, 1, 2]),
        (["a-checkpoint-5", "b-checkpoint-5"], [0, 1]),
    ],
)
def test_steps_are_the_numbers_in_the_names_else_places(names, steps):
    assert steps_of(names) == steps


@pytest.mark.parametrize(
    ("models", "revisions", "says"),
    [
        (["one"], [], "there is one checkpoint only"),
        (["a/run", "b/c/run", "./b/../a/run"], [], "two checkpoints are called"),
        (["owner/name"], ["main", "main"], "two checkpoints are called 'main'"),
        (["owner/name", "owner/other"], ["main", "step1"], "--revisions are of one model on the hub"),
        (["./folder"], ["main", "step1"], "--revisions are of one model on the hub"),
    ],
)
def test_what_cannot_be_is_refused(models, revisions, says):
    with pytest.raises(UsageError, match=says):
        find_checkpoints(models, revisions)


def test_the_command_writes_the_frame(run, training, tmp_path):  # noqa: F811
    corpus, out = tmp_path / "texts.txt", tmp_path / "out"
    corpus.write_text("\n".join(TEXTS))
    words = ["checkpoints", *folders(training, 5, 2), corpus, "-o", out, "--draws", "0"]
    code, printed, err = run(*words, "--metrics", "effective_rank,prompt_entropy")
    assert code == 0, err
    assert printed.index("step 2") < printed.index("step 5")
    frame = pd.read_parquet(out / "metrics.parquet")
    assert frame["step"].drop_duplicates().tolist() == [2, 5]
    assert {*frame["metric"]} == {"effective_rank", "prompt_entropy"}
    for family in {*frame["pooling"].map(pooling_family)}:
        for suffix in ("png", "svg", "pdf"):
            assert (out / f"training-{family}.{suffix}").stat().st_size > 1000


def test_bad_words_are_one_line(run, training, tmp_path):  # noqa: F811
    corpus = tmp_path / "texts.txt"
    corpus.write_text("\n".join(TEXTS))
    one = training / "checkpoint-2"
    for words, says, expected in (
        ([one, corpus], "one checkpoint only", 2),
        ([one, training / "gone", corpus], "no model folder at", 1),
        ([one, corpus, "--revisions", "a,b"], "--revisions are of one model on the hub", 2),
    ):
        code, _, err = run("checkpoints", *words, "-o", tmp_path / "out")
        assert code == expected, err
        assert says in complaint(err)
