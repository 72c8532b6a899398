# Everything runs inside .venv.  pip finds its index, its certificates and its wheels in its own environment.

PYTHON ?= $(firstword $(foreach name,python3.11 python3,$(shell $(name) -c 'print("$(name)")' 2>/dev/null)))
BIN := .venv/bin
STAMP := .venv/.swarden-installed

# What the cost of tracing would spoil: the harness, its searches, and whole journeys of models, which are not about lines.
MODEL_TESTS := tests/engine_under_test/model
UNMEASURED := $(wildcard tests/harness tests/quality $(MODEL_TESTS)/test_oracle.py $(MODEL_TESTS)/test_invariance.py)

.PHONY: setup fuzz test lint format

setup: $(STAMP)

$(STAMP): pyproject.toml requirements.lock
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "swarden needs Python 3.11 or newer, found '$(PYTHON)': run make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	"$(PYTHON)" -m venv .venv
	$(BIN)/pip install -q --constraint requirements.lock "$$(grep '^torch==' requirements.lock)"
	$(BIN)/pip install -q --requirement requirements.lock
	$(BIN)/pip install -q --no-deps --no-build-isolation --editable .
	@touch $@

fuzz: setup
	$(BIN)/swarden fuzz

# One thread a process: on tensors this small, more are slower.
test: export OMP_NUM_THREADS = 1
test: lint
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n auto $(UNMEASURED:%=--ignore=%)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report
	$(if $(UNMEASURED),$(BIN)/pytest -n auto $(UNMEASURED))

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
