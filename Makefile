# Every target installs what it needs, shows what it installs, and installs it once.
PYTHON  ?= python3
BIN     := .venv/bin
PLAIN   := build/plain
JOBS    ?= 2
INSTALL := @$(PYTHON) tools/install.py

# Many images set this. Then every process compiles all modules anew: nodes, and above all Spark's
# Python processes, take two to three times as long to start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help node spark sql tools setup run shop unit test test-compiled test-plain check fmt gen sim nightly nemesis fuzz crash kills mutants bench growth pipeline conformance differential kafka-tests evidence docs dist release-check plain test-portable clean

help: ## show the targets
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | expand -t 16

node: ## install what a node needs
	$(INSTALL) node

spark: ## install Spark, and Java if it is missing
	$(INSTALL) node spark

sql: ## install what `ottla sql` needs; compiles nothing again
	$(INSTALL) node sql

tools: ## install a node with the tools and clients of the tests, without Spark and Java
	$(INSTALL) tools

setup: ## install everything, with the tools and clients that the tests use
	$(INSTALL) dev

run: node ## run a node on 127.0.0.1:9092 with its data in ./ottla-data; Ctrl-C stops it
	@$(BIN)/ottla up || [ $$? -eq 130 ]

shop: spark ## run the example pipeline on the node of `make run`
	$(BIN)/python examples/shop/run.py

test: test-compiled test-plain ## run the tests, with the compiled modules and without

test-compiled: setup
	OTTLA_EXPECT=compiled $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -q -m "not jvm and not external and not nightly"

# A wheel built without a C compiler.
plain: setup
	rm -rf $(PLAIN) build/plain-src && mkdir -p build/plain-src
	cp -r src setup.py pyproject.toml README.md LICENSE build/plain-src/
	find build/plain-src -name '*.so' -delete
	cd build/plain-src && CC=/bin/false CXX=/bin/false $(CURDIR)/$(BIN)/python -m pip install -q --no-deps --no-build-isolation --target $(CURDIR)/$(PLAIN) .

# The tests of the modules that have a compiled form, and a selection without what only Linux has.
test-plain: plain
	OTTLA_EXPECT=plain PYTHONPATH=$(PLAIN) $(BIN)/python -m pytest -n $(JOBS) -q -m "engine and not nightly"
	$(BIN)/python -m tests.portable macos windows --short

test-portable: plain ## run the tests without what macOS or Windows lack, on asyncio's own loop; PROFILE=macos ONLY="tests/wire -k fetch"
	$(BIN)/python -m tests.portable $(or $(PROFILE),macos windows) --jobs $(JOBS) $(if $(ONLY),-- $(ONLY))

unit: tools ## run the fast tests of pure rules and of the architecture; needs neither Java nor Spark
	HYPOTHESIS_PROFILE=quick $(BIN)/python -m pytest -n $(JOBS) -q -m "not slow and not nightly and not jvm and not external" tests/unit tests/arch

check: tools ## check format, lint, types, import contracts and architecture
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python tools/check_types.py
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/arch

fmt: tools ## format, and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

gen: setup ## regenerate the generated modules
	$(BIN)/python -m tools.generate_messages
	$(BIN)/python -m ottla.config.generate
	$(BIN)/ruff format -q src

sim: setup ## run simulations; SEED=n replays one
	$(BIN)/python -m simulation $(if $(SEED),--seed $(SEED),)

nightly: setup ## run every test with deep searches, and a sample of mutants; SEEDS=n for n seeds per simulation; PART="tests/sim tests/wire"; BUDGET=seconds of mutants
	OTTLA_EXPECT=compiled SEEDS=$(or $(SEEDS),deep) HYPOTHESIS_PROFILE=$(or $(HYPOTHESIS_PROFILE),nightly) $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -q --timeout 3600 -m "not jvm and not external" $(PART)
	$(if $(PART),,$(BIN)/python -m tests.mutants --jobs $(JOBS) --budget $(or $(BUDGET),1800))

nemesis: setup ## kill, pause and cut off real processes under load; NEMESIS_SECONDS=n NODES=n SEED=n FAULTS=a,b SECURITY=sasl_ssl SESSION_MS=n MIXED=1 TIER=1
	$(BIN)/python -m tests.nemesis $(if $(NEMESIS_SECONDS),--seconds $(NEMESIS_SECONDS)) $(if $(NODES),--nodes $(NODES)) $(if $(SEED),--seed $(SEED)) $(if $(FAULTS),--faults $(FAULTS)) $(if $(SECURITY),--security $(SECURITY)) $(if $(SESSION_MS),--session-ms $(SESSION_MS)) $(if $(MIXED),--mixed) $(if $(TIER),--tier)

