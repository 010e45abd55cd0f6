# Everything a newcomer types. `make` alone lists it.
VENV := .venv
VENV_PURE := .venv-pure
PY := $(VENV)/bin/python

.DEFAULT_GOAL := help
.PHONY: help setup setup-pure demo examples docker-image docker-demo test pure-tests integration-tests chaos-tests docker-tests test-quick test-fast test-chaos test-soak test-docker fuzz lint docs mutation proto benchmarks clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## make .venv with everything in it (installs Java 17+ where it is missing and it may)
	@scripts/setup.sh $(VENV)

setup-pure: ## make .venv-pure for test-quick: no Spark, no Java, 100 MB to download
	@scripts/setup.sh $(VENV_PURE) pure

demo: setup ## word count on a local cluster, the leader killed in the middle (INPUT=FOLDER for your own text)
	@$(PY) -m lockgate_devtools.demo $(if $(INPUT),--input "$(INPUT)")

docker-image: setup ## the container image for every role; needs a container engine, no registry
	@PYTHON=$(PY) docker/build.sh

docker-demo: docker-image ## the same demo on a cluster in containers (INPUT=FOLDER for your own text)
	@$(PY) -m lockgate_devtools.demo.containers $(if $(INPUT),--input "$(INPUT)")

examples: setup ## every runnable example, with the leader and with a task manager killed; each checks its own result
ifeq ($(ARGS),)
	@$(PY) -m examples all --kill leader
	@$(PY) -m examples all --kill taskmanager
else
	@$(PY) -m examples all $(ARGS)
endif

test: setup ## all tests that need no container engine, and what each part of them cost
ifeq ($(ARGS),)
	@$(MAKE) pure-tests
	@$(MAKE) integration-tests
	@$(MAKE) chaos-tests
else
	@$(PY) -m pytest -m "not docker and not soak" $(ARGS)
endif

pure-tests: setup
	@TMPDIR=$$(scripts/memory_folder.sh) LOCKGATE_TEST_SIMULATION_SECONDS=$${LOCKGATE_TEST_SIMULATION_SECONDS:-60} \
		scripts/part.sh "pure tests" $(PY) -m pytest -q -n auto --dist worksteal \
		-m "not docker and not integration and not chaos and not soak"

integration-tests: setup
	@TMPDIR=$$(scripts/memory_folder.sh) scripts/part.sh "integration tests" $(PY) -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder --durations=10 -m "integration and not soak"

chaos-tests: setup # each process of pytest has its own cluster
	@TMPDIR=$$(scripts/memory_folder.sh) scripts/part.sh "chaos tests" $(PY) -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder --durations=10 -m "chaos and not docker and not soak"

test-quick: setup-pure ## in a minute, without Spark and Java: every pure test that needs neither, each a little
	@TMPDIR=$$(scripts/memory_folder.sh) LOCKGATE_TEST_SHARE=$${LOCKGATE_TEST_SHARE:-20} \
		LOCKGATE_TEST_PARAMETERS=$${LOCKGATE_TEST_PARAMETERS:-2} LOCKGATE_TEST_SIMULATION_SECONDS=1 \
		scripts/part.sh "quick tests" $(VENV_PURE)/bin/python -m pytest -q -n auto --dist worksteal -m "not spark and not slow" $(ARGS)
	@echo "omitted: tests that need Spark, Java or a server, and slow ones; \`make test\` runs them all"

test-fast: setup ## the pure tests alone, one after another
	@$(PY) -m pytest -m "not docker and not integration and not chaos" $(ARGS)

test-chaos: setup ## the tests that kill real processes
	@$(PY) -m pytest -m "chaos and not soak" $(ARGS)

test-soak: setup ## the chaos tests again, with more faults and backends, every crash point, thousands of jobs against plain Spark
	@$(PY) -m pytest -m soak $(ARGS)
	@LOCKGATE_TEST_EVERY_POINT=1 $(PY) -m pytest tests/simulation/test_simulation.py $(ARGS)
	@LOCKGATE_TEST_EXAMPLES=20 $(PY) -m pytest tests/integration/taskmanager_spark/test_spark_differential.py $(ARGS)

test-docker: docker-image ## the compose cluster under faults; needs a container engine
	@$(MAKE) docker-tests

docker-tests: setup
	@LOCKGATE_IMAGE=lockgate:latest scripts/part.sh "docker tests" $(PY) -m pytest -q --durations=10 -m docker tests/docker $(ARGS)

fuzz: setup ## a million damaged inputs for every reader of bytes and every RPC (LOCKGATE_TEST_FUZZ_INPUTS=N for another number)
	@LOCKGATE_TEST_FUZZ_INPUTS=$${LOCKGATE_TEST_FUZZ_INPUTS:-1000000} $(PY) -m tests.fuzz $(ARGS)

lint: setup ## formatting, lint, types, layering, generated code
	@$(VENV)/bin/ruff format --check . && $(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports
	@$(PY) proto/generate.py --check

docs: setup ## the docs site, into build/site; fails where a link or anchor leads nowhere
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet
	@echo "open build/site/index.html"

mutation: setup ## switch mechanisms off one at a time and show the test that notices
	@$(PY) -m tests.mutation $(ARGS)

proto: setup ## regenerate stubs and messages from the .proto files
	@$(PY) proto/generate.py

benchmarks: setup ## benchmarks, one after another
	@for name in startup failover rescale state process functions rocksdb standby_restore joins diffs object_state incremental wordcount metrics observability abs unaligned query control_plane latency record_path; do $(PY) -m benchmarks.$$name || exit 1; done

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) $(VENV_PURE) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
