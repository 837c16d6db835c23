"""What the site's own code does to pages and docstrings, on inputs whose result is known."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

exceptions = pytest.importorskip("mkdocs.exceptions", reason="of the extra docs")
griffe = pytest.importorskip("griffe", reason="of the extra docs")

ROOT = Path(__file__).resolve().parents[1]


def part(name):
    """A module of docs/site_build, as MkDocs loads it: by its path."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "site_build" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def linked(markdown, page="faq.md"):
    config = {
        "config_file_path": str(ROOT / "mkdocs.yml"),
        "docs_dir": str(ROOT / "docs"),
        "extra": {"repository": "https://example.org/r"},
    }
    there = SimpleNamespace(file=SimpleNamespace(src_uri=page))
    return part("repository_links").on_page_markdown(markdown, page=there, config=config, files=None)


def test_links_out_of_the_documents_lead_to_the_repository_and_others_stay():
    assert linked("[a](../README.md#x) [b](../reports)") == (
        "[a](https://example.org/r/blob/main/README.md#x) [b](https://example.org/r/tree/main/reports)"
    )
    kept = "[a](metrics.md) [b](#here) [c](https://example.org/../x) [d](../docs/metrics.md)"
    assert linked(kept) == kept


def test_a_link_to_nothing_stops_the_build():
    with pytest.raises(exceptions.PluginError, match=r"faq\.md links to \.\./absent\.md"):
        linked("[a](../absent.md)")


def test_doctests_become_code_and_the_rest_stays():
    text = "One.\n\n>>> 1 + 1\n2\n\nTwo.\n\n>>> x = 1"
    fenced = part("doctest_blocks").fenced(text)
    assert fenced == "One.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nTwo.\n\n```pycon\n>>> x = 1\n```"


def test_a_default_is_shown_as_its_value_where_that_is_short():
    code = "_SIZE = 4096\nMANY = (1, 2)\n\ndef f(a=_SIZE, b=MANY, c=None, d=5):\n    pass\n"
    extensions = griffe.load_extensions(part("plain_defaults").PlainDefaults)
    with griffe.temporary_visited_package("m", {"__init__.py": code}, extensions=extensions) as module:
        assert [str(parameter.default) for parameter in module["f"].parameters] == [
            "4096",
            "MANY",
            "None",
            "5",
        ]
