# Two commands are all a newcomer needs: `make demo` and `make test`.
# `make test PYTHON=python3.13` works in an environment of its own, .venv-3.13.
PYTHON ?= python3
VENV   ?= .venv$(if $(filter-out python3,$(PYTHON)),-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'))
BIN    := $(VENV)/bin

.PHONY: install demo reproduce test test-slow test-short test-browser coverage test-torch test-cuda lint docs wheel measure bench bench-quick clean

# Everything that `make test`, `make test-torch` and `make lint` need.
install: $(VENV)/.torch

demo: $(VENV)/.demo
	$(BIN)/elldict demo --force

reproduce: $(VENV)/.reproduce
	$(BIN)/python -m experiments.reproduction --quick --jobs 2

test: $(VENV)/.dev
	$(BIN)/pytest -n 2 --dist worksteal -m 'not slow' \
	  tests src README.md docs

# A selection of a minute, for other versions of Python.
test-short: $(VENV)/.test
	$(BIN)/pytest -n 2 --dist worksteal -m 'not slow' \
	  tests/test_promises.py tests/test_fit.py tests/test_estimators.py tests/test_model_file.py README.md

# Reports and pages as Chromium shows them; without it these tests skip, here as in `make test`.
test-browser: $(VENV)/.dev
	$(BIN)/pytest -m 'browser and not slow'

# What takes ten seconds and more, and the lines that tests reach: by a fourth slower.
test-slow: $(VENV)/.dev
	$(BIN)/pytest -n 2 --dist worksteal -m slow

coverage: $(VENV)/.dev
	$(BIN)/pytest -n 2 --dist worksteal --cov --cov-report=term

# Samples as tensors of torch, on its CPU device.
test-torch: $(VENV)/.torch
	$(BIN)/pytest tests/test_samples.py tests/test_gpu.py

# The same on a machine with an NVIDIA GPU and a torch that finds it.
test-cuda: $(VENV)/.dev
	$(BIN)/pytest -m cuda tests/test_gpu.py

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site, in build/site: tables from stored results, all examples run, and then every page looked at in a browser.
# Warnings are errors. About 5 minutes on 2 cores the first time; examples that did not change are not run again.
docs: $(VENV)/.docs
	$(BIN)/python -m experiments.tables
	$(BIN)/python -m sphinx -b html -W --keep-going --jobs 2 docs build/site
	$(BIN)/python -m experiments.check_site build/site

# A wheel in dist/, to be installed anywhere with `pip install dist/elldict-*.whl`.
wheel: $(VENV)/.dev
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

# Every study with this version of the solver: about 2 hours on a quiet core; resumes where it was interrupted.
measure: $(VENV)/.bench
	$(BIN)/python -m experiments.measure

# Elldict beside its peers on synthetic and real data, about 35 minutes; resumes where it was interrupted.
bench: $(VENV)/.bench
	$(BIN)/python -m experiments.benchmarks.speed
	$(BIN)/python -m experiments.benchmarks.real

# The smallest form of every study, in a few minutes: to see that they work.
bench-quick: $(VENV)/.bench
	$(BIN)/python -m experiments.measure --small

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# Dependency groups need pip 25.1, which is newer than the pip of many a Python.
$(VENV)/.pip: | $(BIN)/python
	$(BIN)/python -m pip install --quiet 'pip>=25.1'
	@touch $@

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[demo]'
	@touch $@

$(VENV)/.reproduce: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[reproduce]'
	@touch $@ $(VENV)/.demo

$(VENV)/.dev: pyproject.toml | $(VENV)/.pip
	$(BIN)/python -m pip install --quiet --editable '.[dask,files,mne,reproduce]' --group dev
	@touch $(VENV)/.demo $(VENV)/.reproduce $(VENV)/.docs $(VENV)/.test
	@$(BIN)/python -m pip list --format freeze >$@  # tests import nothing else at their top

$(VENV)/.test: pyproject.toml | $(VENV)/.pip
	$(BIN)/python -m pip install --quiet --editable '.[demo]' --group test
	@touch $@ $(VENV)/.demo

# Pinned, so that a new torch is met on purpose. A build without CUDA is enough, and a tenth of the size.
$(VENV)/.torch: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet 'torch==2.13.0'
	@touch $@

$(VENV)/.docs: pyproject.toml | $(VENV)/.pip
	$(BIN)/python -m pip install --quiet --editable '.[demo,mne]' --group docs
	@touch $@ $(VENV)/.demo

# Peers that cannot be installed here are named by the benchmark and left out.
$(VENV)/.bench: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --editable '.[bench]' || echo 'some peers could not be installed'
	@touch $@

clean:
	rm -rf $(VENV) .venv-* build dist docs/api docs/auto_examples .coverage .hypothesis .mypy_cache .ruff_cache
