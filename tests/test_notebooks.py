"""Notebooks run from top to bottom, show figures, and are committed without outputs."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def cells(path, kind):
    return [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == kind]


def test_all_six_are_there():
    assert [path.stem for path in NOTEBOOKS] == [
        "01_quickstart", "02_what_the_metrics_mean", "03_which_layer", "04_layer_pooling",
        "05_compare_models", "06_against_mteb",
    ]  # fmt: skip


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_output_is_committed_and_one_variable_names_the_model(path):
    for cell in cells(path, "code"):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
    code = "\n".join("".join(cell["source"]) for cell in cells(path, "code"))
    assert len(re.findall(r"^(?:MODEL|MODELS) = ", code, flags=re.M)) == 1
    assert "MODEL" in "".join(cells(path, "markdown")[0]["source"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_shows_figures(path, minilm, tmp_path, request):
    nbclient = pytest.importorskip("nbclient", reason="not installed: pip install 'layerscope[notebooks]'")
    nbformat = pytest.importorskip("nbformat")
    if path.stem == "05_compare_models":
        request.getfixturevalue("smollm2_gguf")
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        notebook, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    told = [output.text for output in outputs if output.output_type == "stream" and output.name == "stderr"]
    assert told == []


def test_a_page_of_a_notebook_asks_for_nothing_from_elsewhere(monkeypatch):
    pytest.importorskip("nbconvert", reason="not installed: pip install 'layerscope[notebooks]'")
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

    monkeypatch.syspath_prepend(FOLDER.parent / "reports")
    shown = new_output("display_data", {"image/png": "iVBORw0KGgo="})
    cells = [new_markdown_cell("# Head"), new_code_cell("1 + 1", outputs=[shown])]
    page = importlib.import_module("notebooks").as_page(new_notebook(cells=cells), "a title")
    assert "<title>a title</title>" in page
    assert "Head" in page
    assert "data:image/png;base64,iVBORw0KGgo=" in page
    assert not re.search(r"""(?:src|href)=["'](?!data:|#)|@import|\bimport .* from|url\(["']?http""", page)
