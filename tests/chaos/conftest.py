"""One cluster for all chaos tests: starting one takes seconds, and surviving the test before is part of the test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chaos.ground import Ground


@pytest.fixture(scope="package")
def running_ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """Two coordinators, two task managers with two slots each, one ZooKeeper; dead processes are started again.

    No test here has a task manager fall silent, so a machine that is short of processors does not make one fail.
    """
    with Ground(tmp_path_factory.mktemp("chaos"), coordinator={"heartbeat_timeout_ms": 20_000}) as ground:
        yield ground


@pytest.fixture
def ground(running_ground: Ground) -> Iterator[Ground]:
    """The cluster, whole and idle; whatever a test has done, no job and no fault of it is left to the next one."""
    running_ground.wait_whole()
    running_ground.wait_idle()
    yield running_ground
    running_ground.tidy()
