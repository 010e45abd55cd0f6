"""One cluster for all chaos tests: starting one takes seconds, and surviving the test before is part of the test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chaos.ground import Ground


@pytest.fixture(scope="package")
def running_ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """Two coordinators, two task managers with two slots each, one ZooKeeper; dead processes are started again."""
    with Ground(tmp_path_factory.mktemp("chaos"), coordinator={"session_timeout_ms": 2_000}) as ground:
        yield ground


@pytest.fixture
def ground(running_ground: Ground) -> Ground:
    """The cluster, whole."""
    running_ground.wait_whole()
    return running_ground
