# Needs make and Python 3.11 or newer, nothing else: each target sets up its own .venv first.
# Another interpreter: make demo PYTHON=python3.12

PYTHON ?= python3
BIN := .venv/bin
# -qq leaves pip's errors and drops its progress and warnings.
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check
# At most four: a worker takes about 1 GB, and JAX compiles the same laws anew in each.
PYTEST := $(BIN)/python -m pytest -q -n auto --maxprocesses 4 --dist worksteal

.PHONY: help demo test quick long sanitize lint format bench clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    run the demo"
	@echo "make test    run every check that CI runs"
	@echo "make quick   run the tests without the slow ones"
	@echo "make long    run the tests that take minutes, which CI leaves out"
	@echo "make sanitize run the tests of programs on a machine that checks its memory and arithmetic"
	@echo "make lint    run ruff and pyright only"
	@echo "make format  let ruff format and mend what it can"
	@echo "make bench   run the benchmarks beside other programs"
	@echo "make clean   remove .venv, caches and outputs"

demo: .venv/.installed
	@$(BIN)/jaxmbd demo

# Runs all checks even when one fails, so that one run shows everything; the tests come last.
test: .venv/.installed-dev
	@failed=""; \
	echo "ruff check";  $(BIN)/ruff check --quiet . || failed="$$failed ruff-check"; \
	echo "ruff format"; $(BIN)/ruff format --quiet --diff . || failed="$$failed ruff-format"; \
	echo "pyright";     $(BIN)/pyright --pythonpath $(BIN)/python || failed="$$failed pyright"; \
	echo "pytest";      $(PYTEST) -m "not long" || failed="$$failed pytest"; \
	if [ -n "$$failed" ]; then echo "failed:$$failed" >&2; exit 1; fi

quick: .venv/.installed-dev
	@$(PYTEST) -m "not slow and not long"

long: .venv/.installed-dev
	@$(PYTEST) -m long

# Python is not compiled with the sanitizer, so its library must be loaded first, and with it that of C++, in which it
# looks for what throws exceptions. What Python leaks does not count.
SANITIZED := env -u LD_PRELOAD cc -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g1
sanitize: .venv/.installed-dev
	@cache=$$(mktemp -d); trap 'rm -rf "$$cache"' EXIT; \
	env CC="$(SANITIZED)" XDG_CACHE_HOME="$$cache" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
		LD_PRELOAD="$$(cc -print-file-name=libasan.so) $$(cc -print-file-name=libstdc++.so)" \
		$(BIN)/python -m pytest -q -m "not long" tests/test_program.py tests/test_program_transformations.py

lint: .venv/.installed-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --diff .
	@$(BIN)/pyright --pythonpath $(BIN)/python

format: .venv/.installed-dev
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: .venv/.installed-bench
	@$(BIN)/python -m benchmarks

clean:
	rm -rf .venv .pytest_cache .ruff_cache build dist out
	find jaxmbd tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# A stamp is written only after its install has gone through, and is out of date when pyproject.toml changes.
.venv/.created:
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "jaxmbd needs Python 3.11 or newer, and $(PYTHON) is %d.%d; name another: make PYTHON=python3.12" % sys.version_info[:2])'
	@echo "setting up .venv (first time only, a few minutes)"
	@$(PYTHON) -m venv --clear .venv
	@touch $@

.venv/.installed: .venv/.created pyproject.toml
	@echo "installing jaxmbd into .venv"
	@$(PIP_INSTALL) -e .
	@touch $@

.venv/.installed-dev: .venv/.created pyproject.toml
	@echo "installing jaxmbd and the tools for its checks into .venv"
	@$(PIP_INSTALL) -e '.[dev]'
	@touch $@ .venv/.installed

.venv/.installed-bench: .venv/.created pyproject.toml
	@echo "installing jaxmbd and the programs to compare it with into .venv"
	@$(PIP_INSTALL) -e '.[bench]'
	@touch $@ .venv/.installed
