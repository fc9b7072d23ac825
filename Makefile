# What a person runs is what CI runs. `make` or `make help` lists everything.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
STAGE := @.ci/stage
EXTRAS := demo,dev,docs,kafka,otel,redis,s3,server,spark
PURE := schemas coordinator/protocol src/rootline/tree src/rootline/maintenance src/rootline/ports
FAST := not slow and not services and not spark
PYTHON ?= python3
SEED ?=
STEPS ?=
ARGS ?=
JOBS ?= 3

export PYTHONUNBUFFERED := 1
# empty: keep compiled files. The demos and tests start hundreds of processes; each would compile the library again
export PYTHONDONTWRITEBYTECODE :=
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup setup-java setup-peers demo demo-fast demo-kafka test test-fast static check format format-check lint types contracts house house-names same-code same-bytes diagram recording screenshots site release bench bench-peers bench-spark py-files numbers properties mutants simulate chaos ingest broken-redis torture clean clean-venv

help: ## list the targets
	@awk 'BEGIN { FS = ":[^#]*## " } /^[a-z][a-z-]*:.*## / { printf "  %-16s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## create .venv with everything in it (Python 3.11 or newer; quick the second time)

$(READY): pyproject.toml constraints.txt
	$(STAGE) setup .ci/make_environment "$(PYTHON)" "$(VENV)" "$(EXTRAS)"

setup-java: ## look for Java 17 or newer, which only Spark needs; installs it if run as root with apt-get
	$(STAGE) setup-java .ci/require_java

setup-peers: setup ## install PyIceberg, delta-rs and DuckLake into .venv-peers; `make test` then runs the page that compares them, too
	$(STAGE) setup-peers $(BIN)/python -m benchmarks.peers.software

demo: setup setup-java ## all of it on 336,776 real flights, with Spark and Spark SQL; leaves its files in demo-lake/
	$(STAGE) demo $(BIN)/python -m tests.engines.sql_demo --root demo-lake $(ARGS)

demo-fast: setup ## the same idea in ten seconds, without Java
	$(STAGE) demo-fast $(BIN)/rootline demo $(ARGS)

demo-kafka: setup setup-java ## the demo on real Kafka and S3, which it starts by itself; leaves its files in demo-kafka/
	$(STAGE) demo-kafka $(BIN)/python -m tests.services.kafka_demo --root demo-kafka $(ARGS)

