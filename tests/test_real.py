"""A real model on real pairs agrees with sentence-transformers; the demo runs to its end."""

import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from layerscope.evaluate.sts import evaluate_sts
from layerscope.extraction import extract


def test_last_layer_of_minilm_on_sts_benchmark_equals_sentence_transformers(minilm, shared_sts, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sentence_transformers import SentenceTransformer

    cache = extract(minilm, shared_sts / "stsbenchmark-test.tsv", path=tmp_path / "c", token_metrics=())
    assert cache.n_rows == 2 * 1379
    scores = evaluate_sts(cache, draws=0).set_index(["layer_name", "variant", "metric"])["score"]
    assert len(scores.xs(("raw", "cosine_spearman"), level=("variant", "metric"))) == 7
    lines = (shared_sts / "stsbenchmark-test.tsv").read_text(encoding="utf-8").split("\n")[1:-1]
    first, second, gold = zip(*(line.split("\t") for line in lines), strict=True)
    model = SentenceTransformer(str(minilm), device="cpu")
    x, y = (model.encode(list(side), show_progress_bar=False).astype(np.float64) for side in (first, second))
    cosine = np.sum(x * y, axis=1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)
    expected = spearmanr(cosine, [float(score) for score in gold]).statistic
    assert scores["block.6", "raw", "cosine_spearman"] == pytest.approx(expected, abs=1e-3)
    assert scores["block.6", "raw", "cosine_spearman"] > 0.8


@pytest.mark.smol
def test_smollm2_reproduces_the_sink_token_table(smollm2, shared_sts, tmp_path):
    """The first 500 pairs of STS-B test, plain mean and without the first token (DESIGN.md)."""
    from layerscope.analysis import analyze

    table = {  # Spearman and entropy of the plain mean; of the mean without the first token; that centred
        "block.1": (0.73, 4.47, 0.75, 4.53, 0.79),
        "block.6": (0.31, 2.88, 0.34, 3.28, 0.31),
        "block.11": (0.58, 4.44, 0.63, 4.52, 0.68),
        "block.14": (0.21, 0.19, 0.59, 4.28, 0.65),
        "block.24": (0.24, 0.59, 0.57, 4.37, 0.66),
        "norm": (0.45, 3.95, 0.46, 3.96, 0.56),
    }
    found = {}
    for drop in (False, True):
        cache = extract(
            smollm2,
            shared_sts / "stsbenchmark-test.tsv",
            path=tmp_path / f"drop-{drop}",
            limit=500,
            layers=list(table),
            pooling="mean",
            token_metrics=(),
            drop_first_token=drop,
        )
        entropy = analyze(cache, ["dataset_entropy"], draws=0).set_index("layer_name")["value"]
        scores = evaluate_sts(cache, draws=0).set_index(["metric", "variant", "layer_name"])["score"]
        scores = scores.sort_index()
        found[drop] = pd.DataFrame(
            {
                "spearman": scores["cosine_spearman", "raw"],
                "entropy": entropy,
                "centred": scores["cosine_spearman", "center"],
            }
        )
    for layer, row in table.items():
        plain, dropped = found[False].loc[layer], found[True].loc[layer]
        values = [
            plain["spearman"],
            plain["entropy"],
            dropped["spearman"],
            dropped["entropy"],
            dropped["centred"],
        ]
        np.testing.assert_allclose(values, row, atol=0.02, err_msg=layer)


def test_demo_runs_to_its_end_without_network(minilm, tmp_path):
    command = [sys.executable, "-m", "layerscope", "demo", "-o", str(tmp_path / "demo")]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    for part in ("human", "dataset_entropy ↑", "2/3 depth", "report.html"):
        assert part in result.stdout
    report = (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    assert "block.6" in report
    assert "subsamples" in report
    for name in ("metrics", "scores", "picks"):
        assert len(pd.read_csv(tmp_path / "demo" / f"{name}.csv")) == len(
            pd.read_parquet(tmp_path / "demo" / f"{name}.parquet")
        )
    scores = pd.read_parquet(tmp_path / "demo" / "scores.parquet").query(
        "metric == 'cosine_spearman' and variant == 'raw'"
    )
    assert scores["n"].unique().tolist() == [1225]
    assert len(scores) == 7
    assert {path.name for path in (tmp_path / "demo" / "figures").glob("*.png")} == {
        "metrics.png", "heatmap.png", "scores.png", "metrics-against-scores.png",
    }  # fmt: skip
