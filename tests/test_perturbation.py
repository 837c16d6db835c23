"""Perturbed texts: which ids change and which never do, and that levels are measured as any other texts."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

import layerscope as ls
from layerscope.errors import CacheError, FrameError, UsageError
from layerscope.experiments import perturbed_texts
from layerscope.extraction import repair
from layerscope.frames import read_frame, write_frame
from layerscope.perturbation import Perturbation, vocabulary_of
from layerscope.plots import plot_perturbation
from layerscope.plots.style import role_of
from layerscope.tokens import Wrapping, tokenize
from tests.test_cli import complaint, run, tiny  # noqa: F401
from tests.tiny import TEXTS, WORDS, make_model, make_tokenizer

LONG = " ".join(["cat dog sat mat the on a b c d"] * 40)
VOCABULARY = np.arange(4, len(WORDS))


def table_of(texts, **options):
    return tokenize(make_tokenizer(), texts, 1000, **options)


def applied(kind, level, texts=(LONG, *TEXTS), seed=0, **options):
    table = table_of(list(texts), **options)
    return table, Perturbation(kind, level, seed).apply(table, range(len(texts)), VOCABULARY, 1000)


@pytest.mark.parametrize("kind", ["repeat", "random-token"])
def test_a_probability_of_zero_changes_nothing(kind):
    before, after = applied(kind, 0)
    np.testing.assert_array_equal(before.ids, after.ids)


def test_repeat_at_one_leaves_one_own_token_a_text_and_what_is_around_it():
    before, after = applied("repeat", 1)
    np.testing.assert_array_equal(before.lengths, after.lengths)
    np.testing.assert_array_equal(before.ids[before.special], after.ids[before.special])
    chosen = []
    for text in range(len(before.lengths)):
        span = before.span(text)
        (token,) = {*after.ids[span][~before.special[span]]}
        assert token in before.ids[span][~before.special[span]]
        chosen.append(token)
    assert len({*chosen}) > 1  # drawn for each text


def test_random_tokens_are_of_the_vocabulary_and_spread_over_all_of_it():
    before, after = applied("random-token", 1)
    own = after.ids[~before.special]
    assert {*own} == {*VOCABULARY}
    np.testing.assert_array_equal(before.ids[before.special], after.ids[before.special])
    counts = np.unique(after.ids[before.span(0)][1:-1], return_counts=True)[1]
    assert counts.max() < 6 * counts.mean()  # uniform, not as often as in the text


@pytest.mark.parametrize("level", [0.1, 0.5, 0.9])
def test_so_many_tokens_are_replaced(level):
    before, after = applied("random-token", level, [LONG])
    expected = level * (1 - 1 / len(VOCABULARY))  # a token may be drawn for itself
    assert np.mean((before.ids != after.ids)[1:-1]) == pytest.approx(expected, abs=0.08)


@pytest.mark.parametrize("kind", ["repeat", "random-token"])
def test_what_is_replaced_at_a_level_is_replaced_by_the_same_above_it(kind):
    before, low = applied(kind, 0.2)
    _, high = applied(kind, 0.6)
    changed = before.ids != low.ids
    assert changed.any()
    np.testing.assert_array_equal(low.ids[changed], high.ids[changed])


def test_seed_and_row_decide_the_draws_and_neighbours_do_not():
    _, one = applied("random-token", 0.5, [TEXTS[0], TEXTS[3]])
    _, same = applied("random-token", 0.5, [TEXTS[0], TEXTS[5]])
    _, other = applied("random-token", 0.5, [TEXTS[0], TEXTS[3]], seed=1)
    np.testing.assert_array_equal(one.ids[one.span(0)], same.ids[same.span(0)])
    assert (one.ids != other.ids).any()


def test_a_random_prompt_has_so_many_tokens_between_those_around_the_text():
    before, short = applied("random-prompt", 3)
    _, long = applied("random-prompt", 7)
    assert {*short.lengths} == {5}
    for text in range(len(before.lengths)):
        few, many = short.ids[short.span(text)], long.ids[long.span(text)]
        assert (few[0], few[-1]) == (2, 3)
        np.testing.assert_array_equal(few[1:-1], many[1:4])
        assert {*few[1:-1]} <= {*VOCABULARY}
    assert short.special.sum() == 2 * len(before.lengths)
    assert not short.truncated.any()


@pytest.mark.parametrize(("kind", "level"), [("repeat", 1), ("random-token", 1), ("random-prompt", 4)])
def test_a_prompt_before_the_text_is_left_alone(kind, level):
    before, after = applied(kind, level, TEXTS, wrapping=Wrapping("on the mat "))
    np.testing.assert_array_equal(before.ids[before.prompt], after.ids[after.prompt])
    assert (before.prompt.sum(), after.prompt.sum()) == (3 * len(TEXTS),) * 2


def test_texts_in_pieces_keep_them_and_a_random_prompt_is_whole():
    table = tokenize(make_tokenizer(), [LONG], 50, in_pieces=True)
    repeated = Perturbation("repeat", 1).apply(table, [0], VOCABULARY, 50)
    assert repeated.pieces == table.pieces
    np.testing.assert_array_equal(repeated.special, table.special)
    assert Perturbation("random-prompt", 48).apply(table, [0], VOCABULARY, 50).lengths.tolist() == [50]


def test_a_text_of_special_tokens_only_stays_as_it_is():
    before, after = applied("repeat", 1, [""])
    np.testing.assert_array_equal(before.ids, after.ids)
    assert applied("random-prompt", 2, [""])[1].lengths.tolist() == [4]


def test_the_vocabulary_has_no_special_tokens_and_none_that_the_model_does_not_know():
    tokenizer = make_tokenizer()
    special = {"[PAD]", "[UNK]", "[CLS]", "[SEP]"}
    ids = vocabulary_of(tokenizer, len(WORDS))
    assert {*tokenizer.convert_ids_to_tokens(ids.tolist())} == {*WORDS} - special
    assert vocabulary_of(tokenizer, 10).max() == 9
    tokenizer.add_tokens(["<odd>"], special_tokens=True)
    assert len(vocabulary_of(tokenizer, 1000)) == len(ids)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("shuffle", 0.5), "no perturbation is called 'shuffle'"),
        (("repeat", 1.5), "is a probability: it must be from 0 to 1"),
        (("repeat", float("nan")), "is a probability"),
        (("random-token", True), "it must be a number"),
        (("random-prompt", 0.5), "it must be whole, 1 or more"),
        (("random-prompt", 0), "it must be whole, 1 or more"),
        (("repeat", 0.5, -1), "it must be a whole number, 0 or more"),
    ],
)
def test_what_cannot_be_is_refused(arguments, says):
    with pytest.raises(UsageError, match=says):
        Perturbation(*arguments)


def test_random_prompts_that_are_too_long_are_refused():
    with pytest.raises(UsageError, match=r"random prompts of 99 tokens.*more than the 50"):
        Perturbation("random-prompt", 99).apply(table_of(["cat"]), [0], VOCABULARY, 50)


# Through extract and analyze


@pytest.mark.parametrize("family", ["bert", "llama"])
@pytest.mark.parametrize(("kind", "level"), [("repeat", 0.5), ("random-token", 0.5), ("random-prompt", 9)])
def test_rows_are_the_hidden_states_of_the_perturbed_ids(family, kind, level, tmp_path):
    model, tokenizer = make_model(family), make_tokenizer()
    perturbation = Perturbation(kind, level, seed=3)
    options = {"tokenizer": tokenizer, "pooling": "mean", "token_metrics": ()}
    texts = [*TEXTS, TEXTS[0]]  # a repeated text is perturbed as its first
    cache = ls.extract(model, texts, path=tmp_path / "c", perturbation=perturbation, **options)
    plain = tokenize(tokenizer, TEXTS, 64)
    table = perturbation.apply(plain, range(len(TEXTS)), VOCABULARY, 64)
    for row in range(len(texts)):
        ids = torch.tensor(table.ids[table.span(row % len(TEXTS))][None].astype(np.int64))
        with torch.inference_mode():
            states = model(input_ids=ids, output_hidden_states=True).hidden_states
        np.testing.assert_allclose(cache.layer("block.2")[row], states[2][0].mean(0), rtol=1e-4, atol=1e-5)
    assert cache.rows["tokens"].tolist()[:-1] == table.lengths.tolist()


def test_default_identities_know_nothing_of_perturbations(tmp_path):
    cache = ls.extract(make_model("bert"), TEXTS, path=tmp_path / "c", tokenizer=make_tokenizer())
    assert "perturbation" not in json.dumps(cache.manifest)


def test_another_perturbation_is_another_extraction(tmp_path):
    arguments = {"path": tmp_path / "c", "tokenizer": make_tokenizer()}
    ls.extract(make_model("bert"), TEXTS, perturbation=Perturbation("repeat", 0.5), **arguments)
    for other in (Perturbation("repeat", 0.5, seed=1), Perturbation("repeat", 0.6), None):
        with pytest.raises(CacheError, match="another extraction"):
            ls.extract(make_model("bert"), TEXTS, perturbation=other, **arguments)


def test_views_and_things_that_are_no_perturbation_are_refused(tmp_path):
    arguments = {"path": tmp_path / "c", "tokenizer": make_tokenizer()}
    with pytest.raises(UsageError, match="perturbed texts have no views"):
        ls.extract(make_model("bert"), TEXTS, perturbation=Perturbation("repeat", 1), views=2, **arguments)
    with pytest.raises(UsageError, match="perturbation is 'repeat'"):
        ls.extract(make_model("bert"), TEXTS, perturbation="repeat", **arguments)


def test_a_damaged_level_is_repaired(tiny, tmp_path):  # noqa: F811
    corpus = tmp_path / "texts.txt"
    corpus.write_text("\n".join(TEXTS))
    cache = ls.extract(tiny, corpus, path=tmp_path / "c", perturbation=Perturbation("repeat", 0.5))
    expected = np.array(cache.layer("block.4"))
    next((tmp_path / "c" / "embeddings").iterdir()).write_bytes(b"damaged")
    np.testing.assert_array_equal(repair(tmp_path / "c").layer("block.4"), expected)


@pytest.fixture(scope="module")
def model():
    return make_model("llama")


def levels_of(model, path, levels=(1, 0, 0.5), **options):
    return ls.perturb(
        model, TEXTS, path=path, levels=levels, draws=5, tokenizer=make_tokenizer(), pooling="mean",
        metrics=["prompt_entropy", "effective_rank"], **options,
    )  # fmt: skip


def test_every_level_equals_an_extraction_and_analysis_of_its_own(model, tmp_path):
    frame = levels_of(model, tmp_path / "all")
    assert frame["level"].drop_duplicates().tolist() == [0, 0.5, 1]
    assert {*frame["perturbation"]} == {"repeat"}
    for level in (0, 0.5):
        cache = ls.extract(
            model, TEXTS, path=tmp_path / f"own-{level}", tokenizer=make_tokenizer(), pooling="mean",
            perturbation=Perturbation("repeat", level) if level else None,
        )  # fmt: skip
        own = ls.analyze(cache, ["prompt_entropy", "effective_rank"], draws=5)
        found = frame[frame["level"] == level].drop(columns=["perturbation", "level"])
        pd.testing.assert_frame_equal(found.reset_index(drop=True), own)


def test_levels_that_are_there_are_not_run_again(model, tmp_path, monkeypatch):
    first = levels_of(model, tmp_path / "f", levels=(0, 1))
    ran = []
    apply = Perturbation.apply
    monkeypatch.setattr(
        Perturbation, "apply", lambda self, *rest: ran.append(self.level) or apply(self, *rest)
    )
    told: list[str] = []
    steps: list[tuple[int, int]] = []
    second = levels_of(
        model, tmp_path / "f", levels=(0, 0.5, 1), tell=told.append,
        progress=lambda done, total: steps.append((done, total)),
    )  # fmt: skip
    assert ran == [0.5]
    assert told[0] == "level 0: is there already"
    assert steps == sorted(steps)
    assert steps[-1] == (3000, 3000)
    kept = second[second["level"] != 0.5].reset_index(drop=True)
    pd.testing.assert_frame_equal(kept, first)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"levels": (0, 0.0)}, "level 0 is named twice"),
        ({"levels": ()}, "no level is named"),
        ({"kind": "shuffle", "levels": (0,)}, "no perturbation is called"),
        ({"metrics": ("infonce",)}, "metric 'infonce' needs views"),
        ({"metrics": ()}, "no metric is named"),
        ({"metrics": ("prompt_entropi",)}, "prompt_entropy"),
    ],
)
def test_perturb_refuses_before_anything_runs(model, tmp_path, options, says):
    with pytest.raises(UsageError, match=says):
        ls.perturb(model, TEXTS, path=tmp_path / "f", tokenizer=make_tokenizer(), **options)
    assert not (tmp_path / "f").exists()


def test_default_levels_can_all_be():
    for kind, levels in perturbed_texts.LEVELS.items():
        assert [Perturbation(kind, level).level for level in levels] == list(levels)


def test_repetition_compresses_minilm_and_random_tokens_do_not(minilm, tmp_path):
    texts = ["A new bridge across the river was opened by the mayor on Sunday morning.",
             "Prices of wheat rose sharply after a dry summer in the southern hills."]  # fmt: skip
    found = {
        kind: ls.perturb(minilm, texts, path=tmp_path, kind=kind, levels=(0, 1), draws=0).pivot_table(
            index="layer", columns="level", values="value"
        )
        for kind in ("repeat", "random-token")
    }
    assert (found["repeat"][1] < 0.8 * found["repeat"][0]).all()
    assert found["random-token"][1].min() > 0.9 * found["random-token"][0].min()


# The frame on disk, its figure, the command


@pytest.fixture(scope="module")
def frame(model, tmp_path_factory):
    return levels_of(model, tmp_path_factory.mktemp("levels"))


def test_the_frame_is_read_again_and_nothing_is_picked_from_several_levels(frame, tmp_path):
    path, _ = write_frame(frame, tmp_path / "repeat.parquet")
    assert len(read_frame(path, "metrics")) == len(frame)
    with pytest.raises(FrameError, match="several values"):
        ls.LayerSelector("effective_rank", pooling="mean").fit(frame)


def test_the_figure_has_a_line_for_each_level_in_order(frame):
    ax = plot_perturbation(frame, "prompt_entropy", labels={"prompt_entropy": "Prompt entropy (nats)"})
    lines = [line for line in ax.lines if role_of(line).startswith("line")]
    assert [line.get_label() for line in lines] == ["0", "0.5", "1"]
    rows = frame[(frame["metric"] == "prompt_entropy") & (frame["level"] == 0.5)]
    blocks = rows[rows["layer_name"] != "norm"]
    np.testing.assert_array_equal(lines[1].get_xydata(), blocks[["layer", "value"]].to_numpy(float))
    lightness = [np.mean(torch.tensor([int(line.get_color()[i : i + 2], 16) for i in (1, 3, 5)]).numpy())
                 for line in lines]  # fmt: skip
    assert lightness == sorted(lightness, reverse=True)
    assert len({line.get_marker() for line in lines}) == 3
    assert ax.get_ylabel() == "Prompt entropy (nats)"
    assert ax.figure.legends[0].get_title().get_text() == "share of tokens repeated"


def test_the_figure_prefers_what_is_without_sinks_where_every_level_has_it(frame):
    own = frame[frame["metric"] == "prompt_entropy"]
    without = own.assign(pooling="tokens-nosink", value=own["value"] + 1)
    both = pd.concat([own, without])
    ax = plot_perturbation(both, "prompt_entropy")
    low = own.loc[own["level"] == 0, "value"].iloc[0]
    assert ax.lines[1].get_ydata()[0] == pytest.approx(low + 1)
    some = pd.concat([own, without[without["level"] > 0]])
    assert plot_perturbation(some, "prompt_entropy").lines[1].get_ydata()[0] == pytest.approx(low)


def test_the_figure_refuses_what_it_cannot_draw(frame):
    with pytest.raises(FrameError, match="lacks the column"):
        plot_perturbation(frame.drop(columns="level"), "prompt_entropy")
    with pytest.raises(FrameError, match="several values of perturbation"):
        plot_perturbation(pd.concat([frame, frame.assign(perturbation="random-token")]), "prompt_entropy")
    with pytest.raises(UsageError, match="no rows of pooling 'last'"):
        plot_perturbation(frame, "prompt_entropy", pooling="last")
    with pytest.raises(FrameError, match="no rows of metric"):
        plot_perturbation(frame, "dime")


def test_the_command_writes_frame_and_figures_and_goes_on(run, tiny, tmp_path):  # noqa: F811
    corpus, out = tmp_path / "texts.txt", tmp_path / "out"
    corpus.write_text("\n".join(TEXTS))
    words = ["perturb", tiny, corpus, "-o", out, "--kind", "random-prompt", "--draws", "2"]
    code, printed, err = run(*words, "--levels", "4,8")
    assert code == 0, err
    assert "level 4" in printed
    frame = pd.read_parquet(out / "random-prompt.parquet")
    assert frame["level"].drop_duplicates().tolist() == [4, 8]
    for ending in ("png", "svg", "pdf"):
        assert (out / f"random-prompt-prompt_entropy-tokens.{ending}").stat().st_size > 1000
    code, _, err = run(*words, "--levels", "4,8,16")
    assert code == 0, err
    assert "level 4: is there already" in err
    assert "level 16: is there already" not in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--kind", "shuffle"], "no perturbation is called 'shuffle'"),
        (["--levels", "a"], "--levels: 'a' is not a number"),
        (["--levels", "2"], "it must be from 0 to 1"),
        (["--metrics", "lidar"], "needs views"),
        (["--kind", "random-prompt", "--levels", "1000"], "choose a smaller level"),
    ],
)
def test_bad_words_are_one_line(run, tiny, tmp_path, words, says):  # noqa: F811
    corpus = tmp_path / "texts.txt"
    corpus.write_text("\n".join(TEXTS))
    code, _, err = run("perturb", tiny, corpus, "-o", tmp_path / "out", *words)
    assert code == 2
    assert says in complaint(err)
