# Ottla: `make demo` shows it, `make test` checks it; both set themselves up. Everything else is below.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
PY := .venv/bin/python
# The modules mypyc compiles, read from the list in setup.py: they must be compiled again when they change.
HOT := $(shell sed -n 's/^    "\(src.*\.py\)",/\1/p' setup.py)
# The sources alone, and the tests that run on them: of what is compiled, and those that change the product while they run.
PURE := rm -rf build/pure && mkdir -p build/pure && tar -C src --exclude='*.so' --exclude='__pycache__' -cf - ottla | tar -C build/pure -xf -
INTERPRETED := tests/unit/records tests/unit/wire tests/unit/storage tests/unit/replication \
	tests/broker/test_fetch_codec.py tests/broker/test_produce_codec.py tests/broker/test_flush_first.py tests/sim/test_planted.py
# Bytecode of the tests is kept, also where PYTHONDONTWRITEBYTECODE is set: two thirds of the time it takes to collect them.
PYTEST := PYTHONDONTWRITEBYTECODE= $(PY) -m pytest -q
# Four workers for two cores, for most tests of real processes wait; each file stays on one worker, so that a module's broker is
# started once; in the order of the folders: sorted by number of tests, the files with few and long ones would be left to the end.
PARALLEL := -n 4 --dist loadfile --no-loadscope-reorder
# Those that share no broker go to whoever is free: the planted bugs are one file, and more than half of the time.
SPREAD := -n 3 --dist worksteal

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | column -t -s "$$(printf '\t')"

.PHONY: setup
setup: .venv/.compiled ## a .venv with ottla (compiled) and all it needs

.venv/.installed: pyproject.toml
	@echo "setup: making .venv and installing what Ottla needs (the network is needed this once)"
	$(PYTHON) -m venv .venv
	$(PY) -m pip install -q --upgrade pip
	$(PY) -m pip install -q --group dev
	OTTLA_COMPILE=0 $(PY) -m pip install -q --no-build-isolation -e '.[avro,cluster,spark]'
	@touch $@

.venv/.compiled: .venv/.installed setup.py $(HOT)
	@echo "setup: compiling the hot modules with mypyc"
	$(PY) setup.py -q build_ext --inplace
	# Bytecode beside the sources, also where PYTHONDONTWRITEBYTECODE is set: a broker starts in half the time.
	$(PY) -m compileall -q src
	$(PY) tests/pipelines/bytecode.py
	@touch $@

.PHONY: demo
demo: setup ## the main job, live: orders stream in, a pipeline on Spark sums them up exactly once
	$(PY) examples/demo.py

.PHONY: check
check: .venv/.installed ## ruff, mypy --strict (tests, bench and examples too), import-linter
	@echo "check: ruff, mypy --strict, import-linter"
	$(PY) -m ruff check --no-cache src tests bench examples packaging tools setup.py
	$(PY) -m ruff format --check --no-cache -q src tests bench examples packaging tools setup.py
	$(PY) -m mypy
	# As `pip install` sees the hot modules while it builds: none of the packages is there that they are going to run with.
	$(PY) -m mypy --no-site-packages --follow-imports=silent --cache-dir=.mypy_cache/bare $(HOT)
	.venv/bin/lint-imports

.PHONY: test
test: ## what CI runs
	# The C compiler is busy with one file on one core: what needs nothing compiled is done meanwhile.
	@$(MAKE) --no-print-directory -j 2 setup interpreted
	@echo "test: everything, compiled; without what takes minutes, and without Apache Kafka in Ottla's place (make test-all)"
	$(PYTEST) $(PARALLEL) -m "not slow and not reference" tests

.PHONY: interpreted
interpreted: check
	@echo "test: the hot modules, interpreted"
	$(PURE)
	$(PY) -m compileall -q build/pure
	PYTHONPATH=build/pure $(PYTEST) $(SPREAD) -p no:cacheprovider -m "not slow" $(INTERPRETED)

.PHONY: test-all
test-all: setup check ## also what takes minutes, and `reference`
	$(PURE)
	PYTHONPATH=build/pure $(PYTEST) $(SPREAD) -p no:cacheprovider $(INTERPRETED)
	$(PYTEST) $(PARALLEL) tests

.PHONY: reference
reference: setup ## that what our tests ask of Ottla is what Apache Kafka does: their cases on its broker
	$(PYTEST) -m reference tests/compat tests/pipelines

.PHONY: sim
sim: setup ## the broker in a seeded world: SEED=n replays one, SEEDS=a-b runs a range
	$(PY) -m ottla.sim $(if $(SEED),--seed $(SEED),$(if $(SEEDS),--seeds $(SEEDS),--seeds 1-200 --jobs 2))

.PHONY: bugs
bugs: setup ## plants every bug in turn and says who caught it
	$(PURE)
	PYTHONPATH=build/pure $(PY) -m ottla.sim --bugs

.PHONY: compat
compat: setup ## other people's suites: CLIENT=kafka_python|franz_go
	@test -n "$(CLIENT)" || { echo "make compat CLIENT=one of: $$(cd tests/compat && ls -d */run.py | xargs -n1 dirname | tr '\n' ' ')"; exit 2; }
	$(PY) -m tests.compat.$(CLIENT).run

.PHONY: fuzz
fuzz: setup ## atheris on the decoder and the batch check, SECONDS_EACH=60
	$(PY) tests/fuzz/fuzz_decoder.py $(or $(SECONDS_EACH),60)
	$(PY) tests/fuzz/fuzz_records.py $(or $(SECONDS_EACH),60)

.PHONY: bench
bench: setup ## beside Apache Kafka in one run: a table of ratios; QUICK=1 for a short one
	$(PY) -m bench $(if $(QUICK),--quick)

.PHONY: wheel
wheel: ## a compiled wheel (manylinux) and an sdist in dist/, each tried in an empty venv; about ten minutes
	$(PYTHON) packaging/wheel.py

.PHONY: docs
docs: setup ## the generated pages
	$(PY) -m ottla.cluster.settings.page > docs/settings.md

.PHONY: clean
clean: ## what was built, not the .venv
	rm -rf build dist src/*.egg-info bench/out
	find src -name '*.so' -delete
	rm -f .venv/.compiled
