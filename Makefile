# Two commands are all a newcomer needs: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo test lint bench-iteration bench-limit clean

demo: $(VENV)/.demo
	$(BIN)/elldict demo --force

test: $(VENV)/.dev
	$(BIN)/pytest -n 2 --cov --cov-report=term

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench-iteration: $(VENV)/.dev
	$(BIN)/python benchmarks/iteration.py

# Goes on where it was interrupted; add `--fresh` by hand after a change of the solver.
bench-limit: $(VENV)/.dev
	$(BIN)/python benchmarks/limit.py --rows all --plot

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) .coverage .hypothesis .mypy_cache .ruff_cache
