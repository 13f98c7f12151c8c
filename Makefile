# Everything runs from a bare Python 3.11+: `make demo`, `make test`, `make bench`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test lint types unit slow bench bench-quick docs clean

demo: $(READY)
	@$(BIN)/python -m experiments.demo

test: lint types unit

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

unit: $(READY)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

slow: $(READY)
	$(BIN)/python -m pip install --quiet --group spark
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m slow

bench: $(READY)
	$(BIN)/python -m pip install --quiet --group bench
	$(BIN)/python -m experiments.benchmarks

bench-quick: $(READY)
	$(BIN)/python -m experiments.benchmarks --quick

docs: $(READY)
	$(BIN)/python -m pip install --quiet --group docs
	$(BIN)/sphinx-build -W --keep-going -b html docs out/docs

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hdmm_bf needs Python 3.11 or newer; set PYTHON=... on the make command line")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[data,plot]' --group dev
	@touch $(READY)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist out/docs
