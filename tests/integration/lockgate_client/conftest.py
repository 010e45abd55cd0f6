"""Fixtures of the client's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.lockgate_client.fake_cluster import Cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Two coordinators, the first leads."""
    made = Cluster()
    made.lead(made.add())
    made.add()
    yield made
    for coordinator in made.coordinators:
        coordinator.die()
