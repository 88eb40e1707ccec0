# Needs make, Python 3.11 or newer and a C compiler, nothing else: each target sets up its own .venv first.
# Another interpreter, in an environment beside the first: make test PYTHON=python3.12

PYTHON ?= python3
VENV ?= $(if $(filter python3,$(PYTHON)),.venv,.venv-$(notdir $(PYTHON)))
BIN := $(VENV)/bin
# -qq leaves pip's errors and drops its progress and warnings.
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check
# At most four: a worker takes 3 GB and more (7 in the end of test-all), and JAX compiles the same laws anew in each.
PYTEST := $(BIN)/python -m pytest -q -n auto --maxprocesses 4 --dist worksteal

.PHONY: help demo test test-all quick newest sanitize lint format bench dist wheels docs docs-serve page-libraries clean
.DEFAULT_GOAL := help

help:
	@echo "make demo     identify a real double pendulum from its measurements; pictures go to out/demo"
	@echo "make test     run ruff, pyright and all tests except those marked slow (about 25 minutes on two processors)"
	@echo "make test-all run what make test runs, and the tests marked slow too (about three hours on two processors)"
	@echo "make quick    run the tests of make test without ruff and pyright; TESTS=... selects files"
	@echo "make newest   run the quick tests of the parts that touch JAX and the compilers with the newest Python found;"
	@echo "              does nothing if PYTHON is the newest"
	@echo "make sanitize run the tests of programs with the C code compiled by gcc's address and undefined-behaviour sanitizers"
	@echo "make lint     run ruff and pyright, without changing files"
	@echo "make format   change files: ruff format, and ruff check --fix"
	@echo "make bench    install other multibody programs and measure jaxmbd beside them (about 40 minutes)"
	@echo "make page-libraries  write the JavaScript libraries of jaxmbd/view again, from the npm registry; needs Node"
	@echo "make dist     build the source archive and a wheel with prebuilt libraries for this system into dist"
	@echo "make wheels   build the source archive, a wheel for all systems and those with prebuilt libraries for Linux, macOS"
	@echo "              and Windows into dist, and test them (half an hour on two processors)"
	@echo "make docs     build the documentation site into out/site (five minutes of processor time); warnings are errors"
	@echo "make docs-serve build it and serve it on http://localhost:8000"
	@echo "make clean    remove .venv, .venv-*, caches, build, dist, docs/generated and out"

demo: $(VENV)/.installed
	@$(BIN)/jaxmbd demo

# Runs all checks even when one fails, so that one run shows everything; the tests come last. Pyright, which takes one
# processor, runs beside them.
test: SELECTED := -m "not slow"
test test-all: $(VENV)/.installed-dev
	@failed=""; \
	echo "ruff check";  $(BIN)/ruff check --quiet . || failed="$$failed ruff-check"; \
	echo "ruff format"; $(BIN)/ruff format --quiet --diff . || failed="$$failed ruff-format"; \
	echo "pyright";     types=$$(mktemp); $(BIN)/pyright --pythonpath $(BIN)/python >$$types 2>&1 & \
	echo "pytest";      $(PYTEST) $(SELECTED) || failed="$$failed pytest"; \
	wait $$! || { cat $$types; failed="$$failed pyright"; }; rm $$types; \
	if [ -n "$$failed" ]; then echo "failed:$$failed" >&2; exit 1; fi

quick: $(VENV)/.installed-dev
	@$(PYTEST) -m "not slow" $(TESTS)

# The libraries differ with the Python: the newest one has the newest of them. These are the quick tests of what meets them
# and the compilers; all quick ones: make quick PYTHON=python3.13.
NEWEST := tests/engine tests/numerics tests/space tests/analyses/test_verdicts.py \
	$(addprefix tests/symbolic/test_graph,.py _constants.py) $(addprefix tests/test_,checked.py user_functions.py wrong_inputs.py)
newest:
	@newest="$$(sh .ci/newest-python)" || exit 1; \
	if $(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != tuple(map(int, "'$${newest##*python}'".split("."))))'; \
	then echo "$(PYTHON) is the newest Python found"; \
	else $(MAKE) --no-print-directory quick PYTHON="$$newest" TESTS="$(NEWEST)"; fi

# Python is not compiled with the sanitizer, so its library must be loaded first, and with it that of C++, in which it
# looks for what throws exceptions. What Python leaks does not count.
SANITIZED := env -u LD_PRELOAD cc -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g1
sanitize: $(VENV)/.installed-dev
	@cache=$$(mktemp -d); trap 'rm -rf "$$cache"' EXIT; \
	env CC="$(SANITIZED)" XDG_CACHE_HOME="$$cache" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
		LD_PRELOAD="$$(cc -print-file-name=libasan.so) $$(cc -print-file-name=libstdc++.so)" \
		$(BIN)/python -m pytest -q tests/engine/program/test_program.py tests/engine/binding/test_program_transformations.py

