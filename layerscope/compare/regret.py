"""What picking by a metric scores, against depth rules, a random layer, and the best there is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from layerscope.compare.aligned import FEWEST_TASKS, Aligned
from layerscope.depth_rules import DEPTH_RULES, rule_layer
from layerscope.frames import as_frame
from layerscope.resampling import bootstrap_means, check_draws, interval
from layerscope.select.selector import Direction

REGRET_COLUMNS = (
    "model", "pooling", "kind", "criterion", "direction", "own_direction", "scope", "layers", "layer_name",
    "score", "reference", "reference_score", "difference", "ci_low", "ci_high", "p", "p_holm", "n", "reason",
)  # fmt: skip
PER_TASK, ONE_LAYER = "per task", "one layer"
ALL, WITHOUT_FIRST = "all", "without layer 0"
RANDOM, BEST_LAYER, ORACLE = "random layer", "best single layer", "best layer of each task"


@dataclass(frozen=True)
class _Rule:
    """A way to choose layers, and the score it gets on each task, (T,)."""

    kind: str
    criterion: str
    direction: str
    own_direction: bool
    scope: str
    layers: str
    layer_name: str
    scores: NDArray[np.float64]


def regret_table(aligned: Aligned, *, draws: int = 10_000, seed: int = 0) -> pd.DataFrame:
    """The average score of every rule that picks a layer, and its difference to every reference.

    Rules are the criteria, by their highest and by their lowest value, for each task and as one layer for
    all tasks (the best mean rank over tasks), with and without layer 0; and the references themselves: last
    layer, middle layer, 2/3 depth, the expectation of a random layer, the best single layer and the best
    layer of each task. The last two know the scores. Differences are paired over tasks: bootstrap interval
    and two-sided p, which Holm's method corrects over all criteria of a model against one reference.

    Args:
        aligned: one model.
        draws: bootstrap samples of the tasks.
        seed: of the bootstrap.

    Returns:
        A frame with the columns ``REGRET_COLUMNS``: one row per rule and reference. Below six tasks there are
        no intervals and no p, and ``reason`` says so.

    Source: Holm 1979.
    """
    check_draws(draws, seed)
    references = list(_references(aligned))
    rules = [*references, *_criteria(aligned)]
    records = []
    for reference in references:
        if reference.layers == ALL:
            records += _against(reference, rules, aligned, draws, seed)
    return as_frame(records, REGRET_COLUMNS)


def _references(aligned: Aligned) -> Iterator[_Rule]:
    scores, layers = aligned.scores, aligned.layers
    for rule in DEPTH_RULES:
        name = rule_layer(rule, layers, aligned.depths)
        yield _Rule("baseline", rule, "", False, ONE_LAYER, ALL, name, scores[:, layers.index(name)])
    for which, kept in _layer_sets(aligned):
        inside = scores[:, kept]
        best = int(kept[np.argmax(inside.mean(axis=0))])
        yield _Rule("baseline", RANDOM, "", False, ONE_LAYER, which, "", inside.mean(axis=1))
        yield _Rule("oracle", BEST_LAYER, "", False, ONE_LAYER, which, layers[best], scores[:, best])
        yield _Rule("oracle", ORACLE, "", False, PER_TASK, which, "", inside.max(axis=1))


def _layer_sets(aligned: Aligned) -> Iterator[tuple[str, NDArray[np.int64]]]:
    every = np.arange(len(aligned.layers))
    yield ALL, every
    later = np.array(
        [at for at, name in enumerate(aligned.layers) if aligned.depths[name] > 0], dtype=np.int64
    )
    if 0 < len(later) < len(every):
        yield WITHOUT_FIRST, later


def _criteria(aligned: Aligned) -> Iterator[_Rule]:
    rows = np.arange(len(aligned.tasks))
    for criterion, values in aligned.values.items():
        for which, kept in _layer_sets(aligned):
            for direction in get_args(Direction):
                signed = values[:, kept] if direction == "higher" else -values[:, kept]
                own = aligned.directions.get(criterion) == direction
                for scope, picked in _picks(signed):
                    chosen = kept[picked]
                    name = aligned.layers[int(chosen[0])] if scope == ONE_LAYER else ""
                    yield _Rule("criterion", str(criterion), direction, own, scope, which, name,
                                aligned.scores[rows, chosen])  # fmt: skip


def _picks(signed: NDArray[np.float64]) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Which layer each task gets, (T,): its own, and one for all by the mean rank over tasks.

    A layer without a value is never picked; of equal ones the first is.
    """
    filled = np.where(np.isnan(signed), -np.inf, signed)
    yield PER_TASK, filled.argmax(axis=1)
    best = int(rankdata(filled, axis=1).mean(axis=0).argmax())
    yield ONE_LAYER, np.full(len(signed), best)


