"""Reading texts: what comes out row by row, and one clear line for each thing that can be wrong."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections.abc import Callable
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.corpus import Corpus, is_blank, read_corpus
from layerscope.errors import CorpusError, LayerscopeError, UsageError

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

Write = Callable[[str, "str | bytes"], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


def refused(error: type[LayerscopeError], *words: str, source: object, **options: object) -> None:
    """The source is refused with one line that holds all ``words``."""
    with pytest.raises(error) as caught:
        read_corpus(source, **options)  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


# --- what comes out ---------------------------------------------------------------------------------


def test_texts_keep_their_edges_and_their_places(write: Write) -> None:
    corpus = read_corpus(write("a.txt", "  one \n\n \t\r\ntwo\r\n"))
    assert corpus.texts == ["  one ", "", " \t", "two"]
    assert corpus.rows["empty"].tolist() == [False, True, True, False]
    assert (corpus.name, corpus.n_texts, corpus.is_pairs) == ("a", 4, False)
    assert corpus.notes == ("empty texts, kept in place and flagged: 2 of 4",)


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r"])
def test_only_newlines_end_a_line(write: Write, separator: str) -> None:
    for name in ("a.txt", "a.tsv", "a.jsonl"):
        row = f"x{separator}y"
        content = {"a.txt": f"{row}\nz", "a.tsv": f"text\n{row}\nz"}.get(name)
        content = content or f'{json.dumps({"text": row}, ensure_ascii=False)}\n{{"text": "z"}}'
        texts = read_corpus(write(name, content)).texts
        assert len(texts) == 2
        assert texts[0] in (row, "x y")


def test_pairs_are_interleaved_and_share_label_and_score(write: Write) -> None:
    path = write("p.tsv", "sentence1\tsentence2\tscore\tlabel\na\tb\t1.5\tx\nc\td\t\ty\n")
    corpus = read_corpus(path)
    assert corpus.texts == ["a", "b", "c", "d"]
    assert corpus.rows["pair"].tolist() == [0, 0, 1, 1]
    assert corpus.rows["side"].tolist() == [0, 1, 0, 1]
    assert corpus.rows["label"].tolist() == ["x", "x", "y", "y"]
    np.testing.assert_array_equal(corpus.rows["score"], [1.5, 1.5, math.nan, math.nan])
    assert "missing scores: 1 of 2" in corpus.notes
    assert corpus.is_pairs


def test_words_that_pandas_takes_for_missing_stay_texts(write: Write) -> None:
    words = ["NA", "null", "None", "nan", "1e5", "007", "True", ""]
    path = write("w.csv", "text,label\n" + "".join(f"{word},{word}\n" for word in words))
    corpus = read_corpus(path, text_columns="text", label_column="label")
    assert corpus.texts == words
    assert corpus.rows["label"].tolist()[:7] == words[:7]
    assert pd.isna(corpus.rows["label"].iloc[7])


def test_tsv_is_unquoted_and_csv_is_quoted(write: Write) -> None:
    tsv = write("q.tsv", 'text\n"a\n6" by 7"\n')
    assert read_corpus(tsv).texts == ['"a', '6" by 7"']
    body = 'text{0}label\n"a{0}b ""c""\nd"{0}x\n'
    for path, options in (
        (write("q.csv", body.format(",")), {}),
        (write("r.tsv", body.format("\t")), {"quoting": True}),
    ):
        (text,) = read_corpus(path, **options).texts
        assert text == f'a{"," if path.suffix == ".csv" else chr(9)}b "c"\nd'
    assert read_corpus(write("s.csv", 'text,label\n"a,"b\n'), quoting=False).texts == ['"a']


def test_blank_lines_are_rows_only_where_a_row_has_one_field(write: Write) -> None:
    assert read_corpus(write("one.tsv", "text\na\n\nb\n")).texts == ["a", "", "b"]
    assert read_corpus(write("two.tsv", "text\tlabel\na\tx\n\nb\ty\n\n")).texts == ["a", "b"]
    assert read_corpus(write("two.jsonl", '{"text": "a"}\n\n{"text": "b"}\n')).texts == ["a", "b"]


def test_compressed_marked_and_encoded_files(write: Write) -> None:
    packed = write("c.jsonl.gz", gzip.compress(b'{"text": "caf\xc3\xa9"}\n'))
    assert (read_corpus(packed).texts, read_corpus(packed).name) == (["café"], "c")
    assert read_corpus(write("bom.csv", b"\xef\xbb\xbftext\r\nx\r\n")).texts == ["x"]
    assert read_corpus(write("l.txt", "café".encode("latin-1")), encoding="latin-1").texts == ["café"]
    for encoding in ("utf-16", "utf-16-le", "utf-32"):
        path = write("wide.txt", "Ċafé\nn\u0a0d\n".encode(encoding))
        assert read_corpus(path, encoding=encoding).texts == ["Ċafé", "n\u0a0d"]


def test_a_megabyte_in_one_field(write: Write) -> None:
    before = csv.field_size_limit(100_000)
    text = "word " * 200_000
    for name, content in (("m.txt", text), ("m.csv", f'text\n"{text}"\n'), ("m.tsv", f"text\n{text}\n")):
        assert read_corpus(write(name, content)).texts == [text]
    assert csv.field_size_limit(before) == 100_000


def test_control_characters_become_spaces_and_are_counted() -> None:
    corpus = read_corpus(["a\x00b\x1f", "tab\tand\nline\r\n", "c\x9bd\x7f", "\x01"])
    assert corpus.texts == ["a b ", "tab\tand\nline\r\n", "c d ", " "]
    assert corpus.rows["empty"].tolist() == [False, False, False, True]
    assert "control characters replaced by a space in 'text': 5 in 3 of 4 rows" in corpus.notes


def test_half_surrogates_become_replacement_characters(write: Write) -> None:
    path = write("s.jsonl", r'{"text": "a\ud800b", "label": "\udfff"}' + "\n" + r'{"text": "\ud83d\ude00"}')
    corpus = read_corpus(path)
    assert corpus.texts == ["a\ufffdb", "\U0001f600"]
    assert any("U+FFFD in 'text': 1 in 1 of 2 rows" in note for note in corpus.notes)
    assert len(corpus.sha256) == 64  # neither texts nor labels break the encoding


def test_invisible_texts_are_empty_and_visible_ones_are_not() -> None:
    corpus = read_corpus(["\u200b\ufeff", "\u3000", "\u00a0", "\U0001f600", "\u0301", "."])
    assert corpus.rows["empty"].tolist() == [True, True, True, False, False, False]


def test_standard_input_is_a_line_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("é\r\nb\n".encode()), "ascii"))
    corpus = read_corpus("-")
    assert (corpus.name, corpus.texts) == ("stdin", ["é", "b"])


def test_a_frame_gives_its_columns_and_is_left_alone() -> None:
    frame = pd.DataFrame({"text": ["a", None, "c"], "label": [3, 1, 2], "score": [0.5, math.nan, 1]})
    before = frame.copy()
    corpus = read_corpus(frame)
    assert corpus.texts == ["a", "", "c"]
    assert corpus.rows["label"].tolist() == ["3", "1", "2"]
    np.testing.assert_array_equal(corpus.rows["score"], [0.5, math.nan, 1])
    assert corpus.rows.index.tolist() == [0, 1, 2]
    pd.testing.assert_frame_equal(frame, before)
    shuffled = frame.iloc[[2, 0]]
    assert read_corpus(shuffled).texts == ["c", "a"]


def test_parquet_and_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    frame = pd.DataFrame({"text": [f"t{k}" for k in range(20_000)], "vector": [[1.0]] * 20_000})
    frame.to_parquet(path)
    assert read_corpus(path).n_texts == 20_000
    assert read_corpus(path, limit=8193).texts == frame["text"].tolist()[:8193]
    refused(UsageError, "'vector'", "list<", source=path, text_columns="vector")


def test_rows_survive_parquet(write: Write, tmp_path: Path) -> None:
    rows = read_corpus(write("p.csv", "text1,text2,score,label\na,b,1,\n,d,,y\n")).rows
    rows.to_parquet(tmp_path / "rows.parquet", index=False)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "rows.parquet"), rows)


@pytest.mark.parametrize("name", ["l.txt", "l.csv", "l.tsv", "l.jsonl"])
def test_limit_is_the_first_rows(write: Write, name: str) -> None:
    content = {
        "l.txt": "a\nb\nc\n",
        "l.csv": "text\na\nb\nc\n",
        "l.tsv": "text\na\nb\nc\n",
        "l.jsonl": '{"text":"a"}\n{"text":"b"}\nbroken\n',
    }[name]
    path = write(name, content)
    assert read_corpus(path, limit=2).texts == ["a", "b"]
    assert read_corpus(path, limit=2).sha256 == read_corpus(["a", "b"]).sha256


def test_limit_counts_pairs() -> None:
    assert read_corpus(["a", "b", "c"], limit=2).texts == ["a", "b"]
    assert read_corpus(pd.DataFrame({"text": ["a", "b"]}), limit=1).texts == ["a"]
    frame = pd.DataFrame({"text1": ["a", "c"], "text2": ["b", "d"]})
    assert read_corpus(frame, limit=1).texts == ["a", "b"]
    refused(UsageError, "limit is 0", source=["a"], limit=0)


def test_a_view_is_a_second_wording_not_a_pair(write: Write) -> None:
    path = write("v.csv", "sentence1,sentence2\na,b\nc,\n")
    corpus = read_corpus(path, text_columns="sentence1", view_column="sentence2")
    assert not corpus.is_pairs
    assert corpus.rows["view_text"].tolist() == ["b", ""]
    assert corpus.rows["view_empty"].tolist() == [False, True]
    assert corpus.rows["empty"].tolist() == [False, False]
    assert read_corpus(path, view_column="sentence2").texts == ["a", "c"]


def test_the_hash_is_of_content_and_order_not_of_name_or_format(write: Write) -> None:
    plain = read_corpus(["a", "b"])
    assert read_corpus(write("x.txt", "a\nb\n")).sha256 == plain.sha256
    assert read_corpus(["a", "b"], name="other").sha256 == plain.sha256
    others = (
        read_corpus(["b", "a"]),
        read_corpus(["ab", ""]),
        read_corpus(["a", "b", ""]),
        read_corpus(pd.DataFrame({"text": ["a", "b"], "label": ["x", "y"]})),
        read_corpus(pd.DataFrame({"text1": ["a"], "text2": ["b"]})),
    )
    assert len({plain.sha256, *(other.sha256 for other in others)}) == 6


def test_names() -> None:
    assert read_corpus(["a"]).name == "texts"
    assert read_corpus(["a"], name="mine").name == "mine"


def test_triplets_stand_in_threes() -> None:
    table = pd.DataFrame(
        {"anchor": ["a", "d"], "positive": ["b", "e"], "negative": ["c", "f"], "label": [1, 2]}
    )
    corpus = read_corpus(table, label_column="label")
    assert corpus.texts == list("abcdef")
    assert corpus.rows["triplet"].tolist() == [0, 0, 0, 1, 1, 1]
    assert corpus.rows["side"].tolist() == [0, 1, 2, 0, 1, 2]
    assert corpus.rows["label"].tolist() == ["1", "1", "1", "2", "2", "2"]
    assert not corpus.is_pairs
    assert corpus.n_texts == 6
    assert read_corpus(table, text_columns=["anchor", "positive"]).is_pairs
    four = table.assign(more=["x", "y"])
    refused(
        UsageError, "4 text columns", "three for triplets",
        source=four, text_columns=["anchor", "positive", "negative", "more"],
    )  # fmt: skip


# --- guessing columns -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "row", "texts"),
    [
        ("text,label", "a,x", ["a"]),
        ("id,Sentence,split", "1,a,test", ["a"]),
        ("title,text", "t,a", ["a"]),
        ("headline,category", "a,x", ["a"]),
        ("n,remark,score", "1,a,2", ["a"]),
        ("text,Text", "a,b", ["a"]),
        ("sentence_1,sentence_2", "a,b", ["a", "b"]),
        ("Question 1,Question 2", "a,b", ["a", "b"]),
        ("hypothesis,premise", "b,a", ["a", "b"]),
        ("anchor,positive,negative", "a,b,c", ["a", "b", "c"]),
        ("negative,positive,query", "c,b,a", ["a", "b", "c"]),
        ("anchor,positive", "a,b", ["a", "b"]),
    ],
)
def test_texts_are_guessed_and_the_guess_is_told(
    write: Write, header: str, row: str, texts: list[str]
) -> None:
    corpus = read_corpus(write("g.csv", f"{header}\n{row}\n"))
    assert corpus.texts == texts
    assert any(note.startswith("text column") and note.endswith("(guessed)") for note in corpus.notes)


@pytest.mark.parametrize(
    ("label", "role"), [("2.5", "score"), ("3", "label"), ("entailment", "label"), ("2.5x", "label")]
)
def test_the_label_of_pairs_is_a_score_only_where_it_is_a_decimal(
    write: Write, label: str, role: str
) -> None:
    corpus = read_corpus(write("g.csv", f"premise,hypothesis,label\na,b,{label}\n"))
    assert role in corpus.rows
    assert ({"score", "label"} - {role}).isdisjoint(corpus.rows.columns)


def test_a_decimal_label_of_single_texts_stays_a_label() -> None:
    corpus = read_corpus(pd.DataFrame({"text": ["a"], "label": [0.5]}))
    assert corpus.rows["label"].tolist() == ["0.5"]
    assert "score" not in corpus.rows


def test_named_columns_are_not_called_guesses(write: Write) -> None:
    corpus = read_corpus(write("g.csv", "a,b,c\nx,2,z\n"), text_columns=["a", "c"], score_column="b")
    assert corpus.texts == ["x", "z"]
    assert corpus.notes == ()


def test_columns_left_over_are_told(write: Write) -> None:
    assert "columns not used: id, url" in read_corpus(write("g.csv", "id,text,url\n1,a,u\n")).notes


def test_a_first_line_with_a_number_is_no_header(write: Write) -> None:
    path = write("h.csv", '"3","a title"\n"4","another"\n')
    corpus = read_corpus(path, label_column="column1")
    assert corpus.texts == ["a title", "another"]
    assert corpus.rows["label"].tolist() == ["3", "4"]
    assert corpus.notes[0].startswith("no header")
    assert read_corpus(write("y.csv", "text,2019\na,1\n")).texts == ["a"]
    assert read_corpus(write("y.csv", "remark,2019\na,1\n"), text_columns="remark").texts == ["a"]
    assert read_corpus(write("y.csv", "0,1\na,b\n"), text_columns=["0", "1"]).texts == ["a", "b"]


@pytest.mark.parametrize("header", ["premises,headline", "a,b", "query-id,corpus-id"])
def test_what_cannot_be_guessed_has_to_be_named(write: Write, header: str) -> None:
    refused(UsageError, "--text-column", *header.split(","), source=write("g.csv", f"{header}\nx,y\n"))


def test_numbers_are_no_texts_to_guess(write: Write) -> None:
    refused(UsageError, "--text-column", source=write("g.tsv", "query\u2010ref\tvalue\n1\t2\n"))


# --- what is refused: options -----------------------------------------------------------------------


def test_columns_that_do_not_fit(write: Write) -> None:
    path = write("c.csv", "sentence,mark,other\na,1,b\n")
    refused(
        UsageError,
        "no column 'sentense'",
        "did you mean 'sentence'",
        "mark",
        source=path,
        text_columns=("sentense",),
    )
    for option in ("view_column", "score_column", "label_column"):
        refused(UsageError, "no column 'nope'", source=path, text_columns="sentence", **{option: "nope"})
    refused(
        UsageError,
        "'mark'",
        "two things",
        source=path,
        text_columns=["sentence", "mark"],
        score_column="mark",
    )
    refused(UsageError, "two things", source=path, text_columns=["other", "other"])
    names = ["sentence", "mark", "other", "fourth"]
    refused(UsageError, "has no column 'fourth'", source=path, text_columns=names)
    refused(UsageError, "not with pairs", source=path, text_columns=["sentence", "mark"], view_column="other")


def test_options_that_the_source_does_not_know(write: Write, tmp_path: Path) -> None:
    text = write("a.txt", "a\n")
    refused(UsageError, "--split", source=text, split="test")
    refused(UsageError, "--split", source=["a"], split="test")
    refused(UsageError, "--split", source=pd.DataFrame({"text": ["a"]}), split="test")
    refused(UsageError, "--quoting", source=text, quoting=True)
    refused(UsageError, "--quoting", source=["a"], quoting=False)
    refused(UsageError, "'klingon'", source=text, encoding="klingon")
    refused(UsageError, "'base64'", source=text, encoding="base64")


# --- what is refused: sources -----------------------------------------------------------------------


def test_a_file_that_is_not_there(write: Write, tmp_path: Path) -> None:
    write("stsb-test.tsv", "text\na\n")
    refused(CorpusError, "no such file", "did you mean 'stsb-test.tsv'", source=tmp_path / "stsb-tset.tsv")
    refused(CorpusError, "no such file", source=str(tmp_path / "deep" / "x.txt"))
    refused(CorpusError, "no such file", "list of strings", source="A text, not a path! " * 50 + "/x")
    refused(CorpusError, "no such file", source="missing.json")


def test_folders_that_are_no_dataset(write: Write, tmp_path: Path) -> None:
    refused(CorpusError, "without data", "save_to_disk", source=tmp_path)
    write("one.txt", "a\n")
    assert read_corpus(tmp_path).texts == ["a"]
    write("two.txt", "b\n")
    refused(CorpusError, "several data files (one, two)", source=tmp_path)
    write("test.csv", "text\nc\n")
    assert read_corpus(tmp_path).texts == ["c"]
    write("test.tsv", "text\nd\n")
    refused(CorpusError, "test.csv, test.tsv", source=tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.pdf", b"%PDF", ["a.pdf", ".jsonl"]),
        ("a.parquet.gz", b"", ["a.parquet.gz", ".jsonl"]),
        ("noextension", b"a\n", ["noextension", ".jsonl"]),
        ("e.txt", b"", ["e.txt is empty"]),
        ("e.txt", b"\xef\xbb\xbf", ["e.txt is empty"]),
        ("e.csv", b"", ["e.csv is empty"]),
        ("e.jsonl.gz", gzip.compress(b""), ["e.jsonl.gz is empty"]),
        ("b.txt", b"\n \n\t\r\n", ["b.txt", "blank"]),
        ("b.csv", b"\n\n\n", ["b.csv", "blank lines"]),
        ("b.jsonl", b"\n  \n", ["b.jsonl", "blank lines"]),
        ("b.tsv", b"text\tlabel\n \tx\n", ["b.tsv", "blank"]),
        ("h.csv", b"text,label\n", ["h.csv", "header (text, label)", "no rows"]),
        ("h.tsv", b"text\tlabel\n\n", ["h.tsv", "no rows"]),
        ("u.txt", b"fine\nbad \xe9 byte\n", ["u.txt, line 2", "0xe9", "byte 5 of the line", "latin-1"]),
        ("u.csv", b"text\n\xff\xff\n", ["u.csv, line 2", "0xff", "--encoding"]),
        ("w.txt", "plain\n".encode("utf-16"), ["w.txt", "UTF-16", "--encoding utf-16"]),
        ("w.txt", "plain\n".encode("utf-16-le"), ["UTF-16-LE", "--encoding utf-16-le"]),
        ("w.csv", "text\nplain\n".encode("utf-16-be"), ["UTF-16-BE"]),
        ("w.txt", "plain\n".encode("utf-32"), ["UTF-32"]),
        ("n.txt", b"\x00\x01\x02\x03abc\n", ["n.txt", "binary"]),
        ("z.txt", gzip.compress(b"a"), ["z.txt", ".gz"]),
        ("z.csv", b"PK\x03\x04....", ["zip archive"]),
        ("z.txt.gz", b"plain text", ["z.txt.gz", "not a gzip file"]),
        ("z.txt.gz", gzip.compress(bytes(range(32, 127)) * 99)[:60], ["z.txt.gz", "cut short"]),
        ("p.parquet", b"no parquet", ["p.parquet", "parquet"]),
        ("r.tsv", b"text\tlabel\na\tb\nc\td\te\n", ["r.tsv, line 3", "3 column", "has 2", "(text, label)"]),
        ("r.tsv", b"text\tlabel\nshort\n", ["r.tsv, line 2", "1 column"]),
        ("r.csv", b'text,label\n"x\ny",a\nb,c,d\n', ["r.csv, line 4", "3 column", "quotes"]),
        ("q.csv", b'text,label\na,b\n"open,c\n', ["q.csv, line 3", "quoting"]),
        ("q.csv", b'text,label\n"a"b,c\n', ["q.csv, line 2", "quoting"]),
        ("d.csv", b"text,text\na,b\n", ["d.csv", "more than one column", "'text'"]),
        ("j.jsonl", b'{"text": "a"}\n{"text": \n', ["j.jsonl, line 2", "not JSON"]),
        ("j.jsonl", b'{"text": "a"}\n["b"]\n', ["j.jsonl, line 2", "no object"]),
        ("j.jsonl", b"[" * 100_000, ["j.jsonl, line 1", "not JSON"]),
        ("j.jsonl", b'{"text": "a"}\n\n{"txt": "b"}\n', ["j.jsonl, row 2 (line 3)", "no 'text'"]),
        ("j.jsonl", b'{"text": "a"}\n{"text": 12}\n', ["j.jsonl, line 2", "a number (12)", "not a text"]),
        ("j.jsonl", b'{"text": ["a"]}\n', ["j.jsonl, line 1", "a list"]),
    ],
)  # fmt: skip
def test_bad_files(write: Write, name: str, content: bytes, words: list[str]) -> None:
    refused(CorpusError, *words, source=write(name, content))


def test_a_stray_nul_in_much_text_is_cleaned(write: Write) -> None:
    corpus = read_corpus(write("n.txt", b"a perfectly ordinary line\nwith one stray\x00NUL\n"))
    assert corpus.texts[1] == "with one stray NUL"


def test_a_json_null_is_an_empty_text(write: Write) -> None:
    assert read_corpus(write("j.jsonl", '{"text": null}\n{"text": "b"}\n')).texts == ["", "b"]


@pytest.mark.parametrize("score", ["abc", "nan", "inf", "1_0", "1,5"])
def test_a_score_that_is_no_number_is_named_with_its_row(write: Write, score: str) -> None:
    rows = "".join("a\tb\t1\n" for _ in range(16)) + f"a\tb\t{score}\n"
    path = write("stsb.tsv", "sentence1\tsentence2\tscore\n" + rows)
    refused(CorpusError, f"stsb.tsv, row 17 (line 18): the score '{score}' is not a number", source=path)


@pytest.mark.parametrize("score", [True, [1], math.inf, "x"])
def test_scores_of_frames_are_checked_too(score: object) -> None:
    frame = pd.DataFrame({"text": ["a", "b"], "score": pd.Series([1.0, score], dtype=object)})
    refused(CorpusError, "the DataFrame, row 2", "is not a number", source=frame)


def test_bad_frames_and_lists() -> None:
    refused(CorpusError, "list is empty", source=[])
    refused(CorpusError, "blank", source=["", " ", None])
    refused(CorpusError, "row 2", "a number (3)", source=["a", 3])
    refused(CorpusError, "row 1", "a tuple", source=[("a", "b")])
    refused(CorpusError, "no rows", source=pd.DataFrame({"text": []}))
    refused(CorpusError, "row 2", "a number (1.5)", source=pd.DataFrame({"text": ["a", 1.5]}))
    refused(CorpusError, "more than one column", source=pd.DataFrame([["a", "b"]], columns=["t", "t"]))


# --- datasets ---------------------------------------------------------------------------------------


def _dataset() -> datasets.Dataset:
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])}
    )
    return datasets.Dataset.from_dict({"text": ["a", None, "c"], "label": [1, 0, -1]}, features=features)


def test_a_saved_dataset_with_class_names(tmp_path: Path) -> None:
    _dataset().select([2, 1, 0]).save_to_disk(tmp_path / "saved")
    corpus = read_corpus(tmp_path / "saved")
    assert (corpus.name, corpus.texts) == ("saved", ["c", "", "a"])
    assert corpus.rows["label"].tolist()[1:] == ["neg", "pos"]
    assert pd.isna(corpus.rows["label"].iloc[0])
    assert read_corpus(tmp_path / "saved", limit=1).texts == ["c"]
    refused(UsageError, "no splits", source=tmp_path / "saved", split="test")


def test_splits_of_a_saved_dataset(tmp_path: Path) -> None:
    parts = {"train": _dataset(), "validation": _dataset().select([0]), "extra": _dataset().select([2])}
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "saved")
    corpus = read_corpus(tmp_path / "saved")
    assert corpus.texts == ["a"]
    assert "split: validation (of train, validation, extra; none was asked for)" in corpus.notes
    assert read_corpus(tmp_path / "saved", split="extra").texts == ["c"]
    refused(UsageError, "no split 'trian'", "did you mean 'train'", source=tmp_path / "saved", split="trian")


def test_a_damaged_saved_dataset(write: Write, tmp_path: Path) -> None:
    write("saved/state.json", "{}")
    refused(CorpusError, "damaged dataset folder", source=tmp_path / "saved")


def test_splits_and_shards_of_a_folder_of_files(write: Write, tmp_path: Path) -> None:
    write("data/train-00001-of-00002.csv", "text\nb\n")
    write("data/train-00000-of-00002.csv", "text,label\na,x\n")
    write("data/dev.jsonl", '{"text": "d"}\n')
    assert read_corpus(tmp_path).texts == ["d"]
    corpus = read_corpus(tmp_path, split="train")
    assert corpus.texts == ["a", "b"]
    assert corpus.rows["label"].iloc[0] == "x"
    assert pd.isna(corpus.rows["label"].iloc[1])
    assert read_corpus(tmp_path, split="train", limit=1).texts == ["a"]


def test_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def load(name: str, config: str | None, split: str) -> datasets.Dataset:
        asked.append((name, config, split))
        return _dataset()

    monkeypatch.setattr(datasets, "get_dataset_split_names", lambda name, config: ["train", "test"])
    monkeypatch.setattr(datasets, "load_dataset", load)
    corpus = read_corpus("owner/some-set:de", limit=2)
    assert (corpus.name, corpus.texts) == ("owner/some-set:de", ["a", ""])
    read_corpus("some-set", split="train")
    assert asked == [("owner/some-set", "de", "test"), ("some-set", None, "train")]
    refused(UsageError, "no split 'tset'", source="owner/some-set", split="tset")


def test_a_hub_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ConnectionError("Couldn't reach\nthe Hub")

    monkeypatch.setattr(datasets, "get_dataset_split_names", fail)
    refused(
        CorpusError,
        "no file or folder 'no/such'",
        "hub failed (Couldn't reach the Hub)",
        "give a local file",
        source="no/such",
    )


# --- round trips ------------------------------------------------------------------------------------

LETTERS = st.characters(exclude_categories=["Cs", "Cc"])
TEXTS = st.lists(st.text(LETTERS, max_size=8), min_size=1, max_size=6).filter(
    lambda texts: not all(is_blank(text) for text in texts)
)


def _reread(name: str, content: str, folder: Path) -> Corpus:
    path = folder / name
    path.write_bytes(content.encode())
    return read_corpus(path, text_columns="text", label_column="label")


@given(texts=TEXTS)
def test_tsv_round_trip(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    content = "text\tlabel\n" + "".join(f"{text}\tx\n" for text in texts)
    assert _reread("t.tsv", content, tmp_path_factory.getbasetemp()).texts == texts


@given(texts=TEXTS, line_end=st.sampled_from(["\n", "\r\n"]), extra=st.sampled_from(["\n", '"', ",", "\t"]))
def test_csv_round_trip(
    texts: list[str], line_end: str, extra: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    texts = [text + extra + text for text in texts]
    stream = io.StringIO()
    csv.writer(stream, lineterminator=line_end).writerows(
        [["text", "label"], *([text, "x"] for text in texts)]
    )
    assert _reread("t.csv", stream.getvalue(), tmp_path_factory.getbasetemp()).texts == texts


@given(texts=TEXTS, ascii_only=st.booleans())
def test_json_lines_round_trip(
    texts: list[str], ascii_only: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lines = [json.dumps({"label": None, "text": text}, ensure_ascii=ascii_only) for text in texts]
    assert _reread("t.jsonl", "\n".join(lines), tmp_path_factory.getbasetemp()).texts == texts


@given(content=st.binary(max_size=40), suffix=st.sampled_from([".txt", ".csv", ".tsv", ".jsonl", ".parquet"]))
def test_any_bytes_are_read_or_refused_in_one_line(
    content: bytes, suffix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / f"any{suffix}"
    path.write_bytes(content)
    outcome = _read_or_message(path)
    if isinstance(outcome, str):
        assert len(outcome.splitlines()) == 1
    else:
        assert not outcome.rows["empty"].all()


def _read_or_message(path: Path) -> Corpus | str:
    try:
        return read_corpus(path)
    except LayerscopeError as error:
        return str(error)


def test_names_with_line_breaks_stay_in_one_line(write: Write) -> None:
    path = write("n.csv", '"odd\nname","other\x0bname"\na,1\n')
    refused(UsageError, "odd name, other name", source=path, text_columns="nope")
    assert "columns not used: other name" in read_corpus(path, text_columns="odd\nname").notes
    refused(CorpusError, "j.jsonl", source=write("j.jsonl", r'{"\ud800\n": 3}'), text_columns="\ud800\n")


# --- the real files ---------------------------------------------------------------------------------

STS_ROWS = {
    "sts12-test": 3108, "sts12-train": 2234, "sts13-test": 1500, "sts14-test": 3750, "sts15-test": 3000,
    "sts16-test": 1186, "mteb/sts12-test": 3108, "mteb/sts13-test": 1500, "mteb/sts14-test": 3750,
    "mteb/sts15-test": 3000, "mteb/sts16-test": 1186, "stsbenchmark-train": 5749, "stsbenchmark-dev": 1500,
    "stsbenchmark-test": 1379, "sickr-train": 4500, "sickr-dev": 500, "sickr-test": 4927,
}  # fmt: skip


def _real(name: str) -> Path:
    path = DATA / name
    if not path.is_file():
        pytest.skip(f"no evaluation data at {path}")
    return path


@pytest.mark.parametrize("name", STS_ROWS)
def test_every_sts_file_has_all_its_pairs(name: str) -> None:
    corpus = read_corpus(_real(f"sts/{name}.tsv"))
    assert corpus.n_texts == 2 * STS_ROWS[name]
    assert corpus.rows["pair"].nunique() == STS_ROWS[name]
    assert corpus.rows["score"].between(1 if "sickr" in name else 0, 5).all()
    assert not corpus.rows["empty"].any()


def test_edge_spaces_of_the_originals_are_kept() -> None:
    texts = (
        read_corpus(_real("sts/sickr-test.tsv")).texts + read_corpus(_real("sts/stsbenchmark-test.tsv")).texts
    )
    assert any(text != text.strip() for text in texts)


@pytest.mark.parametrize(("name", "n_rows"), [("train", 10_003), ("test", 3080)])
def test_banking77_with_line_breaks_in_quotes(name: str, n_rows: int) -> None:
    corpus = read_corpus(_real(f"banking77/{name}.csv"))
    assert corpus.n_texts == n_rows
    assert corpus.rows["label"].nunique() == 77


def test_banking77_texts_hold_line_breaks() -> None:
    texts = [text for name in ("train", "test") for text in read_corpus(_real(f"banking77/{name}.csv")).texts]
    assert sum("\n" in text for text in texts) == 13


def test_ag_news_has_no_header() -> None:
    path = _real("ag_news/test.csv.gz")
    corpus = read_corpus(path, text_columns="column3", label_column="column1")
    assert corpus.rows["label"].value_counts().to_dict() == dict.fromkeys("1234", 1900)
    refused(UsageError, "column1, column2, column3", "--text-column", source=path)


def test_scifact_and_the_other_files() -> None:
    assert read_corpus(_real("scifact/corpus.jsonl.gz")).n_texts == 5183
    assert read_corpus(_real("scifact/queries.jsonl")).n_texts == 1109
    assert read_corpus(_real("stackoverflow_titles/titles.tsv")).rows["label"].nunique() == 20
    assert read_corpus(_real("nli/snli-dev.tsv")).n_texts == 2 * 9842
    wikitext = read_corpus(_real("wikitext/wikitext-2-valid.txt.gz"))
    assert (wikitext.n_texts, int((~wikitext.rows["empty"]).sum())) == (3760, 2461)


def test_the_folder_of_banking77_has_two_splits() -> None:
    folder = _real("banking77/test.csv").parent
    assert read_corpus(folder).n_texts == 3080
    assert read_corpus(folder, split="train").n_texts == 10_003


def test_arrays_and_series_of_texts_are_lists_of_texts():
    for texts in (np.array(["a cat", "b"]), pd.Series(["a cat", "b"], index=[7, 3]), iter(["a cat", "b"])):
        assert read_corpus(texts).texts == ["a cat", "b"]
