"""A cache whose files are not those that its manifest describes is refused, and mended by asking again."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file

from layerscope.cache import LayerCache
from layerscope.errors import CacheError
from layerscope.extraction import extract
from layerscope.extraction import job as job_module
from layerscope.files import file_sha256
from tests.caches import make_cache
from tests.tiny import TEXTS, make_model, make_tokenizer

LAYERS = ["embed", "block.1", "block.2"]


@pytest.fixture
def folder(tmp_path):
    """A cache of eight pairs in two shards of the same size, with a view and token metrics."""
    rng = np.random.default_rng(0)

    def arrays():
        return {
            f"{pooling}/{name}": rng.normal(size=(16, 3)) for pooling in ("mean", "last") for name in LAYERS
        }

    tokens = {"tokens": {"prompt_entropy": {name: rng.random(16) for name in LAYERS}}}
    cache = make_cache(
        tmp_path / "c",
        arrays(),
        n_blocks=2,
        pairs=True,
        views={"a": arrays()},
        token_metrics=tokens,
        shards=2,
    )
    assert cache.verify() == []
    return cache.path


def edit(folder, change):
    """Change the manifest as a person with an editor does."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def swap(one, other):
    between = one.with_name("between")
    one.rename(between)
    other.rename(one)
    between.rename(other)


def assert_refused(folder, pattern):
    """Opening and verifying both notice it, in one line."""
    with pytest.raises(CacheError, match=pattern) as caught:
        LayerCache(folder)
    assert "\n" not in str(caught.value)
    assert "verify" in str(caught.value)
    assert LayerCache(folder, allow_partial=True).verify()


