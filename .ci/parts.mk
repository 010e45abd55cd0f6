# The parts of .ci/run, side by side: scripts/side_by_side.sh. They need what `make setup` has made.
MAKEFLAGS += --no-print-directory
.PHONY: docker chaos integration lint pure mutants examples

docker:
	@scripts/part.sh "container image" $(MAKE) docker-image
	@LOCKGATE_TEST_DOCKER=required $(MAKE) test-docker # here a test that is skipped counts as failed

chaos integration pure:
	@$(MAKE) $@-tests

lint:
	@scripts/part.sh lint $(MAKE) lint

mutants:
	@scripts/part.sh mutants $(MAKE) mutation ARGS="--passed"

examples:
	@scripts/part.sh examples $(MAKE) examples ARGS="--share 3 --kill either"
