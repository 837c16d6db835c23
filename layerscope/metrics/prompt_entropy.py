"""Prompt entropy: matrix entropy of the token states of one prompt."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy.typing as npt

from layerscope.metrics.checks import check_rows
from layerscope.metrics.rows import EPS, RowRecipe, check_recipe
from layerscope.metrics.spec import MetricSpec
from layerscope.metrics.spectral import Normalization, matrix_entropy
from layerscope.metrics.token_batch import measure_prompts

if TYPE_CHECKING:
    import torch


def prompt_entropy(
    states: npt.ArrayLike,
    alpha: float = 1.0,
    rows: RowRecipe = "center-unit",
    normalization: Normalization = "raw",
) -> float:
    """``matrix_entropy`` of the token states of one prompt.

    Args:
        states: ``(T, d)``, one row a token.
        alpha: order, above 0.
        rows: what is done to the rows first.
        normalization: see ``matrix_entropy``.

    Returns:
        Nats in [0, ln min(T, d)] if ``raw``.

    Raises:
        Undefined: fewer than 2 tokens, not finite, constant, zero trace, no convergence.

    Source: Skean et al. 2025.

    >>> prompt_entropy([[0.0, 0.0], [1.0, 1.0], [5.0, 5.0]])
    0.0
    """
    return matrix_entropy(check_rows(states, "states", unit="tokens"), alpha, rows, normalization)


def prompt_entropy_batch(
    states: torch.Tensor, mask: torch.Tensor, rows: RowRecipe = "center-unit"
) -> torch.Tensor:
    """``prompt_entropy`` (alpha = 1, raw) of every prompt of a padded batch.

    A prompt's value does not depend on its padding or its neighbours.

    Args:
        states: ``(b, t, d)`` of any float dtype and on any device; masked positions may hold anything.
        mask: ``(b, t)`` bool, true where a token counts.
        rows: what is done to the rows first.

    Returns:
        ``(b,)`` float64, nats; NaN where there are fewer than 2 tokens, all tokens are identical, or a
        token that counts is not finite.

    Raises:
        UsageError: shapes that do not fit, or no such recipe.

    Source: Skean et al. 2025.

    >>> import torch
    >>> states = torch.tensor([[[0.0, 0.0], [2.0, 0.0]], [[1.0, 3.0], [9.0, 9.0]]])
    >>> prompt_entropy_batch(states, torch.tensor([[True, True], [True, False]]))
    tensor([0., nan], dtype=torch.float64)
    """
    check_recipe(rows)
    return measure_prompts(lambda x, keep: _entropies(x, keep, rows), states, mask)


def _entropies(x: torch.Tensor, keep: torch.Tensor, rows: RowRecipe) -> torch.Tensor:
    import torch

    if x.shape[1] < 2:
        return x.new_full((len(x),), math.nan)
    first = torch.take_along_dim(x, keep.to(torch.uint8).argmax(dim=1)[:, None, None], dim=1)
    shifted = x.sub_(first) if rows.startswith("center") else x - first
    shifted[~keep] = 0
    defined = torch.linalg.vector_norm(shifted, ord=math.inf, dim=(1, 2)) > 0
    shares = _shares(_prepare(shifted if rows.startswith("center") else x, keep, rows), keep.sum(dim=1))
    return torch.where(defined, torch.special.entr(shares).sum(dim=-1).clamp(min=0), math.nan)


def _prepare(x: torch.Tensor, keep: torch.Tensor, rows: RowRecipe) -> torch.Tensor:
    """The recipe on ``(b, t, d)`` rows, in place; centred ones come shifted, identical rows being zero."""
    import torch

    roundoff = x.new_zeros((len(x), 1))
    if rows.startswith("center"):
        counts = keep.sum(dim=1, keepdim=True).clamp(min=1)
        roundoff = counts * EPS * torch.linalg.vector_norm(x, dim=-1).amax(dim=1, keepdim=True)
        x -= x.sum(dim=1, keepdim=True) / counts[..., None]
        x[~keep] = 0
    if rows.endswith("unit"):
        norms = torch.linalg.vector_norm(x, dim=-1)
        x /= torch.where(norms > roundoff, norms, math.inf)[..., None]
    return x


def _shares(x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Normalised eigenvalues ``(b, min(t, d))`` of the Gram matrices; those below round-off are 0."""
    import torch

    values = _eigenvalues(x)
    size = counts.clamp(min=x.shape[2])[:, None]
    kept = torch.where(values <= size * EPS * values.amax(dim=-1, keepdim=True), 0, values)
    total = kept.sum(dim=-1, keepdim=True)
    return kept / torch.where(total == 0, 1, total)


def _eigenvalues(x: torch.Tensor) -> torch.Tensor:
    """Of the smaller Gram matrix of each prompt; NaN where neither they nor singular values converge."""
    import torch
    from torch.linalg import LinAlgError  # type: ignore[attr-defined]

    gram = x @ x.mT if x.shape[1] <= x.shape[2] else x.mT @ x
    try:
        values: torch.Tensor = torch.linalg.eigvalsh(gram)
    except LinAlgError:
        return torch.stack([_squared_singular_values(prompt) for prompt in x])
    return values


def _squared_singular_values(x: torch.Tensor) -> torch.Tensor:
    import torch
    from torch.linalg import LinAlgError  # type: ignore[attr-defined]

    try:
        values: torch.Tensor = torch.linalg.svdvals(x)
    except LinAlgError:
        return x.new_full((min(x.shape),), math.nan)
    return values.square()


def _bounds(n: int, d: int) -> tuple[float, float]:
    return 0.0, math.log(min(n, d))


SPEC = MetricSpec(
    name="prompt_entropy",
    label="Prompt entropy (nats)",
    function=prompt_entropy,
    batch=prompt_entropy_batch,
    kind="tokens",
    direction="higher",
    variant="rows=center-unit;alpha=1;log=e",
    invariances=frozenset({"orthogonal", "scale", "translation", "permutation", "reversal"}),
    bounds=_bounds,
    minimum_n=2,
    formula="-Σ p ln p, p = eigenvalues of Z Zᵀ / tr(Z Zᵀ) of the token states of one prompt",
    reads="High when the tokens of a prompt point in many directions, 0 when all lie on one line.",
    source="Giraldo et al. 2014; Skean et al. 2025",
)
