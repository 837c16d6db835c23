"""Layers are where Hugging Face says they are, whatever stands around them."""

import copy

import pytest
import torch
from torch import nn

from layerscope.backbone import Backbone
from layerscope.errors import ModelError, UsageError
from tests.tiny import CONFIGS, TEXTS, make_model, make_tokenizer

NORMS = {"bert": None, "gpt2": "ln_f", "gpt_neox": "final_layer_norm", "llama": "norm"}
BLOCKS = {"bert": "encoder.layer", "gpt2": "h", "gpt_neox": "layers", "llama": "layers"}


def capture(backbone: Backbone, ids: torch.Tensor, selection="all") -> dict[str, torch.Tensor]:
    found = {}
    mask = torch.ones_like(ids, dtype=torch.bool)
    backbone.run(
        ids,
        mask,
        backbone.layers(selection),
        lambda layer, states: found.update({layer.name: states.clone()}),
    )
    return found


@pytest.mark.parametrize("family", CONFIGS)
def test_structure_is_found(family):
    structure = Backbone(make_model(family)).structure
    assert (structure.blocks_path, structure.norm_path) == (BLOCKS[family], NORMS[family])
    assert structure.n_blocks == 4
    assert structure.widths == (32,) * 5


@pytest.mark.parametrize("family", CONFIGS)
def test_layers_equal_hidden_states(family):
    model = make_model(family)
    ids = torch.tensor([make_tokenizer()(TEXTS[0])["input_ids"]])
    found = capture(Backbone(model), ids)
    with torch.inference_mode():
        expected = model(input_ids=ids, output_hidden_states=True).hidden_states
    torch.testing.assert_close(found["embed"], expected[0])
    for k in range(1, 4):
        torch.testing.assert_close(found[f"block.{k}"], expected[k])
    if NORMS[family] is None:
        torch.testing.assert_close(found["block.4"], expected[4])
    else:
        torch.testing.assert_close(found["norm"], expected[4])
        norm = model.get_submodule(NORMS[family])
        with torch.inference_mode():
            torch.testing.assert_close(norm(found["block.4"]), expected[4])
        assert not torch.allclose(found["block.4"], found["norm"])


def test_normed_layer_is_what_a_cut_model_returns():
    model = make_model("llama")
    ids = torch.tensor([[5, 6, 7, 8]])
    found = capture(Backbone(model), ids, "normed.2,norm,block.2")
    cut = copy.deepcopy(model)
    cut.layers = cut.layers[:2]
    cut.config.num_hidden_layers = 2
    with torch.inference_mode():
        expected = cut(input_ids=ids).last_hidden_state
    torch.testing.assert_close(found["normed.2"], expected)
    assert list(found) == ["block.2", "normed.2", "norm"]


def test_pass_stops_after_the_last_layer_needed():
    model = make_model("gpt2")
    backbone = Backbone(model)
    ran = []
    for k, block in enumerate(model.h, start=1):
        block.register_forward_pre_hook(lambda *_, k=k: ran.append(k))
    full = capture(backbone, torch.tensor([[4, 5, 6]]))
    ran.clear()
    part = capture(backbone, torch.tensor([[4, 5, 6]]), "block.1,block.2")
    assert ran == [1, 2]
    assert torch.equal(part["block.2"], full["block.2"])


def test_model_works_as_before_after_an_early_stop():
    model = make_model("llama")
    ids = torch.tensor([[4, 5, 6]])
    with torch.inference_mode():
        before = model(input_ids=ids, output_hidden_states=True)
    capture(Backbone(model), ids, "block.1")
    with torch.inference_mode():
        after = model(input_ids=ids, output_hidden_states=True)
    assert len(after.hidden_states) == len(before.hidden_states)
    assert torch.equal(before.last_hidden_state, after.last_hidden_state)


def test_no_hook_or_training_flag_is_left_behind_even_when_the_visitor_fails():
    model = make_model("bert")
    model.train()
    model.encoder.layer[1].eval()
    flags = [module.training for module in model.modules()]
    backbone = Backbone(model)

    def fail(*_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        backbone.run(torch.tensor([[4, 5]]), torch.ones(1, 2, dtype=torch.bool), backbone.layers("all"), fail)
    assert [module.training for module in model.modules()] == flags
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_dropout_is_off_in_a_model_that_was_left_in_training_mode():
    model = make_model("bert").train()
    ids = torch.tensor([[4, 5, 6]])
    first, second = (capture(Backbone(model), ids)["block.4"] for _ in range(2))
    assert torch.equal(first, second)


def test_override_flags_are_used_and_checked():
    model = make_model("llama")
    assert Backbone(model, blocks="layers", final_norm="none").structure.norm_path is None
    with pytest.raises(
        UsageError, match=r"--blocks: the model has no module 'layer'; the nearest are layers"
    ):
        Backbone(model, blocks="layer")
    with pytest.raises(UsageError, match="--final-norm"):
        Backbone(model, final_norm="nrm")


class _TwoTowers(nn.Module):
    """Two block lists of equal length: no telling which is meant."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
        self.right = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
        self.embed = nn.Embedding(9, 4)

    def forward(self, input_ids, attention_mask=None):
        states = self.embed(input_ids)
        for block in self.left:
            states = block(states)
        return states


def test_ambiguous_blocks_are_named_with_the_flag():
    with pytest.raises(ModelError, match=r"left \(2\), right \(2\).*--blocks PATH"):
        Backbone(_TwoTowers())
    assert Backbone(_TwoTowers(), blocks="left").structure.n_blocks == 2
    with pytest.raises(ModelError, match="did not run"):
        Backbone(_TwoTowers(), blocks="right")


def test_a_model_too_large_for_the_memory_says_so():
    model = make_model("bert")

    def refuse(*_):
        raise torch.OutOfMemoryError("no")

    model.register_forward_pre_hook(refuse)
    with pytest.raises(
        ModelError, match="BertModel runs out of memory on 2 texts of 8 tokens: take --device"
    ):
        Backbone(model)


def test_a_norm_before_the_last_block_is_not_the_final_norm():
    class Stacked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(9, 4)
            self.embed_norm = nn.LayerNorm(4)
            self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
            self.side_norm = nn.LayerNorm(4)

        def forward(self, input_ids):
            states = self.embed_norm(self.embed(input_ids))
            for block in self.layers:
                states = block(states)
            return states + self.side_norm(states * 2)

    assert Backbone(Stacked()).structure.norm_path is None
