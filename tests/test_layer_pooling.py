"""Learned layer poolings against loops, their properties, and their sizes."""

import numpy as np
import pytest
import torch

from layerscope.errors import UsageError
from layerscope.layer_pooling import (
    LAYER_POOLINGS,
    LayerAttention,
    MultiLayer,
    ScalarMix,
    ScaledLayers,
    find_kind,
    make_layer_pooling,
)
from tests.reference import layer_pooling as reference

D, N, B = 12, 5, 7
NAMES = [kind.name for kind in LAYER_POOLINGS]


def states(seed=0, inputs=1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(B, N, D, generator=generator, dtype=torch.float64) for _ in range(inputs)]


def shaken(module, seed=1):
    """Every parameter random, so that none is at a value that hides a mistake."""
    generator = torch.Generator().manual_seed(seed)
    module = module.double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.7 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return module


def test_scalar_mix_equals_the_loop():
    module, (pooled,) = shaken(ScalarMix(N, D)), states()
    expected = [
        reference.scalar_mix(module.logits.tolist(), module.scale.item(), text.numpy()) for text in pooled
    ]
    np.testing.assert_allclose(module(pooled).detach(), expected, atol=1e-12)


def test_scalar_mix_starts_as_the_plain_mean():
    (pooled,) = states()
    torch.testing.assert_close(ScalarMix(N, D).double()(pooled), pooled.mean(dim=1))


def test_layer_attention_equals_the_loop():
    module, (pooled, token) = shaken(LayerAttention(N, D)), states(inputs=2)
    maps = {
        "Q": module.query.weight, "K": module.key.weight, "V": module.value.weight, "W": module.output.weight,
    }  # fmt: skip
    maps = {name: weight.detach().numpy() for name, weight in maps.items()}
    bias = module.output.bias.detach().numpy()
    expected = [
        reference.layer_attention(maps, bias, m.numpy(), c.numpy())
        for m, c in zip(pooled, token, strict=True)
    ]
    np.testing.assert_allclose(module(pooled, token).detach(), expected, atol=1e-12)


def test_layer_attention_draws_slopes_in_training_only():
    module, inputs = shaken(LayerAttention(N, D)), states(inputs=2)
    torch.testing.assert_close(module(*inputs), module(*inputs), rtol=0, atol=0)
    module.train()
    assert not torch.equal(module(*inputs), module(*inputs))
    slopes = module.activation(torch.full((10_000,), -1.0, dtype=torch.float64))
    assert -1 / 3 <= float(slopes.min()) < -0.32
    assert -0.13 < float(slopes.max()) <= -1 / 8


def test_layer_attention_has_the_published_parameters():
    shapes = {name: tuple(value.shape) for name, value in LayerAttention(N, D).named_parameters()}
    assert shapes == {
        "query.weight": (D, D), "key.weight": (D, D), "value.weight": (D, D), "output.weight": (D, 2 * D),
        "output.bias": (D,),
    }  # fmt: skip


def test_multi_layer_equals_the_loop():
    module = shaken(MultiLayer(N, D, latents=3, heads=2, head_width=4))
    (pooled,) = states()
    parameters = {name: value.detach().numpy() for name, value in module.named_parameters()}
    expected = [reference.multi_layer(parameters, text.numpy(), heads=2) for text in pooled]
    np.testing.assert_allclose(module(pooled).detach(), expected, atol=1e-12)


def test_multi_layer_has_the_published_shapes():
    module = MultiLayer(32, 64, latents=6, heads=3, head_width=5)
    shapes = {name: tuple(value.shape) for name, value in module.named_parameters()}
    assert shapes["latents"] == (6, 64)
    assert shapes["layer_embedding"] == (32, 64)
    assert shapes["query.weight"] == shapes["key.weight"] == shapes["value.weight"] == (15, 64)
    assert shapes["output.weight"] == (64, 15)
    assert shapes["expand.weight"] == (8 * 64, 64)
    assert shapes["contract.weight"] == (64, 4 * 64)
    assert not [
        name
        for name in shapes
        if name.split(".")[0] in ("query", "key", "value", "output") and "bias" in name
    ]


def test_default_heads_scale_to_the_published_ones():
    with torch.device("meta"):
        module = MultiLayer(32, 4096)
    assert module.heads == 32
    assert module.query.weight.shape == (32 * 2048, 4096)


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_shares_and_layers_count(name):
    kind = find_kind(name)
    module = shaken(make_layer_pooling(name, N, D))
    inputs = states(inputs=2 if kind.needs_token else 1)
    weights = module.layer_weights(*inputs).detach()
    assert weights.shape == (B, N)
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(B, dtype=torch.float64))
    assert float(weights.min()) > 0
    vectors = module(*inputs)
    assert vectors.shape == (B, D)
    for layer in range(N):  # each layer changes the result
        changed = [stack.clone() for stack in inputs]
        for stack in changed:
            stack[:, layer] += 1.0 + torch.arange(D)
        assert not torch.allclose(module(*changed), vectors)


@pytest.mark.parametrize("name", NAMES)
def test_texts_do_not_see_each_other(name):
    module = shaken(make_layer_pooling(name, N, D))
    inputs = states(inputs=2 if find_kind(name).needs_token else 1)
    alone = torch.cat([module(*(stack[i : i + 1] for stack in inputs)) for i in range(B)])
    torch.testing.assert_close(module(*inputs), alone)


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_learns(name):
    module = shaken(make_layer_pooling(name, N, D)).train()
    inputs = states(inputs=2 if find_kind(name).needs_token else 1)
    module(*inputs)[:, ::2].square().sum().backward()
    for parameter_name, parameter in module.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert float(parameter.grad.abs().max()) > 0, parameter_name


def test_measured_layers_are_centred_and_of_unit_size():
    (pooled,) = states()
    pooled = pooled * torch.tensor([1.0, 50.0, 1e-3, 7.0, 0.0])[:, None] + 3.0
    module = ScaledLayers(torch.nn.Identity(), 1, N, D).double()
    module.measure([pooled])
    scaled = module(pooled)
    torch.testing.assert_close(scaled.mean(dim=0), torch.zeros(N, D, dtype=torch.float64), atol=1e-9, rtol=0)
    size = scaled.square().mean(dim=(0, 2)).sqrt()
    torch.testing.assert_close(size[:4], torch.ones(4, dtype=torch.float64))
    assert float(size[4]) == 0.0  # constant: left at zero, not blown up


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("scalar-mixx", {}, "did you mean 'scalar-mix'"),
        ("scalar-mix", {"latents": 3}, "has no size 'latents': it has none"),
        ("multi-layer", {"latent": 3}, "did you mean 'latents'"),
        ("multi-layer", {"latents": 0}, "latents is 0: it must be a whole number, 1 or more"),
        ("multi-layer", {"heads": 2.5}, "heads is 2.5"),
    ],
)
def test_refused(name, sizes, message):
    with pytest.raises(UsageError, match=message):
        make_layer_pooling(name, N, D, sizes)
