PYTHON ?= python3
BIN := .venv/bin
# Each process imports all tests: let it use compiled ones, whatever the environment says.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder
LOCKED := uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-strip-extras
SOURCES := app.py refine refine_client bench tests migrations examples

.DEFAULT_GOAL := help
.PHONY: help install up test check lint types tests nightly bench long gameday budget costly mutants prompts screenshots dist fix lock advisories clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

install: .venv/.installed ## Create the virtual environment in .venv/

up: .venv/.installed ## Start everything on this machine and print the URL (Ctrl-C stops it)
	@exec $(BIN)/refine up

test: lint ## Run all checks and the quick tests (EVERYTHING=1: also the slow ones, as CI does)
	@$(MAKE) --no-print-directory -j 2 types tests

check: lint types ## Check format, lint, types and layers

lint: .venv/.developed ## Check format, lint and layers
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/lint-imports

types: .venv/.developed ## Check types
	$(BIN)/mypy

tests: .venv/.developed ## Run the quick tests (EVERYTHING=1: also the slow ones, with branch coverage)
ifdef EVERYTHING
	REFINE_REQUIRE_BROWSER=1 $(PYTEST) -m "not nightly" --cov --cov-report=
	$(BIN)/coverage report --fail-under=100
	$(BIN)/python -m tests.budget
else
	$(PYTEST) -m "not slow" --hypothesis-profile=quick
endif

nightly: .venv/.developed ## Run the tests that are too long for the gate: every seed, kill point, operation and page
	REFINE_REQUIRE_BROWSER=1 $(PYTEST) -m nightly

long: .venv/.developed ## Play storms and interleavings for as long as you like (MINUTES=60 SEED=7 SEEDS=10000)
	$(if $(MINUTES),MINUTES=$(MINUTES)) $(if $(SEED),SEED=$(SEED)) $(if $(SEEDS),SEEDS=$(SEEDS)) \
	  $(BIN)/python -m pytest -n auto --dist load -m nightly tests/chaos tests/interleaving

gameday: .venv/.developed ## Deploy each minute while 30 sessions run, and count what was lost (MINUTES=60 SEED=7)
	$(if $(MINUTES),MINUTES=$(MINUTES)) $(if $(SEED),SEED=$(SEED)) $(BIN)/python -m tests.chaos.gameday

bench: .venv/.installed ## Measure speed against floors, in under ten minutes (SIZE=large: also ten times the data)
	$(BIN)/python -m bench $(if $(SIZE),--size $(SIZE))

budget: .venv/.developed ## Compare lines, terms and the CPU time of the last run of all tests with pyproject.toml
	$(BIN)/python -m tests.budget

costly: .venv/.developed ## Measure every test, and list in tests/costly.txt those that are not for the quick run
	$(BIN)/python -m tests.costly

mutants: .venv/.developed ## Break the code in one place at a time and list what no test notices (SAMPLE=300)
	$(BIN)/python -m tests.mutation $(if $(SAMPLE),--sample $(SAMPLE))

prompts: .venv/.developed ## Generate docs/prompts.md, what agents' models read, and the README's picture
	$(BIN)/python -m tests.printed_prompts

screenshots: .venv/.developed ## Take screenshots of every page, in build/screenshots/
	$(BIN)/python -m tests.browser.screenshots

dist: .venv/.installed ## Build the wheel and the sdist, in dist/
	$(BIN)/python -m hatchling build -d dist

fix: .venv/.developed ## Format, and fix what the linter can fix
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

lock: ## Pin the requirements of pyproject.toml, with hashes (needs uv)
	$(LOCKED) pyproject.toml -o requirements.txt
	$(LOCKED) -c requirements.txt --extra embedded --group build pyproject.toml -o requirements-local.txt
	$(LOCKED) -c requirements-local.txt --extra embedded --group dev pyproject.toml -o requirements-dev.txt

advisories: ## Ask the advisory database about every pinned package (needs uv and a network)
	for file in requirements.txt requirements-local.txt requirements-dev.txt; do \
	  uvx pip-audit --strict --disable-pip --require-hashes -r $$file || exit 1; done

clean: ## Remove the virtual environments and the tools' caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.* .import_linter_cache

.venv/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Refine needs Python 3.11 or newer; choose one: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv
	@touch $@

.venv/.installed: .venv/.made requirements-local.txt pyproject.toml
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements-local.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

.venv/.developed: .venv/.installed requirements-dev.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@touch $@
