# The parts of .ci/run, side by side: scripts/side_by_side.sh. They need what `make setup` has made.
MAKEFLAGS += --no-print-directory
.PHONY: docker chaos integration lint pure mutants examples

# A share of what is tried again and again, and of what is marked `rotating`, another one each day: see tests/share.py.
# `make test` runs everything. Fresh schedules of the simulation come on top.

docker:
	@scripts/part.sh "container image" $(MAKE) docker-image
	@LOCKGATE_TEST_SHARE=6 LOCKGATE_TEST_DOCKER=required $(MAKE) test-docker # here a skipped test counts as failed

chaos:
	@LOCKGATE_TEST_SHARE=6 $(MAKE) chaos-tests

integration:
	@LOCKGATE_TEST_SHARE=6 $(MAKE) integration-tests

pure:
	@LOCKGATE_TEST_SHARE=12 LOCKGATE_TEST_SIMULATION_SECONDS=30 $(MAKE) pure-tests

# What waits for nothing takes what the parts leave in which processes have to answer in time.
lint:
	@scripts/part.sh lint nice -n 5 $(MAKE) lint docs

mutants:
	@scripts/part.sh mutants nice -n 5 $(MAKE) mutation ARGS="--passed --share 2"

# JVMs of some seconds: see tests/java.py.
examples: export SPARK_SUBMIT_OPTS := -XX:TieredStopAtLevel=1
examples:
	@scripts/part.sh examples $(MAKE) examples ARGS="--share 6 --kill either"
