"""The command line: every bad input is one clear line, and nothing half-written is left."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from layerscope import cli
from layerscope.cache import LayerCache
from layerscope.errors import UsageError
from layerscope.layers import make_layer
from layerscope.metrics import METRICS, get_metric
from tests.caches import make_cache
from tests.tiny import make_model, make_tokenizer

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Path:
    """A tiny BERT on disk."""
    folder = tmp_path_factory.mktemp("tiny") / "tiny-bert"
    make_model("bert").save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def run(monkeypatch, capsys):
    """Call the command line in this process; gives exit code, standard output and standard error."""

    def call(*arguments) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["layerscope", *map(str, arguments)])
        monkeypatch.setattr(cli.console.out, "_width", 200)
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            cli.main()
        captured = capsys.readouterr()
        return int(stop.value.code or 0), captured.out, captured.err

    return call


@pytest.fixture
def pairs(tmp_path) -> Path:
    """Twelve pairs with scores."""
    path = tmp_path / "pairs.tsv"
    words = ["the cat sat", "dog on the mat", "a b c d", "cat", "the mat", "x y z"]
    lines = [
        f"{a}\t{b}\t{i}"
        for i, (a, b) in enumerate(zip(words * 2, words[::-1] + words[1:] + words[:1], strict=True))
    ]
    path.write_text("sentence1\tsentence2\tscore\n" + "\n".join(lines) + "\n")
    return path


def complaint(error: str) -> str:
    """The last line of standard error, which must be the complaint."""
    lines = [line for line in error.splitlines() if line.strip()]
    assert "Traceback" not in error
    assert lines, "nothing was said"
    assert lines[-1].startswith("error: "), error
    return lines[-1]


def test_the_whole_line_from_extract_to_report(run, tiny, pairs, tmp_path):
    cache = tmp_path / "cache"
    code, out, err = run("extract", tiny, pairs, "-o", cache, "--views", "2")
    assert code == 0, err
    assert "text columns: sentence1, sentence2 (guessed)" in err
    assert re.search(r"[0-9.]+ KiB on disk in 1 shard", err)
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", out + err)  # no terminal, so no control characters
    assert f"layerscope analyze {cache}" in out
    assert f"layerscope evaluate sts {cache}" in out
    code, out, err = run("analyze", cache, "--draws", "10")
    assert code == 0, err
    assert (cache / "frames" / "metrics.csv").is_file()
    code, out, err = run("evaluate", "sts", cache, "--draws", "10")
    assert code == 0, err
    scores = cache / "frames" / "scores.parquet"
    code, out, err = run("select", cache, "--scores", scores)
    assert code == 0, err
    assert "dataset_entropy ↑" in out
    assert "2/3 depth" in out
    picks = pd.read_parquet(cache / "frames" / "picks.parquet")
    assert picks["cost"].min() == 0
    report = tmp_path / "report.html"
    code, out, err = run("report", cache, "-o", report)
    assert code == 0, err
    assert "block.4" in report.read_text(encoding="utf-8")
    code, out, err = run("info", cache)
    assert code == 0
    assert "24 texts in pairs" in out
    assert "read_parquet" in out
    code, out, err = run("verify", cache)
    assert code == 0
    assert f"layerscope analyze {cache}" in out
    code, out, err = run("extract", tiny, pairs, "-o", cache, "--views", "2")
    assert "already holds this extraction" in err


def test_progress_into_a_log_is_a_plain_line_now_and_then(monkeypatch, capsys):
    clock = iter(range(0, 1000, 9))
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    with cli.console.progress("extracting") as advance:
        for done in range(1, 7):
            advance(done, 8)
    assert capsys.readouterr().err == "· extracting: 38%\n· extracting: 75%\n"


def _bytes(name: str, content: bytes):
    return pytest.param(name, content, id=name)


BAD_TEXTS = {
    "empty file": ("x.txt", b"", r"x\.txt"),
    "only blank lines": ("x.txt", b"\n  \n\n", "blank"),
    "invalid UTF-8": ("x.txt", b"good\nbad \xa3 line\n", r"line 2.*--encoding"),
    "binary": ("x.txt", b"PK\x03\x04\x00\x00\x00\x00\x00\x01\x02\x00\x00", "binary|text"),
    "score not a number": (
        "x.tsv",
        b"sentence1\tsentence2\tscore\na\tb\t1\nc\td\tlots\n",
        r"row 2 \(line 3\).*'lots' is not a number",
    ),
    "ragged": ("x.tsv", b"sentence1\tsentence2\tscore\na\tb\t1\nc\td\n", "line 3"),
    "header only": ("x.csv", b"text,label\n", r"x\.csv"),
    "broken json": ("x.jsonl", b'{"text": "a"}\n{"text": \n', "line 2"),
    "unknown ending": ("x.docx", b"hello", r"\.docx"),
}


@pytest.mark.parametrize("case", BAD_TEXTS)
def test_bad_corpus_is_one_line_and_leaves_nothing(case, run, tiny, tmp_path):
    name, content, pattern = BAD_TEXTS[case]
    (tmp_path / name).write_bytes(content)
    code, _, err = run("extract", tiny, tmp_path / name, "-o", tmp_path / "cache")
    assert code in (1, 2)
    assert re.search(pattern, complaint(err)), err
    assert not (tmp_path / "cache").exists()


def test_missing_file(run, tiny, tmp_path):
    code, _, err = run("extract", tiny, tmp_path / "no.txt", "-o", tmp_path / "cache")
    assert code == 1
    assert "no.txt" in complaint(err)
    assert not (tmp_path / "cache").exists()


def test_column_that_is_not_there_lists_the_nearest_first(run, tiny, pairs, tmp_path):
    code, _, err = run("extract", tiny, pairs, "-o", tmp_path / "cache", "--text-column", "sentense1")
    assert code == 2
    assert "did you mean 'sentence1'" in complaint(err)
    assert not (tmp_path / "cache").exists()


def test_control_characters_are_replaced_and_counted(run, tiny, tmp_path):
    (tmp_path / "x.txt").write_bytes(b"cat\x07 sat\ndog sat on the mat and so on\nthe cat\n")
    code, _, err = run("extract", tiny, tmp_path / "x.txt", "-o", tmp_path / "cache")
    assert code == 0, err
    assert "control character" in err


def test_a_line_of_one_megabyte_is_cut_and_said(run, tiny, tmp_path):
    (tmp_path / "x.txt").write_text("cat " * 250_000 + "\ndog\n")
    code, _, err = run("extract", tiny, tmp_path / "x.txt", "-o", tmp_path / "cache")
    assert code == 0, err
    assert "1 of the texts are longer than 64 tokens" in err or "1 text" in err


@pytest.mark.parametrize("texts", [1, 2])
def test_one_or_two_texts_say_why_values_are_missing(texts, run, tiny, tmp_path):
    (tmp_path / "x.txt").write_text("the cat sat\ndog on the mat\n"[: 12 if texts == 1 else None])
    code, _, err = run("extract", tiny, tmp_path / "x.txt", "-o", tmp_path / "cache", "--views", "2")
    assert code == 0, err
    code, _, err = run("analyze", tmp_path / "cache")
    assert code == 0, err
    frame = pd.read_parquet(tmp_path / "cache" / "frames" / "metrics.parquet")
    assert (frame["value"].notna() | (frame["reason"] != "")).all()
    if texts == 1:
        entropy = frame[frame["metric"] == "dataset_entropy"]
        assert set(entropy["reason"]) == {"fewer than 2 samples"}
        assert "fewer than 2 samples" in err
    code, _, err = run("select", tmp_path / "cache")
    assert code == 0, err


def test_model_folder_without_weights(run, pairs, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    code, _, err = run("extract", tmp_path / "model", pairs, "-o", tmp_path / "cache")
    assert code == 1
    assert "holds no weights" in complaint(err)
    assert not (tmp_path / "cache").exists()


def test_model_folder_with_weights_missing_in_the_checkpoint(run, tiny, pairs, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "model"
    folder.mkdir()
    for file in tiny.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    weights = load_file(folder / "model.safetensors")
    weights = {name: tensor for name, tensor in weights.items() if "layer.2" not in name}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    code, _, err = run("extract", folder, pairs, "-o", tmp_path / "cache")
    assert code == 1
    assert "weights are not in the checkpoint" in complaint(err)


def test_damaged_weights(run, tiny, pairs, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for file in tiny.iterdir():
        (folder / file.name).write_bytes(file.read_bytes()[: 500 if file.suffix == ".safetensors" else None])
    code, _, err = run("extract", folder, pairs, "-o", tmp_path / "cache")
    assert code == 1
    assert "cannot load the model" in complaint(err)


def test_unknown_model_id_without_network(run, pairs, tmp_path):
    code, _, err = run("extract", "nobody/no-such-model", pairs, "-o", tmp_path / "cache")
    assert code == 1
    assert "hub was tried" in complaint(err)
    assert "path of a model folder" in complaint(err)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        (["--layers", "9"], "layer 9 does not exist"),
        (["--layers", "block.99"], "4 blocks"),
        (["--pooling", "mena"], "did you mean 'mean'"),
        (["--special-tokens", "maybe"], "keep or drop"),
        (["--dtype", "float8"], "float32 or bfloat16"),
    ],
)
def test_unknown_layer_pooling_or_choice(options, pattern, run, tiny, pairs, tmp_path):
    code, _, err = run("extract", tiny, pairs, "-o", tmp_path / "cache", *options)
    assert code == 2
    assert re.search(pattern, complaint(err))
    assert not (tmp_path / "cache").exists()


def test_unknown_metric_names_the_nearest(run, tiny, pairs, tmp_path):
    run("extract", tiny, pairs, "-o", tmp_path / "cache")
    code, _, err = run("analyze", tmp_path / "cache", "--metric", "dataset_entropi")
    assert code == 2
    assert "did you mean 'dataset_entropy'" in complaint(err)
    assert not (tmp_path / "cache" / "frames").exists()


def test_output_that_holds_another_run(run, tiny, pairs, tmp_path):
    run("extract", tiny, pairs, "-o", tmp_path / "cache")
    code, _, err = run("extract", tiny, pairs, "-o", tmp_path / "cache", "--drop-first-token")
    assert code == 1
    assert "different: drop_first_token" in complaint(err)
    before = LayerCache(tmp_path / "cache").manifest
    assert run("extract", tiny, pairs, "-o", tmp_path / "cache", "--drop-first-token", "--overwrite")[0] == 0
    assert LayerCache(tmp_path / "cache").manifest["identity"] != before["identity"]


def test_output_that_is_a_file(run, tiny, pairs, tmp_path):
    code, _, err = run("extract", tiny, pairs, "-o", pairs)
    assert code == 1
    assert "-o" in complaint(err)


def test_disk_without_permission(run, tiny, pairs):
    code, _, err = run("extract", tiny, pairs, "-o", "/proc/layerscope-cache")
    assert code == 1
    assert "/proc/layerscope-cache" in complaint(err)


def test_disk_that_fills_up_keeps_finished_shards_and_says_how_to_go_on(run, tiny, tmp_path, monkeypatch):
    import errno

    from layerscope import files
    from layerscope.extraction import job

    (tmp_path / "x.txt").write_text("".join(f"cat {a} {b}\n" for a in "abcdefgh" for b in "klmn"))
    monkeypatch.setattr(job, "SHARD_BYTES", 8000)
    write, written = files._write_bytes, []

    def full(path, content):
        written.append(path)
        if len(written) > 2:
            path.write_bytes(content[:100])
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, content)

    monkeypatch.setattr(files, "_write_bytes", full)
    code, _, err = run("extract", tiny, tmp_path / "x.txt", "-o", tmp_path / "cache")
    assert code == 1
    assert "the disk is full" in complaint(err)
    assert "same command again" in complaint(err)
    partial = LayerCache(tmp_path / "cache", allow_partial=True)
    assert partial.progress[0] == 2
    assert [p for p in partial.verify() if "not there yet" not in p] == []
    assert not list((tmp_path / "cache").rglob("*.tmp"))
    monkeypatch.setattr(files, "_write_bytes", write)
    code, _, err = run("extract", tiny, tmp_path / "x.txt", "-o", tmp_path / "cache")
    assert code == 0, err
    assert "2 of them there already" in err


def test_an_output_without_a_name_is_not_the_folder_that_the_command_runs_in(
    run, tiny, pairs, tmp_path, monkeypatch
):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for words in (["extract", tiny, pairs, "-o", ""], ["demo", "-o", " "]):
        code, _, err = run(*words)
        assert code == 2
        assert "it has no name: give a folder" in complaint(err)
    assert list((tmp_path / "here").iterdir()) == []


@pytest.mark.parametrize("command", ["analyze", "info", "verify", "report"])
def test_a_cache_that_is_not_there(command, run, tmp_path):
    code, _, err = run(command, tmp_path / "nowhere")
    assert code == 1
    assert "layerscope extract" in complaint(err)


def test_report_before_analyze_says_what_to_run(run, tiny, pairs, tmp_path):
    run("extract", tiny, pairs, "-o", tmp_path / "cache")
    code, _, err = run("report", tmp_path / "cache", "-o", tmp_path / "r.html")
    assert code == 1
    assert "layerscope analyze" in complaint(err)
    assert not (tmp_path / "r.html").exists()


def test_verify_names_the_damaged_file(run, tiny, pairs, tmp_path):
    run("extract", tiny, pairs, "-o", tmp_path / "cache")
    (tmp_path / "cache" / "rows.parquet").write_bytes(b"x")
    code, out, err = run("verify", tmp_path / "cache")
    assert code == 1
    assert "rows.parquet: damaged" in out
    complaint(err)


def test_standard_input(run, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "sys.stdin", io.TextIOWrapper(io.BytesIO(b"the cat\nthe dog sat\n"), encoding="utf-8")
    )
    code, _, err = run("extract", tiny, "-", "-o", tmp_path / "cache")
    assert code == 0, err
    assert LayerCache(tmp_path / "cache").n_rows == 2


def test_usage_errors_exit_with_2(run):
    assert run("extract")[0] == 2
    assert run("bogus")[0] == 2
    assert run("select", "x.parquet", "--direction", "sideways")[0] in (1, 2)


def test_an_unexpected_failure_is_one_line_and_a_traceback_only_with_debug(
    run, tiny, pairs, tmp_path, monkeypatch
):
    monkeypatch.setattr("layerscope.cli.commands.info", lambda *_, **__: 1 / 0)
    code, _, err = run("info", tmp_path)
    assert code == 1
    assert "unexpected ZeroDivisionError" in complaint(err)
    assert "--debug" in complaint(err)
    monkeypatch.setattr(sys, "argv", ["layerscope", "info", str(tmp_path), "--debug"])
    with pytest.raises(ZeroDivisionError):
        cli.main()


def test_help_names_every_command_and_starts_with_the_demo(run):
    code, out, _ = run("--help")
    assert code == 0
    for command in ("extract", "analyze", "select", "evaluate", "report", "info", "verify", "demo"):
        assert command in out
    assert "layerscope demo" in out
    assert "layerscope" in run("--version")[1]


def test_importing_and_help_need_no_torch():
    code = (
        "import sys, layerscope\n"
        "sys.argv = ['layerscope', '--help']\n"
        "from layerscope.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'transformers', 'scipy', 'matplotlib', 'sklearn'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, cwd=ROOT
    )
    assert result.returncode == 0, result.stderr


def test_ctrl_c_ends_with_a_line_and_the_same_command_goes_on(tiny, tmp_path):
    (tmp_path / "x.txt").write_text(
        "".join(f"cat {a} {b} {c}\n" for a in "abcdefghij" for b in "klmnopqrst" for c in "uvwxyz")
    )
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a background shell may ignore it
        "from layerscope.extraction import job\n"
        "job.SHARD_BYTES = 20000\n"
        "fill = job.Job._compute\n"
        "def slow(self, shard):\n"
        "    time.sleep(0.1)\n"
        "    yield from fill(self, shard)\n"
        "job.Job._compute = slow\n"
        "from layerscope.cli import main\n"
        "main()"
    )
    command = [
        sys.executable,
        "-c",
        code,
        "extract",
        str(tiny),
        str(tmp_path / "x.txt"),
        "-o",
        str(tmp_path / "cache"),
    ]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    shard = tmp_path / "cache" / "embeddings" / "00001.safetensors"
    while not shard.exists() and time.monotonic() < deadline:
        os.sched_yield()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "interrupted" in err
    assert "Traceback" not in err
    done, planned = LayerCache(tmp_path / "cache", allow_partial=True).progress
    assert 2 <= done < planned
    again = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=120)
    assert again.returncode == 0, again.stderr
    assert "of them there already" in again.stderr
    assert LayerCache(tmp_path / "cache").verify() == []


def test_a_run_that_fails_before_its_first_shard_leaves_no_folder(run, tiny, pairs, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 100})())
    code, _, err = run("extract", tiny, pairs, "-o", tmp_path / "cache")
    assert code == 1
    assert "only 100 bytes are free" in complaint(err)
    assert not (tmp_path / "cache").exists()
    (tmp_path / "empty").mkdir()
    run("extract", tiny, pairs, "-o", tmp_path / "empty")
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_damaged_manifest_is_named_and_can_be_replaced(run, tiny, pairs, tmp_path):
    run("extract", tiny, pairs, "-o", tmp_path / "cache")
    (tmp_path / "cache" / "manifest.json").write_text('{"format":')
    code, _, err = run("extract", tiny, pairs, "-o", tmp_path / "cache")
    assert code == 1
    assert "--overwrite" in complaint(err)
    assert run("extract", tiny, pairs, "-o", tmp_path / "cache", "--overwrite")[0] == 0
    assert run("verify", tmp_path / "cache")[0] == 0


@pytest.mark.parametrize(
    "name", ["rows.parquet", "embeddings/00000.safetensors", "token_metrics/00000.parquet"]
)
def test_a_damaged_file_is_named_with_what_to_do(name, run, tiny, pairs, tmp_path):
    run("extract", tiny, pairs, "-o", tmp_path / "cache")
    (tmp_path / "cache" / name).write_bytes(b"garbage")
    code, _, err = run("analyze", tmp_path / "cache", "--draws", "0")
    assert code == 1
    assert name in complaint(err)
    assert "layerscope verify" in complaint(err)
    assert run("extract", tiny, pairs, "-o", tmp_path / "cache")[0] == 0
    assert run("verify", tmp_path / "cache")[0] == 0


def test_paths_with_blanks_and_brackets_come_back_quoted(run, tiny, pairs, tmp_path):
    cache = tmp_path / "my [bold] cache"
    code, out, err = run("extract", tiny, pairs, "-o", cache)
    assert code == 0, err
    assert f"layerscope analyze '{cache}'" in out


def test_a_frame_with_one_layer_or_no_values_gives_picks_that_say_so(run, tiny, pairs, tmp_path):
    run("extract", tiny, pairs, "-o", tmp_path / "cache")
    run("analyze", tmp_path / "cache", "--draws", "5")
    frame = pd.read_csv(tmp_path / "cache" / "frames" / "metrics.csv")
    frame[frame["layer_name"] == "embed"].to_csv(tmp_path / "one.csv", index=False)
    code, out, err = run("select", tmp_path / "one.csv")
    assert code == 0, err
    assert "embed" in out
    frame.assign(value=float("nan")).to_csv(tmp_path / "none.csv", index=False)
    code, out, err = run("select", tmp_path / "none.csv")
    assert code == 0, err
    assert "no pick by dataset_entropy" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["extract", "m", "c", "--poolin", "x"],
            "no option '--poolin': did you mean '--pooling'? (see layerscope extract --help)",
        ),
        (["extrct"], "No such command 'extrct'. Did you mean 'extract'"),
        (["extract", "m"], "Missing argument 'CORPUS' (see layerscope extract --help)"),
        (["analyze", "c", "--draws", "x"], "Invalid value for '--draws'"),
        (["evaluate", "sts", "c", "--draws", "-1"], "Invalid value for '--draws'"),
        (["analyze", "c", "--draws"], "requires an argument (see layerscope analyze --help)"),
        (["evaluate", "sts", "c", "--bogus"], "no option '--bogus' (see layerscope evaluate sts --help)"),
        (["info", ""], "an argument is empty: give it a value (see layerscope info --help)"),
        (["demo", "-o", ""], "-o is empty: give it a value (see layerscope demo --help)"),
        (["report", "c", "--output="], "--output is empty"),
    ],
)
def test_what_the_parser_refuses_is_one_line(run, arguments, says):
    code, out, err = run(*arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1
    assert says in err


def test_without_a_command_the_demo_is_suggested(run):
    _, out, err = run()
    assert "Start with: layerscope demo" in out + err


def started(*arguments, **more):
    """The command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "layerscope", *map(str, arguments)], cwd=ROOT, check=False,
        capture_output=True, timeout=120, **more,
    )  # fmt: skip


