"""LearnedPooling: a mix of layers fitted from a cache, the model itself left as it is."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from layerscope.cache import LayerCache, as_cache
from layerscope.errors import CacheError, CorpusError, UsageError, check_whole, named
from layerscope.layer_pooling import ScaledLayers, find_kind, make_layer_pooling
from layerscope.learn.examples import Examples, choose_objective, find_examples
from layerscope.learn.objectives import contrastive_loss, cosent_loss
from layerscope.learn.states import as_tensor, choose_layers, choose_poolings, load_states
from layerscope.models import usable_device

Progress = Callable[[int, int], None]
_BATCH = 512
_DECISIVE = ("model", "part", "max_length", "special_tokens", "drop_first_token", "prompt", "sinks")
_HELD_OUT = 0.1
_LEARNING_RATES = {"scalar-mix": 0.03, "layer-attention": 5e-4, "multi-layer": 3e-4}


class LearnedPooling(BaseEstimator):  # type: ignore[misc]
    """A learned mix of layers, fitted from cached states while the model stays frozen.

    Fitting stops when the dev score has not risen for ``patience`` epochs, and keeps the best epoch; epoch 0
    is the mix before any training.

    Args:
        kind: ``scalar-mix``, ``layer-attention`` or ``multi-layer``.
        objective: ``triplets``, ``pairs``, ``views`` or ``scores``; ``auto``: what the cache is made of.
        layers: names of the layers to mix; where not given those of a Hugging Face model's
            ``hidden_states`` (without the embedding output for ``multi-layer``).
        pooling: of the states; where not given ``mean-nosink``, or ``mean``.
        token_pooling: for ``layer-attention``, which token asks: ``cls``, ``last`` or ``first``, the first
            of these in the cache where not given.
        sizes: for ``multi-layer``: ``latents``, ``heads``, ``head_width``.
        standardize: centre every layer and bring it to unit size first, as measured on the cache.
        epochs: at most so many passes over the examples.
        batch_size: examples in a step.
        learning_rate: of AdamW; 0.03 for ``scalar-mix``, 5e-4 for
            ``layer-attention`` and 3e-4 for ``multi-layer`` where not given.
        weight_decay: of AdamW.
        temperature: what cosines are divided by.
        patience: epochs without a better dev score before fitting stops.
        seed: of the start, the order of examples and the held-out ones.
        device: ``auto``, ``cpu``, ``cuda``.

    Attributes:
        module_: the fitted ``ScaledLayers`` module, in evaluation mode.
        layers_: names of the mixed layers.
        poolings_: the pooling of each of its inputs.
        objective_: what it was trained for.
        layer_weights_: frame of how much each layer counts (``layer``, ``layer_name``, ``depth``,
            ``weight``), the mean over the training texts; sums to 1.
        history_: frame with ``epoch``, ``loss``, ``dev``: higher is better.
        best_epoch_: the epoch that was kept.
        dev_metric_: ``cosine_spearman`` of the dev cache, or ``-loss`` of held-out examples.
        n_examples_: how many examples it was trained on.
        made_of_: what the training cache was extracted from and how: model, identity, sinks.

    Source: see ``layerscope.layer_pooling`` for the kinds. The published trainings run the whole model;
    this one fits the pooling only, with states standardised first, which frozen raw layers need.
    """

    def __init__(
        self,
        kind: str = "layer-attention",
        objective: str = "auto",
        *,
        layers: Sequence[str] | None = None,
        pooling: str | None = None,
        token_pooling: str | None = None,
        sizes: Mapping[str, int] | None = None,
        standardize: bool = True,
        epochs: int = 20,
        batch_size: int = 128,
        learning_rate: float | None = None,
        weight_decay: float = 0.01,
        temperature: float = 0.05,
        patience: int = 3,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        self.kind = kind
        self.objective = objective
        self.layers = layers
        self.pooling = pooling
        self.token_pooling = token_pooling
        self.sizes = sizes
        self.standardize = standardize
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.temperature = temperature
        self.patience = patience
        self.seed = seed
        self.device = device

    def fit(
        self,
        cache: LayerCache | str | Path,
        y: object = None,
        *,
        dev: LayerCache | str | Path | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Fit from a cache of triplets, pairs or views.

        Args:
            cache: what to train on.
            y: ignored, present for scikit-learn's conventions.
            dev: a cache of pairs with scores, of the same model, to stop by; where not given a tenth of
                the examples is held out.
            progress: called with steps done and planned.

        Raises:
            UsageError: an option that cannot be, or a pooling that the cache lacks.
            CorpusError: too few examples, or none of the kind asked for.
            CacheError: all texts have the same states, or the dev cache is of another model.
        """
        kind = find_kind(self.kind)
        self._check_numbers()
        cache = as_cache(cache)
        self.objective_ = choose_objective(cache, self.objective)
        self.layers_ = choose_layers(cache, kind, self.layers)
        self.poolings_ = choose_poolings(cache, kind, self.pooling, self.token_pooling)
        examples = find_examples(cache, self.objective_, self.poolings_)
        rng = np.random.default_rng(self.seed)
        judge: _Judge
        if dev is None:
            order = rng.permutation(len(examples))
            held = max(2, round(_HELD_OUT * len(order)))
            judge, examples = _HeldOut(self, cache, examples.take(order[:held])), examples.take(order[held:])
        else:
            judge = _ScoredPairs(self, _checked_dev(cache, as_cache(dev)))
        self.dev_metric_ = judge.metric
        self.n_examples_ = len(examples)
        width = int(cache.manifest["widths"][self.layers_[0]])
        device = torch.device(usable_device(self.device))
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            module = make_layer_pooling(self.kind, len(self.layers_), width, self.sizes).to(device)
            sides = self._sides(cache, examples)
            self._prepare(module, sides, cache)
            self._train(module, sides, judge, rng, progress or (lambda done, total: None))
        self.module_ = module.eval()
        self.layer_weights_ = self._mean_weights(sides, cache)
        self.made_of_ = _made_of(cache)
        return self

    def transform(self, cache: LayerCache | str | Path, *, view: str | None = None) -> NDArray[np.float32]:
        """The mixed vectors of all texts of a cache, (n, d) float32; NaN for empty texts.

        Raises:
            UsageError: the cache lacks a layer or pooling.
            CacheError: it is of another model.
        """
        check_is_fitted(self, "module_")
        cache = as_cache(cache)
        if not _is_same_model(self.made_of_, _made_of(cache)):
            raise CacheError(
                f"the cache {cache.path} is of the model {cache.model}, and this pooling was fitted on "
                f"{self.made_of_['model']}: extract with that very model"
            )
        return self._vectors(self.module_, cache, view)

    def fit_transform(self, cache: LayerCache | str | Path, y: object = None, **options: Any) -> Any:
        """``fit``, then ``transform`` of the same cache."""
        return self.fit(cache, y, **options).transform(cache)

    def _check_numbers(self) -> None:
        for name, least in (("epochs", 1), ("batch_size", 2), ("patience", 1), ("seed", 0)):
            check_whole(name, getattr(self, name), least)
        for name in ("learning_rate", "temperature"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and 0 < value < float("inf")):
                raise UsageError(f"{name} is {value!r}: it must be a number above 0")

    def _sides(self, cache: LayerCache, examples: Examples) -> _Sides:
        return _Sides(cache, examples, self.layers_, self.poolings_)

    def _prepare(self, module: ScaledLayers, sides: _Sides, cache: LayerCache) -> None:
        """Measure layers, and refuse states that do not tell texts apart."""
        stacks = [torch.from_numpy(stack) for stack in sides.states]
        spread = [float((stack - stack[:1]).abs().max()) for stack in stacks]
        if max(spread) == 0:
            raise CacheError(
                f"all texts of the cache {cache.path} have the same states at {named(self.layers_)}: "
                "nothing to learn from"
            )
        if self.standardize:
            module.measure(stacks)

    def _train(
        self,
        module: ScaledLayers,
        sides: _Sides,
        judge: _Judge,
        rng: np.random.Generator,
        progress: Progress,
    ) -> None:
        rate = self.learning_rate or _LEARNING_RATES[self.kind]
        optimizer = torch.optim.AdamW(module.parameters(), lr=rate, weight_decay=self.weight_decay)
        batches = max(1, len(sides.examples) // self.batch_size)
        history = [{"epoch": 0, "loss": float("nan"), "dev": judge.score(module.eval())}]
        best, kept = 0, copy.deepcopy(module.state_dict())
        for epoch in range(1, self.epochs + 1):
            losses = []
            module.train()
            for done, batch in enumerate(_batches(len(sides.examples), self.batch_size, rng), start=1):
                loss = self._loss(module, sides, batch)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                losses.append(float(loss.detach()))
                progress((epoch - 1) * batches + done, self.epochs * batches)
            dev = judge.score(module.eval())
            history.append({"epoch": epoch, "loss": float(np.mean(losses)), "dev": dev})
            if dev > history[best]["dev"]:
                best, kept = epoch, copy.deepcopy(module.state_dict())
            if epoch - best >= self.patience:
                break
        progress(1, 1)
        module.load_state_dict(kept)
        self.history_ = pd.DataFrame(history)
        self.best_epoch_ = best

    def _loss(self, module: ScaledLayers, sides: _Sides, batch: NDArray[np.int64]) -> Tensor:
        device = module.centre.device
        vectors = [module(*states) for states in sides.take(batch, device)]
        if self.objective_ == "scores":
            assert sides.examples.scores is not None  # of this objective
            scores = torch.from_numpy(sides.examples.scores[batch]).to(device)
            return cosent_loss(vectors[0], vectors[1], scores, temperature=self.temperature)
        same = sides.same_texts(batch).to(device)
        return contrastive_loss(*vectors, temperature=self.temperature, same=same)

    @torch.inference_mode()
    def _vectors(self, module: ScaledLayers, cache: LayerCache, view: str | None) -> NDArray[np.float32]:
        device = module.centre.device
        found = np.empty((cache.n_rows, module.width), dtype=np.float32)
        for start in range(0, cache.n_rows, _BATCH):
            rows = np.arange(start, min(start + _BATCH, cache.n_rows))
            states = [load_states(cache, self.layers_, name, view, rows) for name in self.poolings_]
            found[rows] = module(*(torch.from_numpy(stack).to(device) for stack in states)).cpu().numpy()
        return found

    @torch.inference_mode()
    def _mean_weights(self, sides: _Sides, cache: LayerCache) -> pd.DataFrame:
        device = self.module_.centre.device
        total, count = np.zeros(len(self.layers_)), 0
        for start in range(0, len(sides.states[0]), _BATCH):
            chosen = np.arange(start, min(start + _BATCH, len(sides.states[0])))
            states = [as_tensor(stack, chosen, device) for stack in sides.states]
            total += self.module_.layer_weights(*states).double().sum(dim=0).cpu().numpy()
            count += len(chosen)
        layers = [cache.layer_info(name) for name in self.layers_]
        return pd.DataFrame(
            {
                "layer": [layer.blocks for layer in layers],
                "layer_name": self.layers_,
                "depth": [layer.depth for layer in layers],
                "weight": total / count,
            }
        )


class _Sides:
    """The states that examples need, loaded once."""

    def __init__(
        self, cache: LayerCache, examples: Examples, layers: Sequence[str], poolings: Sequence[str]
    ) -> None:
        self.examples = examples
        keys = [(view, int(row)) for at, view in enumerate(examples.views) for row in examples.rows[:, at]]
        views = list(dict.fromkeys(examples.views))
        needed = {view: sorted({row for own, row in keys if own == view}) for view in views}
        self.states = []
        for name in poolings:
            parts = [load_states(cache, layers, name, view, np.array(rows)) for view, rows in needed.items()]
            self.states.append(parts[0] if len(parts) == 1 else np.concatenate(parts))
        place_of = {key: at for at, key in enumerate((view, row) for view in views for row in needed[view])}
        self._places = np.array([place_of[key] for key in keys]).reshape(len(examples.views), -1).T
        codes = pd.factorize(cache.rows["text_sha256"])[0]
        self._texts = codes[examples.rows]

    def take(self, batch: NDArray[np.int64], device: torch.device) -> Iterator[list[Tensor]]:
        """For each side, its inputs (b, l, d)."""
        for at in range(self._places.shape[1]):
            yield [as_tensor(stack, self._places[batch, at], device) for stack in self.states]

    def same_texts(self, batch: NDArray[np.int64]) -> Tensor:
        """Which candidates are the text of an anchor or of its positive, (b, b or 2b)."""
        texts = self._texts[batch]
        candidates = texts[:, 1:].T.ravel()
        same = (texts[:, :1] == candidates) | (texts[:, 1:2] == candidates)
        return torch.from_numpy(same)


class _Judge:
    """What says which epoch is best: higher is better."""

    metric: str

    def score(self, module: ScaledLayers) -> float:
        raise NotImplementedError


class _HeldOut(_Judge):
    """The loss of examples that are not trained on, in one batch."""

    metric = "-loss"

    def __init__(self, owner: LearnedPooling, cache: LayerCache, examples: Examples) -> None:
        self._owner = owner
        self._sides = owner._sides(cache, examples)

    @torch.inference_mode()
    def score(self, module: ScaledLayers) -> float:
        rows = np.arange(len(self._sides.examples))
        parts = [rows[start : start + _BATCH] for start in range(0, len(rows), _BATCH)]
        losses = [float(self._owner._loss(module, self._sides, part)) * len(part) for part in parts]
        return -sum(losses) / len(rows)


class _ScoredPairs(_Judge):
    """Spearman of cosine with human scores."""

    metric = "cosine_spearman"

    def __init__(self, owner: LearnedPooling, dev: LayerCache) -> None:
        self._owner = owner
        examples = find_examples(dev, "scores", owner.poolings_)
        assert examples.scores is not None  # of this objective
        self._scores = examples.scores
        self._sides = owner._sides(dev, examples)

    @torch.inference_mode()
    def score(self, module: ScaledLayers) -> float:
        device = module.centre.device
        cosines = []
        for start in range(0, len(self._scores), _BATCH):
            batch = np.arange(start, min(start + _BATCH, len(self._scores)))
            first, second = (module(*states).double() for states in self._sides.take(batch, device))
            cosines.append(torch.cosine_similarity(first, second, dim=-1).cpu().numpy())
        cosine = np.concatenate(cosines)
        return float(spearmanr(cosine, self._scores).statistic) if np.ptp(cosine) > 0 else 0.0


def _checked_dev(cache: LayerCache, dev: LayerCache) -> LayerCache:
    if not _is_same_model(_made_of(cache), _made_of(dev)):
        raise CacheError(
            f"the dev cache is of the model {dev.model}, the training cache of {cache.model}: "
            "extract both with one model"
        )
    if "pair" not in dev.rows or "score" not in dev.rows:
        raise CorpusError(f"the dev cache {dev.path} holds no pairs with scores: extract with --score-column")
    return dev


def _made_of(cache: LayerCache) -> dict[str, Any]:
    """What decides the states: the model, and how texts are put to it."""
    model = cache.manifest["model"]
    return {
        "model": cache.model,
        "n_blocks": model["n_blocks"],
        "final_norm": model["final_norm"],
        "identity": {key: cache.manifest["identity"].get(key) for key in _DECISIVE},
    }


def _is_same_model(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return bool(one["identity"]["model"] == other["identity"]["model"] and one["model"] == other["model"])


def _batches(count: int, size: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Shuffled examples in batches of ``size``; what is left over is not used in this epoch."""
    order = rng.permutation(count)
    full = max(1, count // size)
    for at in range(full):
        yield order[at * size : (at + 1) * size]
