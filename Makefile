# Two commands do all set-up: `make run` and `make test`. `make help` lists the rest.

PYTHON ?= python3
PORT ?= 8080
ARGS ?=
WORKERS ?= 2
DATA ?= $(wildcard ../shared/data)

VENV := .venv/bin
PY := $(VENV)/python
TRY := Who stops the embedded server?

export OPENSPEC_TELEMETRY := 0
export DO_NOT_TRACK := 1

.DEFAULT_GOAL := help
.PHONY: help install run test check lint types spec bench bench-peers lock clean

help: ## List these commands
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: ## Prepare .venv from the lock file
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "error: $(PYTHON) on PATH is missing or older than Python 3.11." >&2; \
		echo "  remedy: install a newer Python, and name it: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) .ci/install.py

run: install ## Serve this project's own docs on 127.0.0.1 (PORT=8080)
	@exec $(VENV)/strata serve --port $(PORT) --banner --ingest docs --context strata-docs --try "$(TRY)"

test: install ## Pass every test, shared by WORKERS=2 (ARGS="-k name" for some, in one process)
	@$(PY) -m pytest $(or $(ARGS),--numprocesses=$(WORKERS) --dist=loadfile --no-loadscope-reorder)

check: lint types ## Lint, types, layers, lock files and, where node is there, openspec
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory spec; else echo "no npm here: openspec not validated"; fi

lint: install ## Style, layers, lock files
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(VENV)/lint-imports
	@if grep -nE '://' requirements.lock benchmarks/peers/requirements.lock package-lock.json; then echo "error: a lock file names a host." >&2; exit 1; fi

types: install ## Strict types
	@$(PY) -m mypy

spec: node_modules/.ready ## Validate openspec/ (needs node)
	@npx --no-install openspec validate --all --strict --no-interactive

node_modules/.ready: package.json package-lock.json
	@npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

bench: install ## Measure quality and speed (DATA=folder of judged sets)
	@test -n "$(DATA)" || { echo "error: name a folder of judged sets in BEIR layout: make bench DATA=..." >&2; exit 2; }
	@$(PY) -m strata.evaluate.bench --data "$(DATA)" $(ARGS)

bench-peers: install .venv-peers/.ready ## Measure beside other libraries on Postgres (DATA=... as for bench)
	@test -n "$(DATA)" || { echo "error: name a folder of judged sets in BEIR layout: make bench-peers DATA=..." >&2; exit 2; }
	@$(PY) -m benchmarks.peers.bench --data "$(DATA)" $(ARGS)

# An environment of their own: what they need is nothing that Strata should install.
.venv-peers/.ready: benchmarks/peers/requirements.lock
	@echo "installing the packages of $< into .venv-peers"
	@$(PY) -m uv venv --quiet --clear --python $(PY) .venv-peers
	@$(PY) -m uv pip install --quiet --python .venv-peers/bin/python --require-hashes -r $<
	@touch $@

lock: install ## Renew the lock files
	@$(PY) -m uv pip compile pyproject.toml --group dev --universal --generate-hashes --no-header --no-annotate \
		--upgrade --quiet --output-file requirements.lock
	@$(PY) -m uv pip compile benchmarks/peers/requirements.in --universal --python-version 3.11 --generate-hashes --no-header \
		--no-annotate --upgrade --quiet --output-file benchmarks/peers/requirements.lock
	@npm install --package-lock-only --ignore-scripts --omit-lockfile-registry-resolved --no-audit --no-fund --loglevel=error
	@node .ci/strip-lock.mjs

clean: ## Remove what was built here; STRATA_HOME stays as it is
	@rm -rf .venv .venv-peers node_modules dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .schemathesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
