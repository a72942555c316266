# Each target makes its own virtual environment in .venv; Python 3.11 or newer is all that is needed.
PYTHON ?= python3
BIN := .venv/bin
# pip would compile all modules one after another, most of which a demo does not need: tests compile them side by side
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
COMPILE := $(BIN)/python -m compileall -qq -j 0 -x '/(tests?|pip|setuptools)/' .venv

.PHONY: demo test lint docs-check slow docs clean

demo: .venv/installed
	$(BIN)/python -m experiments.demo

test: .venv/installed-test  # the linters, of which the type checker takes one core a minute and a half, beside the tests
	@$(MAKE) --no-print-directory lint >.venv/lint.log 2>&1 & lint=$$!; trap "kill $$lint" INT TERM; \
	$(BIN)/python -m pytest -n 2 --dist loadfile; tests=$$?; \
	wait $$lint; lint=$$?; cat .venv/lint.log; [ $$tests = 0 ] && [ $$lint = 0 ]

lint: .venv/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/basedpyright

docs-check: .venv/installed-test  # words, links, code of pages, public names, packaging, plugins, notebooks
	$(BIN)/python -m pytest tests/docs -n 2 --dist loadfile

slow: .venv/installed-test  # PART=audits, for example, is one part of them; a second call goes on where the first ended
	$(BIN)/python -m tools.slow $(PART)

docs: .venv/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "jdfl needs Python 3.11 or newer, found " + sys.version)'
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python pyproject.toml
	$(PIP) -e .
	@touch $@

.venv/installed-test: .venv/installed
	$(PIP) -e '.[test]'
	$(COMPILE) || true  # some packages have templates that are no Python
	@touch $@

.venv/installed-docs: .venv/installed
	$(PIP) -e '.[docs]'
	$(COMPILE) || true  # some packages have templates that are no Python
	@touch $@

clean:
	rm -rf .venv site runs out
