# Every verb of the workshop; `make` alone explains them.
# A bare machine needs python3 (3.11 or newer, with venv), make and git: what else is used comes, by hash, from requirements/.

SHELL := /bin/bash -o pipefail
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= auto
TESTS ?=
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq install
SUMMARY := .venv/last-tests.txt

.PHONY: help setup demo serve test check pytest bench crash soak docs spec lock wheel clean

help: ## say what each verb does
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/ready-to-work ## create .venv from the hashed locks and install the project into it, editable

demo: .venv/ready-to-run ## a session is killed half-way and carries on, in a minute, without an API key
	@$(BIN)/perdure demo

serve: .venv/ready-to-run ## the HTTP server, on this machine only
	@$(BIN)/perdure serve

test: check pytest wheel ## everything that must hold: checks, tests, and the wheel in a fresh environment
	@tail -n 1 $(SUMMARY)

check: setup ## format, lint and types
	@echo "== ruff format, ruff check, basedpyright"
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/basedpyright --pythonpath $(BIN)/python

pytest: setup # the tests alone; TESTS="…" narrows them, WORKERS=0 runs them in one process
	@echo "== pytest"
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(TESTS) | tee $(SUMMARY)

wheel: setup ## build the wheel and prove it in an environment of its own
	@echo "== wheel"
	@$(BIN)/python scripts/wheel_proof.py

crash: setup ## kill real processes at every point, simulated ones at every pair of points, and look at what is left
	@$(BIN)/python -m pytest -m "crash or walk" -o faulthandler_timeout=0 tests/crash tests/simulation

soak: setup ## the same under load, for minutes
	@$(BIN)/python -m pytest -m soak tests

bench: setup ## measure; BENCH=word picks some, BENCH=peers compares
	@$(BIN)/python -m bench $(BENCH)

docs: setup ## write again what is generated in docs/
	@for program in scripts/docs_*.py; do $(BIN)/python "$$program" || exit 1; done

spec: ## list the rules of docs/spec.md that no test names
	@$(PYTHON) scripts/spec.py

lock: setup ## compile requirements/ again; UPGRADE=1 takes newer versions
	@$(PYTHON) scripts/lock.py $(if $(UPGRADE),--upgrade)

clean: ## remove everything that make made
	@rm -rf .venv .bench build dist .pytest_cache .ruff_cache .hypothesis
	@find bench examples scripts src tests -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || { echo "perdure needs Python 3.11 or newer as $(PYTHON) (or name one: make PYTHON=python3.12 …)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { echo "$(PYTHON) cannot make virtual environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@echo "== creating .venv"
	@$(PYTHON) -m venv .venv

.venv/ready-to-run: requirements/run.txt requirements/build.txt pyproject.toml | .venv/bin/python
	@echo "== installing perdure and what it runs on, by hash"
	@$(PIP) --require-hashes -r requirements/run.txt -r requirements/build.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

.venv/ready-to-work: requirements/dev.txt .venv/ready-to-run
	@echo "== installing what it is tested and built with, by hash"
	@$(PIP) --require-hashes -r requirements/dev.txt
	@touch $@
