# Every target sets up what it needs. `make run` and `make test` are all a newcomer has to know.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PLAIN  := build/plain
STAMP  := $(VENV)/.installed
JOBS   ?= 2

.PHONY: setup java run test test-compiled test-plain check fmt gen sim nemesis fuzz crash mutants bench conformance differential docs clean

setup: $(STAMP)

$(STAMP): pyproject.toml setup.py $(shell grep -o '"src/[^"]*\.py"' setup.py | tr -d '"')
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade "pip>=25.1"
	$(BIN)/python -m pip install -q --group dev
	$(BIN)/python -m pip install -q -e ".[objects,fast,spark]"
	touch $@

java:
	@tools/ensure_java

run: setup java ## a node on 127.0.0.1:9092, its data in ./ottla-data; Ctrl-C stops it
	$(BIN)/ottla up

test: test-compiled test-plain ## everything, with the compiled modules and without

test-compiled: setup java
	OTTLA_EXPECT=compiled $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -q -m "not jvm and not external"

# The wheel as it comes out where there is no C compiler, and the tests of what it changes.
test-plain: setup
	rm -rf $(PLAIN) build/plain-src && mkdir -p build/plain-src
	cp -r src setup.py pyproject.toml README.md LICENSE build/plain-src/
	find build/plain-src -name '*.so' -delete
	cd build/plain-src && CC=/bin/false CXX=/bin/false $(CURDIR)/$(BIN)/python -m pip install -q --no-deps --target $(CURDIR)/$(PLAIN) .
	OTTLA_EXPECT=plain PYTHONPATH=$(PLAIN) $(BIN)/python -m pytest -n $(JOBS) -q -m engine

check: setup ## format, lint, types, import contracts, architecture
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/arch

fmt: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

gen: setup ## write the generated modules anew
	$(BIN)/python -m tools.generate_messages
	$(BIN)/python -m ottla.config.generate
	$(BIN)/ruff format -q src

sim: setup ## make sim SEED=n replays one world; without SEED, many
	$(BIN)/python -m simulation $(if $(SEED),--seed $(SEED),)

nemesis: setup ## real processes killed, paused and cut off under load; NEMESIS_SECONDS=n NODES=n SEED=n FAULTS=a,b
	$(BIN)/python -m tests.nemesis $(if $(NEMESIS_SECONDS),--seconds $(NEMESIS_SECONDS)) $(if $(NODES),--nodes $(NODES)) $(if $(SEED),--seed $(SEED)) $(if $(FAULTS),--faults $(FAULTS))

fuzz: setup ## mutated frames at every codec; FUZZ_SECONDS=n
	$(BIN)/python -m tests.fuzz $(if $(FUZZ_SECONDS),--seconds $(FUZZ_SECONDS),)

crash: setup ## kill -9 under load, CRASHES=n times, and mutated frames at a node, FUZZ=n of them
	CRASHES=$(or $(CRASHES),50) FUZZ=$(or $(FUZZ),100000) $(BIN)/python -m pytest -q tests/faults

mutants: setup ## break each promise on purpose; a test must notice
	$(BIN)/python tests/mutants/run.py $(PART)

bench: setup ## ratios in one run; writes docs/benchmarks.md
	$(BIN)/python -m benchmarks

conformance: setup ## every client, and Apache Kafka's tools; skips with a reason where one is missing
	$(BIN)/python -m pytest -q -m "jvm or external" tests/conformance
	$(BIN)/python -m tools.compatibility

differential: setup ## the same requests to a node and to Apache Kafka, answers compared; ONLY="fetch topics" MATCH=text LIST=1
	$(BIN)/python -m tests.differential $(if $(ONLY),--only $(ONLY)) $(if $(MATCH),--match $(MATCH)) $(if $(LIST),--list)

docs: setup ## generated pages and the tree in ARCHITECTURE.md
	$(BIN)/python -m tools.draw_tree
	$(BIN)/python -m ottla.config.generate --docs docs/config.md
	$(BIN)/python -m tests.differential --write-docs

clean:
	rm -rf build dist $(VENV) src/*.egg-info
	find src -name '*.so' -delete
