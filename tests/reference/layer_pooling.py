"""Learned layer poolings of one text, written out token by token from the papers' formulas."""

import math

import numpy as np


def softmax(x):
    e = [math.exp(v - max(x)) for v in x]
    return [v / sum(e) for v in e]


def scalar_mix(weights, scale, layers):
    total = np.zeros(layers.shape[1])
    for share, vector in zip(softmax(list(weights)), layers, strict=True):
        total += share * vector
    return scale * total


def leaky(x):
    slope = (1 / 8 + 1 / 3) / 2
    return np.array([v if v >= 0 else slope * v for v in x])


def layer_attention(maps, bias, means, tokens):
    """Oh et al. 2022; ``maps`` holds Q, K, V of (d, d) and W of (d, 2d)."""
    n = len(means)
    asked = []
    for i in range(n):
        query = leaky(maps["Q"] @ tokens[i])
        shares = softmax([float(query @ leaky(maps["K"] @ means[j])) / n for j in range(n)])
        asked.append(sum(shares[j] * leaky(maps["V"] @ means[j]) for j in range(n)))
    t = sum(asked) / n
    return np.tanh(maps["W"] @ np.concatenate([tokens[-1], t]) + bias)


def norm(x, gain, shift):
    return (x - x.mean()) / math.sqrt(x.var() + 1e-5) * gain + shift


def gelu(x):
    return np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x])


def multi_layer(p, layers, heads):
    """Tang & Yang 2024; ``p`` holds the parameters by their names in the module."""
    inputs = [
        norm(vector + own, p["norm_inputs.weight"], p["norm_inputs.bias"])
        for vector, own in zip(layers, p["layer_embedding"], strict=True)
    ]
    outputs = []
    for latent in p["latents"]:
        query = p["query.weight"] @ norm(latent, p["norm_latents.weight"], p["norm_latents.bias"])
        width = len(query) // heads
        parts = []
        for h in range(heads):
            own = slice(h * width, (h + 1) * width)
            scores = [float(query[own] @ (p["key.weight"] @ x)[own]) / math.sqrt(width) for x in inputs]
            shares = softmax(scores)
            parts.append(sum(s * (p["value.weight"] @ x)[own] for s, x in zip(shares, inputs, strict=True)))
        hidden = latent + p["output.weight"] @ np.concatenate(parts)
        grown = p["expand.weight"] @ norm(hidden, p["norm_hidden.weight"], p["norm_hidden.bias"])
        grown = grown + p["expand.bias"]
        half = len(grown) // 2
        gated = grown[:half] * gelu(grown[half:])
        outputs.append(hidden + p["contract.weight"] @ gated + p["contract.bias"])
    mean = sum(outputs) / len(outputs)
    return mean / math.sqrt(float(mean @ mean))
