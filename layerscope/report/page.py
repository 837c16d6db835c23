"""The page: what the frames hold, put into the template and written whole."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.errors import UsageError, count_of
from layerscope.files import make_folder, write_text
from layerscope.plots.scores import score_label, score_name
from layerscope.plots.series import check_columns
from layerscope.report.corpus import count_rows
from layerscope.report.decision import ExportCommand, make_cards, sink_note, sink_places
from layerscope.report.drawings import draw_all
from layerscope.report.inline_svg import Inliner
from layerscope.report.tables import list_recipes, metric_tables, score_tables
from layerscope.report.words import plain, values_of, without_unit

if TYPE_CHECKING:
    import pandas as pd
    from markupsafe import Markup

_START = 256  # bytes, enough to tell a page
_TURNING = re.compile("[\u202a-\u202e\u2066-\u2069]")  # directional overrides, embeddings and isolates
_LABELS = {"n_draws": "subsamples", "sinks": "sink tokens"}


def write_report(
    path: str | Path,
    *,
    metrics: pd.DataFrame,
    scores: pd.DataFrame | None = None,
    picks: pd.DataFrame | None = None,
    rows: pd.DataFrame | None = None,
    provenance: Mapping[str, Any] | None = None,
    commands: Sequence[str] = (),
    command_note: str = "",
    export_command: ExportCommand | None = None,
    labels: Mapping[str, str] | None = None,
    descriptions: Mapping[str, str] | None = None,
    title: str | None = None,
) -> Path:
    """Write one self-contained HTML file. It formats what the frames hold and computes nothing.

    Args:
        path: the file; its folder is made.
        metrics: metrics frame.
        scores: scores frame.
        picks: picks frame. The optional columns ``score``, ``best_layer_name``, ``best_score`` and
            ``cost`` say what a pick is worth on labelled data.
        rows: the cache's rows, with any of ``tokens``, ``truncated``, ``empty``, ``duplicate_of``,
            ``nonfinite``.
        provenance: what was run, label to value. ``n_draws`` (subsamples behind ``support``) and
            ``sinks`` (the sink report) are also used in sentences.
        commands: shell commands that make this report again.
        command_note: what they leave open.
        export_command: the shell command that exports a pick (a row of ``picks``), or an empty string.
        labels: axis label of each metric.
        descriptions: how to read each metric, in one sentence.
        title: heading of the page.

    Returns:
        ``path``.

    Raises:
        FrameError: the metrics frame has no rows or lacks a column.
        UsageError: a folder, or a file that is no page, stands there, or its name does not end in .html.
        CacheError: the file cannot be written.
    """
    target = report_file(path)
    check_columns(metrics, ("layer", "layer_name", "depth", "pooling", "metric", "value"), "metrics")
    facts = dict(provenance or {})
    scored = None if scores is None or scores.empty else scores
    inliner, script = Inliner(), _asset("report.js")
    page = _template().render(
        style=_asset("report.css"),
        script=script,
        policy=_policy(script),
        title=title or _title(metrics, picks),
        corpora=", ".join(values_of(metrics, "corpus")),
        cards=make_cards(picks, labels, facts.get("n_draws"), _score_phrase(scored, labels), export_command),
        tasks=", ".join(values_of(scored, "task")) if scored is not None else "",
        sinks=sink_note(metrics, facts.get("sinks")),
        sections=draw_all(metrics, scored, picks, labels, descriptions or {}, inliner),
        glyphs=inliner.shared(),
        metric_tables=metric_tables(metrics, labels),
        score_tables=[] if scored is None else score_tables(scored, labels),
        counts=[] if rows is None else count_rows(rows),
        recipes=list_recipes(metrics, scored, labels, descriptions or {}),
        provenance=[(_LABELS.get(name, name), _fact(name, value)) for name, value in facts.items()],
        commands=list(commands),
        notes=command_note,
    )
    make_folder(target.parent)
    write_text(target, page)
    return target


def _score_phrase(scores: pd.DataFrame | None, labels: Mapping[str, str] | None) -> str:
    """What the scores are, in a sentence: of which measure, on what, on how many items."""
    if scores is None:
        return ""
    name = score_name(scores, None)
    parts = [without_unit(score_label(name, labels)), ", ".join(values_of(scores, "task"))]
    counts = scores.loc[scores["metric"] == name, "n"].dropna() if "n" in scores else ()
    if len(counts):
        parts.append(count_of(int(max(counts)), "pair"))
    return ", ".join(part for part in parts if part)


def _fact(name: str, value: object) -> str:
    places = sink_places(value) if name == "sinks" else ""
    return places or plain(value)


def report_file(path: str | Path) -> Path:
    """``path``, where a report may be written there.

    Raises:
        UsageError: it is a folder, has another ending, or holds something else than a page.
    """
    target = Path(path)
    if target.is_dir():
        raise UsageError(f"{target} is a folder: name a file in it, as {target / 'report.html'}")
    if target.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{target} does not end in .html: name it {target.stem}.html")
    if target.is_file():
        with target.open("rb") as stream:
            start = stream.read(_START)
        if start and not start.lstrip().lower().startswith((b"<!doctype html", b"<html")):
            raise UsageError(f"{target} holds something else than a page: choose another name with -o")
    return target


def _in_reading_order(text: str) -> str:
    r"""``text`` with a mark for every sign that would turn the text after it around.

    >>> _in_reading_order("model \u202ekcab") == "model \ufffdkcab"
    True
    """
    return _TURNING.sub("\ufffd", text)


def _asset(name: str) -> Markup:
    """A file of ours, as it stands in the page."""
    from markupsafe import Markup

    return Markup(resources.files("layerscope").joinpath("templates", name).read_text(encoding="utf-8"))


def _policy(script: str) -> str:
    """A content security policy under which nothing is loaded or sent, and no script but ``script`` runs."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    allowed = f"script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _template() -> Any:
    from jinja2 import Environment, StrictUndefined

    source = _asset("report.html.j2")
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: _in_reading_order(value) if type(value) is str else value,
    )
    return environment.from_string(source)


def _title(metrics: pd.DataFrame, picks: pd.DataFrame | None) -> str:
    models = ", ".join(values_of(metrics, "model")) or "the model"
    if picks is None or picks.empty:
        return f"What the layers of {models} represent"
    return f"Which layer of {models} to use"
