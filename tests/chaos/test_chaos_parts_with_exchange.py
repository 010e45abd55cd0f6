"""A task manager dies under a job that exchanges records: only what it ran restarts, and nothing counts twice."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest
from lockgate_devtools.drill.observer import JobObserver
from lockgate_proto.messages import JobEventKind, LeaderFailover, TaskManagerFailover

from lockgate import Job, count
from tests.chaos.testing_cluster import TestingCluster
from tests.chaos.watched_job import WatchedJob
from tests.drained import PATIENCE_S
from tests.kafka_broker import PARTITIONS as TOPIC_PARTITIONS
from tests.kafka_broker import KafkaBroker
from tests.ledger_job import LedgerJob

pytestmark = pytest.mark.chaos

PART = TaskManagerFailover.TASK_MANAGER_FAILOVER_PART
REATTACH = LeaderFailover.LEADER_FAILOVER_REATTACH


def place(job: LedgerJob, slot: int) -> int:
    """The number of the task manager that runs a slot."""
    (name,) = {known.task_manager_id for known in job.status.subtasks if known.subtask == slot}
    return int(name.rpartition("-")[2])


def extents_of(job: LedgerJob) -> list[str]:
    """How much has restarted, each time."""
    return [event.text for event in job.observer.events if event.kind is JobEventKind.RESTART_EXTENT]


def totals(file: Path) -> dict[int, int]:
    """The count of each digit; empty before the table is made."""
    with contextlib.closing(sqlite3.connect(file)) as database, contextlib.suppress(sqlite3.OperationalError):
        return dict(database.execute("SELECT digit, n FROM totals"))
    return {}


@pytest.mark.parametrize("slot", [0, 1])
def test_the_part_of_a_dead_task_manager_restarts_alone_and_a_new_leader_adopts_the_whole(
    testing: TestingCluster, slot: int
) -> None:
    """Slot 0 lists the splits of the source, slot 1 does not. Files and totals are exact."""
    with testing.history() as history, testing.ledger(failover=REATTACH, parts=PART) as job:
        job.wait_checkpoints(2)
        assert place(job, 0) != place(job, 1)
        testing.cluster.kill("taskmanager", place(job, slot))
        job.wait_attempt(2)
        assert {known.attempt for known in job.status.subtasks if known.subtask != slot} == {1}
        assert [text.startswith("only ") for text in extents_of(job)] == [True]
        testing.kill_leader()
        job.wait_checkpoints(2)
        assert job.status.attempt == 2
        assert job.check_exact().restarts == 1
    history.check()


def test_before_the_first_checkpoint_a_part_is_given_the_splits_that_it_had(testing: TestingCluster) -> None:
    """No snapshot says which; the others know how far they have had them."""
    with testing.history() as history, testing.ledger(interval_ms=600_000, failover=REATTACH, parts=PART) as job:
        observer = job.observer
        assert observer.wait_for(lambda: _written(observer) > 10_000, PATIENCE_S)  # by each source to each receiver
        testing.cluster.kill("taskmanager", place(job, 1))
        testing.wait_until(lambda: job.status.attempt == 2, "a part restarts")
        testing.wait_until(lambda: _all_run(observer), "it runs again")
        assert [text.startswith("only ") for text in extents_of(job)] == [True]
        assert job.check_exact().restarts == 1
    history.check()


OF_CHANCE = (
    "the whole job restarts: 'read_kafka-1' may produce other results from the same input: "
    "operator 'sql' (id 'sql-1') in front of key_by uses rand()"
)


@pytest.mark.parametrize(
    ("name", "digit", "extent"),
    [
        ("of-the-record", "CAST(CAST(value AS STRING) AS BIGINT) % 10", "only "),
        ("of-chance", "CAST(floor(rand() * 10) AS BIGINT)", OF_CHANCE),
    ],
    ids=["of the record", "of chance"],
)
def test_what_is_affected_goes_on_from_kafka_to_keyed_totals(
    testing: TestingCluster, kafka: KafkaBroker, name: str, digit: str, extent: str
) -> None:
    """Records come before the death, between death and restart, and afterwards."""
    topic, folder = kafka.topic(), testing.make_folder(name)
    database, sent = folder / "totals.db", 0

    def send() -> None:
        nonlocal sent
        for partition in range(TOPIC_PARTITIONS):
            kafka.produce(topic, [(None, b"%d" % number) for number in range(sent, sent + 200)], partition)
            sent += 200

    made = Job(
        name,
        parallelism=2,
        checkpoint_interval_ms=300,
        task_manager_failover="part",
    )
    numbers = made.read_kafka(kafka.servers, topic).sql(f"SELECT {digit} AS digit FROM input")
    numbers.key_by("digit").aggregate(n=count()).write_sql(f"sqlite:///{database}", "totals", key="digit")
    with WatchedJob(testing, made.key, made.graph()) as job:
        send()
        job.wait_checkpoints(2)
        (number,) = {subtask.task_manager_id for subtask in job.status.subtasks if subtask.subtask == 1}
        send()
        testing.cluster.kill("taskmanager", int(number.rpartition("-")[2]))
        send()
        job.wait_checkpoints(1, attempt=2)
        send()
        testing.wait_until(lambda: sum(totals(database).values()) == sent, "all records are in the totals")
        job.drain()
        extents = [event.text for event in job.events if event.kind is JobEventKind.RESTART_EXTENT]
        assert len(extents) == 1
        assert extents[0].startswith(extent)
    assert sum(totals(database).values()) == sent
    if name == "of-the-record":
        assert totals(database) == dict.fromkeys(range(10), sent // 10)


def _written(observer: JobObserver) -> int:
    status = observer.status
    return sum(known.records_in for known in status.operators if known.operator_id == "ledger") if status else 0


def _all_run(observer: JobObserver) -> bool:
    status = observer.status
    return status is not None and {known.state for known in status.subtasks} == {"RUNNING"}
