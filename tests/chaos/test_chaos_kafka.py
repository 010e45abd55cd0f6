"""From topic to topic each record comes, when a process dies around a commit of the sink or before a checkpoint."""

from __future__ import annotations

import itertools
import threading
from collections import Counter

import pytest
from lockgate_proto.messages import JobState

from lockgate import Job
from tests.chaos.testing_cluster import TestingCluster
from tests.drained import patient
from tests.kafka_broker import PARTITIONS, KafkaBroker

pytestmark = [pytest.mark.chaos, pytest.mark.rotating]

PIECE, PAUSE_S = 50, 0.1


class Feed:
    """Appends numbered records to the partitions of a topic, until `close`."""

    def __init__(self, broker: KafkaBroker, topic: str) -> None:
        self.sent = 0
        self._broker = broker
        self._topic = topic
        self._pause = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kafka-feed", daemon=True)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing comes after this; `sent` says how much there is."""
        self._pause.set()
        self._thread.join()

    def _run(self) -> None:
        for piece in itertools.count():
            records = [(None, b"%d" % number) for number in range(self.sent, self.sent + PIECE)]
            self._broker.produce(self._topic, records, piece % PARTITIONS)
            self.sent += PIECE
            if self._pause.wait(PAUSE_S):
                return


class Copied:
    """A job that copies a topic into another one while the first is fed, until `check_exact`. Two subtasks of two."""

    def __init__(self, testing: TestingCluster, kafka: KafkaBroker, key: str) -> None:
        self._testing = testing
        self._kafka = kafka
        self._key = key
        self._source, self._out, commits = (kafka.topic() for _ in range(3))
        job = Job(key, key=key, parallelism=2, checkpoint_interval_ms=300)
        stream = job.read_kafka(kafka.servers, self._source, new_partitions_every_ms=500)
        stream.write_kafka(kafka.servers, self._out, commits_topic=commits)
        self._graph = job.graph()
        self._feed = Feed(kafka, self._source)

    def __enter__(self) -> Copied:
        self._feed.__enter__()
        self._testing.client.submit(self._key, patient(self._graph))
        return self

    def __exit__(self, *_: object) -> None:
        self._feed.close()

    def attempt(self) -> int:
        return self._testing.client.job(self._key).attempt

    def wait_copied(self, since: int) -> None:
        """Until records beyond the first `since` have arrived."""
        self._testing.wait_until(lambda: len(self._numbers()) > since, f"more than {since} records are in the topic")

    def check_exact(self) -> None:
        """What was sent from now on arrives; in the end each record is there once."""
        self.wait_copied(self._feed.sent)
        self._feed.close()
        self._testing.wait_until(lambda: len(self._numbers()) == self._feed.sent, "every record is in the topic")
        self._testing.client.cancel(self._key)
        self._testing.wait_until(lambda: self._testing.client.job(self._key).state is JobState.CANCELED, "the end")
        found = Counter(int(value or b"-1") for _, value in self._kafka.read(self._out))
        assert set(found) == set(range(self._feed.sent))
        fed = Counter(int(value or b"-1") for _, value in self._kafka.read(self._source))
        assert [number for number, times in fed.items() if times > 1] == [], "the feed itself has sent them twice"
        assert [number for number, times in sorted(found.items()) if times > 1] == []

    def _numbers(self) -> set[bytes | None]:
        return {value for _, value in self._kafka.read(self._out)}


@pytest.mark.parametrize(
    "point", [pytest.param("before-commit", marks=pytest.mark.soak), "inside-commit", "after-commit"]
)
def test_a_task_manager_that_dies_at_a_commit_of_a_kafka_sink_adds_and_loses_nothing(
    testing: TestingCluster, kafka: KafkaBroker, point: str
) -> None:
    """inside-commit: the records are in the topic, in a transaction that stays open. after-commit: the leader never
    learns of it.
    """
    testing.arm("taskmanager", 0, f"{point}:3")
    with Copied(testing, kafka, f"kafka-{point}") as job:
        testing.wait_until(lambda: job.attempt() >= 2, "a task manager has died at a commit")
        job.check_exact()


def test_a_leader_that_dies_while_a_kafka_sink_commits_adds_and_loses_nothing(
    testing: TestingCluster, kafka: KafkaBroker
) -> None:
    with Copied(testing, kafka, "kafka-leader") as job:
        job.wait_copied(0)
        testing.kill_leader()
        job.check_exact()


@pytest.mark.parametrize("with_leader", [True, False])
def test_a_source_that_begins_at_the_end_of_a_topic_skips_nothing_when_it_restarts_without_a_checkpoint(
    testing: TestingCluster, kafka: KafkaBroker, with_leader: bool
) -> None:
    """The topic grows while the task managers start again."""
    key, source, out = f"kafka-latest-{with_leader}", kafka.topic(), kafka.topic()
    job = Job(key, key=key, parallelism=2, checkpoint_interval_ms=600_000, leader_failover="restart")
    stream = job.read_kafka(kafka.servers, source, starting="latest")
    stream.write_kafka(kafka.servers, out, mode="at_least_once")

    def missing() -> set[int]:
        """The partitions of which nothing is copied, or not everything from the first copied record on."""
        found = {int(value or b"-1") for _, value in kafka.read(out)}
        parts = {partition: numbers_in(partition, feed.sent) for partition in range(PARTITIONS)}
        here = {partition: [number for number in numbers if number in found] for partition, numbers in parts.items()}
        assert all(len(here[partition]) < len(numbers) for partition, numbers in parts.items()), (
            "begun at the beginning"
        )
        return {part for part, numbers in parts.items() if not here[part] or here[part] != numbers[-len(here[part]) :]}

    def begun() -> bool:
        found = {int(value or b"-1") // PIECE % PARTITIONS for _, value in kafka.read(out)}
        return len(found) == PARTITIONS

    with Feed(kafka, source) as feed:
        testing.wait_until(lambda: feed.sent > 1_000, "the topic has records before the job begins")
        testing.client.submit(key, job.graph())
        testing.wait_until(begun, "the job has read from each partition")
        for name in [name for name in testing.cluster.pids() if name.startswith("taskmanager-")]:
            testing.cluster.kill("taskmanager", int(name.rpartition("-")[2]))
        if with_leader:
            testing.kill_leader()
        testing.wait_until(lambda: testing.client.job(key).attempt >= 2, "another attempt")
    testing.wait_until(lambda: not missing(), "every record since the first one")
    testing.client.cancel(key)


def numbers_in(partition: int, sent: int) -> list[int]:
    """Those of a feed, of which so many were sent."""
    return [number for number in range(sent) if number // PIECE % PARTITIONS == partition]
