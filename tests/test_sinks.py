"""Sinks are found by position or token, at whatever layer they show."""

import numpy as np
import torch

from layerscope.backbone import Backbone
from layerscope.sinks import find_sinks
from tests.test_tokens import table_of
from tests.tiny import make_model


def blow_up(model, layer: int, where) -> None:
    """Multiply the states of some tokens by 100 after one block."""
    model.layers[layer].register_forward_hook(
        lambda _, args, out: torch.where(where(out)[..., None], out * 100, out)
    )


def test_a_plain_model_has_none():
    report = find_sinks(Backbone(make_model("llama")), table_of([6, 9, 5, 12]))
    assert not report.rule
    assert report.explained == 1.0
    assert report.largest_ratio < 10


def test_a_first_token_that_is_large_at_one_layer_only_is_found():
    model = make_model("llama")
    blow_up(model, 1, lambda out: (torch.arange(out.shape[1]) == 0).expand(out.shape[:2]))
    report = find_sinks(Backbone(model), table_of([6, 9, 5, 12]))
    assert report.rule.positions == (0,)
    assert report.rule.token_ids == ()
    assert report.explained == 1.0


def test_a_token_that_is_large_wherever_it_stands_is_found_by_its_id():
    model, table = make_model("llama"), table_of([6, 9, 5, 12, 8, 7])
    rng = np.random.default_rng(0)
    for number in range(6):
        table.ids[table.span(number)] = rng.permutation(np.arange(4, 4 + table.lengths[number]))
    seen = []
    model.embed_tokens.register_forward_hook(lambda _, args, out: seen.append(args[0]))
    blow_up(model, 0, lambda _: seen[-1] == 6)
    report = find_sinks(Backbone(model), table)
    assert report.rule.positions == ()
    assert report.rule.token_ids == (6,)


def test_only_short_texts_give_no_rule():
    report = find_sinks(Backbone(make_model("llama")), table_of([1, 2, 3]))
    assert (report.n_texts, bool(report.rule)) == (0, False)
