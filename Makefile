.DEFAULT_GOAL := help
SHELL := /bin/sh

VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# The first interpreter that is new enough; `make PYTHON=/path/to/python` picks another.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
	&& { echo $$python; break; }; done)

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(READY) ## Make the virtual environment (the other targets do it when it is missing)

# Everything is pinned with hashes; the project itself is installed in place.
$(READY): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "pgoutbox needs Python 3.11 or newer; none was found (make PYTHON=/path/to/python)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "pgoutbox needs Python 3.11 or newer; $(PYTHON) is older" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "$(PYTHON) cannot make virtual environments; install its venv package (Debian: python3-venv)" >&2; exit 1; }
	@echo "Installing the pinned tools into $(VENV); a minute or two."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

.PHONY: demo
demo: $(READY) ## Watch it work: a shop, a consumer, three workers and two deaths, in half a minute
	$(BIN)/pgoutbox demo

.PHONY: test
test: $(READY) ## Run the unit and postgres tests
	$(BIN)/python -m pytest

.PHONY: test-brokers
test-brokers: $(READY) ## Run the tests against real brokers, Jaeger and Prometheus: PGOUTBOX_TEST_<BROKER>_URL, else from wheels, else Docker
	$(BIN)/python -m pytest -m broker

.PHONY: test-matrix
test-matrix: $(READY) ## Run the postgres tests on PostgreSQL 14 to 18: PGOUTBOX_TEST_DSN_<VERSION>, else Docker; ten minutes each
	$(BIN)/python -m tests.support.matrix

.PHONY: test-cluster
test-cluster: $(READY) ## Run the tests against the Kubernetes cluster that KUBECONFIG names; kind will do
	$(BIN)/python -m pytest -m cluster

.PHONY: docs
docs: $(READY) ## Build the documentation's site in build/site; every link and anchor has to lead somewhere
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

.PHONY: e2e
e2e: $(READY) ## Install the chart on the cluster that KUBECONFIG names, and drain, kill and evict its pods under load; CONTRIBUTING.md says what it needs
	$(BIN)/python -m pytest -m e2e -p no:randomly

.PHONY: check
check: $(READY) ## Lint, types, import direction and generated docs; writes nothing
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pgoutbox.settings.table --check
	$(BIN)/python -m pgoutbox.telemetry.catalogue.page --check
	$(BIN)/python -m pgoutbox.cli.reference --check
	$(BIN)/python -m monitoring.render --check
	$(BIN)/python -m charts.render --check
	$(BIN)/python -m pgoutbox_operator.crd --check

.PHONY: fmt
fmt: $(READY) ## Format the code and write the generated docs
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/python -m pgoutbox.settings.table --write
	$(BIN)/python -m pgoutbox.telemetry.catalogue.page --write
	$(BIN)/python -m pgoutbox.cli.reference --write
	$(BIN)/python -m monitoring.render --write
	$(BIN)/python -m charts.render --write
	$(BIN)/python -m pgoutbox_operator.crd --write

.PHONY: bench
bench: $(READY) ## Measure throughput against the SQL floor, and latency, on a throw-away server
	$(BIN)/pgoutbox bench

.PHONY: bench-all
bench-all: $(READY) ## Measure every scenario of benchmarks/README.md, on a throw-away server; about 20 minutes
	$(BIN)/pgoutbox bench --scenario all

.PHONY: soak
soak: $(READY) ## Kill workers while 200,000 ordered messages pass, and judge their order; about 15 minutes
	$(BIN)/python -m pytest -m bench -s benchmarks/test_order_soak.py

.PHONY: soak-operator
soak-operator: $(READY) ## Run the operator through a day of faults, fifty databases and an API server that goes away; about 17 minutes
	$(BIN)/python -m pytest -m bench -s tests/endurance

.PHONY: bench-brokers
bench-brokers: $(READY) ## Measure a worker against each broker's client alone, on real servers; about 10 minutes
	$(BIN)/python -m pytest -m bench -s -p no:randomly benchmarks/test_brokers.py

.PHONY: simulate
simulate: $(READY) ## Simulate the operator beside KEDA and the HPA: table, plots in build/simulation, and gates
	$(BIN)/python -m simulation

.PHONY: lock
lock: $(READY) ## Resolve the dependencies again, for every supported Python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-header --no-emit-index-url --no-annotate --all-extras --upgrade \
		--output-file requirements.lock pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-header --no-emit-index-url --no-annotate --constraint requirements.lock \
		--extra worker --extra brokers --extra otel --extra operator \
		--output-file requirements-image.lock pyproject.toml
	echo "hatchling>=1.27" | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-header --no-emit-index-url --no-annotate --constraint requirements.lock \
		--output-file requirements-build.lock -

.PHONY: clean
clean: ## Remove the virtual environment and every cache
	rm -rf $(VENV) .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache build dist
