"""A task manager dies under a job of which no record crosses between subtasks: only its part restarts."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from lockgate_proto.messages import JobEventKind

from lockgate import Job
from tests.chaos.testing_cluster import CONTINUE, TestingCluster
from tests.chaos.watched_job import WatchedJob
from tests.drained import PATIENCE_S, generated
from tests.kafka_broker import PARTITIONS as TOPIC_PARTITIONS
from tests.kafka_broker import KafkaBroker

pytestmark = pytest.mark.chaos

PARTITIONS = 2


def forward_job(folder: Path) -> Job:
    """Each subtask reads its partition and writes its own files."""
    job = Job("parts", parallelism=2, checkpoint_interval_ms=300, leader_failover="reattach")
    rows = job.generate(rate=2_000, partitions=PARTITIONS).sql("SELECT `partition`, sequence FROM input")
    rows.write_parquet(folder)
    return job


def failing_job(folder: Path, flag: str) -> Job:
    """The same, with a function that raises once, on a record of the second partition."""

    def fail_once(record: dict[str, Any]) -> dict[str, Any]:
        if record["partition"] == 1 and record["sequence"] >= 3_000 and not os.path.exists(flag):
            Path(flag).touch()
            raise RuntimeError("once")
        return record

    job = Job("failing", parallelism=2, checkpoint_interval_ms=300)
    rows = job.generate(rate=2_000, partitions=PARTITIONS)
    rows.map(fail_once, schema="`partition` INT, sequence BIGINT").write_parquet(folder)
    return job


def written(folder: Path) -> Counter[tuple[int, int]]:
    """How often each row is in the files."""
    tables = [pq.read_table(path, partitioning=None) for path in folder.glob("part-*.parquet")]
    return Counter(
        row
        for table in tables
        for row in zip(*(table[name].to_pylist() for name in ("partition", "sequence")), strict=True)
    )


def test_the_part_of_a_dead_task_manager_restarts_alone_and_a_new_leader_adopts_the_whole(
    testing: TestingCluster,
) -> None:
    """The other subtask takes part in the next checkpoints in the attempt in which it began."""
    folder = testing.make_folder("parts") / "out"
    made = forward_job(folder)
    with WatchedJob(testing, made.key, made.graph()) as job:
        job.wait_checkpoints(2)
        places = {subtask.subtask: subtask.task_manager_id for subtask in job.status.subtasks}
        assert len(set(places.values())) == 2
        testing.cluster.kill("taskmanager", int(places[1].rpartition("-")[2]))
        job.wait_checkpoints(2, attempt=2)
        extent = [event.text for event in job.events if event.kind is JobEventKind.RESTART_EXTENT]
        assert [text.startswith("only ") and ", 1 of 2 subtasks" in text for text in extent] == [True]
        testing.kill_leader()
        job.wait_event(JobEventKind.ATTEMPT_ADOPTED)
        rows = generated(next(iter(job.drain().values())), PARTITIONS)
        assert (job.status.attempt, job.status.restarts) == (2, 1)
    assert written(folder) == Counter((partition, row) for partition, end in enumerate(rows) for row in range(end))


def test_a_leader_that_dies_before_a_part_restarts_changes_no_result(testing: TestingCluster) -> None:
    """It has recorded the attempt of the part, and deployed nothing. The next leader restarts the whole job."""
    folder = testing.make_folder("undeployed") / "out"
    made = forward_job(folder)
    with testing.history() as history, WatchedJob(testing, made.key, made.graph()) as job:
        job.wait_checkpoints(2)
        leader = testing.leader_number()
        before = testing.arm("coordinator", leader, "after-attempt-persist:1")
        testing.cluster.kill("taskmanager", _number(job, 1))
        testing.cluster.wait_ready("coordinator", leader, PATIENCE_S, other_than=before)
        job.wait_checkpoints(2, attempt=3)
        assert job.seen(JobEventKind.ATTEMPT_NOT_ADOPTED) == 1
        rows = generated(next(iter(job.drain().values())), PARTITIONS)
        assert job.status.attempt == 3
    assert written(folder) == Counter((partition, row) for partition, end in enumerate(rows) for row in range(end))
    history.check()


def test_a_leader_that_dies_while_a_part_is_deployed_changes_no_result(testing: TestingCluster) -> None:
    """The task manager that has got the deployment carries it out when another one leads already. If the part runs by
    the time it registers there, it is adopted; otherwise the whole job restarts.
    """
    folder = testing.make_folder("deployed") / "out"
    made = forward_job(folder)
    with testing.history() as history, WatchedJob(testing, made.key, made.graph()) as job:
        job.wait_checkpoints(2)
        lost, kept, leader = _number(job, 1), _number(job, 0), testing.leader_number()
        deployed = testing.arm("taskmanager", kept, "stop:on-deploy:1")
        testing.cluster.kill("taskmanager", lost)
        testing.wait_until(lambda: _is_frozen(deployed), "the part is deployed where the other one runs")
        before = testing.cluster.kill("coordinator", leader)
        testing.wait_until(lambda: testing.cluster.leader_number() == 1 - leader, "another one leads")
        testing.cluster.kill("taskmanager", kept, CONTINUE)
        testing.cluster.wait_ready("coordinator", leader, PATIENCE_S, other_than=before)
        job.wait_checkpoints(2, attempt=2)
        rows = generated(next(iter(job.drain().values())), PARTITIONS)
        assert job.status.attempt == 2 + job.seen(JobEventKind.ATTEMPT_NOT_ADOPTED)
    assert written(folder) == Counter((partition, row) for partition, end in enumerate(rows) for row in range(end))
    history.check()


def _number(job: WatchedJob, subtask: int) -> int:
    """Of the task manager that runs it."""
    (name,) = {known.task_manager_id for known in job.status.subtasks if known.subtask == subtask}
    return int(name.rpartition("-")[2])


def _is_frozen(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] == "T"


def test_the_slot_of_a_failed_subtask_restarts_alone(testing: TestingCluster) -> None:
    folder = testing.make_folder("failing")
    made = failing_job(folder / "out", str(folder / "flag"))
    with WatchedJob(testing, made.key, made.graph()) as job:
        job.wait_event(JobEventKind.ATTEMPT_FAILED)
        job.wait_checkpoints(1, attempt=2)
        (extent,) = [event.text for event in job.events if event.kind is JobEventKind.RESTART_EXTENT]
        assert extent.startswith("only ")
        assert ", 1 of 2 subtasks" in extent
        rows = generated(next(iter(job.drain().values())), PARTITIONS)
        assert (job.status.attempt, job.status.restarts) == (2, 1)
    expected = Counter((partition, row) for partition, end in enumerate(rows) for row in range(end))
    assert written(folder / "out") == expected


def test_a_part_goes_on_from_kafka_to_delta_with_copies_of_its_state(
    testing: TestingCluster, kafka: KafkaBroker
) -> None:
    """Records come before the death, between death and restart, and afterwards."""
    topic, table, sent = kafka.topic(), testing.make_folder("kafka-part") / "table", 0

    def send() -> None:
        nonlocal sent
        for partition in range(TOPIC_PARTITIONS):
            kafka.produce(topic, [(None, b"%d" % number) for number in range(sent, sent + 200)], partition)
            sent += 200

    def found() -> Counter[int]:
        if not DeltaTable.is_deltatable(str(table)):
            return Counter()
        return Counter(DeltaTable(table).to_pyarrow_table().column("number").to_pylist())

    options = {"parallelism": 2, "checkpoint_interval_ms": 300, "standby_replicas": 1}
    made = Job("kafka-part", checkpoint_mode="unaligned", **options)
    rows = made.read_kafka(kafka.servers, topic, new_partitions_every_ms=500)
    rows.sql("SELECT CAST(CAST(value AS STRING) AS BIGINT) AS number FROM input").write_delta(table)
    with WatchedJob(testing, made.key, made.graph()) as job:
        send()
        testing.wait_until(lambda: len(found()) == sent, "the first records are in the table")
        (number,) = {subtask.task_manager_id for subtask in job.status.subtasks if subtask.subtask == 1}
        testing.cluster.kill("taskmanager", int(number.rpartition("-")[2]))
        send()
        job.wait_checkpoints(1, attempt=2)
        send()
        testing.wait_until(lambda: len(found()) == sent, "all records are in the table")
        job.drain()
        extent = [event.text for event in job.events if event.kind is JobEventKind.RESTART_EXTENT]
        assert [text.startswith("only ") for text in extent] == [True]
    assert found() == Counter(range(sent))
