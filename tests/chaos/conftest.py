"""One cluster for all chaos tests: starting one takes seconds, and surviving the test before is part of the test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.chaos.testing_cluster import TestingCluster
from tests.chromium import browser

__all__ = ["browser"]

TIMEOUT_S = 900  # every wait has a deadline of its own, which says what did not come; a test has several


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """The usual timeout would be the first to strike on a busy machine, and would not say what was waited for."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="package")
def running_ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestingCluster]:
    """Two coordinators, two task managers with two slots each, one ZooKeeper; dead processes are started again.

    No test here has a task manager fall silent, so a machine that is short of processors does not make one fail.
    """
    with TestingCluster(tmp_path_factory.mktemp("chaos"), coordinator={"heartbeat_timeout_ms": 20_000}) as testing:
        yield testing


@pytest.fixture
def testing(running_ground: TestingCluster) -> Iterator[TestingCluster]:
    """The cluster, whole and idle; whatever a test has done, no job and no fault of it is left to the next one."""
    running_ground.wait_complete()
    running_ground.wait_idle()
    yield running_ground
    running_ground.tidy()
