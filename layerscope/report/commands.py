"""The shell commands that make a report again and export its picks, with the options that were used."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.cache import LayerCache
from layerscope.layers import standard_layers
from layerscope.plots.style import pooling_family
from layerscope.report.words import count_draws, is_missing, values_of

if TYPE_CHECKING:
    import pandas as pd

EXTRACT_DEFAULTS: dict[str, Any] = {
    "text_columns": (), "view_column": None, "score_column": None, "label_column": None, "split": None,
    "limit": None, "quoting": None, "encoding": "utf-8", "special_tokens": "keep", "prompt": "",
    "prompt_tokens": "keep", "chat_template": False, "on_truncate": "warn", "deterministic": False,
    "drop_first_token": False, "max_length": None, "dtype": "auto", "device": "auto", "batch_tokens": 4096,
    "blocks": None, "final_norm": None, "revision": None, "part": "encoder",
}  # fmt: skip
"""What ``extract`` takes where an option is not given; ``made_of`` of a manifest has the same names."""
_VIEW_DEFAULTS = {"views": 0, "view_kind": "augment", "seed": 0}
_ANALYZE_DEFAULTS = {
    "pooling": None,
    "draws": 100,
    "seed": 0,
    "duplicates": "keep",
    "nonfinite": "refuse",
    "recipe": "default",
}
_STS_DEFAULTS = {"score_column": "score", "task": None, "pooling": None, "draws": 500, "seed": 0}
_RENAMED = {
    "text_columns": "text_column",
    "duplicates": "drop_duplicates",
    "nonfinite": "exclude_nonfinite",
}
_SWITCHES = {"duplicates", "nonfinite"}  # on the command line on or off, in Python a word
_UNKNOWN_TEXTS = (
    "The texts came from Python, not from a file: put yours for CORPUS. For the same numbers "
    "they must be the same texts (see the checksum under Provenance)."
)
_UNKNOWN_MODEL = "The model was loaded in Python: put its folder or hub id for MODEL."
_UNKNOWN_OPTIONS = "The metrics frame does not say with which options it was made; those it shows are given."


@dataclass(frozen=True)
class Files:
    """Where the frames of a report are, and how its layers were picked.

    Attributes:
        metrics: the metrics frame; ``CACHE/frames/metrics.parquet`` where not given.
        scores: the scores frame, where there is one.
        picks: the picks frame, there already or written by the ``select`` command; beside the metrics
            where not given.
        criteria: metrics that were asked for as criteria, the decisive one first.
        direction: of these criteria, where it was given.
    """

    metrics: Path | None = None
    scores: Path | None = None
    picks: Path | None = None
    criteria: Sequence[str] = ()
    direction: str | None = None


class Commands:
    """The commands of one report.

    Args:
        cache: what was measured.
        metrics: metrics frame.
        scores: scores frame, where there is one.
        picks: picks frame, the decisive pick first.
        files: where they are.
        report: the page.
    """

    def __init__(
        self,
        cache: LayerCache,
        metrics: pd.DataFrame,
        scores: pd.DataFrame | None,
        picks: pd.DataFrame | None,
        files: Files,
        report: Path,
    ) -> None:
        self._cache, self._metrics, self._scores, self._picks = cache, metrics, scores, picks
        self._files, self._report = files, report
        self._made_of: Mapping[str, Any] = cache.manifest["made_of"]
        self._model = str(self._made_of.get("model") or "MODEL")
        usual = cache.path / "frames"
        self._usual = {name: usual / f"{name}.parquet" for name in ("metrics", "scores")}
        self._metrics_file = files.metrics or self._usual["metrics"]
        self._picks_file = files.picks or self._metrics_file.with_name("picks.parquet")

    def again(self) -> list[str]:
        """From model and texts to the page, a line a stage."""
        found = [self._extract(), self._analyze(), *self._evaluate()]
        return [*found, self._select(), self._page()] if self._picks is not None else [*found, self._page()]

    def note(self) -> str:
        """What the lines of :meth:`again` leave open."""
        notes = (
            ("" if self._made_of.get("model") else _UNKNOWN_MODEL),
            ("" if self._made_of.get("texts") else _UNKNOWN_TEXTS),
            ("" if self._analyzed() else _UNKNOWN_OPTIONS),
        )
        return " ".join(note for note in notes if note)

    def export(self, pick: Mapping[str, Any]) -> str:
        """The line that writes ``pick`` as a model of its own; empty where ``export`` could not repeat it."""
        if not _can_be_exported(self._cache.manifest["identity"]):
            return ""
        layer, pooling = str(pick["layer_name"]), pooling_family(str(pick["pooling"]))
        chosen: list[str | Path] = (
            ["--picks", self._picks_file] if self._is_decisive(pick) else ["--layer", layer]
        )
        several = len(self._cache.poolings) > 1 or "--layer" in chosen
        folder = f"{Path(self._cache.model).name}-{layer}".replace(" ", "-")
        return _line(
            "export", self._model, *chosen, *(["--pooling", pooling] if several else []),
            "--cache", self._cache.path, *self._loading(), "-o", folder,
        )  # fmt: skip

    def _is_decisive(self, pick: Mapping[str, Any]) -> bool:
        """Whether the picks file's first pick of this pooling, by the same criterion as here, is ``pick``."""
        return self._picks is not None and bool(pick["criterion"] == self._picks["criterion"].iloc[0])

    def _loading(self) -> list[str]:
        """Options without which the model is another, or its parts are not found."""
        names = ("revision", "blocks", "final_norm")
        return _flags({name: self._made_of.get("options", {}).get(name) for name in names}, EXTRACT_DEFAULTS)

    def _extract(self) -> str:
        return _line(
            "extract", self._model, str(self._made_of.get("texts") or "CORPUS"), "-o", self._cache.path,
            *_flags(self._made_of.get("options", {}), EXTRACT_DEFAULTS), *self._extent(),
        )  # fmt: skip

    def _extent(self) -> list[str]:
        """Options that say how much is stored."""
        manifest = self._cache.manifest
        identity, model = manifest["identity"], manifest["model"]
        words: list[str] = []
        if manifest["layers"] != standard_layers(model["n_blocks"], model["final_norm"] is not None):
            words += ["--layers", ",".join(manifest["layers"])]
        if manifest["sinks"] is None or manifest["poolings"] not in (["mean"], ["mean", "mean-nosink"]):
            words += ["--pooling", ",".join(manifest["poolings"])]
        views = identity.get("views") or {}
        if views.get("kind", "column") != "column":
            given = {"views": views["count"], "view_kind": views["kind"], "seed": views["seed"]}
            words += _flags(given, _VIEW_DEFAULTS)
        if not identity.get("token_metrics"):
            words += ["--no-token-metrics"]
        return [*words, *(["--keep-tokens"] if identity.get("keep_tokens") else [])]

    def _analyzed(self) -> Mapping[str, Any]:
        """The options of ``analyze``, where the frame has kept them, as parquet does and CSV does not."""
        kept = self._metrics.attrs.get("analyze")
        return kept if isinstance(kept, Mapping) else {}

    def _analyze(self) -> str:
        known = self._analyzed()
        if not known:
            known = {"metrics": values_of(self._metrics, "metric"), "draws": count_draws(self._metrics)}
        chosen = [word for name in known.get("metrics") or () for word in ("--metric", str(name))]
        options = {name: known[name] for name in _ANALYZE_DEFAULTS if name in known}
        is_usual = self._metrics_file == self._usual["metrics"]
        output: list[str | Path] = [] if is_usual else ["-o", self._metrics_file]
        return _line("analyze", self._cache.path, *chosen, *_flags(options, _ANALYZE_DEFAULTS), *output)

    def _evaluate(self) -> list[str]:
        """The line that scored this cache; none where scores are of other texts, or came in another way."""
        known = {} if self._scores is None else self._scores.attrs.get("evaluate_sts") or {}
        if known.get("corpus") != self._cache.corpus:
            return []
        file = self._files.scores
        output: list[str | Path] = [] if file in (None, self._usual["scores"]) else ["-o", file]
        return [_line("evaluate", "sts", self._cache.path, *_flags(known, _STS_DEFAULTS), *output)]

    def _select(self) -> str:
        is_beside = self._picks_file == self._metrics_file.with_name("picks.parquet")
        output: list[str | Path] = [] if is_beside else ["-o", self._picks_file]
        scores: list[str | Path] = [] if self._files.scores is None else ["--scores", self._files.scores]
        return _line("select", self._metrics_file, *scores, *self._criteria(decisive=True), *output)

    def _page(self) -> str:
        words: list[str | Path] = []
        for name, file in (("metrics", self._files.metrics), ("scores", self._files.scores)):
            if file is not None and file != self._usual[name]:
                words += [f"--{name}", file]
        return _line("report", self._cache.path, *words, *self._criteria(), "-o", self._report)

    def _criteria(self, *, decisive: bool = False) -> list[str]:
        """The criteria that were asked for; with ``decisive`` the first pick's, where none were."""
        names = list(self._files.criteria)
        if not names and decisive and self._picks is not None:
            names = values_of(self._picks.head(1), "criterion")
        direction = ["--direction", self._files.direction] if self._files.direction else []
        return [*(word for name in names for word in ("--criterion", name)), *direction]


