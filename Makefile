# Everything here sets itself up: the first target you call makes .venv, later ones reuse it.
# Only python3 (3.11 or newer, with venv and pip) is needed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup
ARGS ?=
PACKAGES := $(wildcard drayd metadata wal protocol compactor spark_compaction compat tests)

.DEFAULT_GOAL := help
.PHONY: help setup run test lint format bench compat lock clean

help: ## this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with everything in it (does nothing the second time)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Dray needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.11 setup")'
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

run: setup ## start Dray on localhost:9092; pass flags with ARGS='--listen localhost:19092'
	@exec $(BIN)/drayd start $(ARGS)

test: lint ## lint, then every test; choose with ARGS='-k wal'
	$(BIN)/python -m pytest $(ARGS)

lint: setup ## ruff and mypy --strict
	$(BIN)/ruff check $(PACKAGES)
	$(BIN)/ruff format --check $(PACKAGES)
	$(BIN)/mypy $(PACKAGES)

format: setup ## let ruff put the code in order
	$(BIN)/ruff check --fix $(PACKAGES)
	$(BIN)/ruff format $(PACKAGES)

bench: setup ## measure Dray against Apache Kafka; results go to build/bench
	$(BIN)/python -m compat.bench $(ARGS)

compat: setup ## real clients against a running drayd
	$(BIN)/python -m compat.run $(ARGS)

lock: ## resolve pyproject.toml into requirements.lock anew (needs uv)
	uv pip compile pyproject.toml --extra dev --extra bench --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --no-annotate \
	  --upgrade --output-file requirements.lock

clean: ## remove what was built; .venv and dray-data stay
	rm -rf build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache *.egg-info
	find $(PACKAGES) -name __pycache__ -type d -prune -exec rm -rf {} +
