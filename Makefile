# `make demo` and `make test` set everything up themselves; `make` lists all targets.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
PY := .venv/bin/python
# Modules compiled by mypyc, from setup.py: a change of one compiles all again.
HOT := $(shell sed -n 's/^    "\(src.*\.py\)",/\1/p' setup.py)
GENERATE := src/ottla/wire/generate.py
# A copy of the sources without compiled modules, and the tests that run on it: those of hot modules, and those that patch functions.
PURE := rm -rf build/pure && mkdir -p build/pure && tar -C src --exclude='*.so' --exclude='__pycache__' -cf - ottla | tar -C build/pure -xf -
INTERPRETED := tests/unit/records tests/unit/wire tests/unit/storage tests/unit/replication \
	tests/broker/test_fetch_codec.py tests/broker/test_produce_codec.py tests/broker/test_flush_first.py tests/sim/test_planted.py
# Keep the bytecode of the tests, even where PYTHONDONTWRITEBYTECODE is set: collecting takes a third of the time.
PYTEST := PYTHONDONTWRITEBYTECODE= $(PY) -m pytest -q
# Five workers on two cores: tests of real processes mostly wait. A file stays on one worker, which starts its broker once. The order
# is that of the folders: sorted by number of tests, files with a few long tests would run last.
PARALLEL := -n 5 --dist loadfile --no-loadscope-reorder
# Tests without a shared broker go to any idle worker: the planted bugs are one file and more than half of the time.
SPREAD := -n 3 --dist worksteal

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | column -t -s "$$(printf '\t')"

.PHONY: setup
setup: .venv/.compiled ## make a .venv with ottla, compiled, and its dependencies

.venv/.installed: pyproject.toml
	@echo "setup: making .venv and installing the dependencies (needs the network)"
	$(PYTHON) -m venv .venv
	$(PY) -m pip install -q --upgrade pip
	$(PY) -m pip install -q --group dev
	OTTLA_COMPILE=0 $(PY) -m pip install -q --no-build-isolation -e '.[avro,cluster,console,registry,security,spark]'
	@touch $@

.venv/.compiled: .venv/.installed setup.py $(HOT) $(GENERATE) src/ottla/wire/schema.py src/ottla/wire/source.py
	@echo "setup: compiling the hot modules with mypyc"
	OTTLA_COMPILE=1 $(PY) setup.py -q build_ext --inplace
	# Bytecode beside the sources, even where PYTHONDONTWRITEBYTECODE is set: a broker starts in half the time.
	$(PY) -m compileall -q src
	$(PY) tests/pipelines/bytecode.py
	@touch $@

.PHONY: demo
demo: setup ## orders stream in, a pipeline on Spark sums them up exactly once
	$(PY) examples/demo.py

.PHONY: check
check: .venv/.installed ## ruff, mypy --strict (tests, bench and examples too), import-linter
	@echo "check: ruff, mypy --strict, import-linter"
	$(PY) -m ruff check --no-cache src tests bench examples packaging tools setup.py
	$(PY) -m ruff format --check --no-cache -q src tests bench examples packaging tools setup.py
	$(PY) -m mypy
	# The hot modules once more, without site-packages, as `pip install` sees them when it builds.
	$(PY) -m mypy --no-site-packages --follow-imports=silent --cache-dir=.mypy_cache/bare $(HOT)
	# And what mypyc compiles in place of the hot messages, in a folder of its own: `make test` compiles at the same time.
	$(PY) $(GENERATE) build/checked
	MYPYPATH=src:build/checked $(PY) -m mypy --no-site-packages --follow-imports=silent --cache-dir=.mypy_cache/native build/checked
	.venv/bin/lint-imports

.PHONY: test
test: ## the tests that CI runs
	# The C compiler uses one core: checks and interpreted tests run beside it.
	@$(MAKE) --no-print-directory -j 2 setup interpreted
	@echo "test: compiled, without slow and reference tests (make test-all runs them)"
	$(PYTEST) $(PARALLEL) -m "not slow and not reference" tests

.PHONY: interpreted
interpreted: check
	@echo "test: the hot modules, interpreted"
	$(PURE)
	$(PY) -m compileall -q build/pure
	PYTHONPATH=build/pure $(PYTEST) $(SPREAD) -p no:cacheprovider -m "not slow" $(INTERPRETED)

.PHONY: test-all
test-all: setup check ## all tests, also slow and reference ones
	$(PURE)
	PYTHONPATH=build/pure $(PYTEST) $(SPREAD) -p no:cacheprovider $(INTERPRETED)
	$(PYTEST) $(PARALLEL) tests

.PHONY: reference
reference: setup ## run the compatibility tests against Apache Kafka instead of Ottla
	$(PYTEST) -m reference tests/compat tests/pipelines

.PHONY: spark
spark: setup ## run the tests of pipelines on other releases of Spark: SPARK="4.1 4.2"
	$(PY) -m tests.pipelines.on_spark $(or $(SPARK),4.1 4.2)

.PHONY: sim
sim: setup ## simulate brokers: SEED=n replays one seed, SEEDS=a-b runs a range
	$(PY) -m ottla.sim $(if $(SEED),--seed $(SEED),$(if $(SEEDS),--seeds $(SEEDS),--seeds 1-200 --jobs 2))

.PHONY: bugs
bugs: .venv/.installed ## plant each bug in turn and report which checker catches it
	$(PURE)
	PYTHONPATH=build/pure $(PY) -m ottla.sim --bugs

.PHONY: compat
compat: setup ## run a client's own test suite: CLIENT=kafka_python|franz_go|kafka_suite
	@test -n "$(CLIENT)" || { echo "make compat CLIENT=one of: $$(cd tests/compat && ls -d */run.py | xargs -n1 dirname | tr '\n' ' ')"; exit 2; }
	$(PY) -m tests.compat.$(CLIENT).run

.PHONY: fuzz
fuzz: setup ## fuzz decoders, records and logins, then a broker that runs: SECONDS_EACH=60 FRAMES=100000
	$(PY) tests/fuzz/fuzz_decoder.py $(or $(SECONDS_EACH),60)
	$(PY) tests/fuzz/fuzz_records.py $(or $(SECONDS_EACH),60)
	$(PY) tests/fuzz/fuzz_acls.py $(or $(SECONDS_EACH),60)
	$(PY) tests/fuzz/fuzz_filters.py $(or $(SECONDS_EACH),60)
	$(PY) -m tests.fuzz.fuzz_sasl $(or $(SECONDS_EACH),60)
	$(PY) -m tests.fuzz.fuzz_frames $(or $(FRAMES),100000)

.PHONY: bench
bench: setup ## benchmark Ottla and Apache Kafka in one run; QUICK=1 for a short one
	$(PY) -m bench $(if $(QUICK),--quick)

.PHONY: wheel
wheel: ## build a manylinux wheel and an sdist, try each in an empty venv; ten minutes
	$(PYTHON) packaging/wheel.py

.PHONY: docs
docs: .venv/.installed ## regenerate docs/settings.md, metrics.md, exporter.md and http-api.md
	$(PY) -m ottla.cluster.settings.page > docs/settings.md
	$(PY) -m ottla.metrics.page > docs/metrics.md
	$(PY) -m ottla.exporter.page > docs/exporter.md
	$(PY) -m ottla.console.page > docs/http-api.md

.PHONY: site
site: .venv/.installed ## build the documentation as a site in build/site, which is read without a network
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	@echo "site: open build/site/index.html"

.PHONY: clean
clean: ## remove build products, keep .venv
	rm -rf build dist src/*.egg-info bench/out
	find src -name '*.so' -delete
	rm -f .venv/.compiled
