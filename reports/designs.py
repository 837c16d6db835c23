"""The small real run in reports/designs: the five designs on the lower blocks of SmolLM2.

    python reports/designs.py [--data ../shared/data] [--work FOLDER]

The first six blocks of SmolLM2-135M, cut out by export, are trained for each design on SNLI triplets, and
their Spearman on STS-B test is compared. What is in the work folder already is not trained again.
"""

import math

import pandas as pd
from places import ROOT, data_and_work, smollm2, table

import layerscope as ls
from layerscope.training.significance import compare_trained

COMMAND = "make designs"
DESIGNS = (
    "last-token-causal", "last-layer-causal", "multi-layer-causal", "last-layer-bidirectional",
    "multi-layer-bidirectional",
)  # fmt: skip
BLOCKS, TRIPLETS, BATCH, RATE = 6, 1000, 32, 1e-3


def score_table(frame: pd.DataFrame) -> str:
    """Scores and differences as a table of Markdown."""
    rows = []
    for row in frame.to_dict("records"):
        compared = row["difference"] == row["difference"]
        gain = f"{100 * row['difference']:+.1f} [{100 * row['low']:+.1f}, {100 * row['high']:+.1f}]"
        rows.append(
            {
                "design": row["name"],
                "Spearman [95 %]": f"{100 * row['score']:.1f} "
                f"[{100 * row['ci_low']:.1f}, {100 * row['ci_high']:.1f}]",
                "difference to the first [95 %]": gain if compared else "–",
                "p": f"{row['p']:.2g}" if compared else "–",
                "p after Holm": f"{row['p_holm']:.2g}" if compared else "–",
            }
        )
    return table(pd.DataFrame(rows))


def learning(losses: dict[str, float]) -> str:
    """The mean loss of each design beside that of chance."""
    chance = math.log(2 * BATCH)  # as likely as each positive and hard negative of the batch
    idle = [name for name, loss in losses.items() if loss > 0.9 * chance]
    rows = [{"design": name, "mean loss of the epoch": f"{loss:.3f}"} for name, loss in losses.items()]
    said = f"Chance is a loss of {chance:.3f}."
    if idle:
        said += (
            f" {' and '.join(idle)} hardly learned in these {math.ceil(TRIPLETS / BATCH)} steps: the scores "
            "say that more steps or another rate are needed, not that the design is worse."
        )
    return f"{table(pd.DataFrame(rows))}\n\n{said}"


def main() -> None:
    """Train, score, write."""
    data_folder, work = data_and_work(__doc__.splitlines()[0], "designs")
    out = ROOT / "reports/designs"
    small = work / f"SmolLM2-{BLOCKS}-blocks"
    if not small.is_dir():
        ls.export(smollm2(work), path=small, layer=f"normed.{BLOCKS}", pooling="mean")
    losses: dict[str, float] = {}
    for name in DESIGNS:
        if not (work / name).is_dir():
            ls.train(
                small, data_folder / "nli/snli-triplets.tsv", path=work / name, design=name, limit=TRIPLETS,
                batch_size=BATCH, learning_rate=RATE,
            )  # fmt: skip
            print(f"trained {name}", flush=True)
        losses[name] = float(pd.read_csv(work / name / "history.csv")["loss"].iloc[-1])
    frame = compare_trained(
        {name: work / name for name in DESIGNS}, data_folder / "sts/stsbenchmark-test.tsv"
    )
    frame.to_csv(out / "differences.csv", index=False)
    parts = [
        '# The five designs of "Pooling and Attention", a small run',
        f"Written by `{COMMAND}`. The first {BLOCKS} of 30 blocks of SmolLM2-135M with its final norm, LoRA "
        f"of rank 16, one epoch of {TRIPLETS:,} SNLI triplets in batches of {BATCH}, learning rate "
        f"{RATE:g}: small enough for a processor, far too small to rank the designs for good. Spearman on "
        "STS-B test, in %; differences are paired over its pairs.",
        score_table(frame),
        learning(losses),
    ]
    (out / "README.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print(f"wrote {out / 'README.md'}")


if __name__ == "__main__":
    main()