def _can_be_exported(identity: Mapping[str, Any]) -> bool:
    """Whether texts were put to the model in a way that a sentence-transformers folder can repeat.

    >>> _can_be_exported({"prompt": ["query: ", "drop", False]})
    False
    """
    prompt, prompt_tokens, chat = identity.get("prompt", ("", "keep", False))
    is_plain = not chat and not (prompt and prompt_tokens == "drop")
    return is_plain and identity.get("part", "encoder") == "encoder"


def _line(*words: str | Path) -> str:
    return shlex.join(["layerscope", *map(str, words)])


def _flags(options: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
    """Those of ``options`` that are not as by default, as they are given on the command line.

    >>> _flags({"max_length": 128, "quoting": False, "text_columns": ["a", "b"], "split": None},
    ...        EXTRACT_DEFAULTS)
    ['--text-column', 'a', '--text-column', 'b', '--no-quoting', '--max-length', '128']
    """
    words: list[str] = []
    for name, default in defaults.items():
        value = options.get(name, default)
        if is_missing(value) or _plain(value) == _plain(default):
            continue
        flag = _RENAMED.get(name, name).replace("_", "-")
        if name in _SWITCHES or isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            values = value if isinstance(value, list | tuple) else [value]
            words += [word for one in values for word in (f"--{flag}", str(one))]
    return words


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
