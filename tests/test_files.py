from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path

import pytest

from layerscope.errors import CacheError
from layerscope.files import (
    explained,
    file_sha256,
    human_bytes,
    json_sha256,
    make_folder,
    write_atomic,
    write_json,
    write_text,
)


def fail_halfway(error):
    def write(temporary):
        temporary.write_text("half")
        raise error

    return write


def test_a_written_file_is_whole_and_alone(tmp_path):
    write_text(tmp_path / "a.txt", "Grüße\n")
    assert (tmp_path / "a.txt").read_bytes() == "Grüße\n".encode()
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("error", [ValueError("bad"), KeyboardInterrupt()])
def test_a_writer_that_raises_leaves_nothing_behind(tmp_path, error):
    with pytest.raises(type(error)):
        write_atomic(tmp_path / "a.txt", fail_halfway(error))
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_raises_leaves_the_old_file_as_it_was(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")
    with pytest.raises(CacheError, match="the disk is full"):
        write_atomic(target, fail_halfway(OSError(errno.ENOSPC, "No space left on device")))
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_the_old_file_stands_until_the_new_one_is_whole(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")

    def write(temporary):
        temporary.write_text("new")
        assert target.read_text() == "old"
        assert temporary.parent == target.parent

    write_atomic(target, write)
    assert target.read_text() == "new"


def test_a_file_is_flushed_before_it_gets_its_name(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: (events.append("flush"), fsync(descriptor))[1])
    monkeypatch.setattr(Path, "replace", lambda self, to: (events.append("rename"), replace(self, to))[1])
    write_text(tmp_path / "a.txt", "x")
    assert events == ["flush", "rename", "flush"]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (errno.ENOSPC, "the disk is full: could not write .*a.txt; free some space"),
        (errno.EACCES, "no permission to write .*a.txt: choose another output with -o"),
        (errno.EPERM, "no permission to write"),
        (errno.EROFS, "no permission to write"),
        (errno.ENOTDIR, "a file stands where a folder is needed"),
        (errno.EIO, "could not write .*a.txt: Input/output error"),
    ],
)
def test_what_the_operating_system_refuses_is_one_clear_line(tmp_path, monkeypatch, code, says):
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(CacheError, match=says) as caught:
        write_text(tmp_path / "a.txt", "x")
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)
    assert list(tmp_path.iterdir()) == []


def test_tidying_up_does_not_hide_the_reason(tmp_path, monkeypatch):
    # On a read-only file system even the removal of a file that is not there is refused.
    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", refuse)
    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(CacheError, match="no permission to write"):
        write_text(tmp_path / "a.txt", "x")


def test_a_file_cannot_lie_under_a_file(tmp_path):
    (tmp_path / "a").write_text("x")
    with pytest.raises(CacheError, match="a file stands where a folder is needed"):
        write_text(tmp_path / "a" / "b.txt", "x")


def test_errors_that_are_not_the_systems_pass_as_they_are(tmp_path):
    with pytest.raises(KeyError), explained(tmp_path):
        raise KeyError("mine")


def test_folders_are_made_with_their_parents_and_may_exist(tmp_path):
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize("below", [".", "b/c"])
def test_a_folder_cannot_be_where_a_file_is(tmp_path, below):
    (tmp_path / "a").write_text("x")
    with pytest.raises(CacheError, match="a file stands where a folder is needed"):
        make_folder(tmp_path / "a" / below)


def test_json_is_sorted_and_keeps_its_letters(tmp_path):
    write_json(tmp_path / "a.json", {"b": 1, "a": "é"})
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert json.loads(text) == {"a": "é", "b": 1}
    assert text.index('"a"') < text.index('"b"')
    assert "é" in text
    assert text.endswith("}\n")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_json_has_no_nan(tmp_path, value):
    write_json(tmp_path / "a.json", 1)
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", [value])
    assert json.loads((tmp_path / "a.json").read_text()) == 1
    with pytest.raises(ValueError, match="JSON"):
        json_sha256([value])


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1])
def test_the_checksum_is_of_all_bytes(tmp_path, size):
    content = bytes(range(251)) * (size // 251 + 1)
    (tmp_path / "a").write_bytes(content[:size])
    assert file_sha256(tmp_path / "a") == hashlib.sha256(content[:size]).hexdigest()


def test_the_hash_of_a_value_depends_on_what_it_says_only():
    assert json_sha256({"a": 1, "b": [1, 2]}) == json_sha256({"b": [1, 2], "a": 1})
    assert json_sha256({"a": [1, 2]}) != json_sha256({"a": [2, 1]})
    assert json_sha256({"a": 1}) != json_sha256({"a": "1"})
    assert json_sha256("é") == hashlib.sha256(b'"\\u00e9"').hexdigest()


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (3 << 20, "3.0 MiB"), (5 << 29, "2.5 GiB"),
     (1 << 40, "1.0 TiB"), (1 << 52, "4096.0 TiB")],
)  # fmt: skip
def test_sizes_as_people_read_them(size, text):
    assert human_bytes(size) == text
