# `make demo` and `make test` are enough: each sets up what it needs (a virtual environment in .venv).
PYTHON ?= python3.11
BIN := .venv/bin
export PYTHONPATH := workflow
# pyright would look on the network for a newer version.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
# Python compiles a module when it is first imported, which takes less time than to compile all of them here.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
SETUP := .venv/.installed

.PHONY: demo test test-anywhere lint bench site setup lock help

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1	/p' $(MAKEFILE_LIST)

demo: $(SETUP)  ## train a tiny English model in a few minutes, from text that comes with Python
	@[ -z "$$(ls .snakemake/locks 2>/dev/null)" ] || $(BIN)/babelmill unlock --profile profiles/demo
	$(BIN)/snakemake --profile profiles/demo converted/eng
	@$(BIN)/babelmill show converted/eng --masked "This function returns the <mask> of the list." --prompt "The function returns"

test: $(SETUP)  ## all tests on all cores; not root on Debian or Ubuntu: make test ARGS='--ignore tests/slurm'
	$(BIN)/pytest -n auto --dist loadgroup --ignore tests/anywhere $(ARGS)

test-anywhere: $(SETUP)  ## the tutorial's notebook; a wheel by itself; a real Grid Engine (needs root on Debian or Ubuntu)
	$(BIN)/pytest tests/anywhere $(ARGS)

lint: $(SETUP)  ## ruff, snakefmt, import-linter, pyright, snakemake --lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check .
	$(BIN)/lint-imports
	$(BIN)/pyright
	$(BIN)/snakemake --lint

bench: $(SETUP)  ## speed of a training step beside BERT's and of scoring beside others', a micro_batch_tokens for this machine
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/suites.py
	$(BIN)/python benchmarks/step.py --propose

site: $(SETUP)  ## this documentation as a site, in build/site/index.html; a broken link is an error
	$(BIN)/sphinx-build -E -n -W --keep-going -q -b html -c docs/site . build/site

setup: $(SETUP)  ## install only the virtual environment
	@echo "Installed. Next: source .venv/bin/activate && snakemake --profile profiles/local -n converted/eng"

lock:  ## after you change pins: install them without the lock, and write envs/lock.txt and envs/licences.txt again
	$(PIP) --upgrade --editable '.[test,slurm,gridengine,docs]'
	$(BIN)/python envs/lock.py > envs/lock.txt
	$(BIN)/python envs/licences.py > envs/licences.txt
	@touch $(SETUP)

# Installs again when the pins change. The package itself is used from this folder, never from a copy. The pip that comes
# with Python takes twice as long. Four processes install what envs/lock.txt lists, and PyTorch; the last line adds what
# PyTorch needs on this machine (CUDA's libraries), and fails if the list does not fit pyproject.toml.
$(SETUP): pyproject.toml envs/lock.txt
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) not found; install Python 3.11, or use make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv
	$(PIP) pip==25.3
	{ grep -oE '(torch|triton)==[0-9.]+' pyproject.toml; grep -v '^#' envs/lock.txt; } | xargs -P 4 -n 36 $(PIP) --no-deps
	$(PIP) --no-build-isolation --editable .
	@touch $(SETUP)
