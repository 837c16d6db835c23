"""Documents say what is true: generated pages are fresh, commands exist, links lead somewhere."""

import importlib
import importlib.util
import re

import numpy as np
import pytest

from tests import families, test_families, test_pooling
from tests.doc_pages import ROOT, blocks_of, commands_of, run_page
from tests.families import FAMILIES

PAGES = [
    f"docs/{page}.md"
    for page in (
        "api", "architecture", "cache-format", "choosing", "cli", "evaluation", "experiments", "extending",
        "faq", "figures", "index", "metrics", "models", "pooling", "published", "quirks",
    )
]  # fmt: skip


def script(name):
    """A script of the documents as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_metrics_page_is_what_the_specs_say():
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert page == script("make_metrics").page(), "run docs/make_metrics.py"


def test_the_size_of_every_quirk_is_told():
    """Measuring takes a minute, so that only what was measured is compared: run docs/make_quirks.py."""
    module = script("make_quirks")
    page = (ROOT / "docs" / "quirks.md").read_text(encoding="utf-8")
    assert page.startswith(module.HEAD)
    assert re.findall(r"^\| (\d+\. .*?) \|", page, flags=re.MULTILINE) == list(module.QUIRKS)
    described = re.findall(
        r"^(\d+)\. ", (ROOT / "docs" / "metrics.md").read_text("utf-8"), flags=re.MULTILINE
    )
    assert set(described) == {name.split(".")[0] for name in module.QUIRKS}


def test_the_models_page_has_every_family_and_shows_no_failure():
    module = script("make_models")
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    assert page.startswith(module.HEAD)
    assert page.endswith(module.TAIL)
    table = re.findall(r"^\| ([^|]+) \| `.*\| (\w+) \|$", page, flags=re.MULTILINE)
    assert table == [(family.name, "pass") for family in FAMILIES], "run docs/make_models.py"


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "reports/study/README.md", *PAGES])
def test_links_lead_to_files(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("http"):
            assert ((ROOT / page).parent / target).exists(), target


def test_every_page_is_known_here_and_in_the_menu():
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("nav:")[2]
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert {f"docs/{page}" for page in pages} == set(PAGES)
    assert set(re.findall(r"[\w-]+\.md", menu)) == pages


@pytest.mark.parametrize("page", ["README.md", *PAGES])
def test_every_command_line_is_one_that_layerscope_takes(page):
    from typer.main import get_command

    from layerscope.cli import app

    for words in commands_of(page):
        command, rest = get_command(app), [word for word in words if word != "[OPTIONS]"]
        while rest and rest[0] in getattr(command, "commands", {}):
            command = command.commands[rest.pop(0)]
        assert not hasattr(command, "commands"), words
        command.make_context(command.name, rest)  # raises for an unknown option, a missing argument …


def test_commands_of_the_pages_are_found():
    counts = {page: len(list(commands_of(page))) for page in ["README.md", *PAGES]}
    assert counts["README.md"] >= 8
    assert counts["docs/cli.md"] >= 17
    assert min(counts[f"docs/{page}.md"] for page in ("index", "choosing", "pooling", "evaluation")) >= 5


def test_the_page_of_commands_is_what_they_say():
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert page == script("make_cli").page(), "run docs/make_cli.py"


def test_the_python_page_has_every_public_name():
    import layerscope
    from layerscope import layer_pooling, learn, plots, training

    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    shown = {name.rpartition(".")[2] for name in re.findall(r"^::: (\S+)$", page, flags=re.MULTILINE)}
    for package in (layerscope, plots, learn, layer_pooling, training):
        assert set(package.__all__) - {"find_kind"} <= shown, package.__name__


def test_layers_are_read_without_layerscope(tmp_path, monkeypatch, minilm):
    names = run_page("docs/cache-format.md", tmp_path, monkeypatch)
    cache = names["ls"].LayerCache(tmp_path / "cache")
    np.testing.assert_array_equal(names["vectors"], cache.layer("block.6", "mean"))
    np.testing.assert_array_equal(names["edited"], cache.layer("block.6", "mean", view="augment.1"))
    assert "layerscope" not in re.findall(
        r"^(?:import|from) (\w+)", blocks_of("docs/cache-format.md", "python")[0].code
    )
    assert names["table"]["value"].notna().all()


def test_a_reader_in_the_format_page_joins_shards(tmp_path, monkeypatch, minilm):
    monkeypatch.setattr("layerscope.extraction.job.SHARD_BYTES", 4096)
    names = run_page("docs/cache-format.md", tmp_path, monkeypatch)
    cache = names["ls"].LayerCache(tmp_path / "cache")
    assert len(cache.manifest["shards"]) > 1
    np.testing.assert_array_equal(names["vectors"], cache.layer("block.6", "mean"))


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/choosing.md", "docs/faq.md"])
def test_python_of_the_page_runs(page, tmp_path, monkeypatch, minilm):
    assert run_page(page, tmp_path, monkeypatch).keys() > {"__name__"}


def test_what_the_page_on_extending_adds_holds(tmp_path, monkeypatch, minilm):
    """The metric has the properties that it declares; pooling and family pass the tests of all others."""
    monkeypatch.setattr(families, "FAMILIES", FAMILIES)
    names = run_page("docs/extending.md", tmp_path, monkeypatch)
    check_metric(names["my_metrics"].SPEC, tmp_path / "tests" / "reference" / "length_spread.py")
    for check in (
        test_pooling.test_closed_form,
        test_pooling.test_states_are_not_written_into,
        test_pooling.test_no_token_left_is_missing_not_zero,
    ):
        check("unit-mean")
    [added] = families.FAMILIES[len(FAMILIES) :]
    test_families.test_layers_are_those_of_transformers_alone_and_in_a_batch(added)


def check_metric(spec, reference):
    from tests.metrics.inputs import make_input, transformations_of

    scope = {}
    exec(reference.read_text(encoding="utf-8"), scope)
    for shape in ((9, 5), (5, 9), (40, 3)):
        (Z,) = make_input(spec, *shape)
        value = spec.function(Z)
        low, high = spec.bounds(*shape)
        assert low <= value <= high
        assert value == pytest.approx(scope[spec.name](Z.tolist()), rel=1e-9)
        for name, change in transformations_of(spec).items():
            (changed,) = change(np.random.default_rng(1), Z)
            assert (name in spec.invariances) == (spec.function(changed) == pytest.approx(value, rel=1e-9))


def test_the_figures_page_has_every_kind():
    from layerscope.cli.figures import KINDS

    page = (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE) == list(KINDS)
    shown = {name for name in KINDS if f"(figures/{name}.svg)" in page}
    elsewhere = {"curves", "sites", "perturbation"}  # which docs/metrics.md and docs/experiments.md show
    assert shown == {*KINDS} - elsewhere


def test_public_names_are_no_modules_even_after_all_were_imported():
    """A module called like a public function would take its place in the package."""
    import pkgutil
    import types

    import layerscope

    for module in pkgutil.walk_packages(layerscope.__path__, "layerscope."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in layerscope.__all__:
        assert not isinstance(getattr(layerscope, name), types.ModuleType), name