@pytest.mark.parametrize(
    "key",
    [
        "schema", "status", "created", "identity", "identity_sha256", "request", "made_of", "rows", "layers",
        "widths", "poolings", "views", "sinks", "versions", "planned_shards", "shards", "model", "corpus",
        "rows_sha256", "model.name", "model.n_blocks", "model.class", "corpus.name", "corpus.pairs",
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", ["lacking", 1.5])
def test_a_manifest_that_lacks_a_key_or_has_nonsense_there_is_named(folder, key, value):
    def change(manifest):
        *parents, last = key.split(".")
        place = manifest[parents[0]] if parents else manifest
        if value == "lacking":
            del place[last]
        else:
            place[last] = value

    edit(folder, change)
    with pytest.raises(CacheError, match=rf"manifest.json is damaged .*'{key}'.*--overwrite"):
        LayerCache(folder, allow_partial=True)


@pytest.mark.parametrize(
    ("change", "pattern"),
    [
        (lambda m: m.update(rows=8), "says 8 rows, its shards hold 16"),
        (lambda m: m.update(layers=LAYERS[:2]), "'widths' and 'layers'"),
        (lambda m: m.update(layers=[*LAYERS[:2], "block.9"]), "block.9"),
        (lambda m: m.update(layers=[]), "'layers' is empty"),
        (lambda m: (m["layers"].pop(), m["widths"].pop("block.2")), "edited after it was written"),
        (lambda m: m.update(poolings=["mean"]), "edited after it was written"),
        (lambda m: m.update(views=[]), "lists other files"),
        (lambda m: m["model"].update(n_blocks=4), "edited after it was written"),
        (lambda m: m["corpus"].update(pairs=False), "edited after it was written"),
        (lambda m: m.update(shards=[]), "lists 0 of 2 shards"),
        (lambda m: m["shards"].pop(), "lists 1 of 2 shards"),
        (lambda m: m["shards"].append(m["shards"][0]), "lists 3 of 2 shards"),
        (lambda m: m["shards"][1].update(start=7), "shard 1 does not start where shard 0 stops"),
        (lambda m: m["shards"][0]["files"].pop("embeddings/00000.safetensors"), "lists other files"),
        (lambda m: m["shards"][0]["files"].update({"../x/00000.safetensors": ""}), "lists other files"),
    ],
)
def test_a_manifest_edited_by_hand_is_refused(folder, change, pattern):
    edit(folder, change)
    assert_refused(folder, pattern)


@pytest.mark.parametrize(
    ("change", "pattern"),
    [
        (lambda m: (m["layers"].pop(), m["widths"].pop("block.2")), "the manifest does not name"),
        (lambda m: m.update(poolings=["mean", "cls"]), "lacks the tensor 'cls/"),
        (lambda m: m["widths"].update(embed=4), r"'last/embed' has shape \(8, 3\)"),
        (lambda m: [m["shards"][0].update(stop=9), m["shards"][1].update(start=9)], "another shard"),
    ],
)
def test_without_a_checksum_of_the_layout_the_headers_tell(folder, change, pattern):
    edit(folder, lambda manifest: (manifest.pop("layout_sha256"), change(manifest)))
    assert_refused(folder, pattern)


@pytest.mark.parametrize("part", ["embeddings", "views/a", "token_metrics"])
def test_shards_that_changed_places_are_noticed(folder, part):
    files = sorted((folder / part).iterdir())
    swap(*files)
    assert_refused(folder, f"{part}/0000[01].*another shard")


def test_a_view_in_the_place_of_the_texts_is_noticed(folder):
    swap(folder / "embeddings" / "00000.safetensors", folder / "views" / "a" / "00000.safetensors")
    assert_refused(folder, "another shard")


def test_a_shard_that_was_cut_is_noticed(folder):
    shard = folder / "embeddings" / "00001.safetensors"
    shard.write_bytes(shard.read_bytes()[:-4])
    assert_refused(folder, "00001.safetensors: damaged")


@pytest.mark.parametrize("sha256", ["old", "new"])
def test_rows_that_were_cut_are_noticed(folder, sha256):
    rows = folder / "rows.parquet"
    pd.read_parquet(rows).head(10).to_parquet(rows, index=False)
    if sha256 == "new":
        edit(folder, lambda manifest: manifest.update(rows_sha256=file_sha256(rows)))
    assert_refused(folder, "rows.parquet: " + ("damaged" if sha256 == "old" else "it has 10 rows"))


@pytest.mark.parametrize("column", ["empty", "pair", "undefined"])
def test_rows_without_a_column_are_noticed(folder, column):
    rows = folder / "rows.parquet"
    pd.read_parquet(rows).drop(columns=column).to_parquet(rows, index=False)
    edit(folder, lambda manifest: manifest.update(rows_sha256=file_sha256(rows)))
    assert_refused(folder, f"lacks the column.s. {column}")


def test_rows_of_another_order_are_noticed(folder):
    rows = folder / "rows.parquet"
    pd.read_parquet(rows).iloc[::-1].to_parquet(rows, index=False)
    assert_refused(folder, "rows.parquet: damaged")


def test_a_cache_from_before_the_marks_is_still_read(folder):
    before = LayerCache(folder).layer("block.1", "last")
    sums = {}
    for file in folder.rglob("*.safetensors"):
        save_file(load_file(file), file)
        sums[str(file.relative_to(folder))] = file_sha256(file)

    def change(manifest):
        del manifest["layout_sha256"]
        for shard in manifest["shards"]:
            shard["files"] = {name: sums.get(name, sha256) for name, sha256 in shard["files"].items()}

    edit(folder, change)
    old = LayerCache(folder)
    assert old.verify() == []
    np.testing.assert_array_equal(old.layer("block.1", "last"), before)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(rows=3),
        lambda m: (m["layers"].pop(), m["widths"].popitem()),
        lambda m: m.update(shards=[]),
        lambda m: m["shards"].append(m["shards"][0]),
        lambda m: m["shards"][0].update(stop=m["shards"][0]["stop"] + 1),
        lambda m: m["model"].update(n_blocks=9),
    ],
)
def test_asking_again_mends_a_manifest_edited_by_hand(change, tmp_path, monkeypatch):
    monkeypatch.setattr(job_module, "SHARD_BYTES", 4000)
    model, tokenizer = make_model("bert"), make_tokenizer()
    whole = extract(model, TEXTS, path=tmp_path / "c", tokenizer=tokenizer)
    manifest = whole.manifest
    edit(whole.path, change)
    mended = extract(model, TEXTS, path=tmp_path / "c", tokenizer=tokenizer)
    assert mended.verify() == []
    assert mended.manifest == manifest
