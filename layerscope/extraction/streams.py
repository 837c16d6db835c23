"""Streams of texts through the model: the corpus itself and each view of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerscope.backbone import Backbone
from layerscope.corpus import Corpus
from layerscope.errors import CorpusError, ModelError, UsageError
from layerscope.models import LoadedModel
from layerscope.perturbation import Perturbation, vocabulary_of
from layerscope.tokens import TokenTable, Wrapping, tokenize
from layerscope.views import ViewKind, ViewPlan


@dataclass(frozen=True)
class Stream:
    """One text a row, each distinct text once.

    Attributes:
        folder: where its shards go.
        table: tokens of the distinct texts.
        text_of: (n,) number of each row's text in the table, -1 where the row is empty.
        first_row: (texts,) first row that has the text, ascending.
        dropout: seed of the dropout that the model runs with; ``None`` where it runs without.
    """

    folder: str
    table: TokenTable
    text_of: NDArray[np.int64]
    first_row: NDArray[np.int64]
    dropout: int | None = None

    @property
    def view(self) -> str:
        """Name of the view; empty for the corpus itself."""
        return self.folder.removeprefix("views/") if self.folder.startswith("views/") else ""

    @property
    def prefix(self) -> str:
        """What names of a view's layers and poolings start with; empty for the corpus itself."""
        return f"{self.view}/" if self.view else ""

    def spread(self, per_text: NDArray[Any]) -> NDArray[Any]:
        """A value of each text (texts,) as one of each row (n,); 0 for empty rows."""
        return np.append(per_text, np.zeros(1, dtype=per_text.dtype))[self.text_of]

    def new_texts(self, start: int, stop: int) -> NDArray[np.int64]:
        """Numbers of the texts that occur first in rows [start, stop) and have at least one token."""
        low, high = np.searchsorted(self.first_row, [start, stop])
        texts = np.arange(low, high, dtype=np.int64)
        return texts[self.table.lengths[texts] > 0]


def make_view_plan(corpus: Corpus, views: int, seed: int, kind: ViewKind) -> ViewPlan | None:
    """Which views of the corpus to embed: made of each text, its second wording, or none."""
    if "view_text" in corpus.rows.columns:
        if views:
            raise UsageError("--views and --view-column exclude each other: choose one source of views")
        return ViewPlan(kind="column")
    return ViewPlan(kind=kind, count=views, seed=seed) if views else None


def check_dropout(plan: ViewPlan | None, backbone: Backbone) -> None:
    """Refuse views by dropout of a model that drops nothing.

    Raises:
        UsageError: its views would be equal.
    """
    if plan is not None and plan.kind == "dropout" and not backbone.has_dropout:
        raise UsageError(
            f"--view-kind dropout: {type(backbone.model).__name__} drops nothing, so that its views would be "
            "equal: choose augment or crop"
        )


def make_streams(
    corpus: Corpus,
    view_plan: ViewPlan | None,
    loaded: LoadedModel,
    wrapping: Wrapping,
    *,
    in_pieces: bool,
    perturbation: Perturbation | None = None,
) -> list[Stream]:
    """The corpus, with its token ids changed where that is wanted, and its views, tokenized."""
    empty = corpus.rows["empty"].to_numpy(dtype=bool)
    cut = partial(
        tokenize, loaded.tokenizer, max_length=loaded.max_length, wrapping=wrapping, in_pieces=in_pieces
    )
    streams = [_make_stream("embeddings", corpus.texts, empty, loaded, cut)]
    if perturbation is not None:
        main, known = streams[0], _known_tokens(loaded)
        vocabulary = vocabulary_of(loaded.tokenizer, known)
        table = perturbation.apply(main.table, main.first_row.tolist(), vocabulary, loaded.max_length)
        streams = [replace(main, table=table)]
    if view_plan is not None:
        is_column = view_plan.kind == "column"
        column = corpus.rows["view_text"].tolist() if is_column else None
        blank = empty | corpus.rows["view_empty"].to_numpy(dtype=bool) if is_column else empty
        for name, texts in view_plan.texts(corpus.texts, column).items():
            stream = _make_stream(f"views/{name}", texts, blank, loaded, cut)
            streams.append(replace(stream, dropout=view_plan.seed if view_plan.kind == "dropout" else None))
    return streams


def _make_stream(
    folder: str,
    texts: Sequence[str],
    empty: NDArray[np.bool_],
    loaded: LoadedModel,
    cut: Callable[[list[str]], TokenTable],
) -> Stream:
    numbers: dict[str, int] = {}
    first_row = []
    text_of = np.full(len(texts), -1, dtype=np.int64)
    for row, text in enumerate(texts):
        if empty[row]:
            continue
        if text not in numbers:
            numbers[text] = len(numbers)
            first_row.append(row)
        text_of[row] = numbers[text]
    table = cut(list(numbers))
    known = _known_tokens(loaded)
    if len(table.ids) and int(table.ids.max()) >= known:
        raise ModelError(
            f"the tokenizer gives token {int(table.ids.max())}, and the model knows {known:,} tokens: "
            "the tokenizer is not the model's"
        )
    return Stream(folder, table, text_of, np.asarray(first_row, dtype=np.int64))


def _known_tokens(loaded: LoadedModel) -> int:
    """How many tokens the model has embeddings of."""
    return int(loaded.model.get_input_embeddings().weight.shape[0])


def refuse_cut_rows(truncated: NDArray[np.bool_], max_length: int) -> None:
    """Refuse texts that are cut.

    Raises:
        CorpusError: names the first of them.
    """
    cut = np.flatnonzero(truncated)
    if cut.size:
        more = f" and {cut.size - 1} more" if cut.size > 1 else ""
        raise CorpusError(
            f"row {cut[0]}{more}: longer than {max_length} tokens: shorten it, raise --max-length if the "
            "model allows, or let it be cut with --on-truncate warn"
        )
