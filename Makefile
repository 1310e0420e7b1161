# Every target sets itself up in .venv, with what it needs and no more; all that must be there is Python 3.11 or later.

VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)

# A worker takes neighbouring tests, which share what they are made from, until it has none left.
PYTEST = $(BIN)/pytest -q -n $(WORKERS) --dist worksteal

INSTALL := $(BIN)/python -m pip install -q --disable-pip-version-check

# torch is pinned: a looser requirement may bring gigabytes of accelerator libraries.
TORCH := torch==2.13.0

# timing.py is what the programs share; learning_rates.py chooses settings of the benchmark's tasks, and times nothing.
BENCHMARKS = $(filter-out benchmarks/timing.py benchmarks/learning_rates.py,$(wildcard benchmarks/*.py))

# The features of the demo's explorer: k-means on the points themselves.
define KMEANS
import percolab as pl
from percolab.features import KMeans
from scipy.sparse import save_npz
X = pl.load('demo/small.zarr').X[:]
save_npz('demo/codes.npz', KMeans(64).fit(X).encode(X))
endef
export KMEANS

# How much of the attack, and how many tables of each kind: the whole takes hours.
ATTACK ?= 2%
COVERAGE ?= 20

.PHONY: help demo test test-slow test-sae test-browser test-all attack coverage size lint check docs bench figures clean
.DEFAULT_GOAL := help

help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.demo ## Make a small dataset and documents, check and draw them; then two experiments at a small scale.
	@mkdir -p demo
	$(BIN)/percolab generate --n-points 20000 --dim 50 --mode one_cluster --seed 1 -o demo/small.zarr --overwrite
	$(BIN)/percolab info demo/small.zarr
	$(BIN)/percolab draw demo/small.zarr -o demo/cluster.png --overwrite
	$(BIN)/percolab verify demo/small.zarr --report demo
	$(BIN)/python -c "$$KMEANS"
	$(BIN)/percolab explore demo/small.zarr --features demo/codes.npz -o demo/explorer.html --overwrite
	$(BIN)/percolab info demo/small.zarr --html demo/card.html --explorer demo/explorer.html --overwrite > /dev/null
	$(BIN)/percolab documents --tokens 1024 --lexicons 2 --seed 1 --count 1000 -o demo/documents.zarr --overwrite
	$(BIN)/percolab draw demo/documents.zarr --document 7 -o demo/document.png --overwrite
	$(BIN)/percolab represent documents --scale small -o demo/documents
	$(BIN)/percolab reproduce one-cluster --scale small -o demo/one-cluster
	@echo; echo "Open these in a browser:"
	@echo "  demo/card.html                what is in the dataset, at a glance."
	@echo "  demo/cluster.png              its largest cluster in space, beside its latent tree."
	@echo "  demo/explorer.html            its points, its hierarchy and the features of k-means, to walk through."
	@echo "  demo/verify.html              the laws that were checked above, with a figure for each."
	@echo "  demo/document.png             a document over the tree of its tokens: what can be known about its context at each position."
	@echo "  demo/documents/report.html    transformers on documents: own lexicon, the other one, untrained, raw input."
	@echo "  demo/one-cluster/report.html  the paper's experiment on 10,000 points: two networks, controls, baselines, linear probes."

# Types are checked while the tests run; what was found is shown after them.
test: lint ## Check, and run the tests that take seconds.
	@mkdir -p build; $(MAKE) --no-print-directory check > build/check.txt 2>&1 & checks=$$!; \
	$(PYTEST) -m "not slow and not ray and not sae and not browser"; failed=$$?; \
	wait $$checks || failed=1; cat build/check.txt; exit $$failed

test-slow: $(VENV)/.ray ## Run the other tests: those that take longer, and those with Ray.
	$(PYTEST) -m "(slow or ray) and not sae"

test-sae: $(VENV)/.sae ## Run the tests with SAELens, which brings some 100 packages.
	$(PYTEST) -m sae

# A test that finds no Chromium fails and says so; where apt-get cannot install it that is what is seen.
test-browser: $(VENV)/.test ## Run the tests of the explorer in Chromium, which apt-get installs where it is missing.
	@command -v chromium > /dev/null || { with=$$(test "$$(id -u)" = 0 || echo sudo); \
		$$with apt-get update -qq && $$with apt-get install -y -qq --no-install-recommends chromium; } || true
	$(BIN)/pytest -q -m browser

test-all: test test-slow test-sae test-browser ## Run all tests.

attack: $(VENV)/.test ## Attack all that reads and writes files; ATTACK=100% is the whole, some hours.
	$(BIN)/python -X faulthandler tests/attack.py all $(ATTACK)

coverage: $(VENV)/.test ## Count the intervals that hold a planted truth; COVERAGE=1000 gives the documented numbers.
	$(BIN)/python tests/interval_coverage.py $(COVERAGE)

size: ## Count the code lines and modules of every room.
	@$(PYTHON) tests/house.py

lint: $(VENV)/.test
	$(BIN)/ruff format --check
	$(BIN)/ruff check

check: lint ## Check format, lint, types, and who imports whom.
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.docs ## Build the documentation, running its pages: build/docs/index.html.
	$(BIN)/sphinx-build -W --keep-going -q -j $(WORKERS) -d build/doctrees docs build/docs
	@echo "build/docs/index.html: the documentation; open it in a browser."
	@echo "Search shows excerpts when the site is served: $(BIN)/python -m http.server -b 127.0.0.1 -d build/docs"

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

$(VENV)/.pip: | $(BIN)/python
	$(INSTALL) --upgrade 'pip>=25.1' # the first with dependency groups
	@touch $@

$(VENV)/.demo: pyproject.toml | $(VENV)/.pip
	$(INSTALL) -e '.[plot,verify,nn,explore]' '$(TORCH)'
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/.pip
	$(INSTALL) -e '.[plot,frames,graphs,hdf5,verify,nn,url,explore]' --group test '$(TORCH)'
	@touch $@

$(VENV)/.ray: $(VENV)/.test
	$(INSTALL) -e '.[ray]'
	@touch $@

$(VENV)/.sae: $(VENV)/.test
	$(INSTALL) -e '.[sae]' '$(TORCH)'
	@touch $@

$(VENV)/.docs: pyproject.toml | $(VENV)/.pip
	$(INSTALL) -e '.[plot,frames,verify,nn,features,explore]' --group docs '$(TORCH)'
	@touch $@

$(VENV)/.bench: pyproject.toml | $(VENV)/.pip
	$(INSTALL) -e '.[explore,nn,ray,sae]' --group bench '$(TORCH)'
	@touch $@
