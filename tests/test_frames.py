from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from layerscope.errors import CacheError, FrameError, UsageError
from layerscope.frames import METRIC_COLUMNS, PICK_COLUMNS, SCORE_COLUMNS, as_frame, read_frame, write_frame

LAYERS = ["embed", "block.2", "block.10", "norm"]


def metrics_frame():
    return as_frame(
        [
            {"model": "m", "corpus": "c", "layer": k, "layer_name": name, "depth": k / 3, "pooling": "mean",
             "metric": "dime", "variant": "alpha=1", "value": 0.1 + k, "ci_low": 0.0, "ci_high": 9.0, "n": 4,
             "d": None, "reason": "", "draws": [0.1 * k, float("nan"), 1 / 3]}
            for k, name in enumerate(LAYERS)
        ],
        METRIC_COLUMNS,
    )  # fmt: skip


def test_columns_come_as_asked_and_what_is_lacking_is_missing():
    frame = as_frame([{"b": 1, "unknown": 2}, {"a": 3}], ("a", "b", "c"))
    assert list(frame.columns) == ["a", "b", "c"]
    assert frame["a"].tolist()[1] == 3
    assert frame.isna().to_numpy().tolist() == [[True, False, True], [False, True, True]]


def test_no_records_give_the_columns_all_the_same():
    frame = as_frame([], PICK_COLUMNS)
    assert list(frame.columns) == list(PICK_COLUMNS)
    assert frame.empty


def test_parquet_with_a_csv_beside_it(tmp_path):
    written = write_frame(metrics_frame(), tmp_path / "new" / "folder" / "m.parquet")
    assert written == [tmp_path / "new" / "folder" / "m.parquet", tmp_path / "new" / "folder" / "m.csv"]
    assert sorted(path.name for path in written[0].parent.iterdir()) == ["m.csv", "m.parquet"]


@pytest.mark.parametrize("name", ["m", "m.csv", "m.parquet"])
def test_both_files_are_written_whatever_the_suffix(tmp_path, name):
    assert [path.name for path in write_frame(metrics_frame(), str(tmp_path / name))] == [
        "m.parquet",
        "m.csv",
    ]
    assert len(read_frame(tmp_path / "m.parquet", "metrics")) == 4


def test_the_round_trip_keeps_every_value_and_draw(tmp_path):
    frame = metrics_frame()
    back = read_frame(write_frame(frame, tmp_path / "m")[0], "metrics")
    assert list(back.columns) == list(METRIC_COLUMNS)
    flat = [column for column in METRIC_COLUMNS if column not in ("draws", "d")]
    pd.testing.assert_frame_equal(back[flat], frame[flat], check_dtype=False)
    assert back["d"].isna().all()
    for found, given in zip(back["draws"], frame["draws"], strict=True):
        np.testing.assert_array_equal(found, np.array(given))


def test_a_row_without_draws_stays_without(tmp_path):
    frame = metrics_frame()
    frame.loc[1, "draws"] = None
    back = read_frame(write_frame(frame, tmp_path / "m")[0], "metrics")
    assert back["draws"].isna().tolist() == [False, True, False, False]


def test_writing_changes_nothing_in_the_frame(tmp_path):
    frame = metrics_frame()
    write_frame(frame, tmp_path / "m")
    pd.testing.assert_frame_equal(frame, metrics_frame())


def test_the_csv_has_all_but_the_draws(tmp_path):
    back = read_frame(write_frame(metrics_frame(), tmp_path / "m")[1], "metrics")
    assert list(back.columns) == [column for column in METRIC_COLUMNS if column != "draws"]
    assert back["layer_name"].tolist() == LAYERS
    assert back["value"].tolist() == metrics_frame()["value"].tolist()


@pytest.mark.parametrize(
    ("kind", "how"),
    [("metrics", "layerscope analyze"), ("scores", "layerscope evaluate"), ("picks", "layerscope select")],
)
def test_a_file_that_is_not_there_says_how_to_make_it(tmp_path, kind, how):
    with pytest.raises(FrameError, match=f"no {kind} frame at .*m.parquet: .*{how}"):
        read_frame(tmp_path / "m.parquet", kind)


def test_a_folder_is_not_a_frame(tmp_path):
    with pytest.raises(FrameError, match="no metrics frame"):
        read_frame(tmp_path, "metrics")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("m.parquet", b"not a parquet file at all"),
        ("m.parquet", b""),
        ("m.csv", b""),
        ("m.csv", b'"a,b\n1,2\n'),
        ("m.csv", b"a,b\n1,2,3\n1,2,3,4\n"),
        ("m.csv", b"\xff\xfe\x00\x81,b\n"),
    ],
)
def test_a_damaged_file_is_named_in_one_line(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FrameError, match=f"{name} is not a readable table") as caught:
        read_frame(tmp_path / name, "metrics")
    assert "\n" not in str(caught.value)


def test_a_table_of_another_kind_says_what_it_lacks(tmp_path):
    path = write_frame(metrics_frame(), tmp_path / "m")[0]
    with pytest.raises(
        FrameError, match=r"not a scores frame: it lacks the column\(s\) score \(found: model,"
    ):
        read_frame(path, "scores")


@pytest.mark.parametrize(
    ("columns", "kind"), [(METRIC_COLUMNS, "metrics"), (SCORE_COLUMNS, "scores"), (PICK_COLUMNS, "picks")]
)
def test_a_table_without_rows_is_refused(tmp_path, columns, kind):
    path = write_frame(as_frame([], columns), tmp_path / "m")[1]
    with pytest.raises(FrameError, match="has no rows"):
        read_frame(path, kind)


