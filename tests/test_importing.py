from __future__ import annotations

import json

import pandas as pd
import pytest
from typer.testing import CliRunner

from layerscope.cli.main import app
from layerscope.errors import FrameError, UsageError
from layerscope.evaluate.importing import import_results, import_table
from layerscope.frames import METRIC_COLUMNS, SCORE_COLUMNS, read_frame, write_frame

HEADER = "model,layer,task,main_score\n"
SCORES = HEADER + "m,0,sts,0.2\nm,1,sts,0.5\nm,2,sts,0.4\n"
METRICS = (
    "model,layer,dataset,split,metric,normalization,value\n"
    "m,0,org/sts,train,entropy_dataset,raw,9\nm,0,org/sts,test,entropy_dataset,raw,1\n"
    "m,1,org/sts,test,entropy_dataset,raw,\nm,2,org/sts,train,entropy_dataset,raw,3\n"
)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def result(**more):
    entry = {"main_score": 0.5, "hf_subset": "default", "languages": ["eng-Latn"]}
    return json.dumps(
        {
            "task_name": "STS12",
            "mteb_version": "2.1.0",
            "dataset_revision": "x",
            "scores": {"test": [entry | more]},
        }
    )


def test_a_table_of_scores_becomes_a_frame(tmp_path):
    kind, frame = import_table(write(tmp_path / "s.csv", SCORES), pooling="last")
    assert kind == "scores"
    assert list(frame.columns) == list(SCORE_COLUMNS)
    assert frame["layer_name"].tolist() == ["embed", "block.1", "block.2"]
    assert frame["depth"].tolist() == [0, 0.5, 1]
    assert frame["score"].tolist() == [0.2, 0.5, 0.4]
    assert set(frame["pooling"]) == {"last"}
    target = write_frame(frame, tmp_path / "frame.parquet")[0]
    assert len(read_frame(target, "scores")) == 3


def test_a_table_of_metrics_takes_the_test_split_and_says_so(tmp_path):
    tasks = write(tmp_path / "t.csv", "task,dataset\nsts,org/sts\nother,org/other\n")
    kind, frame = import_table(write(tmp_path / "m.csv", METRICS), tasks=tasks)
    assert kind == "metrics"
    assert list(frame.columns) == list(METRIC_COLUMNS)
    assert frame["metric"].unique().tolist() == ["dataset_entropy"]
    assert frame["corpus"].unique().tolist() == ["sts"]
    assert frame["value"].iloc[0] == 1
    assert frame["note"].tolist() == ["split test", "split test", "split train"]
    assert frame["reason"].tolist() == ["", "missing in the table", ""]
    assert set(frame["direction"]) == {"higher"}
    assert set(frame["variant"]) == {"raw"}


def test_a_frame_of_ours_is_checked_and_taken_as_it_is(tmp_path):
    _, frame = import_table(write(tmp_path / "s.csv", SCORES))
    path = write_frame(frame, tmp_path / "frame.parquet")[0]
    assert len(import_table(path)[1]) == 3
    broken = write_frame(frame.assign(layer_name="blok.1"), tmp_path / "broken.parquet")[0]
    with pytest.raises(FrameError, match=r"no layer is called 'blok\.1'"):
        import_table(broken)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (HEADER + "m,0,sts,0.2\nm,0,sts,0.3\n", "row 2: a second row of the same model, task, layer"),
        (HEADER + "m,x,sts,0.2\n", "row 1: the layer 'x' is no number from 0 on"),
        (HEADER + "m,0,sts,good\n", "row 1: the main_score 'good' is not a number"),
        ("model,layer,score\nm,0,1\n", "neither a table of scores"),
        (HEADER, "has no rows"),
    ],
)  # fmt: skip
def test_bad_tables_are_named_with_their_row(tmp_path, text, error):
    with pytest.raises(FrameError, match=error):
        import_table(write(tmp_path / "t.csv", text))


def test_bad_task_tables_are_refused(tmp_path):
    metrics = write(tmp_path / "m.csv", METRICS)
    with pytest.raises(FrameError, match="lacks the column"):
        import_table(metrics, tasks=write(tmp_path / "a.csv", "task,set\nx,y\n"))
    with pytest.raises(FrameError, match="names no data set of"):
        import_table(metrics, tasks=write(tmp_path / "b.csv", "task,dataset\nx,y\n"))
    with pytest.raises(FrameError, match="no table at"):
        import_table(tmp_path / "none.csv")


def test_result_folders_of_others_tell_their_layer_in_a_name(tmp_path):
    for layer, score in ((0, 0.1), (7, 0.7), (14, 0.4)):
        write(tmp_path / f"org__m_layer_{layer}" / "rev" / "STS12.json", result(main_score=score))
        write(tmp_path / f"org__m_layer_{layer}" / "rev" / "model_meta.json", "{}")
    frame = import_results(tmp_path)
    assert frame.sort_values("layer")["score"].tolist() == [0.1, 0.7, 0.4]
    assert frame.sort_values("layer")["depth"].tolist() == [0, 0.5, 1]
    assert set(frame["model"]) == {"org/m"}
    assert set(frame["note"]) == {"mteb 2.1.0"}
    again = import_results(tmp_path, layer_pattern=r"_layer_(?P<layer>\d)\d?")
    assert sorted(again["layer"]) == [0, 1, 7]


def test_result_folders_without_a_layer_or_a_result_are_refused(tmp_path):
    write(tmp_path / "a" / "org__m" / "rev" / "STS12.json", result())
    with pytest.raises(FrameError, match="names a layer: give --layer-pattern"):
        import_results(tmp_path / "a")
    write(tmp_path / "b" / "org__m_layer_1" / "rev" / "notes.json", "{}")
    with pytest.raises(FrameError, match="no mteb results in"):
        import_results(tmp_path / "b")
    with pytest.raises(UsageError, match="needs a group"):
        import_results(tmp_path, layer_pattern="x")
    with pytest.raises(UsageError, match="is no regular expression"):
        import_results(tmp_path, layer_pattern="(")


def test_a_missing_score_of_a_result_file_has_a_reason(tmp_path):
    write(tmp_path / "org__m_layer_1" / "rev" / "STS12.json", result(main_score=None))
    frame = import_results(tmp_path)
    assert frame["score"].isna().all()
    assert frame["reason"].tolist() == ["missing in the file"]


def test_the_command_writes_a_frame_and_names_what_to_run_next(tmp_path):
    source = write(tmp_path / "s.csv", SCORES)
    done = CliRunner().invoke(app, ["import", str(source), "-o", str(tmp_path / "out.parquet")])
    assert done.exit_code == 0, done.output
    assert "layerscope compare METRICS" in done.stdout
    assert pd.read_parquet(tmp_path / "out.parquet")["score"].tolist() == [0.2, 0.5, 0.4]
