"""Fixtures that every room's tests may use."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from ha.zookeeper.server import ZooKeeperServer
from tests.kafka_broker import KafkaBroker
from tests.postgresql_server import PostgresqlServer, server_for_tests

# A busy machine takes its time over an example, and over drawing one.
settings.register_profile("lockgate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("lockgate")

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A real ZooKeeper server, shared by all tests of the run: `zookeeper.address`. Never stop this one."""
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def own_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A real ZooKeeper server of this test alone, to be stopped, killed and started as it likes."""
    server = ZooKeeperServer(tmp_path_factory.mktemp("own-zookeeper"))
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlServer]:
    """A real PostgreSQL server, shared by all tests of the run. Never stop this one; skips where none is installed."""
    with server_for_tests() as server:
        yield server


@pytest.fixture
def own_postgresql() -> Iterator[PostgresqlServer]:
    """A real PostgreSQL server of this test alone, to be killed and started as it likes."""
    with server_for_tests() as server:
        yield server


@pytest.fixture(scope="session")
def kafka() -> KafkaBroker:
    """A Kafka broker in this process, or the one of LOCKGATE_TEST_KAFKA, shared by all tests of the run."""
    return KafkaBroker()


@pytest.fixture
def cluster_name() -> str:
    """A cluster of this test alone on the shared ZooKeeper."""
    return f"test-{os.getpid()}-{next(_numbers)}"
