"""What a block's attention and MLP add to the residual stream, against hooks and sums of our own."""

import pytest
import torch
import transformers as hf

from layerscope.backbone import Backbone
from layerscope.errors import ModelError, UsageError
from layerscope.layers import parse_layers
from layerscope.models import without_head
from tests.families import FAMILIES
from tests.tiny import CONFIGS, SIZE, make_model

IDS = torch.tensor([[4, 9, 6, 7, 11], [5, 8, 8, 10, 12]])
SITES = ("block", "attn", "mlp")
WITHOUT = {"Mamba", "Mamba-2", "T5, decoder", "BART, decoder"}
# By family, what stands in the code of transformers before "+ residual" (or in it, for norms of a branch).
BY_HAND = {
    "bert": ("encoder.layer.{}.attention.output.dense", "encoder.layer.{}.output.dense"),
    "gpt2": ("h.{}.attn.c_proj", "h.{}.mlp.c_proj"),
    "gpt_neox": ("layers.{}.attention.dense", "layers.{}.mlp.dense_4h_to_h"),
    "llama": ("layers.{}.self_attn.o_proj", "layers.{}.mlp.down_proj"),
}


def capture(backbone: Backbone, selection="all", sites=SITES) -> dict[str, torch.Tensor]:
    found = {}
    layers = backbone.layers(selection, sites)
    mask = torch.ones_like(IDS, dtype=torch.bool)
    backbone.run(IDS, mask, layers, lambda layer, states: found.update({layer.name: states.clone()}))
    assert set(found) == {layer.name for layer in layers}
    return found


@pytest.mark.parametrize("family", CONFIGS)
def test_outputs_are_those_of_the_last_linear_map_of_each_part(family):
    model = make_model(family)
    found = capture(Backbone(model))
    expected, handles = {}, []
    for site, path in zip(("attn", "mlp"), BY_HAND[family], strict=True):
        for k in range(4):

            def keep(_, __, output, name=f"{site}.{k + 1}"):
                expected[name] = output.clone()

            handles.append(model.get_submodule(path.format(k)).register_forward_hook(keep))
    with torch.inference_mode():
        model(input_ids=IDS)
    for handle in handles:
        handle.remove()
    assert len(expected) == 8
    for name, states in expected.items():
        torch.testing.assert_close(found[name], states, rtol=0, atol=0)


@pytest.mark.parametrize(
    "model",
    [
        make_model("llama"),
        make_model("gpt2"),
        make_model("gpt_neox"),
        hf.GPTNeoXModel(hf.GPTNeoXConfig(**SIZE, num_hidden_layers=4, use_parallel_residual=False)),
        *(family.model() for family in FAMILIES if family.name in ("Gemma 2", "Phi", "OPT", "Qwen3")),
    ],
    ids=["llama", "gpt2", "gpt_neox parallel", "gpt_neox sequential", "opt", "qwen3", "gemma2", "phi"],
)  # fmt: skip
def test_a_pre_norm_block_is_what_it_took_with_both_added(model):
    found = capture(Backbone(model.eval()))
    before = found["embed"]
    for k in range(1, 5):
        total = before + found[f"attn.{k}"] + found[f"mlp.{k}"]
        scale = found[f"block.{k}"].abs().max()
        assert float((total - found[f"block.{k}"]).abs().max() / scale) < 1e-5
        assert float(found[f"attn.{k}"].abs().max() / scale) > 1e-4  # else anything would add up
        before = found[f"block.{k}"]


def test_a_bert_block_is_two_norms_of_two_sums():
    model = make_model("bert")
    found = capture(Backbone(model))
    before = found["embed"]
    for k, block in enumerate(model.encoder.layer, start=1):
        with torch.inference_mode():
            middle = block.attention.output.LayerNorm(before + found[f"attn.{k}"])
            after = block.output.LayerNorm(middle + found[f"mlp.{k}"])
        torch.testing.assert_close(after, found[f"block.{k}"], rtol=0, atol=1e-5)
        before = found[f"block.{k}"]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_family_has_them_or_says_so(family):
    backbone = Backbone(without_head(family.model(), family.part))
    if family.name in WITHOUT:
        with pytest.raises(
            ModelError, match=r"cannot tell the attention and the MLP .*its children: .*--att"
        ):
            backbone.layers("all", SITES)
        return
    found = capture(backbone)
    for k in range(1, family.blocks + 1):
        for site in ("attn", "mlp"):
            assert found[f"{site}.{k}"].shape == found[f"block.{k}"].shape


@pytest.mark.parametrize("family", CONFIGS)
def test_the_residual_stream_is_the_same_with_them_and_they_without_it(family):
    backbone = Backbone(make_model(family))
    alone, together = capture(backbone, sites=("block",)), capture(backbone)
    for name, states in alone.items():
        assert torch.equal(states, together[name])
    only = capture(backbone, "block.2", ("mlp",))
    assert list(only) == ["mlp.2"]
    assert torch.equal(only["mlp.2"], together["mlp.2"])


def test_no_hook_is_left_behind():
    model = make_model("gpt2")
    capture(Backbone(model))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_paths_can_be_named_and_are_checked():
    mamba = next(family for family in FAMILIES if family.name == "Mamba")
    backbone = Backbone(mamba.model(), attention="mixer")
    found = capture(backbone, "block.1,block.2", ("block", "attn"))
    torch.testing.assert_close(found["block.1"] + found["attn.2"], found["block.2"])
    with pytest.raises(
        UsageError, match=r"--mlp: a LlamaDecoderLayer has no module 'mpl'; the nearest are mlp"
    ):
        Backbone(make_model("llama"), mlp="mpl")


def test_a_block_of_one_addition_too_many_is_refused():
    class Extra(torch.nn.Module):
        def __init__(self, inner: torch.nn.Module) -> None:
            super().__init__()
            self.inner, self.adapter = inner, torch.nn.Linear(32, 32)

        def forward(self, hidden_states, **kwargs):
            states = self.inner(hidden_states, **kwargs)
            return states + self.adapter(states)

    model = make_model("llama")
    model.layers[1] = Extra(model.layers[1])
    backbone = Backbone(model, blocks="layers")
    with pytest.raises(
        ModelError, match=r"of a Extra apart \(its children: inner \(LlamaDecoderLayer\), adapter"
    ):
        backbone.layers("all", SITES)


def test_selection_with_sites():
    names = [layer.name for layer in parse_layers("0,2,norm", 3, has_norm=True, sites=SITES)]
    assert names == ["embed", "attn.2", "mlp.2", "block.2", "attn.3", "mlp.3", "norm"]
    assert [layer.name for layer in parse_layers("attn.1,block.2", 3, has_norm=False)] == [
        "attn.1",
        "block.2",
    ]
    with pytest.raises(UsageError, match="no block is selected"):
        parse_layers("embed", 3, has_norm=True, sites=("attn",))
    with pytest.raises(UsageError, match=r"attn\.1 … attn\.3"):
        parse_layers("attn.4", 3, has_norm=True)
