"""Thousands of texts, killed again and again at random moments, end as if nothing had happened."""

import json
import subprocess
import sys
from pathlib import Path

from tests.tiny import make_model, make_tokenizer

ROOT = Path(__file__).resolve().parents[1]
KILLS, TEXTS = 10, 5000

# Forked before torch has started a thread, so that an attempt costs no imports.
SUPERVISOR = """
import json, os, random, signal, sys, time
import torch
from layerscope.extraction import extract
from layerscope.extraction import job

torch.set_num_threads(1)
job.SHARD_BYTES = 40_000
folder, seed, kills, n = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
dice = random.Random(seed)
words = ["cat", "dog", "sat", "mat", "the", "on", *"abcdefghijklmnopqrstuvwxyz"]
texts = [" ".join(dice.choices(words, k=dice.randint(1, 30))) for _ in range(n)]


def start(name):
    child = os.fork()
    if child == 0:
        try:
            extract(folder + "/model", texts, path=folder + "/" + name, views=1)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return child


def ends(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


begun = time.monotonic()
assert ends(start("whole")) == 0
whole = time.monotonic() - begun
outcomes = []
while outcomes.count(-signal.SIGKILL) < kills:
    child = start("killed")
    time.sleep(dice.uniform(0.05, 0.3) * whole)
    os.kill(child, signal.SIGKILL)
    outcomes.append(ends(child))
    assert len(outcomes) < 3 * kills, outcomes
    if outcomes[-1] == 0:
        break
outcomes.append(ends(start("killed")))
print(json.dumps(outcomes))
"""


def contents(folder):
    """Every file but the manifest, and what the manifest says of its shards."""
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    }
    return files, json.loads((folder / "manifest.json").read_text())["shards"]


def test_ten_kills_at_random_leave_no_trace(tmp_path):
    make_model("bert").save_pretrained(tmp_path / "model")
    make_tokenizer().save_pretrained(tmp_path / "model")
    command = [sys.executable, "-c", SUPERVISOR, tmp_path, "3", KILLS, TEXTS]
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    outcomes = json.loads(done.stdout)
    assert outcomes == [-9] * KILLS + [0]
    files, shards = contents(tmp_path / "whole")
    assert len(shards) > 50
    assert contents(tmp_path / "killed") == (files, shards)
