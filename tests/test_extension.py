"""Adding to a cache, and repairing one."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from layerscope import LayerCache, analyze, repair
from layerscope.backbone import Backbone
from layerscope.errors import CacheError, UsageError
from layerscope.extraction import Listener, extract
from layerscope.extraction import job as job_module
from tests.tiny import make_model, make_tokenizer

TEXTS = [f"the cat number {n} sat on mat {n % 7}" + " and slept" * (n % 5) for n in range(40)] + [
    "",
    "the cat",
]
TEXTS += TEXTS[3:6]


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(job_module, "SHARD_BYTES", 8000)


@pytest.fixture
def given():
    return {"tokenizer": make_tokenizer(), "pooling": "mean"}


class Watching(Listener):
    """Counts hits and remembers the notes."""

    def __init__(self) -> None:
        self.notes: tuple[str, ...] = ()
        self.hits = 0

    def plan(self, plan):
        self.notes = plan.notes

    def hit(self, cache):
        self.hits += 1


@pytest.fixture
def captured(monkeypatch):
    """Names of the layers, and number of texts, of every batch that is run."""
    seen = []
    run = Backbone.run

    def watched(self, input_ids, mask, layers, visit, **options):
        seen.append(([layer.name for layer in layers], len(input_ids)))
        run(self, input_ids, mask, layers, visit, **options)

    monkeypatch.setattr(Backbone, "run", watched)
    return seen


def assert_same(cache: LayerCache, other: LayerCache, tolerance: float = 1e-6) -> None:
    assert (cache.layers, sorted(cache.poolings), cache.views) == (
        other.layers, sorted(other.poolings), other.views,
    )  # fmt: skip
    for layer in cache.layers:
        for pooling in cache.poolings:
            for view in (None, *cache.views):
                np.testing.assert_allclose(
                    cache.layer(layer, pooling, view), other.layer(layer, pooling, view), atol=tolerance
                )
    key = ["row", "layer_name", "tokens"]
    pd.testing.assert_frame_equal(
        cache.token_metrics.sort_values(key, ignore_index=True),
        other.token_metrics.sort_values(key, ignore_index=True),
        check_like=True,
        atol=1e-5,
    )
    pd.testing.assert_frame_equal(cache.rows, other.rows)
    assert cache.verify() == other.verify() == []


ADDITIONS = [
    ({"layers": "0:3"}, {}, "layer block.3, block.4"),
    ({}, {"pooling": ["mean", "max"]}, "pooling max"),
    ({"layers": "2", "token_metrics": ()}, {"pooling": ["mean", "last"]}, "layer embed"),
    ({}, {"views": 2}, "2 views"),
    ({"views": 1}, {"views": 3}, "2 views"),
    ({"token_metrics": ("curvature",)}, {}, "prompt_entropy"),
    ({}, {"keep_tokens": True}, "token states"),
    ({"texts": TEXTS[:17]}, {}, f"{len(TEXTS) - 17} texts"),
    ({"texts": TEXTS[:17], "layers": "1,2"}, {"pooling": ["mean", "last"], "views": 1}, "layer embed"),
    ({"views": 1, "view_kind": "crop", "layers": "0:2"}, {"views": 2, "view_kind": "crop"}, "1 view"),
]


@pytest.mark.parametrize(("first", "more", "says"), ADDITIONS)
def test_what_a_cache_lacks_is_added_and_all_is_as_from_one_run(first, more, says, given, tmp_path):
    model, seen = make_model("bert"), Watching()
    texts = first.pop("texts", TEXTS)
    extract(model, texts, path=tmp_path / "c", **(given | first))
    extended = extract(model, TEXTS, path=tmp_path / "c", listener=seen, **(given | more))
    fresh = extract(model, TEXTS, path=tmp_path / "d", **(given | more))
    assert_same(extended, fresh)
    assert any("adds to what the cache holds" in note and says in note for note in seen.notes)
    if extended.manifest["identity"]["keep_tokens"]:
        for layer in fresh.layers:
            np.testing.assert_allclose(extended.tokens(layer)[0], fresh.tokens(layer)[0], atol=1e-6)
            np.testing.assert_array_equal(extended.tokens(layer)[1], fresh.tokens(layer)[1])


def test_only_what_is_lacking_is_run(given, captured, tmp_path):
    model = make_model("bert")
    extract(model, TEXTS, path=tmp_path / "c", layers="1:3", **given)
    captured.clear()
    extract(model, TEXTS, path=tmp_path / "c", layers="0,3", **given)
    assert {tuple(names) for names, _ in captured} == {("embed", "block.3")}
    captured.clear()
    extract(model, [*TEXTS, "one new text", TEXTS[0]], path=tmp_path / "c", layers="0:4", **given)
    assert [count for _, count in captured] == [1]
    captured.clear()
    extract(model, [*TEXTS, "one new text", TEXTS[0]], path=tmp_path / "c", views=1, **given)
    assert {tuple(names) for names, _ in captured} == {("embed", "block.1", "block.2", "block.3", "block.4")}


def test_asking_for_less_is_a_hit(given, tmp_path):
    model, seen = make_model("bert"), Watching()
    cache = extract(model, TEXTS, path=tmp_path / "c", views=2, **(given | {"pooling": ["mean", "last"]}))
    for less in ({}, {"layers": "-1"}, {"views": 1}, {"token_metrics": ()}, {"pooling": "last"}):
        again = extract(model, TEXTS, path=tmp_path / "c", listener=seen, **(given | less))
        assert again.manifest == cache.manifest
    assert seen.hits == 5


def test_auto_is_a_hit_where_sinks_were_sought_and_adds_where_not(given, tmp_path):
    model, seen = make_model("bert"), Watching()
    extract(model, TEXTS, path=tmp_path / "c", **(given | {"pooling": "max"}))
    for _ in range(2):
        extract(model, TEXTS, path=tmp_path / "c", listener=seen, **(given | {"pooling": "auto"}))
    assert seen.hits == 1
    assert LayerCache(tmp_path / "c").poolings == ["max", "mean"]


@pytest.mark.parametrize(
    ("first", "second", "texts"),
    [
        ({"views": 1}, {"views": 1, "seed": 1}, TEXTS),
        ({"views": 1}, {"views": 1, "view_kind": "crop"}, TEXTS),
        ({}, {"drop_first_token": True}, TEXTS),
        ({}, {"prompt": "query: "}, TEXTS),
        ({}, {}, TEXTS[1:]),
        ({}, {}, TEXTS[:-1]),
        ({}, {}, [TEXTS[0] + "!", *TEXTS[1:], "more"]),
    ],
)
def test_what_would_change_a_number_is_still_refused(first, second, texts, given, tmp_path):
    model = make_model("bert")
    extract(model, TEXTS, path=tmp_path / "c", **given, **first)
    before = (tmp_path / "c" / "manifest.json").read_bytes()
    with pytest.raises(CacheError, match="holds another extraction"):
        extract(model, texts, path=tmp_path / "c", **given, **second)
    assert (tmp_path / "c" / "manifest.json").read_bytes() == before
    assert LayerCache(tmp_path / "c").verify() == []


class Stopping(Listener):
    """Interrupts at the given step of progress."""

    def __init__(self, at: int) -> None:
        self.left = at

    def progress(self, done, total):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


def test_an_addition_that_is_interrupted_again_and_again_ends_the_same(given, tmp_path):
    model = make_model("bert")
    extract(model, TEXTS[:30], path=tmp_path / "c", layers="1:3", **given)
    stops = 0
    for at in (0, 2, 3, 4, 5, 6, 7, 8, 9):
        try:
            extract(model, TEXTS, path=tmp_path / "c", views=1, listener=Stopping(at), **given)
        except KeyboardInterrupt:
            stops += 1
        if at == 0:
            assert LayerCache(tmp_path / "c").layers == ["block.1", "block.2"]  # nothing was touched yet
    assert stops > 3
    extended = extract(model, TEXTS, path=tmp_path / "c", views=1, **given)
    assert_same(extended, extract(model, TEXTS, path=tmp_path / "d", views=1, **given))
    assert "held" not in extended.manifest


def test_a_lengthened_cache_whose_manifest_was_edited_is_mended(given, tmp_path):
    model = make_model("bert")
    extract(model, TEXTS[:17], path=tmp_path / "c", **given)
    longer = extract(model, TEXTS, path=tmp_path / "c", **given)
    path = longer.path / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rows": 3}))
    mended = extract(model, TEXTS, path=tmp_path / "c", **given)
    assert_same(mended, extract(model, TEXTS, path=tmp_path / "d", **given))


def test_a_damaged_shard_is_computed_whole_when_more_is_added(given, tmp_path):
    model = make_model("bert")
    extract(model, TEXTS, path=tmp_path / "c", layers="1:3", **given)
    (tmp_path / "c" / "embeddings" / "00001.safetensors").write_bytes(b"nonsense")
    extended = extract(model, TEXTS, path=tmp_path / "c", **given)
    assert_same(extended, extract(model, TEXTS, path=tmp_path / "d", **given))


def test_frames_go_where_texts_are_added_and_stay_where_layers_are(given, tmp_path):
    model = make_model("bert")
    cache = extract(model, TEXTS, path=tmp_path / "c", layers="1:3", **given)
    frames = cache.path / "frames"
    frames.mkdir()
    analyze(cache, ["effective_rank"], draws=0).to_parquet(frames / "metrics.parquet")
    extract(model, TEXTS, path=tmp_path / "c", **given)
    assert (frames / "metrics.parquet").is_file()
    extract(model, [*TEXTS, "more"], path=tmp_path / "c", **given)
    assert not frames.exists()


def test_sinks_that_were_found_hold_for_texts_that_are_added(given, tmp_path):
    model = make_model("bert")
    first = extract(model, TEXTS[:20], path=tmp_path / "c", **(given | {"pooling": "mean-nosink"}))
    manifest = json.loads((first.path / "manifest.json").read_text())
    longer = extract(model, TEXTS, path=tmp_path / "c", **(given | {"pooling": "mean-nosink"}))
    assert longer.manifest["sinks"] == manifest["sinks"]


def test_views_of_one_text_share_a_batch(given, monkeypatch, tmp_path):
    batches = []
    make = job_module.Job._run_batch

    def watched(self, sink, batch, streams, rows, seed):
        batches.append((rows.copy(), streams.copy(), seed))
        make(self, sink, batch, streams, rows, seed)

    monkeypatch.setattr(job_module.Job, "_run_batch", watched)
    monkeypatch.setattr(job_module, "SHARD_BYTES", 10**7)
    model, texts = make_model("bert"), list(dict.fromkeys(TEXTS))
    for kind, alike in (("augment", [0, 1, 2]), ("dropout", [1, 2])):
        batches.clear()
        extract(model, texts, path=tmp_path / kind, views=2, view_kind=kind, batch_tokens=200, **given)
        assert len(batches) > 5
        for rows, streams, seed in batches:
            if kind == "dropout" and seed is None:
                continue
            for row in np.unique(rows):
                assert sorted(streams[rows == row]) == alike


# Repairing


@pytest.fixture
def on_disk(tmp_path):
    model, tokenizer = make_model("bert"), make_tokenizer()
    model.save_pretrained(tmp_path / "m")
    tokenizer.save_pretrained(tmp_path / "m")
    (tmp_path / "texts.txt").write_text("\n".join(text or "empty no more" for text in TEXTS))
    return tmp_path


def test_repair_redoes_what_is_damaged_and_only_that(on_disk, captured):
    cache = extract(on_disk / "m", on_disk / "texts.txt", path=on_disk / "c", views=1, limit=np.int64(30))
    whole = {file: file.read_bytes() for file in sorted((on_disk / "c").rglob("*")) if file.is_file()}
    bad = cache.path / "embeddings" / "00002.safetensors"
    bad.write_bytes(bad.read_bytes()[:-1])
    captured.clear()
    repair(on_disk / "c")
    assert captured
    assert sum(count for _, count in captured) <= 2 * (30 // 3)
    assert [file.name for file in whole if file.read_bytes() != whole[file]] == []
    captured.clear()
    assert repair(on_disk / "c").verify() == []
    assert captured == []


def test_repair_of_a_cache_that_was_added_to_keeps_all_of_it(on_disk):
    extract(on_disk / "m", on_disk / "texts.txt", path=on_disk / "c", layers="1:3")
    both = extract(on_disk / "m", on_disk / "texts.txt", path=on_disk / "c", layers="3", pooling="max")
    (both.path / "rows.parquet").unlink()
    mended = repair(on_disk / "c")
    assert mended.layers == ["block.1", "block.2", "block.3"]
    assert mended.poolings == ["mean", "max"]
    assert mended.verify() == []


def test_repair_asks_for_what_has_moved_and_refuses_what_has_changed(on_disk):
    model, tokenizer = make_model("bert"), make_tokenizer()
    extract(model, TEXTS, path=on_disk / "c", tokenizer=tokenizer)
    (on_disk / "c" / "rows.parquet").unlink()
    with pytest.raises(UsageError, match=r"where the model of .* give it with --model"):
        repair(on_disk / "c")
    with pytest.raises(UsageError, match=r"where the corpus of .* give it with --corpus"):
        repair(on_disk / "c", model=model, tokenizer=tokenizer)
    with pytest.raises(CacheError, match=r"holds another extraction .*corpus"):
        repair(on_disk / "c", model=model, tokenizer=tokenizer, texts=TEXTS[:-1])
    assert repair(on_disk / "c", model=model, tokenizer=tokenizer, texts=TEXTS).verify() == []
