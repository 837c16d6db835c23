"""Augmented views: a function of (seed, row, view) alone, with the edits and rates it promises."""

from __future__ import annotations

import itertools
import json
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.errors import UsageError
from layerscope.views import (
    _NEIGHBOURS,
    DEFAULT_RATES,
    EditRates,
    ViewPlan,
    _Dice,
    _edited,
    _keyboard_slips,
    _random_characters,
    _split_word,
    augment,
    augmented_views,
    crop,
)

SENTENCE = "Intermediate layers often represent sentences better than the final layer does"
KEYBOARD = {"g": "fhtyvb", "a": "sqwz", "p": "ol", "m": "njk", "l": "kop", "q": "wa"}


def edits(before: str, after: str) -> int:
    """How many letters differ, once the spaces of split words are out."""
    bare = [text.replace(" ", "") for text in (before, after)]
    assert len(bare[0]) == len(bare[1])
    return sum(first != second for first, second in zip(*bare, strict=True))


def test_the_views_of_this_version_are_pinned() -> None:
    # These strings stand in people's caches: if they must change, raise _RECIPE too.
    assert augmented_views(["A girl is styling her hair.", "Ein Mädchen"], 2, seed=7) == [
        ["A goro is sty)iog her hai r.", "Ein Mä dzhen"],
        ["A gir l is dryOiYg her yagr.", "Ein Mädcj5 n"],
    ]
    assert ViewPlan("augment", 2, seed=7).identity()["recipe"] == 1


def test_a_view_depends_on_seed_row_and_view_alone() -> None:
    views = augmented_views([SENTENCE, "another text here", SENTENCE], 3, seed=4)
    assert views[1][2] == augment(SENTENCE, seed=4, row=2, view=1)
    assert [view[2] for view in augmented_views(["x", "", SENTENCE], 3, seed=4)] == [
        view[2] for view in views
    ]
    assert augmented_views([SENTENCE], 1, seed=4)[0][0] == views[0][0]


def test_seeds_rows_and_views_give_different_edits() -> None:
    keys = [(seed, row, view) for seed in range(3) for row in range(3) for view in range(3)]
    assert len({augment(SENTENCE, seed=s, row=r, view=v) for s, r, v in keys}) == len(keys)


@given(st.text(max_size=60), st.integers(0, 2**63), st.integers(0, 2**40))
def test_any_text_has_a_view_and_it_differs_where_a_word_can_be_edited(
    text: str, seed: int, row: int
) -> None:
    view = augment(text, seed=seed, row=row, view=0)
    assert view == augment(text, seed=seed, row=row, view=0)
    words = "".join(letter if letter.isalnum() or letter == "_" else " " for letter in text).split()
    if any(len(word) > 1 for word in words):
        assert view.count(" ") > text.count(" ")
    if not words:
        assert view == text


@pytest.mark.parametrize(
    "text", ["", " ", "a", "I", "I a", "?!", "\U0001f600 \U0001f44d\U0001f3fd", "é", "字"]
)
def test_texts_without_a_word_of_two_letters_come_back(text: str) -> None:
    assert {augment(text, seed=0, row=row, view=0) for row in range(20)} == {text}


def test_short_words_are_edited_only_where_there_are_no_long_ones() -> None:
    for row in range(50):
        words = augment("the cat represents", seed=0, row=row, view=0, char_rate=0).split(" ")
        assert words[:2] == ["the", "cat"]
    assert augment("the cat", seed=0, row=0, view=0) != "the cat"


def test_white_space_and_punctuation_stay() -> None:
    view = augment("\tone,  two;\nthree -- four!", seed=1, row=0, view=0, word_rate=1, char_rate=0)
    assert view.replace(" ", "") == "\tone,two;\nthree--four!"
    assert view.startswith("\t")
    assert "\n" in view


def step(edit: Callable[..., list[str]], text: str, row: int) -> str:
    return _edited(text, edit, DEFAULT_RATES, _Dice(0, row, 0))


def test_each_step_edits_three_tenths_of_the_words_and_of_their_letters() -> None:
    text = " ".join(["abcdefghij"] * 10)
    for row in range(20):
        assert step(_split_word, text, row).count(" ") == text.count(" ") + 3
        for edit in (_random_characters, _keyboard_slips):
            changed = step(edit, text, row)
            words = [edits("abcdefghij", word) for word in changed.split(" ")]
            assert sorted(words) == [0] * 7 + [3] * 3


def test_at_most_ten_words_and_ten_letters_are_edited_in_a_step() -> None:
    text = " ".join(["ab" * 50] * 100)
    assert step(_split_word, text, 0).count(" ") == text.count(" ") + 10
    assert edits(text, step(_random_characters, text, 0)) == 100
    assert edits(text, step(_keyboard_slips, text, 0)) == 100


def test_a_rate_of_nothing_edits_nothing() -> None:
    assert augment(SENTENCE, seed=0, row=0, view=0, word_rate=0) == SENTENCE
    splits_only = augment(SENTENCE, seed=0, row=0, view=0, char_rate=0)
    assert edits(SENTENCE, splits_only) == 0
    assert splits_only != SENTENCE


def test_one_edit_at_least_however_small_the_rates() -> None:
    views = {
        augment("abcdefgh", seed=0, row=row, view=0, word_rate=1e-9, char_rate=1e-9) for row in range(20)
    }
    assert all(view.count(" ") == 1 and 1 <= edits("abcdefgh", view) <= 2 for view in views)


