# One command sets everything up:
#   make demo    installs tracellm, and runs an example with its report
#   make test    checks style and types, and runs the tests
#   make test-labs    grades all solutions and all mutants of the course, and its reference with 500 seeds
# Everything is installed into .venv in this folder; `make clean` removes it. PYTHON=... chooses the Python (3.11 or later).

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2

.PHONY: demo test test-labs lint types unit docs parity test-vllm-0.11.1 clean
.DEFAULT_GOAL := demo

demo: $(VENV)/installed
	$(BIN)/tracellm run --explain examples/hello.py

test: lint types unit

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/installed-dev
	$(BIN)/python -m mypy

# One thread for each test, so that the order of sums is the same everywhere. JOBS files run at a time, in the order of
# tests/conftest.py.
unit: $(VENV)/installed-dev tests/mermaid/node_modules tests/page/node_modules tests/clients/node_modules
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile

# The course in full; `make test` grades a sample (12 minutes).
test-labs: $(VENV)/installed-dev
	OMP_NUM_THREADS=1 TRACELLM_LABS=all $(BIN)/python -m pytest -n $(JOBS) --dist load \
		tests/lab/test_labs.py tests/lab/test_museum.py

# The generated parts of docs/: pages, pictures and numbers of real runs.
docs: $(VENV)/installed-dev
	$(BIN)/python scripts/make_docs.py

# The tables in docs/parity.md: all recordings of a real vLLM, compared with tracellm and each client (15 minutes).
parity: $(VENV)/installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m scripts.make_parity

# The tests with a real vLLM, with the version of the documents (ten minutes; in .venv-vllm-0.11.1).
test-vllm-0.11.1: $(VENV)/installed-dev
	scripts/install-vllm.sh .venv-vllm-0.11.1 0.11.1
	OMP_NUM_THREADS=1 TRACELLM_VLLM_PYTHON=$(CURDIR)/.venv-vllm-0.11.1/bin/python $(BIN)/python -m pytest \
		tests/vllm tests/alias/test_models.py tests/docs/test_vllm_docs.py tests/report/test_source.py

$(VENV)/bin/python:
	"$$(scripts/python.sh)" -m venv $(VENV)

$(VENV)/index.txt: $(VENV)/bin/python
	scripts/torch-index.sh $< > $@

$(VENV)/installed: pyproject.toml constraints.txt $(VENV)/index.txt
	$(BIN)/python scripts/install.py -r $(VENV)/index.txt -c constraints.txt -e '.[multimodal]'
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/python scripts/install.py -r $(VENV)/index.txt -c constraints.txt -e '.[dev]'
	touch $@

# Real Mermaid, to parse every diagram, TypeScript, to check the page's script, and the AI SDK, a client of the server;
# without Node those tests are skipped.
tests/%/node_modules: tests/%/package-lock.json
	if command -v npm > /dev/null; then npm ci --silent --prefix tests/$* && touch $@; \
	else echo "(no npm: the tests that need $@ will be skipped)"; fi

clean:
	rm -rf $(VENV) tests/*/node_modules