lint: $(VENV)/.installed-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --diff .
	@$(BIN)/pyright --pythonpath $(BIN)/python

format: $(VENV)/.installed-dev
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(VENV)/.installed-bench
	@$(BIN)/python -m benchmarks

dist: $(VENV)/.installed-dev
	@rm -rf dist
	@HATCH_BUILD_HOOK_ENABLE_CUSTOM=true $(BIN)/python -m build
	@$(BIN)/twine check --strict dist/*

# In an environment of its own, since it needs the oldest jax allowed. WHEELS=win_amd64 builds that wheel alone.
WHEELS_VENV := .venv-wheels
WHEELS := $(shell awk -F'"' '/^    Target/ { print $$2 }' hatch_build.py)
wheels: $(WHEELS_VENV)/.installed-wheels
	@rm -rf dist
	@$(WHEELS_VENV)/bin/python -m build --no-isolation
	@for tag in $(WHEELS); do \
		echo "libraries for $$tag"; \
		JAXMBD_WHEEL=$$tag HATCH_BUILD_HOOK_ENABLE_CUSTOM=true \
			$(WHEELS_VENV)/bin/python -m build --no-isolation --wheel || exit 1; \
	done
	@$(WHEELS_VENV)/bin/twine check --strict dist/*
	@$(WHEELS_VENV)/bin/python -m pytest -q tests/test_wheels.py

docs: $(VENV)/.installed-docs
	@$(BIN)/python -m sphinx -b html -q -W --keep-going -d out/site-cache docs out/site
	@echo "out/site/index.html"

docs-serve: docs
	@$(BIN)/python -m http.server --bind localhost --directory out/site 8000

# Node is needed here alone; the versions are also in the README beside the files.
LIBRARIES := jaxmbd/view/page/libraries
page-libraries:
	@folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	npm install --silent --prefix "$$folder" three@0.187.0 uplot@1.6.32 esbuild@0.28.2 && \
	cp $(LIBRARIES)/three.entry.js "$$folder" && \
	(cd "$$folder" && npx esbuild three.entry.js --bundle --minify --format=iife --global-name=THREE --outfile=three.min.js) && \
	cp "$$folder/three.min.js" $(LIBRARIES)/three.min.js && \
	cp "$$folder/node_modules/three/LICENSE" $(LIBRARIES)/three.LICENSE && \
	cp "$$folder/node_modules/uplot/dist/uPlot.iife.min.js" $(LIBRARIES)/uplot.min.js && \
	cp "$$folder/node_modules/uplot/dist/uPlot.min.css" $(LIBRARIES)/uplot.min.css && \
	cp "$$folder/node_modules/uplot/LICENSE" $(LIBRARIES)/uplot.LICENSE

clean:
	rm -rf .venv .venv-* .pytest_cache .ruff_cache build dist docs/generated out
	find jaxmbd tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# A stamp is written only after its install has gone through, and is out of date when pyproject.toml changes.
$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "jaxmbd needs Python 3.11 or newer, and $(PYTHON) is %d.%d; name another: make PYTHON=python3.12" % sys.version_info[:2])'
	@echo "setting up $(VENV) (first time only, a few minutes)"
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml
	@echo "installing jaxmbd into $(VENV)"
	@$(PIP_INSTALL) -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.created pyproject.toml
	@echo "installing jaxmbd and the tools for its checks into $(VENV)"
	@$(PIP_INSTALL) --no-compile -e '.[dev]'
	@nice $(BIN)/python -m compileall -q $(VENV)/lib >/dev/null 2>&1 & # half a minute, beside the tests
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-bench: $(VENV)/.created pyproject.toml
	@echo "installing jaxmbd and the programs to compare it with into $(VENV)"
	@$(PIP_INSTALL) -e '.[bench]'
	@touch $@ $(VENV)/.installed

$(WHEELS_VENV)/.installed-wheels: pyproject.toml
	@$(MAKE) --no-print-directory VENV=$(WHEELS_VENV) $(WHEELS_VENV)/.created
	@echo "installing what builds wheels into $(WHEELS_VENV)"
	@$(PIP_INSTALL:$(BIN)/%=$(WHEELS_VENV)/bin/%) -e '.[wheels]'
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.created pyproject.toml
	@echo "installing jaxmbd and the tools for its documentation into $(VENV)"
	@$(PIP_INSTALL) -e '.[docs]'
	@touch $@