def _against(
    reference: _Rule, rules: list[_Rule], aligned: Aligned, draws: int, seed: int
) -> list[dict[str, Any]]:
    """Every rule's difference to one reference."""
    differences = np.stack([rule.scores - reference.scores for rule in rules], axis=1)
    testable = len(aligned.tasks) >= FEWEST_TASKS and draws > 0
    drawn = bootstrap_means(differences, draws, seed) if testable else None
    reason = "" if testable else f"fewer than {FEWEST_TASKS} tasks: no interval and no test"
    records: list[dict[str, Any]] = []
    for at, rule in enumerate(rules):
        mean = float(differences[:, at].mean())
        low, high, p = (np.nan,) * 3
        if drawn is not None and rule.criterion != reference.criterion:
            low, high = interval(mean, drawn[:, at])
            p = _two_sided(mean, drawn[:, at])
        records.append(
            {"model": aligned.model, "pooling": aligned.pooling, "kind": rule.kind,
             "criterion": rule.criterion, "direction": rule.direction,
             "own_direction": rule.own_direction, "scope": rule.scope, "layers": rule.layers,
             "layer_name": rule.layer_name, "score": float(rule.scores.mean()),
             "reference": reference.criterion, "reference_score": float(reference.scores.mean()),
             "difference": mean, "ci_low": low, "ci_high": high, "p": p, "n": len(aligned.tasks),
             "reason": reason}
        )  # fmt: skip
    tested = [record for record in records if record["kind"] == "criterion" and testable]
    for record, corrected in zip(tested, holm([float(record["p"]) for record in tested]), strict=True):
        record["p_holm"] = corrected
    return records


def _two_sided(mean: float, drawn: NDArray[np.float64]) -> float:
    """How often a bootstrap mean, moved to a true difference of zero, is as far from it as ``mean``."""
    if np.ptp(drawn) == 0:
        return 1.0 if mean == 0 else float("nan")
    reached = np.abs(drawn - drawn.mean()) >= abs(mean)
    return float((reached.sum() + 1) / (len(drawn) + 1))


def holm(p_values: list[float]) -> list[float]:
    """p-values corrected by Holm's method, in the order given.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    corrected = np.empty(len(p_values))
    largest = 0.0
    for rank, at in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[at]))
        corrected[at] = largest
    return [float(value) for value in corrected]


def best_depth_rule(table: pd.DataFrame) -> pd.Series[Any]:
    """The row of the depth rule that scores best on average, set against itself.

    Args:
        table: from ``regret_table``.
    """
    rules = table[table["criterion"].isin(DEPTH_RULES) & (table["criterion"] == table["reference"])]
    return rules.iloc[int(rules["score"].argmax())]


def verdict(table: pd.DataFrame) -> str:
    """One honest sentence on one model: whether any criterion beats taking a fixed depth.

    Args:
        table: from ``regret_table``.
    """
    model, n = table["model"].iloc[0], int(table["n"].iloc[0])
    best_rule = best_depth_rule(table)
    against = table[(table["kind"] == "criterion") & (table["reference"] == best_rule["criterion"])]
    plain_first = against.assign(plain=against["layers"] == ALL).sort_values(
        ["score", "own_direction", "plain"], ascending=False, kind="stable"
    )
    best = plain_first.iloc[0]
    asked = f"{best_rule['criterion']} ({_percent(best_rule['score'])})"
    found = f"{_rule_name(best)} scores {_percent(best['score'])}, {100 * best['difference']:+.2f}" + (
        "" if np.isnan(best["ci_low"]) else f" [{100 * best['ci_low']:+.2f}, {100 * best['ci_high']:+.2f}]"
    )
    start = f"{model}, {n} tasks: "
    if best["reason"]:
        return (
            f"{start}the best of {len(against)} criteria, {found} against the {asked}, but with so few tasks "
            "nothing can be said of other tasks."
        )
    sure = against[(against["difference"] > 0) & (against["p_holm"] < 0.05)]
    if sure.empty:
        return (
            f"{start}none of {len(against)} criteria beats the best depth rule, the {asked}, beyond chance; "
            f"the best of them, {found}"
            + (f", p = {best['p_holm']:.2g} after Holm." if best["difference"] > 0 else ".")
        )
    return (
        f"{start}{len(sure)} of {len(against)} criteria beat the best depth rule, the {asked}; "
        f"the best, {found}, p = {best['p_holm']:.2g} after Holm; it was chosen with the scores in hand."
    )


def _percent(score: float) -> str:
    return f"{100 * score:.2f}"


def _rule_name(rule: pd.Series[Any]) -> str:
    end = "highest" if rule["direction"] == "higher" else "lowest"
    where = "" if rule["layers"] == ALL else f", {rule['layers']}"
    layer = f": {rule['layer_name']}" if rule["scope"] == ONE_LAYER else ""
    return f"{end} {rule['criterion']} ({rule['scope']}{layer}{where})"
