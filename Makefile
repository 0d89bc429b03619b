# Two commands are all a newcomer needs: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo reproduce test lint bench-iteration clean

demo: $(VENV)/.demo
	$(BIN)/elldict demo --force

reproduce: $(VENV)/.reproduce
	$(BIN)/elldict reproduce --quick --jobs 2

test: $(VENV)/.dev
	$(BIN)/pytest -n 2 --cov --cov-report=term

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench-iteration: $(VENV)/.dev
	$(BIN)/python benchmarks/iteration.py

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[demo]'
	@touch $@

$(VENV)/.reproduce: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[reproduce]'
	@touch $@ $(VENV)/.demo

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.demo $(VENV)/.reproduce

clean:
	rm -rf $(VENV) .coverage .hypothesis .mypy_cache .ruff_cache
