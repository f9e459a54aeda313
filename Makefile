# The two commands are `make demo` and `make test`; both set up everything they need.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo demo-base test test-slow check install clean help

help:
	@echo "make demo       synthetic bone scans: release -> training -> predictions -> report (about 5 minutes)"
	@echo "make test       the tests that every change must pass (under 10 minutes)"
	@echo "make test-slow  long tests: kill -9, ZeRO-3, three demo seeds, Chromium"
	@echo "make check      ruff, ruff format, mypy"
	@echo "make demo-base  trains the demo's base weights again (about 40 minutes)"

# torch first and with pip: other resolvers fetch gigabytes (README, Install).
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -c constraints.txt torch torchvision
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

install: $(STAMP)

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: $(STAMP)
	$(BIN)/python -m pytest -m "not slow" -n 2 --dist loadfile tests

clean:
	rm -rf runs data build dist *.egg-info
