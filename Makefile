# `make demo` and `make test` are enough: each sets up what it needs (a virtual environment in .venv).
PYTHON ?= python3.11
BIN := .venv/bin
export PYTHONPATH := workflow
# Without bytecode, each process would compile PyTorch and Snakemake again. Some images and CI machines set this variable.
unexport PYTHONDONTWRITEBYTECODE
# pyright would look on the network for a newer version.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
PYTEST := $(BIN)/pytest -n auto --dist loadgroup
SETUP := .venv/.installed
RELEASE := build/release/.installed

.PHONY: demo test test-all test-nightly lint bench site setup lock release sbom dist audit help

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1	/p' $(MAKEFILE_LIST)

demo: $(SETUP)  ## train a tiny English model in a few minutes, from text that comes with Python
	@if [ -n "$$(ls .snakemake/locks 2>/dev/null)" ] && $(BIN)/python -m babelmill.commands.earlier_runs; \
	  then $(BIN)/snakemake --profile profiles/demo --unlock; fi
	$(BIN)/snakemake --profile profiles/demo converted/eng
	@$(BIN)/babelmill show converted/eng --held-out 5 --prompt "The function returns"

test: $(SETUP)  ## what matters most, in a few minutes: from the plan of a training to a killed run and a converted folder
	$(PYTEST) -m "not slow and not nightly" $(ARGS)

test-all: $(SETUP)  ## the other tests: real clusters, browsers, a wheel; root on Debian or Ubuntu, or ARGS='--ignore tests/slurm'
	$(PYTEST) -m "slow and not nightly" $(ARGS)

test-nightly: $(SETUP)  ## what repeats another test many times, and what tests the tests
	$(PYTEST) -m nightly $(ARGS)

lint: $(SETUP)  ## ruff, snakefmt, import-linter, pyright, snakemake --lint, shellcheck
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check .
	$(BIN)/lint-imports
	$(BIN)/pyright
	$(BIN)/snakemake --lint
	$(BIN)/shellcheck --exclude SC1091 $$(git ls-files '*.sh' ':!profiles/jobscript.sh') .ci/run
	sed 's/{exec_job}/true/; s/{{/{/g; s/}}/}/g' profiles/jobscript.sh | $(BIN)/shellcheck --severity warning -  # a template

bench: $(SETUP)  ## speed of a training step beside BERT's and of scoring beside others', a micro_batch_tokens for this machine
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/suites.py
	$(BIN)/python benchmarks/step.py --propose

site: $(SETUP)  ## this documentation as a site, build/site/index.html, beside other versions; a broken link is an error
	$(BIN)/sphinx-build -E -n -W --keep-going -q -b html -c docs/site . build/site/new
	$(BIN)/python docs/site/versions.py build/site

setup: $(SETUP)  ## install only the virtual environment
	@echo "Installed. Next: source .venv/bin/activate && snakemake --profile profiles/local -n converted/eng"

lock: $(RELEASE)  ## after you change pins: write envs/lock*.txt again, install, and write envs/licences.txt (ARGS=--upgrade: newer)
	PATH=$(dir $(RELEASE))bin:$$PATH $(PYTHON) envs/lock.py $(ARGS)
	$(MAKE) setup
	$(BIN)/python envs/licences.py > envs/licences.txt

release: $(SETUP)  ## make release VERSION=1.0.0: write the number of a release everywhere; the other steps are in SECURITY.md
	$(BIN)/python tests/scripts/release.py $(VERSION)

sbom: $(SETUP) $(RELEASE)  ## dist/babelmill.cdx.json: what a release needs, with versions and hashes (CycloneDX)
	@mkdir -p dist
	cat envs/lock.txt envs/lock-torch.txt | $(dir $(RELEASE))bin/cyclonedx-py requirements --pyproject pyproject.toml \
	  --output-reproducible --output-file dist/babelmill.cdx.json -
	$(PYTHON) -c "import json, babelmill; path = 'dist/babelmill.cdx.json'; about = json.load(open(path)); \
	  about['metadata']['component']['version'] = babelmill.__version__; json.dump(about, open(path, 'w'), indent=2)"

dist: sbom  ## dist/: the wheel and the SBOM of a release
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

audit: $(RELEASE)  ## look for known weaknesses of all packages in PyPI's data; fails if it cannot be had
	for lock in lock lock-tools lock-torch lock-release; do \
	  $(dir $(RELEASE))bin/pip-audit --strict --disable-pip --require-hashes -r envs/$$lock.txt || exit; done

# The tools of a release are in an environment of their own.
$(RELEASE): envs/lock-release.txt
	$(PYTHON) -m venv $(dir $(RELEASE))
	$(dir $(RELEASE))bin/python -m pip --quiet --disable-pip-version-check install --no-deps --require-hashes -r envs/lock-release.txt
	@touch $(RELEASE)

# Installs again when the pins change. The package itself is used from this folder, never from a copy. The tests need
# Triton, which comes only with PyTorch for CUDA. The last line fails if the lock files do not fit pyproject.toml.
$(SETUP): pyproject.toml envs/lock.txt envs/lock-tools.txt envs/lock-torch.txt
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) not found; install Python 3.11, or use make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv
	sh envs/install.sh $(BIN)/python lock.txt lock-tools.txt
	sed -n '/^triton==/,/[^\\]$$/p' envs/lock-torch.txt | $(PIP) --no-deps --require-hashes -r /dev/stdin
	$(PIP) --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m pip check
	@touch $(SETUP)
