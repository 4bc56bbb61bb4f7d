# Every target sets up .venv by itself, once; uv comes from the package index into the same .venv.
.DEFAULT_GOAL := help
CONFIG ?= configs/mnist_sample.yaml
VENV := .venv
READY := $(VENV)/.ready
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
export UV_PROJECT_ENVIRONMENT := $(CURDIR)/$(VENV)
UV := $(VENV)/bin/uv

.PHONY: help setup run test check format golden verify-golden clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY)  ## make .venv with the locked packages

$(READY): pyproject.toml uv.lock
	@echo "Set-up (once, some minutes where nothing is cached): .venv with the packages of uv.lock"
	@test -x $(VENV)/bin/pip || python3.11 -m venv --clear $(VENV) || python3 -m venv --clear $(VENV)
	@test -x $(UV) || $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check "uv>=0.5"
	@$(UV) sync --locked --inexact --extra cpu --extra samples --extra docker
	@touch $@

run: $(READY)  ## run the pipeline on this machine: make run CONFIG=configs/bbc_news_sample.yaml
	@$(VENV)/bin/tpu-pipelines run $(CONFIG) $(ARGS)

test: $(READY)  ## everything that CI runs
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/pytest

check: $(READY)  ## lint, types and the quick tests, in under two minutes
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/pytest -q -m "not slow"

format: $(READY)  ## format the code and mend what the linter can
	@$(VENV)/bin/ruff format .
	@$(VENV)/bin/ruff check --fix .

golden: $(READY)  ## write the golden pipelines anew: review their diff
	@$(VENV)/bin/python tests/golden/golden.py

verify-golden: $(READY)  ## check that the pipelines compile to the golden bytes
	@$(VENV)/bin/python tests/golden/golden.py --verify

clean:  ## remove .venv and caches; runs/ stays
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