fuzz: setup ## send mutated frames to every codec; FUZZ_SECONDS=n
	$(BIN)/python -m tests.fuzz $(if $(FUZZ_SECONDS),--seconds $(FUZZ_SECONDS),)

crash: setup ## kill -9 a node under load CRASHES=n times; send it FUZZ=n mutated frames
	CRASHES=$(or $(CRASHES),50) FUZZ=$(or $(FUZZ),100000) $(BIN)/python -m pytest -q tests/faults

kills: setup ## kill parts of a Spark stream KILLS=n times and compare its result; FLOW=topic|parquet|delta|iceberg SEED=n
	$(BIN)/python -m tests.pipeline.kills --flow $(or $(FLOW),parquet) --kills $(or $(KILLS),25) $(if $(SEED),--seed $(SEED))

mutants: setup ## break pure code at random and list what no fast test notices; ROOM=storage MATCH=pattern SEED=n BUDGET=seconds; CURATED=1: break chosen promises, a test must fail
	$(BIN)/python -m tests.mutants --jobs $(JOBS) $(addprefix --room ,$(ROOM)) $(if $(MATCH),--match '$(MATCH)') $(if $(CURATED),--curated,$(if $(SEED),--seed $(SEED)) $(if $(BUDGET),--budget $(BUDGET)))

BENCH := $(firstword $(filter growth pipeline,$(MAKECMDGOALS)))

bench: setup ## measure what was not measured at this commit and write docs/benchmarks.md; AREA="java tls" ANEW=1 LIST=1 PAGE=1; QUICK=1 writes nothing; `bench growth`: docs/growth.md, ROUNDS=3 BUDGET=seconds ANEW=1; `bench pipeline`: its rows, PART="delta sql"
	$(BIN)/python -m $(if $(BENCH),benchmarks.$(BENCH) $(if $(QUICK),--quick) $(if $(filter growth,$(BENCH)),$(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(BUDGET),--budget $(BUDGET)) $(if $(ANEW),--anew)) $(if $(filter pipeline,$(BENCH)),$(if $(QUICK),,--write) $(PART)),benchmarks $(AREA) $(if $(QUICK),--quick) $(if $(ANEW),--anew) $(if $(LIST),--list) $(if $(PAGE),--page))

growth pipeline: bench

conformance: setup ## test every client and Apache Kafka's tools; missing ones are skipped with a reason; PART="clients mixed versions"
	$(if $(filter clients,$(or $(PART),clients)),$(BIN)/python -m pytest -q -m "jvm or external" tests/conformance tests/testing)
	$(if $(filter mixed,$(or $(PART),mixed)),$(BIN)/python -m tests.mixed.matrix)
	$(if $(filter versions,$(or $(PART),versions)),$(BIN)/python -m tools.compatibility)

differential: setup ## send the same requests to a node and to Apache Kafka and compare; ONLY="fetch topics" MATCH=text RIGHTS=none LIST=1
	$(BIN)/python -m tests.differential $(if $(ONLY),--only $(ONLY)) $(if $(MATCH),--match $(MATCH)) $(if $(LIST),--list) $(if $(DENIED),--rights none) $(if $(RIGHTS),--rights $(RIGHTS))

kafka-tests: setup ## run Apache Kafka's own integration tests against nodes; PART=api ONLY=pattern of class names ANEW=1; PENDING=1: those without an outcome
	$(BIN)/python -m tests.kafka_suite $(if $(PART),--part $(PART)) $(if $(ONLY),--only '$(ONLY)') $(if $(ANEW),--anew) $(if $(PENDING),--pending)

evidence: ## show which proofs hold at this commit; RUN=stale BUDGET=3600 runs those of most value per minute that do not, RUN=test,sim these
	@$(PYTHON) -m tools.evidence $(if $(RUN),--run $(RUN)) $(if $(BUDGET),--budget $(BUDGET))

docs: setup ## regenerate the generated pages, and build the site with search into build/site
	$(BIN)/python -m tools.draw_tree
	$(BIN)/python -m tools.api_docs
	$(BIN)/python -m ottla.config.generate --docs docs/config.md
	$(BIN)/python -m tests.differential --write-docs
	$(PYTHON) tools/site.py

dist: ## build an sdist, a compiled wheel and a pure wheel into dist/
	$(PYTHON) tools/dist.py

release-check: ## do everything that a release needs, short of uploading it; refuses while a required proof does not hold
	@$(PYTHON) -m tools.release

clean: ## remove everything that was installed or built
	rm -rf build dist .venv src/*.egg-info
	find src -name '*.so' -delete
