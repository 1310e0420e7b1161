# Every target sets itself up in .venv; all that is needed is Python 3.11 or later, with pip.

VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)

# torch is pinned: a looser requirement may bring gigabytes of accelerator libraries.
TORCH := torch==2.13.0

# timing.py is what the programs share.
BENCHMARKS = $(filter-out benchmarks/timing.py,$(wildcard benchmarks/*.py))

.PHONY: help demo test test-all check bench figures clean
.DEFAULT_GOAL := help

help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.demo ## Make a small dataset, check it, draw it; then the paper's experiment at a small scale.
	@mkdir -p demo
	$(BIN)/percolab generate --n-points 20000 --dim 50 --seed 7 -o demo/small.zarr --overwrite
	$(BIN)/percolab info demo/small.zarr
	$(BIN)/percolab draw demo/small.zarr -o demo/cluster.png --overwrite
	$(BIN)/percolab verify demo/small.zarr --report demo
	$(BIN)/percolab info demo/small.zarr --html demo/card.html --overwrite > /dev/null
	$(BIN)/percolab reproduce one-cluster --scale small -o demo/one-cluster
	@echo "demo/cluster.png: the largest cluster in space, beside its latent tree."
	@echo "demo/card.html:   what is in the dataset, at a glance; open it in a browser."
	@echo "demo/verify.html: the laws of the table above, with a figure for each."
	@echo "demo/one-cluster/report.html: the paper's experiment on 20,000 points: a network, baselines, linear probes."

test: check ## Check, then run the tests that take seconds.
	$(BIN)/pytest -q -n $(WORKERS) -m "not slow"

test-all: check ## Check, then run all tests, the slow ones included.
	$(BIN)/pytest -q -n $(WORKERS)

check: $(VENV)/.test ## Check format, lint and types.
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

bench: $(VENV)/.bench ## Time and measure against peers; prints ratios.
	@set -e; for program in $(BENCHMARKS); do echo "$(BIN)/python $$program"; $(BIN)/python $$program; done

figures: $(VENV)/.demo ## Draw the figures of the documentation again.
	$(BIN)/python docs/figures/make_figures.py

clean: ## Remove what the other targets made, except .venv.
	rm -rf demo dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "error: Python 3.11 or later must be installed" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[plot,verify,nn]' '$(TORCH)'
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[test,check]' '$(TORCH)'
	@touch $@

$(VENV)/.bench: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[bench,nn,ray]' '$(TORCH)'
	@touch $@
