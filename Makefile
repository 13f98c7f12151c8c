# Everything runs from a bare Python 3.11+: `make demo`, `make test`, `make bench`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

MATRIX := 3.11 3.12 3.13

.PHONY: demo test lint types unit slow matrix matrix-oldest bench bench-quick docs clean

demo: $(READY)
	@$(BIN)/python -m experiments.demo

test: lint types unit

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

unit: $(READY)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

slow: $(READY)
	$(BIN)/python -m pip install --quiet --group spark --group accounting
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m slow

# The suite on every supported Python that is on the PATH, with the newest dependencies that there are for it, then on
# the oldest with the oldest that pyproject.toml allows. Not part of CI. PYTHON_3.12=... names an interpreter,
# TESTS=... some tests.
matrix: $(MATRIX:%=matrix-%) matrix-oldest

matrix-%:
	@$(call suite,$*,$(or $(PYTHON_$*),python$*))

matrix-oldest:
	@$(call suite,oldest,$(or $(PYTHON_3.11),python3.11))

suite = if ! $(2) -c '' 2> /dev/null; then echo "$(2) is not on the PATH: matrix-$(1) was not run"; else \
	$(MAKE) --no-print-directory .matrix/$(1)/.ready MATRIX_PYTHON=$(2) && echo "matrix-$(1):" && \
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 .matrix/$(1)/bin/python -m pytest -n 2 -p no:cacheprovider $(TESTS); fi

.matrix/oldest/.ready: pyproject.toml tests/support/oldest.py
	$(MATRIX_PYTHON) -m venv --clear .matrix/oldest
	.matrix/oldest/bin/python tests/support/oldest.py > .matrix/oldest/oldest.txt
	.matrix/oldest/bin/python -m pip install --quiet --upgrade pip
	.matrix/oldest/bin/python -m pip install --quiet --constraint .matrix/oldest/oldest.txt --editable '.[data,plot]' --group test
	@touch $@

.matrix/%/.ready: pyproject.toml
	$(MATRIX_PYTHON) -m venv --clear .matrix/$*
	.matrix/$*/bin/python -m pip install --quiet --upgrade pip
	.matrix/$*/bin/python -m pip install --quiet --upgrade --editable '.[data,plot]' --group test
	@touch $@

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
	rm -rf $(VENV) .matrix .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist out/docs
