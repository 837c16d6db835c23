"""Documents say what is true: generated pages are fresh, commands exist, links lead somewhere."""

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

from tests.families import FAMILIES

ROOT = Path(__file__).resolve().parents[1]


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


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "CONTRIBUTING.md",
        "docs/architecture.md",
        "docs/evaluation.md",
        "docs/figures.md",
        "docs/metrics.md",
        "docs/models.md",
        "docs/published.md",
        "docs/quirks.md",
        "reports/study/README.md",
    ],
)
def test_links_lead_to_files(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("http"):
            assert ((ROOT / page).parent / target).exists(), target


def test_every_command_and_option_in_the_readme_exists():
    from typer.main import get_command

    from layerscope.cli import app

    commands = get_command(app).commands
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    text = "\n".join(re.findall(r"^```bash\n(.*?)^```", readme, flags=re.MULTILINE | re.DOTALL))
    found = re.findall(r"^layerscope (\w+)( sts| mteb)?(.*)$", text, flags=re.MULTILINE)
    assert len(found) >= 8
    for name, sub, rest in found:
        command = commands[name].commands[sub.strip()] if sub else commands[name]
        options = {option for parameter in command.params for option in parameter.opts}
        for option in re.findall(r"(?<=\s)--?[a-z][\w-]*", rest.split("#")[0]):
            assert option in options, (name, option)


def test_the_figures_page_has_every_kind():
    from layerscope.cli.figures import KINDS

    page = (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE) == list(KINDS)
    shown = {name for name in KINDS if f"(figures/{name}.svg)" in page}
    assert shown == {*KINDS} - {"curves"}  # which docs/metrics.md shows


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