def test_words_are_split_at_every_inner_place() -> None:
    views = {augment("abcd", seed=0, row=row, view=0, char_rate=0) for row in range(200)}
    assert views == {"a bcd", "ab cd", "abc d"}


def test_keyboard_slips_go_to_neighbouring_keys_and_keep_case() -> None:
    for key, near in KEYBOARD.items():
        assert sorted(_NEIGHBOURS[key]) == sorted(near)
        assert sorted(_NEIGHBOURS[key.upper()]) == sorted(near.upper())
    assert len(_NEIGHBOURS) == 52
    assert all(key in _NEIGHBOURS[other] for key, near in _NEIGHBOURS.items() for other in near)


def test_random_characters_never_stand_for_themselves() -> None:
    for row in range(300):
        assert _random_characters(["a", "b"], 1.0, _Dice(0, row, 0))[0] != "a"


def test_letters_with_accents_and_joined_emoji_are_not_taken_apart() -> None:
    text = (
        "e\u0301te\u0301e\u0301te\u0301 नमस्ते \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea"
    )
    for row in range(100):
        view = augment(text, seed=0, row=row, view=0, word_rate=1)
        assert view.endswith("\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea")
        for before, after in itertools.pairwise(view):
            if unicodedata.category(after) in ("Mn", "Mc"):
                assert before.isalpha() or unicodedata.category(before) in ("Mn", "Mc")
                assert not before.isascii() or before == "e"


def test_a_writing_without_spaces_is_edited() -> None:
    assert augment("日本語の文章です", seed=0, row=0, view=0) != "日本語の文章です"


@pytest.mark.parametrize("rates", [{"word_rate": 1.5}, {"char_rate": -0.1}, {"word_rate": float("nan")}])
def test_rates_are_shares(rates: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="share between 0 and 1"):
        augment("text", seed=0, row=0, view=0, **rates)


@pytest.mark.parametrize("numbers", [(-1, 0, 0), (0, -1, 0), (0, 0, -1)])
def test_numbers_are_not_negative(numbers: tuple[int, int, int]) -> None:
    seed, row, view = numbers
    with pytest.raises(UsageError, match="0 or more"):
        augment("text", seed=seed, row=row, view=view)


def test_less_than_one_view_is_refused() -> None:
    with pytest.raises(UsageError, match="one or more"):
        augmented_views(["a"], 0)


def test_a_plan_of_edits() -> None:
    plan = ViewPlan("augment", 2, seed=3)
    views = plan.texts([SENTENCE, ""])
    assert tuple(views) == plan.names == ("augment.1", "augment.2")
    assert list(views.values()) == augmented_views([SENTENCE, ""], 2, seed=3)
    assert views["augment.1"][0] != views["augment.2"][0]
    assert views["augment.1"][1] == ""


def test_a_plan_of_a_column() -> None:
    plan = ViewPlan("column")
    given = ["b"]
    views = plan.texts(["a"], given)
    assert (plan.names, views) == (("column",), {"column": ["b"]})
    assert views["column"] is not given
    for missing in (None, [], ["b", "c"]):
        with pytest.raises(UsageError, match="--view-column"):
            plan.texts(["a"], missing)


def test_whatever_changes_the_views_changes_the_identity() -> None:
    plans = [
        ViewPlan("augment", 2),
        ViewPlan("augment", 3),
        ViewPlan("augment", 2, seed=1),
        ViewPlan("augment", 2, rates=EditRates(word=0.2)),
        ViewPlan("augment", 2, rates=EditRates(char=0.2)),
        ViewPlan("column"),
    ]
    assert len({json.dumps(plan.identity(), sort_keys=True) for plan in plans}) == len(plans)
    assert ViewPlan("augment", 2, rates=DEFAULT_RATES).identity() == ViewPlan("augment", 2).identity()
    assert ViewPlan("augment", rates=EditRates(1, 1)).identity() == (
        ViewPlan("augment", rates=EditRates(1.0, 1.0)).identity()
    )


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"kind": "dropuot"}, "did you mean .dropout."),
        ({"kind": "augment", "count": 0}, "1 or more"),
        ({"kind": "column", "count": 2}, "exactly 1"),
        ({"kind": "augment", "seed": -1}, "seed"),
        ({"kind": "augment", "rates": EditRates(2.0, 0.3)}, "word rate"),
    ],
)
def test_bad_plans(options: dict[str, object], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        ViewPlan(**options)  # type: ignore[arg-type]


@given(st.text(), st.integers(0, 5), st.integers(0, 5), st.integers(0, 3))
def test_a_crop_is_a_run_of_at_least_half_of_the_words(text, seed, row, view):
    found = crop(text, seed=seed, row=row, view=view)
    assert found == crop(text, seed=seed, row=row, view=view)
    assert found in text
    if len(text.split()) > 1:
        assert (len(text.split()) + 1) // 2 <= len(found.split()) <= len(text.split())


def test_crops_differ_by_seed_row_and_view():
    text = " ".join(f"w{number}" for number in range(60))
    found = {
        crop(text, seed=seed, row=row, view=view) for seed in (0, 1) for row in (0, 1) for view in (0, 1)
    }
    assert len(found) == 8
    plan = ViewPlan("crop", 2, seed=1)
    assert list(plan.texts([text])) == ["crop.1", "crop.2"]
    assert plan.identity() != ViewPlan("dropout", 2, seed=1).identity()
