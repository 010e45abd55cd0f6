"""Fixtures that every room's tests may use.

What only one fixture needs is imported in it: `make test-quick` runs without Spark and without Kafka's client.
"""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from lockgate_devtools.zookeeper.server import ZooKeeperServer

from tests.crashed_workers import pytest_xdist_make_scheduler  # noqa: F401 (hook)
from tests.java import FIRST_COMPILER_ONLY
from tests.postgresql_server import PostgresqlServer, server_for_tests
from tests.run_notes import RUN_NOTE
from tests.selection import SPARK_FOLDERS, check_marks, has_nothing_for
from tests.share import DAY, SHARE, draw_fewer_examples, other_days, other_parameters
from tests.watchdog import (  # noqa: F401 (hooks)
    pytest_configure,
    pytest_exception_interact,
    pytest_runtest_protocol,
    pytest_unconfigure,
)

if TYPE_CHECKING:
    from tests.kafka_broker import KafkaBroker

# A busy machine takes its time over an example, and over drawing one.
settings.register_profile("lockgate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("lockgate")

# Spark's JVMs of the tests live for seconds or do something else each time: the second compiler would cost them nearly
# as much as all their work. Examples, containers, drill and benchmarks run with it.
os.environ.setdefault("SPARK_SUBMIT_OPTS", FIRST_COMPILER_ONLY)

_numbers = itertools.count(1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Seeds that were drawn for this run alone, and the like."""
    reports = [item for found in terminalreporter.stats.values() for item in found if hasattr(item, "user_properties")]
    for report in reports:
        for name, value in report.user_properties:
            if name == RUN_NOTE and report.when == "call":
                terminalreporter.write_line(f"{report.nodeid}: {value}")


def pytest_report_header() -> str:
    """How to repeat what a share of the tests has found."""
    return f"LOCKGATE_TEST_SHARE={SHARE} LOCKGATE_TEST_DAY={DAY}" if SHARE > 1 else ""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What it imports may not be installed, and each process of a run imports all that it collects."""
    return True if has_nothing_for(config.option.markexpr, collection_path) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is made here stays until the end: looking for garbage in it would take a third of the time.

    Nor is it looked for as often as usual in what the tests make: that took an eighth of the simulation's time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes long begins first, so that the others run beside it; what other days run is left to them."""
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in SPARK_FOLDERS):
            item.add_marker("spark")
    check_marks(items)
    named = {Path(argument.partition("::")[0]).absolute() for argument in config.args}
    if left := {item for item in (*other_days(items), *other_parameters(items)) if item.path not in named}:
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]
    draw_fewer_examples(items)
    items.sort(key=lambda item: item.get_closest_marker("first") is None)


@pytest.fixture(scope="session", autouse=True)
def _patient_clients() -> None:
    """A user learns soon that no coordinator answers; a busy machine may need longer for its first connection."""
    from lockgate.client import directory

    directory.FIRST_ANSWER_MS = 20_000


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
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A real broker, shared by all tests of the run; skips where none is installed."""
    from tests.kafka_broker import broker_for_tests

    with broker_for_tests(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def cluster_name() -> str:
    """A cluster of this test alone on the shared ZooKeeper."""
    return f"test-{os.getpid()}-{next(_numbers)}"