def test_a_terminal_without_arrows_gets_a_question_mark(run, tiny, pairs, tmp_path):
    assert run("extract", tiny, pairs, "-o", tmp_path / "c")[0] == 0
    assert run("analyze", tmp_path / "c", "--draws", "0")[0] == 0
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = started("select", tmp_path / "c", env=environment)
    assert done.returncode == 0, done.stderr
    assert b"Picks without labels (? highest" in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_output_that_cannot_be_written_is_one_line(tmp_path, run, tiny, pairs):
    assert run("extract", tiny, pairs, "-o", tmp_path / "c")[0] == 0
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "layerscope", "info", tmp_path / "c"], cwd=ROOT, check=False, stdout=full,
            stderr=subprocess.PIPE, text=True, timeout=120,
        )  # fmt: skip
    assert done.returncode == 1
    assert complaint(done.stderr) == "error: No space left on device"


def test_a_closed_standard_output_is_no_failure(tmp_path):
    make_cache(tmp_path / "c", {"mean/embed": np.ones((4, 2))}, n_blocks=1)
    done = subprocess.run(
        ["sh", "-c", '"$0" -m layerscope verify "$1" >&-', sys.executable, tmp_path / "c"],
        cwd=ROOT, check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_one_of_a_thing_is_not_called_several(tmp_path):
    make_cache(tmp_path / "c", {"mean/block.1": np.ones((1, 2))}, n_blocks=1)
    with pytest.raises(UsageError, match=r"the cache holds 1 layer$"):
        LayerCache(tmp_path / "c").layer(7, "mean")
    with pytest.raises(UsageError, match=r"the model has 1 block,"):
        make_layer("block.9", 1)


def test_a_closed_standard_input_is_one_line(tmp_path, tiny):
    done = subprocess.run(
        ["sh", "-c", '"$0" -m layerscope extract "$1" - -o "$2" <&-', sys.executable, tiny, tmp_path / "c"],
        cwd=ROOT, check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    assert complaint(done.stderr).startswith("error: standard input is closed")


def test_analyze_that_is_told_to_end_leaves_no_worker_and_no_frame(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {f"mean/{name}": rng.normal(size=(400, 64)) for name in ("embed", "block.1", "block.2")}
    make_cache(tmp_path / "c", arrays, n_blocks=2)
    command = [sys.executable, "-m", "layerscope", "analyze", str(tmp_path / "c"), "--draws", "5000"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 60
    while not members(process.pid) - {process.pid} and time.monotonic() < deadline:
        os.sched_yield()
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert complaint_free(err) == "interrupted: nothing was written; run the same command again"
    while members(process.pid) and time.monotonic() < deadline:
        os.sched_yield()
    assert not members(process.pid)
    assert not (tmp_path / "c" / "frames").exists()


def members(session: int) -> set[int]:
    """Processes of a session that are still alive."""
    alive = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            alive.add(int(status.parent.name))
    return alive


def complaint_free(error: str) -> str:
    """The last line of standard error of a command that did not fail."""
    assert "Traceback" not in error
    return [line for line in error.splitlines() if line.strip()][-1]


def test_repair_redoes_the_damaged_file_and_says_so(run, tiny, pairs, tmp_path):
    run("extract", tiny, pairs, "-o", tmp_path / "cache")
    shard = tmp_path / "cache" / "embeddings" / "00000.safetensors"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-9])
    code, _, err = run("info", tmp_path / "cache")
    assert code == 1
    assert "layerscope repair" in complaint(err)
    assert f"layerscope repair {tmp_path / 'cache'}" in complaint(run("verify", tmp_path / "cache")[2])
    code, out, _ = run("repair", tmp_path / "cache")
    assert code == 0
    assert "every checksum holds" in out
    assert shard.read_bytes() == whole
    pairs.rename(tmp_path / "moved.tsv")
    shard.unlink()
    assert run("repair", tmp_path / "cache")[0] == 1
    assert run("repair", tmp_path / "cache", "--corpus", tmp_path / "moved.tsv")[0] == 0
    assert shard.read_bytes() == whole


def test_extract_with_more_says_what_it_adds(run, tiny, pairs, tmp_path):
    run("extract", tiny, pairs, "-o", tmp_path / "cache", "--layers", "1:3")
    code, out, err = run("extract", tiny, pairs, "-o", tmp_path / "cache", "--pooling", "mean,last")
    assert code == 0
    told = " ".join((out + err).split())
    assert "adds to what the cache holds: layer embed" in told
    assert "pooling last" in told


def test_info_tells_what_there_is_of_an_unfinished_cache(run, tmp_path):
    make_cache(tmp_path / "c", {"mean/embed": np.ones((4, 2))}, n_blocks=1)
    manifest = tmp_path / "c" / "manifest.json"
    facts = json.loads(manifest.read_text()) | {"status": "partial", "planned_shards": 3}
    manifest.write_text(json.dumps(facts))
    code, out, _ = run("info", tmp_path / "c")
    assert code == 0
    assert "1 of 3 shards there" in out
    assert "the same 'layerscope extract' command again" in out


@pytest.fixture
def measured(run, tiny, pairs, tmp_path) -> Path:
    """A cache with metrics and scores frames."""
    cache = tmp_path / "cache"
    assert run("extract", tiny, pairs, "-o", cache)[0] == 0
    assert run("analyze", cache, "--draws", "5", "--metric", "dataset_entropy")[0] == 0
    assert run("evaluate", "sts", cache, "--draws", "5")[0] == 0
    return cache


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_no_output_replaces_a_file_of_another_kind(run, measured, pairs):
    before = contents(measured.parent)
    frames = measured / "frames"
    for words in (
        ["report", measured, "-o", measured / "manifest.json"],
        ["report", measured, "-o", measured],
        ["report", measured, "-o", measured / "report.pdf"],
        ["analyze", measured, "-o", measured / "rows.parquet"],
        ["analyze", measured, "-o", measured / "rows"],
        ["analyze", measured, "-o", frames / "scores.parquet"],
        ["analyze", measured, "-o", measured],
        ["analyze", measured, "-o", pairs],
        ["evaluate", "sts", measured, "-o", frames / "metrics.csv"],
        ["select", frames / "metrics.parquet", "-o", frames / "metrics.parquet"],
        ["select", frames / "metrics.csv", "-o", frames / "metrics"],
    ):
        code, _, err = run(*words)
        assert code == 2, words
        complaint(err)
        assert contents(measured.parent) == before, words
    (measured.parent / "page.html").write_text("bread, milk")
    code, _, err = run("report", measured, "-o", measured.parent / "page.html")
    assert code == 2
    assert "something else than a page" in complaint(err)


def test_a_former_output_is_replaced(run, measured, tmp_path):
    for _ in range(2):
        assert run("report", measured, "-o", tmp_path / "r.html")[0] == 0
        assert run("select", measured)[0] == 0


def test_next_steps_name_the_files_that_were_written(run, measured, tmp_path):
    elsewhere = tmp_path / "elsewhere" / "mine"
    code, out, err = run("analyze", measured, "--draws", "0", "--metric", "uniformity", "-o", elsewhere)
    assert code == 0, err
    assert f"layerscope select {elsewhere}.parquet" in out
    assert f"layerscope report {measured} --metrics {elsewhere}.parquet" in out
    _, out, _ = run("analyze", measured, "--draws", "0", "--metric", "uniformity")
    assert re.search(rf"layerscope report {measured}$", out, re.MULTILINE)
    _, out, _ = run("evaluate", "sts", measured, "--draws", "0", "-o", tmp_path / "mine.csv")
    assert f"--scores {tmp_path / 'mine.parquet'}" in out
    scores = tmp_path / "mine.parquet"
    _, out, _ = run("select", measured, "--scores", scores, "--criterion", "uniformity")
    assert f"layerscope report {measured} --scores {scores} --criterion uniformity" in out


def test_sts_says_how_many_pairs(run, measured):
    code, out, err = run("evaluate", "sts", measured, "--draws", "0", "--task", "mine")
    assert code == 0, err
    assert "mine: 12 pairs" in out


@pytest.mark.parametrize("interrupted", [True, False])
def test_a_failure_to_tidy_up_after_ctrl_c_is_an_interruption(run, tiny, tmp_path, monkeypatch, interrupted):
    def stop(*_, **__):
        try:
            raise KeyboardInterrupt if interrupted else ValueError
        except (KeyboardInterrupt, ValueError):
            raise RuntimeError("cannot join thread before it is started")  # noqa: B904 - as libraries do

    monkeypatch.setattr("layerscope.cli.commands.info", stop)
    code, _, err = run("info", tmp_path)
    assert code == (130 if interrupted else 1)
    assert ("interrupted" in err) is interrupted


def test_subsets_are_scored_and_do_not_hinder_a_choice(run, measured, tmp_path):
    table = tmp_path / "subsets.tsv"
    table.write_text("subset\tfirst_row\trows\nfirst\t0\t5\nsecond\t5\t7\n")
    scores = tmp_path / "scores.parquet"
    code, out, err = run("evaluate", "sts", measured, "--subsets", table, "--draws", "60", "-o", scores)
    assert code == 0, err
    assert re.search(r"layer +all +first +second +mean", out)
    assert "best is" in err
    code, out, err = run("select", measured, "--scores", scores, "-o", tmp_path / "picks")
    assert code == 0, err
    assert "cost" in out
    table.write_text("subset\tfirst_row\trows\nfirst\t0\t5\n")
    code, _, err = run("evaluate", "sts", measured, "--subsets", table)
    assert code == 1
    assert "do not cover the 12 pairs" in complaint(err)


@pytest.mark.parametrize("column", ["tokens", "text_sha256", "pair"])
def test_an_internal_column_is_no_human_score(column, run, measured):
    code, _, err = run("evaluate", "sts", measured, "--score-column", column)
    assert code == 2
    assert f"'{column}' is layerscope's own" in complaint(err)
    assert "score)" in complaint(err)


@pytest.mark.parametrize(
    ("frame", "column"), [("metrics", "model"), ("metrics", "corpus"), ("scores", "model")]
)
def test_a_report_of_frames_of_something_else_is_refused(frame, column, run, measured, tmp_path):
    table = pd.read_parquet(measured / "frames" / f"{frame}.parquet")
    name = table["model"].iloc[0] if column == "model" else "pairs"
    table.assign(**{column: "another"}).to_parquet(tmp_path / "other.parquet")
    code, _, err = run(
        "report", measured, f"--{frame}", tmp_path / "other.parquet", "-o", tmp_path / "r.html"
    )
    assert code == 1
    assert "another" in complaint(err)
    assert name in complaint(err)
    assert not (tmp_path / "r.html").exists()
    if frame == "scores":
        code, _, err = run("select", measured, "--scores", tmp_path / "other.parquet")
        assert code == 1
        assert "scores are of the model another" in complaint(err)


@pytest.mark.parametrize("column", ["model", "corpus"])
def test_frames_of_several_models_or_corpora_are_refused(column, run, measured, tmp_path):
    table = pd.read_parquet(measured / "frames" / "metrics.parquet")
    path = tmp_path / "two.parquet"
    pd.concat([table, table.assign(**{column: "another"})]).to_parquet(path)
    for words in (["select", path], ["report", measured, "--metrics", path, "-o", tmp_path / "r.html"]):
        code, _, err = run(*words)
        assert code == 1
        assert f"several values of {column}" in complaint(err)
        assert "another" in complaint(err)
    assert not (tmp_path / "r.html").exists()
    assert not (tmp_path / "picks.parquet").exists()


def test_report_picks_by_another_criterion(run, measured, tmp_path):
    assert run("analyze", measured, "--draws", "0", "--metric", "uniformity", "--metric", "curvature")[0] == 0
    page = tmp_path / "r.html"
    code, _, err = run("report", measured, "--criterion", "uniformity", "--direction", "higher", "-o", page)
    assert code == 0, err
    assert "higher is better" in page.read_text(encoding="utf-8")
    page.unlink()
    for options, says in (
        (["--criterion", "uniformty"], "did you mean 'uniformity'"),
        (["--criterion", "uniformity", "--direction", "up"], "choose higher or lower"),
        (["--direction", "higher"], "--direction needs --criterion"),
    ):
        for words in (["report", measured, "-o", page], ["select", measured]):
            code, _, err = run(*words, *options)
            assert code == 2
            assert says in complaint(err)
    assert not page.exists()


def test_a_metric_from_elsewhere_needs_its_direction(run, measured, tmp_path):
    table = pd.read_csv(measured / "frames" / "metrics.csv").assign(metric="mine")
    table.drop(columns="direction").to_csv(tmp_path / "mine.csv", index=False)
    code, _, err = run("select", tmp_path / "mine.csv", "--criterion", "mine")
    assert code == 2
    assert "say --direction" in complaint(err)
    words = ["select", tmp_path / "mine.csv", "--criterion", "mine", "--direction", "lower"]
    code, out, err = run(*words)
    assert code == 0, err
    assert "mine ↓" in out
    table.to_csv(tmp_path / "known.csv", index=False)
    assert "mine ↑" in run("select", tmp_path / "known.csv")[1]


def test_metrics_lists_all_and_explains_one(run):
    code, out, _ = run("metrics")
    assert code == 0
    for spec in METRICS:
        assert spec.name in out
    code, out, _ = run("metrics", "dime")
    assert code == 0
    assert get_metric("dime").reads.split(",")[0] in out
    assert "-6.908 … 6.908 for 1,000 rows of width 768" in out
    code, _, err = run("metrics", "dim")
    assert code == 2
    assert "did you mean 'dime'" in err


def test_a_metric_of_ones_own_is_named_by_module_and_object(run, tmp_path, monkeypatch):
    (tmp_path / "my_metrics.py").write_text(
        "from dataclasses import replace\n"
        "from layerscope.metrics import get_metric\n"
        "def count(Z):\n    return float(len(Z))\n"
        "SPEC = replace(get_metric('dataset_entropy'), name='count', function=count)\n"
        "OTHER = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    make_cache(tmp_path / "c", {"mean/embed": np.eye(5), "mean/block.1": np.eye(5)[::-1]}, n_blocks=1)
    code, out, err = run("analyze", "c", "--metric", "my_metrics:SPEC", "--draws", "0", "--json")
    assert code == 0, err
    assert [(row["metric"], row["value"], row["ci_low"]) for row in json.loads(out)] == [
        ("count", 5, None)
    ] * 2
    for name, says in [
        ("my_metrics:NONE", "has no attribute 'NONE'"),
        ("my_metrics:OTHER", "is a int, not a layerscope.MetricSpec"),
        ("no_such_module:SPEC", "No module named 'no_such_module'"),
    ]:
        code, _, err = run("analyze", "c", "--metric", name)
        assert code == 2
        assert says in complaint(err)


def test_layers_without_a_value_are_named_with_the_reason(run, tmp_path):
    rng = np.random.default_rng(0)
    broken = rng.normal(size=(30, 4))
    broken[7] = np.nan
    arrays = {
        "mean/embed": np.ones((30, 4)),
        "mean/block.1": broken,
        "mean/block.2": rng.normal(size=(30, 4)),
    }
    make_cache(tmp_path / "c", arrays, n_blocks=2)
    code, out, err = run("analyze", tmp_path / "c", "--metric", "dataset_entropy", "--draws", "0", "--json")
    assert code == 0
    assert "no value for dataset_entropy at embed: constant" in err
    assert "no value for dataset_entropy at block.1: not finite: row 7" in err
    assert [row["value"] is None for row in json.loads(out)] == [True, True, False]
    code, out, err = run(
        "analyze",
        tmp_path / "c",
        "--metric",
        "dataset_entropy",
        "--draws",
        "0",
        "--json",
        "--exclude-nonfinite",
    )
    assert [row["value"] is None for row in json.loads(out)] == [True, False, False]


def test_doctor_prints_checks_and_fails_where_one_fails(run, tmp_path):
    model = make_model("bert")
    model.save_pretrained(tmp_path / "good")
    make_tokenizer().save_pretrained(tmp_path / "good")
    corpus = tmp_path / "texts.txt"
    corpus.write_text("the cat sat\n\ndog on the mat\n")
    code, out, err = run("doctor", tmp_path / "good", "--corpus", corpus)
    assert (code, err) == (0, "")
    assert "pass  layers" in out
    assert f"next  layerscope extract {tmp_path / 'good'} CORPUS -o CACHE" in out
    code, out, _ = run("doctor", tmp_path / "good", "--json")
    assert {check["status"] for check in json.loads(out)} <= {"pass", "warn"}
    with torch.no_grad():
        model.encoder.layer[0].output.dense.weight[0, 0] = torch.nan
    model.save_pretrained(tmp_path / "good")
    code, out, err = run("doctor", tmp_path / "good", "--corpus", corpus)
    assert code == 1
    assert "fail  finite" in out
    assert err.count("\n") == 1
    assert "fails 1 check (finite)" in err
