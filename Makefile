PYTHON ?= python

.PHONY: help demo study pooling designs test check format docs notebooks bench build clean

help:  ## say what there is to make
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

demo:  ## the whole line on packaged data, with no network
	$(PYTHON) -m layerscope demo

test:  ## tests and doctests
	$(PYTHON) -m pytest

check:  ## format, lint, types, import contracts, tests, doctests
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy
	lint-imports
	$(PYTHON) -m pytest

format:  ## put the code in order
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

docs:  ## the documentation site in site/, its warnings being errors
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict --quiet

notebooks:  ## run the notebooks and write them with their outputs to reports/notebooks
	$(PYTHON) reports/notebooks.py

study:  ## score and measure MiniLM and SmolLM2, and write reports/study
	$(PYTHON) reports/study.py

pooling:  ## rules and learned mixes for MiniLM and SmolLM2: write reports/pooling
	$(PYTHON) reports/pooling.py

designs:  ## train the five designs on a small model: write reports/designs
	$(PYTHON) reports/designs.py

bench:  ## speed as ratios against peers in the same run
	$(PYTHON) benchmarks/extract.py
	$(PYTHON) benchmarks/metrics.py
	$(PYTHON) benchmarks/evaluate.py
	$(PYTHON) benchmarks/export.py

build:  ## wheel and source archive in dist/
	$(PYTHON) -m build

clean:
	rm -rf dist build site reports/demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
