# Every target sets up .venv by itself, once; uv comes from the package index into the same .venv.
.DEFAULT_GOAL := help
CONFIG ?= configs/mnist_sample.yaml
VENV := .venv
READY := $(VENV)/.ready
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
export UV_PROJECT_ENVIRONMENT := $(CURDIR)/$(VENV)
UV := $(VENV)/bin/uv

.PHONY: help setup run test check format lock golden verify-golden infra images submit teardown clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY)  ## make .venv with the locked packages

$(READY): pyproject.toml uv.lock
	@echo "Set-up (once, some minutes where nothing is cached): .venv with the packages of uv.lock"
	@test -x $(VENV)/bin/pip || python3.11 -m venv --clear $(VENV) || python3 -m venv --clear $(VENV)
	@test -x $(UV) || $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check "uv>=0.5"
	@$(UV) sync --locked --inexact --extra cpu --extra preflight --extra samples --extra docker
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

lock: $(READY)  ## write uv.lock anew after a change of pyproject.toml, and what the images take from it
	@$(UV) lock
	@$(UV) export --quiet --locked --only-group build --no-annotate --no-header -o containers/tools.txt

golden: $(READY)  ## write the golden pipelines anew: review their diff
	@$(VENV)/bin/python tests/golden/golden.py

verify-golden: $(READY)  ## check that the pipelines compile to the golden bytes
	@$(VENV)/bin/python tests/golden/golden.py --verify

infra: $(READY)  ## make what a run of CONFIG needs on Google Cloud, by Terraform, which shows its plan and asks first
	@$(VENV)/bin/python infra/from_config.py "$(CONFIG)"
	@terraform -chdir=infra init -input=false
	@terraform -chdir=infra apply

# The registry that make infra made; REGISTRY= (empty) builds for this machine alone.
ifeq ($(origin REGISTRY),undefined)
REGISTRY := $(if $(filter images,$(MAKECMDGOALS)),$(shell terraform -chdir=infra output -json 2>/dev/null | \
	python3 -c 'import json, sys; print(json.load(sys.stdin)["registry"]["value"])' 2>/dev/null))
endif
export REGISTRY
images: $(READY)  ## build the images, push them to the project's registry, write images.json and the SBOMs
	@$(if $(REGISTRY),,echo "No registry is given, and none was made by make infra: the images stay on this machine, without images.json.")
	@case "$$REGISTRY" in *.pkg.dev/*) gcloud auth configure-docker --quiet "$${REGISTRY%%/*}" ;; esac
	@containers/build.sh cpu tpu serving
	@for image in cpu tpu serving; do \
		name=$(if $(REGISTRY),$$(cat build/$$image.ref),tpu-pipelines/$$image:unreleased); \
		$(VENV)/bin/python containers/sbom.py "$$name" -o build/sbom/$$image.cdx.json || exit 1; \
	done
	@$(if $(REGISTRY),$(VENV)/bin/python containers/images.py)

submit: $(READY)  ## check a run and send it to Vertex AI: make submit CONFIG=configs/mine.yaml
	@$(VENV)/bin/tpu-pipelines submit "$(CONFIG)" --images images.json $(ARGS)

teardown: $(READY)  ## remove what runs of CONFIG left on Vertex AI, then what make infra made; asks first
	@$(VENV)/bin/python infra/from_config.py "$(CONFIG)" --check
	@test -t 0 || test "$(ARGS)" || { echo "This asks before it removes: run it in a terminal, or with ARGS=--yes." >&2; exit 2; }
	@$(VENV)/bin/tpu-pipelines teardown "$(CONFIG)" $(ARGS)
	@terraform -chdir=infra init -input=false
	@if terraform -chdir=infra state list 2>/dev/null | grep -q .; then \
		terraform -chdir=infra apply -var force_destroy=true && terraform -chdir=infra destroy; \
	else \
		echo "infra/ has no state here: nothing was made from this folder, or it is removed already."; \
	fi

clean:  ## remove .venv and caches; runs/ stays
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