test: setup setup-java ## all tests, with the services they need, three files at a time (JOBS=0: one at a time; ARGS="-k flush")
	$(STAGE) test $(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(ARGS)

test-fast: setup ## the tests that need no service and no Java, in about three minutes
	$(STAGE) test-fast $(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m "$(FAST)" $(ARGS)

static: format-check lint types contracts ## the checks that run no test: format, lint, types, import contracts

check: static test ## everything that CI checks: format, lint, types, import contracts, tests

format: setup ## format the code
	$(STAGE) format $(BIN)/ruff format .

format-check: setup ## check that the code is formatted
	$(STAGE) format-check $(BIN)/ruff format --check --diff .

lint: setup ## ruff, and the names that pure folders may not use
	$(STAGE) lint $(BIN)/ruff check .
	$(STAGE) lint-pure $(BIN)/ruff check --ignore-noqa --config ruff-pure.toml $(PURE)

types: setup ## strict mypy
	$(STAGE) types $(BIN)/mypy

contracts: setup ## check who may import whom
	$(STAGE) contracts $(BIN)/lint-imports

house: setup ## count the files, lines, loaded modules and words of the product against their bounds; list places: make house ARGS=hold
	@$(BIN)/python -m tests.house.house $(ARGS)

house-names: setup ## compare the names of all tests in two commits: make house-names ARGS="main HEAD"
	@$(BIN)/python -m tests.house.collected_names $(ARGS)

same-code: setup ## compare all definitions of the product in two commits, whatever file they are in: make same-code ARGS="main worktree"
	@$(BIN)/python -m tests.house.same_code $(ARGS)

same-bytes: setup ## replay recorded logs through two commits, and compare every object and verdict: make same-bytes ARGS="main worktree"
	@$(BIN)/python -m tests.simulation.same_bytes $(ARGS)

diagram: setup ## generate docs/commit-machine.md from the transition table
	$(BIN)/python -m tests.coordinator.commit_machine_diagram > docs/commit-machine.md

screenshots: setup ## take the pictures of the console in docs/pictures, with a real Chromium
	$(STAGE) screenshots $(BIN)/python -m tests.services.console.screenshots

recording: setup ## record `rootline demo` as an animated picture, docs/pictures/demo.svg
	$(STAGE) recording $(BIN)/python -m tests.demo.recording

site: setup ## the documents as a site in build/site; a dead link, or anything fetched from elsewhere, is an error
	$(STAGE) site $(BIN)/python -m tests.documents.build_site

py-files: setup ## the library as a zip for spark-submit --py-files: build/rootline.zip
	$(STAGE) py-files .ci/py_files $(BIN)/python build/rootline.zip

release: setup setup-java ## build wheel and sdist of HEAD twice, compare, try each extra in an environment of its own; writes dist/
	$(STAGE) release $(BIN)/python -m tests.release $(ARGS)

numbers: setup ## measure what the proposal asks for; writes docs/numbers.md
	$(STAGE) numbers $(BIN)/python -m benchmarks.numbers $(ARGS)

bench: setup ## measure against yardsticks; writes benchmarks/results/
	$(STAGE) bench $(BIN)/python -m benchmarks $(ARGS)

bench-peers: setup ## measure Rootline beside PyIceberg, delta-rs, DuckLake and Iceberg Java; writes docs/benchmarks.md: make bench-peers ARGS="--scale small"
	$(STAGE) bench-peers $(BIN)/python -m benchmarks.peers $(ARGS)

bench-spark: setup setup-java ## measure Spark's reads and writes beside Spark's own Parquet and Iceberg's runtime; writes docs/spark-benchmarks.md
	$(STAGE) bench-spark $(BIN)/python -m benchmarks.spark_page $(ARGS)

properties: setup ## every property test with many more cases than `make test`: make properties TIMES=40 ARGS="-k reference"
	ROOTLINE_EXAMPLES=$(or $(TIMES),3) $(STAGE) properties $(BIN)/python -m pytest -n $(JOBS) -m "hypothesis or drawn" $(ARGS)

mutants: setup ## plant known kinds of bugs one at a time, and see that a test notices each: make mutants ARGS="sweep"
	$(STAGE) mutants $(BIN)/python -m tests.mutants $(ARGS)

simulate: setup ## faults and crashes against the real commit machine, from a seed: make simulate SEED=7 STEPS=2000
	$(STAGE) simulate $(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED)) $(if $(STEPS),--steps $(STEPS)) $(ARGS)

chaos: setup ## kill -9, hangs and a bad network against real services: make chaos SEED=7 ARGS="--seconds 600"
	$(STAGE) chaos $(BIN)/python -m tests.kafka.chaos $(if $(SEED),--seed $(SEED)) $(ARGS)

ingest: setup ## constant ingest with all upkeep on, hours in minutes, on real services: make ingest ARGS="--seconds 600"
	$(STAGE) ingest $(BIN)/python -m tests.services.constant_ingest $(ARGS)

broken-redis: setup ## ingest while Redis is killed, hung and poisoned, on real services: make broken-redis ARGS="--seconds 180"
	$(STAGE) broken-redis $(BIN)/python -m tests.services.broken_redis $(ARGS)

torture: setup setup-java ## kill Spark's drivers and executors while streams, deletes and compactions run, on real services: make torture SEED=7 ARGS="--seconds 300"
	$(STAGE) torture $(BIN)/python -m tests.spark.torture $(if $(SEED),--seed $(SEED)) $(ARGS)

clean: ## remove what runs and demos left behind; keeps .venv
	rm -rf demo-lake demo-kafka lake dist build spark-warehouse metastore_db derby.log .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +

clean-venv: ## remove .venv, and the peers' environment
	rm -rf $(VENV) .venv-peers
