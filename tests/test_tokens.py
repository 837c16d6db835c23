"""Token tables, token sets and batches."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.tokens import (
    SinkRule,
    TokenPolicy,
    TokenTable,
    batch_texts,
    count_tokens,
    make_batch,
    tokenize,
)
from tests.tiny import TEXTS, make_tokenizer


def table_of(lengths: list[int]) -> TokenTable:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    ids = np.concatenate([np.arange(1, length + 1) for length in lengths] or [[]]).astype(np.int32)
    return TokenTable(ids, np.zeros(len(ids), bool), offsets, np.zeros(len(lengths), bool))


def test_tokenizing_together_equals_each_text_alone():
    tokenizer = make_tokenizer()
    table = tokenize(tokenizer, TEXTS, 64)
    for number, text in enumerate(TEXTS):
        assert table.ids[table.span(number)].tolist() == tokenizer(text)["input_ids"]


def test_truncation_keeps_the_closing_special_token():
    table = tokenize(make_tokenizer(), ["a b c d e f g", "a"], 4)
    assert table.ids[table.span(0)].tolist() == [2, 4, 5, 3]
    assert table.truncated.tolist() == [True, False]
    assert table.special[table.span(0)].tolist() == [True, False, False, True]


def test_no_texts_give_an_empty_table():
    table = tokenize(make_tokenizer(), [], 4)
    assert table.lengths.tolist() == []


def test_token_sets():
    table = TokenTable(
        np.array([2, 7, 8, 3, 2, 8, 3], np.int32),
        np.array([1, 0, 0, 1, 1, 0, 1], bool),
        np.array([0, 4, 7]),
        np.zeros(2, bool),
    )
    plain = TokenPolicy(cls_token_id=2).token_sets(table)
    assert plain["kept"].all()
    assert plain["nosink"].all()
    assert plain["cls"].tolist() == [1, 0, 0, 0, 1, 0, 0]
    sinks = TokenPolicy(sinks=SinkRule(positions=(1,), token_ids=(3,))).token_sets(table)
    assert sinks["nosink"].tolist() == [1, 0, 1, 0, 1, 0, 0]
    assert sinks["kept"].all()
    dropped = TokenPolicy("drop", drop_first_token=True).token_sets(table)
    assert dropped["kept"].tolist() == [0, 1, 1, 0, 0, 1, 0]
    assert count_tokens(table, dropped["kept"]).tolist() == [2, 1]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=30), st.integers(1, 80))
def test_batches_hold_every_text_once_within_the_budget(lengths, budget):
    table = table_of(lengths)
    groups = list(batch_texts(table, np.arange(len(lengths)), budget))
    assert sorted(np.concatenate(groups)) == list(range(len(lengths)))
    for group in groups:
        assert len(group) == 1 or len(group) * table.lengths[group].max() <= budget
    longest = [table.lengths[group].max() for group in groups]
    assert longest == sorted(longest, reverse=True)


def test_padding_is_on_the_right_and_in_no_set():
    table = table_of([3, 1])
    sets = TokenPolicy().token_sets(table)
    batch = make_batch(table, sets, np.array([1, 0]), pad_id=9)
    assert batch.ids.tolist() == [[1, 9, 9], [1, 2, 3]]
    assert batch.real.tolist() == [[True, False, False], [True, True, True]]
    assert batch.sets["kept"].tolist() == batch.real.tolist()
