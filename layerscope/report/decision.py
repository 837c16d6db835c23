"""The first screen: which layer was picked, by what, how surely, and what that costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from layerscope.errors import count_of, named
from layerscope.frames import RANK_AGGREGATE
from layerscope.plots.digits import fixed, significant
from layerscope.plots.style import label_of, pooling_family
from layerscope.report.words import MISSING, is_missing, number, values_of, without_unit

if TYPE_CHECKING:
    import pandas as pd

ExportCommand = Callable[[Mapping[str, Any]], str]
"""Gives the shell command that exports a pick, or an empty string where there is none."""

_POOLINGS = {
    "mean": "average over all tokens",
    "mean-nosink": "average over the tokens, attention sinks left out",
    "last": "the last token",
    "first": "the first token",
    "cls": "the first token",
    "max": "the largest value over the tokens",
    "weighted-mean": "average that weighs later tokens more",
}


@dataclass(frozen=True)
class Choice:
    """One row of a card: a criterion or a baseline, and the layer it chose."""

    criterion: str
    layer: str
    sure: str
    score: str
    cost: str
    kind: str


@dataclass(frozen=True)
class Card:
    """What was picked for one pooling: a headline, sentences below it, and all choices."""

    pooling: str
    meaning: str
    place: str
    layer: str
    sentences: list[str]
    choices: list[Choice]
    has_scores: bool
    command: str = ""


def make_cards(
    picks: pd.DataFrame | None,
    labels: Mapping[str, str] | None,
    n_draws: int | None,
    score_name: str = "",
    export_command: ExportCommand | None = None,
) -> list[Card]:
    """One card per pooling (and model and corpus), with token-level criteria on the card of their mean."""
    if picks is None or picks.empty:
        return []
    cards: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    keys = [key for key in ("model", "corpus") if len(values_of(picks, key)) > 1]
    for pick in picks.to_dict("records"):
        place = tuple(str(pick[key]) for key in keys)
        cards.setdefault((pooling_family(str(pick["pooling"])), *place), []).append(
            {str(name): value for name, value in pick.items()}
        )
    return [
        _card(pooling, " · ".join(place), records, labels, n_draws, score_name, export_command)
        for (pooling, *place), records in cards.items()
    ]


def _card(
    pooling: str,
    place: str,
    records: list[dict[str, Any]],
    labels: Mapping[str, str] | None,
    n_draws: int | None,
    score_name: str,
    export_command: ExportCommand | None,
) -> Card:
    picked = [pick for pick in records if pick.get("kind", "criterion") == "criterion"]
    rules = {str(pick["criterion"]): pick for pick in reversed(records) if pick.get("kind") == "baseline"}
    first = next((pick for pick in picked if not is_missing(pick["layer_name"])), None)
    has_scores = any(not is_missing(pick.get("score")) for pick in records)
    choices = [_choice(pick, labels, n_draws) for pick in picked if not is_missing(pick["layer_name"])]
    choices += _without_pick(picked, labels)
    choices += [_choice(pick, labels, n_draws) for pick in reversed(rules.values())]
    return Card(
        pooling=pooling,
        meaning=_POOLINGS.get(pooling, ""),
        place=place,
        layer=MISSING if first is None else str(first["layer_name"]),
        sentences=_sentences(first, picked, rules, labels, n_draws, score_name),
        choices=choices + _best(records),
        has_scores=has_scores,
        command=export_command(first) if export_command and first else "",
    )


def _sentences(
    first: dict[str, Any] | None,
    picked: list[dict[str, Any]],
    rules: Mapping[str, dict[str, Any]],
    labels: Mapping[str, str] | None,
    n_draws: int | None,
    score_name: str,
) -> list[str]:
    if first is None:
        reasons = [str(pick["reason"]) for pick in picked if not is_missing(pick.get("reason"))]
        return ["No layer was picked" + (f": {reasons[0]}." if reasons else ".")]
    found = [
        _why(first, labels),
        _how_sure(first, n_draws),
        _worth(first, score_name),
        _against_rules(first, rules),
        _agreement(first, picked),
    ]
    return [sentence for sentence in found if sentence]


def _against_rules(pick: dict[str, Any], rules: Mapping[str, dict[str, Any]]) -> str:
    same = [name for name, rule in rules.items() if rule["layer_name"] == pick["layer_name"]]
    if same:
        return (
            f"The fixed rule “{same[0]}” takes the same layer, so here the criterion gains nothing over it."
        )
    score = number(pick.get("score"))
    scored = {name: number(rule.get("score")) for name, rule in rules.items()}
    scored = {name: value for name, value in scored.items() if math.isfinite(value)}
    if not scored or not math.isfinite(score):
        return ""
    rule = max(scored, key=lambda name: scored[name])
    where = f"“{rule}” ({rules[rule]['layer_name']}, {fixed(scored[rule])})"
    if scored[rule] > score:
        return f"On these scores the fixed rule {where} does better than this pick: prefer it here."
    return f"That is more than the best fixed rule, {where}."


def _cost_text(pick: dict[str, Any]) -> str:
    cost, low, high = (number(pick.get(name)) for name in ("cost", "cost_low", "cost_high"))
    if cost == 0 or not math.isfinite(low):
        return fixed(cost)
    return f"{fixed(cost)} [{fixed(low)}, {fixed(high)}]"


def _why(pick: dict[str, Any], labels: Mapping[str, str] | None) -> str:
    name = without_unit(label_of(str(pick["criterion"]), labels))
    end = {"higher": "highest", "lower": "lowest"}.get(str(pick.get("direction")))
    if end is None:
        return f"Picked by {name}."
    value = number(pick.get("value"))
    if pick["criterion"] == RANK_AGGREGATE:
        metrics = named(
            [without_unit(label_of(metric, labels)) for metric in str(pick["variant"]).split(", ")]
        )
        return f"Picked by the mean rank of the layers by {metrics}: {significant(value)}, the best of all."
    return f"Picked by {name}: of all layers, this one has the {end} value" + (
        f", {significant(value)}." if math.isfinite(value) else "."
    )


def _how_sure(pick: dict[str, Any], n_draws: int | None) -> str:
    support, runner_up = _support(pick, n_draws), pick.get("runner_up")
    if not support:
        reason = pick.get("reason")
        unknown = f"How sure: unknown, {'no subsamples were drawn' if is_missing(reason) else reason}."
        return unknown if is_missing(runner_up) else f"{unknown} The runner-up is {runner_up}."
    sure = f"How sure: {support}{_elsewhere(pick)}."
    if is_missing(runner_up) or is_missing(pick.get("clear")):
        return sure
    if pick["clear"]:
        return f"{sure} Clearly ahead of the runner-up, {runner_up}."
    return f"{sure} No clear winner: runner-up {runner_up}."


def _support(pick: dict[str, Any], n_draws: int | None) -> str:
    share = number(pick.get("support"))
    if not math.isfinite(share):
        return ""
    half = _half(pick)
    if n_draws:
        return f"picked in {round(share * n_draws)} of {count_of(n_draws, 'subsample')}{half}"
    return f"picked in {share:.0%} of the subsamples{half}"


def _half(pick: dict[str, Any]) -> str:
    """What a subsample is: half of the texts."""
    n = number(pick.get("n"))
    return f" (halves of {n:,.0f} texts)" if math.isfinite(n) else ""


def _elsewhere(pick: dict[str, Any]) -> str:
    """Which layer most subsamples pick, where it is another one."""
    other, share = pick.get("most_picked"), number(pick.get("most_picked_support"))
    if is_missing(other) or other == pick["layer_name"] or not math.isfinite(share):
        return ""
    return f"; most often they pick {other} ({share:.0%}), so the pick depends on how many texts there are"


def _worth(pick: dict[str, Any], score_name: str) -> str:
    score, cost = number(pick.get("score")), number(pick.get("cost"))
    if not math.isfinite(score):
        return ""
    sentence = f"It scores {fixed(score)}" + (f" ({score_name})" if score_name else "")
    best = pick.get("best_layer_name")
    if is_missing(best) or not math.isfinite(cost):
        return sentence + "."
    if best == pick["layer_name"]:
        return f"{sentence}, the best of all layers."
    return (
        f"{sentence}; the best layer, {best}, scores {fixed(number(pick.get('best_score')))}, "
        f"so this pick costs {_cost_text(pick)}."
    )


def _agreement(first: dict[str, Any], picked: list[dict[str, Any]]) -> str:
    chosen = [str(pick["layer_name"]) for pick in picked if not is_missing(pick["layer_name"])]
    if len(chosen) < 2:
        return ""
    same = chosen.count(str(first["layer_name"]))
    layers = count_of(len(set(chosen)), "layer")
    if same == len(chosen):
        return f"All {len(chosen)} criteria pick this layer."
    verb = "picks" if same == 1 else "pick"
    return f"The {len(chosen)} criteria do not agree: they pick {layers}, and {same} of them {verb} this one."


def _choice(pick: dict[str, Any], labels: Mapping[str, str] | None, n_draws: int | None) -> Choice:
    rule = pick.get("kind") == "baseline"
    name, layer = str(pick["criterion"]), pick.get("layer_name")
    end = "" if rule or is_missing(pick.get("direction")) else f", {pick['direction']} is better"
    return Choice(
        criterion=name if rule else without_unit(label_of(name, labels)) + end,
        layer=MISSING if is_missing(layer) else str(layer),
        sure="a fixed rule" if rule else _short_sure(pick, n_draws),
        score=fixed(number(pick.get("score"))),
        cost=_cost_text(pick),
        kind="baseline" if rule else "criterion",
    )


def _without_pick(picked: list[dict[str, Any]], labels: Mapping[str, str] | None) -> list[Choice]:
    """One row for all criteria that pick no layer for the same reason."""
    names: dict[str, list[str]] = {}
    for pick in picked:
        if is_missing(pick["layer_name"]):
            reason = "no value" if is_missing(pick.get("reason")) else str(pick["reason"])
            common = reason.replace(f" of '{pick['criterion']}'", "")
            names.setdefault(common, []).append(without_unit(label_of(str(pick["criterion"]), labels)))
    return [
        Choice(", ".join(dict.fromkeys(criteria)), MISSING, reason, MISSING, MISSING, "criterion")
        for reason, criteria in names.items()
    ]


def _short_sure(pick: dict[str, Any], n_draws: int | None) -> str:
    support = _support(pick | {"n": None}, n_draws)
    if not support:
        reason = pick.get("reason")
        return "unknown" if is_missing(reason) else f"unknown: {reason}"
    parts = [support]
    if not is_missing(pick.get("clear")) and not is_missing(pick.get("runner_up")):
        parts.append("clear winner" if pick["clear"] else f"no clear winner: runner-up {pick['runner_up']}")
    return "; ".join(parts)


def _best(records: list[dict[str, Any]]) -> list[Choice]:
    """The best layer by the scores, where the picks know it."""
    for pick in records:
        best = pick.get("best_layer_name")
        if not is_missing(best) and not is_missing(pick.get("best_score")):
            score = fixed(number(pick["best_score"]))
            return [Choice("best layer by score", str(best), "needs labels", score, fixed(0.0), "best")]
    return []


def sink_note(metrics: pd.DataFrame, sinks: object) -> str:
    """What was found about sink tokens, where poolings with and without them are compared.

    Returns:
        Empty where there is nothing to compare.
    """
    families = {pooling_family(pooling) for pooling in values_of(metrics, "pooling")}
    if not {"mean", "mean-nosink"} <= families:
        return ""
    places = sink_places(sinks)
    if places == "none":
        return "None were found in this model, so the two should agree."
    return (
        f"Found in this model: {places}." if places else "Where the two differ, sink tokens are the reason."
    )


def sink_places(sinks: object) -> str:
    """Where the sink tokens of a sink report are and how large, in words; empty where it does not say.

    >>> sink_places({"positions": [0], "token_ids": [], "largest_ratio": 412.3})
    "position 0 (the first token is 0), up to 412 times a text's median norm"
    """
    found = sinks if isinstance(sinks, Mapping) else {}
    places = []
    if found.get("positions"):
        places.append("position " + ", ".join(map(str, found["positions"])) + " (the first token is 0)")
    if found.get("token_ids"):
        places.append("token id " + ", ".join(map(str, found["token_ids"])))
    if not places:
        return "none" if "positions" in found else ""
    ratio = number(found.get("largest_ratio"))
    size = f", up to {ratio:,.0f} times a text's median norm" if math.isfinite(ratio) else ""
    return " and ".join(places) + size
