# The parts of .ci/run, side by side: scripts/side_by_side.sh. They need what `make setup` has made.
MAKEFLAGS += --no-print-directory
.PHONY: docker chaos integration lint pure mutants examples

docker:
	@scripts/part.sh "container image" $(MAKE) docker-image
	@LOCKGATE_TEST_DOCKER=required $(MAKE) test-docker # here a test that is skipped counts as failed

chaos:
	@$(MAKE) chaos-tests

# A third of the repeated cases: `make test` runs them all. Fresh schedules stay.
integration:
	@LOCKGATE_TEST_SHARE=3 $(MAKE) integration-tests

pure:
	@LOCKGATE_TEST_SHARE=3 LOCKGATE_TEST_SIMULATION_SECONDS=40 $(MAKE) pure-tests

# What waits for nothing takes what the parts leave in which processes have to answer in time.
lint:
	@scripts/part.sh lint nice -n 5 $(MAKE) lint docs

mutants:
	@scripts/part.sh mutants nice -n 5 $(MAKE) mutation ARGS="--passed"

examples:
	@scripts/part.sh examples $(MAKE) examples ARGS="--share 3 --kill either"
