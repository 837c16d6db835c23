"""Token tables, token sets and batches."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.errors import UsageError
from layerscope.tokens import (
    SinkRule,
    TokenPolicy,
    TokenTable,
    Wrapping,
    _divide,
    batch_texts,
    bos_eos_note,
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


def words(tokenizer, table, mask):
    """The tokens of the first text that the mask chooses."""
    span = table.span(0)
    return tokenizer.convert_ids_to_tokens(table.ids[span][mask[span]].tolist())


def test_a_prompt_stands_before_the_text_and_can_be_left_out_of_pools():
    tokenizer = make_tokenizer()
    table = tokenize(tokenizer, ["the cat sat", "dog"], 64, Wrapping(prompt="on a "))
    assert table.ids[table.span(1)].tolist() == tokenizer("on a dog")["input_ids"]
    assert words(tokenizer, table, table.prompt) == ["on", "a"]
    kept = TokenPolicy(prompt_tokens="drop").token_sets(table)["kept"]
    assert words(tokenizer, table, kept) == ["[CLS]", "the", "cat", "sat", "[SEP]"]
    assert TokenPolicy().token_sets(table)["kept"].all()


@pytest.mark.parametrize("prompt", ["", "on "])
@pytest.mark.parametrize("strip", ["", ".strip()"])
def test_a_chat_template_brings_its_own_special_tokens_once(prompt, strip):
    tokenizer = make_tokenizer()
    tokenizer.chat_template = (
        "[CLS]{% for m in messages %}a {{ m['content']" + strip + " }} [SEP] b{% endfor %}[SEP]"
    )
    wrapping = Wrapping(prompt=prompt, chat=True)
    table = tokenize(tokenizer, [" the cat" if not prompt else "the cat"], 64, wrapping)
    found = tokenizer.convert_ids_to_tokens(table.ids.tolist())
    said = [*prompt.split(), "the", "cat"]
    assert found == ["[CLS]", "a", *said, "[SEP]", "b", "[SEP]"]
    assert words(tokenizer, table, ~table.special) == said
    if prompt:
        assert words(tokenizer, table, table.prompt) == ["on"]


def test_wrappings_that_cannot_be_are_refused():
    tokenizer = make_tokenizer()
    with pytest.raises(UsageError, match="--chat-template: this tokenizer has none"):
        tokenize(tokenizer, ["a"], 9, Wrapping(chat=True))
    tokenizer.chat_template = "{{ messages[0]['content'] | upper }}"
    with pytest.raises(UsageError, match="the template changes the text 'cat'"):
        tokenize(tokenizer, ["cat"], 9, Wrapping(chat=True))

    class Slow:
        is_fast = False

    with pytest.raises(UsageError, match="need a fast tokenizer, not a Slow"):
        tokenize(Slow(), ["a"], 9, Wrapping(prompt="query: "))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=30), st.integers(1, 30))
def test_equal_lengths_need_no_padding(lengths, budget):
    table = table_of(lengths)
    groups = list(batch_texts(table, np.arange(len(lengths)), budget, equal_lengths=True))
    assert sorted(np.concatenate(groups)) == list(range(len(lengths)))
    for group in groups:
        assert len(set(table.lengths[group])) == 1


def test_pieces_keep_the_special_tokens_and_leave_nothing_out():
    tokenizer = make_tokenizer()
    text = " ".join("abcdefghij")
    table = tokenize(tokenizer, ["a", text], 5, in_pieces=True)
    assert dict(table.pieces) == {1: (5, 5, 5, 3)}
    pieces = table.pieces_of(1)
    found = [tokenizer.convert_ids_to_tokens(pieces.ids[pieces.span(k)].tolist()) for k in range(4)]
    assert found[0] == ["[CLS]", "a", "b", "c", "[SEP]"]
    assert found[3] == ["[CLS]", "j", "[SEP]"]
    assert [token for part in found for token in part[1:-1]] == text.split()
    assert table.positions.tolist() == [*range(3), *range(5), *range(5), *range(5), *range(3)]
    assert table.beginnings().lengths.tolist() == [3, 5]
    assert not table.truncated.any()
    with pytest.raises(UsageError, match="--max-length is 2: 2 tokens stand around every text"):
        tokenize(tokenizer, [text], 2, in_pieces=True)


def test_a_text_of_special_tokens_alone_is_divided_too():
    assert [part.tolist() for part in _divide(np.ones(5, dtype=bool), 2)] == [[0, 1], [2, 3], [4]]


def test_beginnings_and_ends_are_counted():
    tokenizer = make_tokenizer()
    table = tokenize(tokenizer, ["a b", "[SEP] a"], 9)
    assert bos_eos_note(table, tokenizer) == ()
    tokenizer.bos_token, tokenizer.eos_token = "[CLS]", "[SEP]"
    assert bos_eos_note(table, tokenizer) == ("each text got 1 BOS ([CLS]), 1 to 2 EOS ([SEP])",)