@pytest.mark.parametrize("column", ["layer", "layer_name", "depth", "pooling", "metric", "value"])
def test_every_column_that_later_stages_need_is_asked_for(tmp_path, column):
    path = write_frame(metrics_frame().drop(columns=column), tmp_path / "m")[0]
    with pytest.raises(FrameError, match=rf"lacks the column\(s\) {column} "):
        read_frame(path, "metrics")


def test_a_frame_that_cannot_be_written_leaves_the_old_one(tmp_path):
    path = write_frame(metrics_frame(), tmp_path / "m")[0]
    before = path.read_bytes()
    mixed = pd.DataFrame({"value": [1, "one"]}, dtype=object)
    with pytest.raises(Exception, match="value"):
        write_frame(mixed, path)
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["m.csv", "m.parquet"]


@pytest.mark.parametrize("method", ["to_parquet", "to_csv"])
def test_a_disk_that_fills_up_leaves_no_half_a_frame(tmp_path, monkeypatch, method):
    def fill_up(_, target, **__):
        Path(target).write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, method, fill_up)
    with pytest.raises(CacheError, match="the disk is full"):
        write_frame(metrics_frame(), tmp_path / "m")
    assert {path.name for path in tmp_path.iterdir()} <= {"m.parquet"}
    if method == "to_csv":
        assert len(read_frame(tmp_path / "m.parquet", "metrics")) == 4


def test_a_frame_cannot_be_written_under_a_file(tmp_path):
    (tmp_path / "a").write_text("x")
    with pytest.raises(CacheError, match="a file stands where a folder is needed"):
        write_frame(metrics_frame(), tmp_path / "a" / "m.parquet")


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [("value", "much", r"row 2: the value 'much' is not a number"), ("layer_name", "foo", r"row 2: .*'foo'")],
)
def test_a_frame_edited_by_hand_is_refused_with_the_row(column, value, message, tmp_path):
    frame = pd.DataFrame(
        {
            "layer": [0, 1],
            "layer_name": ["embed", "block.1"],
            "depth": [0.0, 1.0],
            "pooling": "mean",
            "metric": "dataset_entropy",
            "value": [1.0, 2.0],
        }
    ).astype({column: object})
    frame.loc[1, column] = value
    frame.to_csv(tmp_path / "m.csv", index=False)
    with pytest.raises(FrameError, match=message):
        read_frame(tmp_path / "m.csv", "metrics")


# What is not written over


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("m.txt", r"ends in \.txt: .* name it m\.txt\.parquet"),
        ("v1.2", r"name it v1\.2\.parquet"),
        ("folder", r"is a folder: name a file in it, as .*folder.metrics\.parquet"),
    ],
)
def test_a_name_that_is_none_of_a_frame_is_refused(name, says, tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match=says):
        write_frame(metrics_frame(), tmp_path / name)
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]
    assert list((tmp_path / "folder").iterdir()) == []


def test_a_name_with_dots_keeps_them(tmp_path):
    assert [path.name for path in write_frame(metrics_frame(), tmp_path / "v1.2.parquet")] == [
        "v1.2.parquet",
        "v1.2.csv",
    ]


@pytest.mark.parametrize("stands", ["scores", "picks", "rows", "text", "folder", "csv"])
def test_a_file_of_another_kind_is_not_replaced(stands, tmp_path):
    path = tmp_path / "m.parquet"
    if stands == "scores":
        write_frame(metrics_frame().rename(columns={"value": "score"}), path)
    elif stands == "picks":
        write_frame(metrics_frame().assign(criterion="dime", score=1.0), path)
    elif stands == "rows":
        pd.DataFrame({"row": [0, 1]}).to_parquet(path)
    elif stands == "text":
        path.write_text("mine")
    elif stands == "folder":
        path.with_suffix(".csv").mkdir()
    else:
        path.with_suffix(".csv").write_text("name,price\nbread,2\n")
    before = {entry.name: entry.read_bytes() for entry in tmp_path.iterdir() if entry.is_file()}
    with pytest.raises(UsageError, match=r"m\.(parquet|csv) .*choose another name with -o"):
        write_frame(metrics_frame(), tmp_path / "m")
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir() if entry.is_file()} == before


def test_a_former_frame_of_the_same_kind_is_replaced(tmp_path):
    write_frame(metrics_frame(), tmp_path / "m")
    write_frame(metrics_frame().assign(value=7.0), tmp_path / "m.csv")
    assert set(read_frame(tmp_path / "m.parquet", "metrics")["value"]) == {7.0}


# Nonsense in a frame


@pytest.mark.parametrize("column", ["layer", "layer_name", "depth", "pooling", "metric"])
def test_a_row_that_does_not_say_of_what_it_is_is_named(column, tmp_path):
    frame = metrics_frame().drop(columns="draws").astype({column: object})
    frame.loc[2, column] = None
    frame.to_csv(tmp_path / "m.csv", index=False)
    with pytest.raises(FrameError, match=f"m.csv, row 3: the {column} is missing"):
        read_frame(tmp_path / "m.csv", "metrics")


@pytest.mark.parametrize("value", [float("inf"), float("-inf")])
def test_a_value_that_is_infinite_is_named(value, tmp_path):
    frame = metrics_frame()
    frame.loc[1:, "value"] = value
    with pytest.raises(FrameError, match="row 2: the value is infinite"):
        read_frame(write_frame(frame, tmp_path / "m")[0], "metrics")


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_a_row_that_is_there_twice_is_named(suffix, tmp_path):
    frame = pd.concat([metrics_frame(), metrics_frame().iloc[[1]].assign(value=9.0)], ignore_index=True)
    write_frame(frame, tmp_path / "m")
    with pytest.raises(FrameError, match=r"row 5: the same model, .*variant as in row 2"):
        read_frame(tmp_path / f"m{suffix}", "metrics")
