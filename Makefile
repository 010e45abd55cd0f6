# Everything a newcomer types. `make` alone lists it.
VENV := .venv
PY := $(VENV)/bin/python

.DEFAULT_GOAL := help
.PHONY: help setup demo examples docker-image docker-demo test test-fast test-chaos test-soak test-docker lint mutation proto benchmarks clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## make .venv with everything in it (installs Java 17+ where it is missing and it may)
	@scripts/setup.sh $(VENV)

demo: setup ## word count on a local cluster, the leader killed in the middle (INPUT=FOLDER for your own text)
	@$(PY) -m lockgate.demo $(if $(INPUT),--input "$(INPUT)")

docker-image: setup ## the container image for every role; needs a container engine, no registry
	@PYTHON=$(PY) docker/build.sh

docker-demo: docker-image ## the same demo on a cluster in containers (INPUT=FOLDER for your own text)
	@$(PY) -m lockgate.demo.containers $(if $(INPUT),--input "$(INPUT)")

examples: setup ## every runnable example, with the leader and with a task manager killed; each checks its own result
	@$(PY) -m examples all --kill leader
	@$(PY) -m examples all --kill taskmanager

test: setup ## all tests that need no container engine: the pure ones on all cores, then the others one by one
ifeq ($(ARGS),)
	@$(PY) -m pytest -q -n auto -m "not docker and not integration and not chaos and not soak"
	@$(PY) -m pytest -m "(integration or chaos) and not docker and not soak"
else
	@$(PY) -m pytest -m "not docker and not soak" $(ARGS)
endif

test-fast: setup ## the pure tests alone: seconds
	@$(PY) -m pytest -m "not docker and not integration and not chaos" $(ARGS)

test-chaos: setup ## the tests that kill real processes
	@$(PY) -m pytest -m "chaos and not soak" $(ARGS)

test-soak: setup ## the chaos tests again, with more faults and backends, and thousands of jobs against plain Spark
	@$(PY) -m pytest -m soak $(ARGS)
	@LOCKGATE_EXAMPLES=20 $(PY) -m pytest tests/integration/taskmanager_spark/test_spark_differential.py $(ARGS)

test-docker: docker-image ## the compose cluster under faults; needs a container engine
	@LOCKGATE_IMAGE=lockgate:latest $(PY) -m pytest -m docker tests/docker $(ARGS)

lint: setup ## formatting, lint, types, layering, generated code
	@$(VENV)/bin/ruff format --check . && $(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports
	@$(PY) proto/generate.py --check

mutation: setup ## switch mechanisms off one at a time and show the test that notices
	@$(PY) -m tests.mutation $(ARGS)

proto: setup ## regenerate stubs and messages from the .proto files
	@$(PY) proto/generate.py

benchmarks: setup ## all benchmarks, one after another
	@for name in startup failover rescale state process rocksdb joins diffs wordcount abs unaligned; do $(PY) -m benchmarks.$$name || exit 1; done

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
