"""repair(): what is damaged or missing in a cache computed again, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from layerscope.cache import LayerCache
from layerscope.errors import CacheError, UsageError
from layerscope.extraction.plan import Listener
from layerscope.extraction.run import extract
from layerscope.manifest import layout_problems
from layerscope.perturbation import Perturbation
from layerscope.views import ViewPlan


def repair(
    path: str | Path,
    *,
    model: Any = None,
    texts: Any = None,
    tokenizer: Any = None,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
    listener: Listener | None = None,
) -> LayerCache:
    """Complete a cache whose files are damaged or missing, from the model and texts it was made of.

    Where they are is in the manifest; both are checked to be the same still. A cache that is whole is
    returned as it is.

    Args:
        path: the cache folder.
        model: where the model is now; needed where it was not a path or a hub id.
        texts: where the texts are now; needed where they were not a file or a dataset.
        tokenizer: where one was given to ``extract``.
        allow_pickle: also load weights from pickles.
        trust_remote_code: run Python code that comes with the model.
        listener: is told about plan and progress.

    Raises:
        UsageError: model or texts have to be given.
        CacheError: the manifest itself was edited, or model or texts have changed.
    """
    cache = LayerCache(path, allow_partial=True)
    if not cache.verify():
        return cache
    problems = layout_problems(cache.manifest)
    if problems:
        raise CacheError(
            f"the cache {cache.path} cannot be repaired ({problems[0]}): run the extract command again"
        )
    made_of, identity = cache.manifest["made_of"], cache.manifest["identity"]
    model = made_of.get("model") if model is None else model
    texts = made_of.get("texts") if texts is None else texts
    options = dict(made_of.get("options", {}))
    for what, value in (("model", model), ("corpus", texts)):
        if value is None:
            raise UsageError(
                f"where the {what} of {cache.path} is was not noted, since it was no file: "
                f"give it with --{what}"
            )
    if "perturbation" in options:
        options["perturbation"] = Perturbation(*options["perturbation"])
    views = ViewPlan.of_identity(identity["views"])
    if views is not None and views.kind != "column":  # which is among the options
        options |= {"views": views.count, "view_kind": views.kind, "seed": views.seed}
    return extract(
        model,
        texts,
        path=cache.path,
        tokenizer=tokenizer,
        layers=identity["layers"],
        pooling=identity["pooling"],
        token_metrics=identity["token_metrics"],
        keep_tokens=identity["keep_tokens"],
        allow_pickle=allow_pickle,
        trust_remote_code=trust_remote_code,
        listener=listener,
        **options,
    )
