"""Run the notebooks and write them with their outputs, as HTML that opens offline: reports/notebooks.

    python reports/notebooks.py [NAME ...]

NAME: the beginning of a notebook's name, such as 05; all where none is given. Needs the extra ``notebooks``.
"""

import argparse
import tempfile
import time

import nbformat
from jinja2 import DictLoader
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from places import ROOT

# No formulas, diagrams or widgets are in them, so that nothing needs to be fetched when a page is opened.
OFFLINE = {
    "offline.html.j2": "{% extends 'classic/index.html.j2' %}"
    "{% block html_head_js %}{% endblock %}{% block html_head_js_mathjax %}{% endblock %}"
}


def main() -> None:
    """Run them and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    names = parser.parse_args().names
    out = ROOT / "reports/notebooks"
    out.mkdir(exist_ok=True)
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        if names and not path.name.startswith(tuple(names)):
            continue
        notebook, start = nbformat.read(path, as_version=4), time.perf_counter()
        with tempfile.TemporaryDirectory() as place:
            NotebookClient(notebook, kernel_name="python3", resources={"metadata": {"path": place}}).execute()
        (out / f"{path.stem}.html").write_text(as_page(notebook, path.stem), encoding="utf-8")
        print(f"{path.stem}: {time.perf_counter() - start:.0f} s", flush=True)


def as_page(notebook: nbformat.NotebookNode, title: str) -> str:
    """A notebook with its outputs as one HTML file."""
    exporter = HTMLExporter(
        template_name="classic", template_file="offline.html.j2", extra_loaders=[DictLoader(OFFLINE)]
    )
    body, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": title}})
    return body


if __name__ == "__main__":
    main()
