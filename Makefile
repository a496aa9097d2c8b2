# Every target with a ## comment is listed by `make help`.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO := build/demo
CORPUS := build/corpus
GOLDEN ?= /srv/campaign-golden
PYTEST := $(BIN)/python -m pytest
SPENT := --spent 15
# Three workers for two cores: one has the tests of the cluster, which mostly wait.
SHARED := -n 3 --dist loadfile $(SPENT)

.PHONY: help setup demo test test-slow lint type check bench bench-slurm golden golden-campaign wheel-check lock slurm-install slurm-up slurm-down clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "campaign needs Python 3.11 or newer: make setup PYTHON=/path/to/python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $(STAMP)

setup: $(STAMP) ## Create .venv with everything that the other targets need

$(CORPUS)/train.bin: $(STAMP) examples/tinylm/prepare_corpus.py
	$(BIN)/python examples/tinylm/prepare_corpus.py --out $(CORPUS)

# What is tried out here is no try against anybody's baseline.
demo bench bench-slurm: export CAMPAIGN_REGISTRY = $(abspath build)/tried-out.jsonl
demo: $(STAMP) $(CORPUS)/train.bin ## Freeze, submit, collect and report a small real campaign on this machine
	@test ! -e $(DEMO) || chmod -R u+w $(DEMO) # frozen trees are read-only
	rm -rf $(DEMO) $(CAMPAIGN_REGISTRY)
	$(BIN)/campaign freeze examples/demo/campaign.toml --home $(DEMO)
	$(BIN)/campaign freeze --candidate --config examples/demo/campaign.toml --home $(DEMO)
	$(BIN)/campaign submit --home $(DEMO) --cluster local --wait --yes || test $$? -eq 4
	$(BIN)/campaign report --home $(DEMO) --exit-zero

test: $(STAMP) ## Run the tests, the real-Slurm ones included where the machine can boot a cluster
	@$(BIN)/python tools/slurm_ready.py
	$(PYTEST) $(SHARED) -m "not slow"

test-slow: $(STAMP) ## Run the long tests: faults, scale, kills, tampering
	@$(BIN)/python tools/slurm_ready.py
	$(PYTEST) $(SHARED) -m "slow and not alone" --timeout 1200
	$(PYTEST) $(SPENT) -m "slow and alone" --timeout 1200

lint: $(STAMP) ## Check format and lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

type: $(STAMP) ## Check types
	$(BIN)/mypy

check: lint type test ## Everything that must hold before a commit

bench: $(STAMP) $(CORPUS)/train.bin ## Measure start-up, freeze, harness overhead, comparison, verification and collection, each beside its yardstick
	$(BIN)/python tools/bench_startup.py
	$(BIN)/python tools/bench_freeze.py
	$(BIN)/python tools/bench_harness.py
	$(BIN)/python tools/bench_compare.py
	$(BIN)/python tools/bench_verify.py --home $(DEMO)
	$(BIN)/python tools/bench_collect.py

bench-slurm: $(STAMP) slurm-up ## Measure how long many small allocations take on the real Slurm
	$(BIN)/python tools/bench_slurm.py

golden: $(STAMP) ## Rewrite the golden files that tests compare with
	$(PYTEST) -m "not slow and not slurm" --update-golden -k golden

golden-campaign: $(STAMP) ## Make the golden campaign anew, below GOLDEN, whose name stands in it
	$(BIN)/python tools/make_golden.py $(GOLDEN)

wheel-check: $(STAMP) ## Build the wheel, install it alone and render a report with it from another folder
	$(BIN)/python tools/wheel_check.py

lock: ## Compile requirements.lock anew
	$(BIN)/pip-compile --quiet --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options --output-file requirements.lock --all-extras pyproject.toml requirements.in

slurm-install: ## Install the Debian packages of the test cluster (root)
	$(PYTHON) tests/slurm/cluster.py install

slurm-up: slurm-install ## Boot the three-node test cluster; prints the variable that reaches it
	$(PYTHON) tests/slurm/cluster.py up

slurm-down: ## End the test cluster
	$(PYTHON) tests/slurm/cluster.py down

clean: ## Remove what was built
	@test ! -e build || chmod -R u+w build
	rm -rf build dist
