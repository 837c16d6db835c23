"""``--json``: one JSON value on standard output, the same facts as in the frames and tables."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from layerscope.metrics import METRICS
from tests.test_cli import complaint, measured, pairs, run, tiny  # noqa: F401


def strict(text):
    """The value, in which nothing is NaN or infinite."""

    def refuse(word):
        raise AssertionError(word)

    return json.loads(text, parse_constant=refuse)


@pytest.fixture
def machine(run):  # noqa: F811
    """Runs a command with --json and gives what it printed."""

    def call(*arguments, expected=0):
        code, out, err = run(*arguments, "--json")
        assert code == expected, err
        return strict(out)

    return call


def test_select_prints_the_picks_frame(machine, measured):  # noqa: F811
    rows = machine("select", measured)
    frame = pd.read_parquet(measured / "frames" / "picks.parquet")
    assert [row["layer_name"] for row in rows] == list(frame["layer_name"])
    assert {row["kind"] for row in rows} == {"criterion", "baseline"}
    assert rows[-1]["support"] is None


def test_scores_are_printed_as_the_frame_has_them(machine, measured):  # noqa: F811
    rows = machine("evaluate", "sts", measured, "--draws", "5")
    frame = pd.read_parquet(measured / "frames" / "scores.parquet")
    assert [row["score"] for row in rows] == pytest.approx(frame["score"].tolist())
    assert "draws" not in rows[0]


def test_compare_prints_tables_and_verdict(machine, measured, tmp_path):  # noqa: F811
    frames = measured / "frames"
    found = machine("compare", frames / "metrics.parquet", frames / "scores.parquet", "-o", tmp_path / "out")
    assert set(found) == {"correlations", "regret", "verdicts"}
    assert len(found["regret"]) == len(pd.read_parquet(tmp_path / "out" / "regret.parquet"))
    assert len(found["verdicts"]) == 1


def test_info_says_what_is_in_a_cache_finished_or_not(machine, measured):  # noqa: F811
    found = machine("info", measured)
    assert (found["status"], found["texts"], found["shards"]) == ("complete", 24, found["planned_shards"])
    assert found["layers"][0] == "embed"
    assert found["flags"]["truncated"] == 0
    assert found["bytes"] > 1000
    manifest = measured / "manifest.json"
    facts = json.loads(manifest.read_text()) | {"status": "partial", "planned_shards": 3}
    manifest.write_text(json.dumps(facts))
    found = machine("info", measured)
    assert (found["status"], found["planned_shards"], "flags" in found) == ("partial", 3, False)


def test_verify_lists_what_is_bad_and_still_fails(machine, measured, run):  # noqa: F811
    assert machine("verify", measured)["problems"] == []
    (measured / "embeddings" / "00000.safetensors").write_bytes(b"nothing")
    found = machine("verify", measured, expected=1)
    assert len(found["problems"]) == 1
    assert "00000.safetensors" in found["problems"][0]
    code, _, err = run("verify", measured, "--json")
    assert code == 1
    assert "1 problem in" in complaint(err)


def test_metrics_are_listed_with_what_their_specs_say(machine):
    found = machine("metrics")
    assert [fact["name"] for fact in found][: len(METRICS)] == [spec.name for spec in METRICS]
    [one] = machine("metrics", "uniformity")
    assert one["direction"] == "lower"
    assert one["range"]["high"] == 0
    assert one["source"]
