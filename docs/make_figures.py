"""Draw one figure of each kind for docs/figures.md, from data that comes with the packages or the repository.

    python docs/make_figures.py [--work FOLDER]

Writes docs/figures/<kind>.svg. Needs the extra ``demo``; no network. Takes a few minutes on two cores. What
is in FOLDER is taken up where it was left.
"""

import argparse
import re
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from layerscope.analysis import analyze, compare_layers, project_layers
from layerscope.cache import LayerCache
from layerscope.corpus import read_corpus
from layerscope.extraction import extract
from layerscope.frames import read_frame, write_frame
from layerscope.metrics import METRICS
from layerscope.packaged import minilm, news
from layerscope.plots import (
    plot_correlations,
    plot_embeddings,
    plot_heatmap,
    plot_layer_pairs_grid,
    plot_models_grid,
    plot_scores,
    plot_selection_stability,
    plot_training,
    save_figure,
)
from layerscope.plots.curves import figure_of
from layerscope.select import pick_shares

ROOT = Path(__file__).resolve().parents[1]
HERE, STUDY = ROOT / "docs" / "figures", ROOT / "reports" / "study"
LABELS = {spec.name: spec.label for spec in METRICS}
TEXTS, MAX_LENGTH, BATCH, TEMPERATURE = 150, 64, 16, 0.05
STEPS = (0, 1, 3, 10, 30, 100)
SHOWN = ("dataset_entropy", "effective_rank", "anisotropy")


def study(kind: str, name: str) -> pd.DataFrame:
    """A committed frame of the study."""
    return read_frame(STUDY / f"{name}.parquet", kind)


def of_one_corpus(model: str) -> pd.DataFrame:
    """The study's metrics of one model on one corpus, pooled by the mean."""
    frame = study("metrics", f"metrics-{model}")
    return frame[(frame["corpus"] == "STSBenchmark") & frame["pooling"].isin(["mean", "tokens"])].assign(
        model=model
    )


def news_cache(work: Path) -> LayerCache:
    """MiniLM on the packaged news."""
    corpus = read_corpus(news()[:TEXTS], name=f"{TEXTS} news")
    return extract(minilm(), corpus, path=work / "MiniLM", views=2, max_length=MAX_LENGTH, pooling="mean")


def sentences(work: Path) -> LayerCache:
    """MiniLM on the sentences of the ten news that have most, labelled by the document they are of."""
    parts = [re.split(r"(?<=[a-z][.?]) (?=[A-Z])", text) for text in news()]
    longest = sorted(range(len(parts)), key=lambda place: -len(parts[place]))[:10]
    rows = [(sentence, f"document {place + 1}") for place in sorted(longest) for sentence in parts[place]]
    table = work / "sentences.csv"
    pd.DataFrame(rows, columns=["text", "document"]).to_csv(table, index=False)
    corpus = read_corpus(
        str(table), text_columns=["text"], label_column="document", name="sentences of ten news"
    )
    return extract(minilm(), corpus, path=work / "sentences", max_length=MAX_LENGTH, pooling="mean")


def training_run(work: Path) -> pd.DataFrame:
    """Metrics of a MiniLM of random weights while it learns by SimCSE on the packaged news."""
    import torch
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    done = work / "training.parquet"
    if done.is_file():
        return read_frame(done, "metrics")
    torch.manual_seed(0)
    model = AutoModel.from_config(AutoConfig.from_pretrained(minilm()))
    tokenizer = AutoTokenizer.from_pretrained(minilm())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    texts, frames = news(), []
    for step in range(STEPS[-1] + 1):
        if step in STEPS:
            frames.append(metrics_at(step, model.eval(), tokenizer, work))
        model.train()
        start = BATCH * step % (len(texts) - BATCH)
        batch = tokenizer(
            texts[start : start + BATCH],
            padding=True,
            truncation=True,
            max_length=MAX_LENGTH,
            return_tensors="pt",
        )
        one, other = (mean_vectors(model, batch) for _ in range(2))  # which dropout tells apart
        cosines = torch.nn.functional.cosine_similarity(one[:, None], other[None], dim=2)
        loss = torch.nn.functional.cross_entropy(cosines / TEMPERATURE, torch.arange(BATCH))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    run = pd.concat(frames, ignore_index=True)
    write_frame(run, done)
    return run


def mean_vectors(model: Any, batch: Any) -> Any:
    """Mean of the states of each text's tokens, (b, d)."""
    states, mask = model(**batch).last_hidden_state, batch["attention_mask"][..., None]
    return (states * mask).sum(1) / mask.sum(1)


def metrics_at(step: int, model: Any, tokenizer: Any, work: Path) -> pd.DataFrame:
    """Metrics of the model as it is."""
    cache = extract(
        model, news()[:TEXTS], tokenizer=tokenizer, path=work / f"step{step}", max_length=MAX_LENGTH,
        pooling="mean", overwrite=True,
    )  # fmt: skip
    return analyze(cache, SHOWN, draws=50).assign(
        model="MiniLM from random weights", corpus=f"{TEXTS} news", revision=f"step{step}", step=step
    )


def layer_pairs(work: Path) -> pd.DataFrame:
    """CKA of all layers: of MiniLM as it comes, and of its random weights."""
    trained = compare_layers(news_cache(work)).assign(model="MiniLM")
    random = compare_layers(work / f"step{STEPS[0]}").assign(model="random weights", corpus=f"{TEXTS} news")
    return pd.concat([trained, random], ignore_index=True)


def main() -> None:
    """Draw all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "layerscope-figures")
    work = parser.parse_args().work
    work.mkdir(parents=True, exist_ok=True)
    small = of_one_corpus("MiniLM")
    measured = work / "news.parquet"
    if not measured.is_file():
        write_frame(analyze(news_cache(work), draws=100).assign(model="MiniLM"), measured)
    run = training_run(work)
    scores = study("scores", "scores-MiniLM")
    figures = {
        "models": plot_models_grid(
            pd.concat([small, of_one_corpus("SmolLM2")]),
            [*SHOWN, "curvature", "dime", "infonce"],
            labels=LABELS,
        ),
        "training": plot_training(run, labels=LABELS),
        "heatmap": figure_of(
            plot_heatmap(small[small["metric"].isin([*SHOWN, "curvature", "dime"])], labels=LABELS)
        ),
        "cka": plot_layer_pairs_grid(layer_pairs(work)),
        "scores": figure_of(plot_scores(scores[scores["task"] == "STSBenchmark"])),
        "correlations": figure_of(plot_correlations(study("correlations", "correlations-MiniLM-mean"))),
        "stability": figure_of(plot_selection_stability(pick_shares(read_frame(measured, "metrics")))),
        "embeddings": plot_embeddings(project_layers(sentences(work)).assign(model="MiniLM")),
    }
    for name, figure in figures.items():
        print(*save_figure(figure, HERE / name, ("svg",)))


if __name__ == "__main__":
    main()
