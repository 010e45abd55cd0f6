"""From topic to topic each record comes once, when the task manager dies around a commit of the sink."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from lockgate import Job
from tests.chaos.ground import Ground
from tests.kafka_broker import PARTITIONS, KafkaBroker

pytestmark = pytest.mark.chaos

PIECES, PIECE, PAUSE_S = 40, 50, 0.1


class Feed:
    """Appends numbered records to every partition of a topic, for some seconds."""

    def __init__(self, broker: KafkaBroker, topic: str) -> None:
        self._broker = broker
        self._topic = topic
        self._pause = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kafka-feed", daemon=True)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._pause.set()
        self._thread.join()

    def _run(self) -> None:
        for piece in range(PIECES):
            records = [(None, b"%d" % number) for number in range(piece * PIECE, (piece + 1) * PIECE)]
            self._broker.produce(self._topic, records, piece % PARTITIONS)
            if self._pause.wait(PAUSE_S):
                return


@pytest.mark.parametrize("point", [pytest.param("before-commit", marks=pytest.mark.soak), "after-commit"])
def test_a_task_manager_that_dies_at_a_commit_of_a_kafka_sink_adds_and_loses_nothing(
    ground: Ground, kafka: KafkaBroker, point: str
) -> None:
    """One subtask, so that no Kafka transaction is open when the process dies: the mock cluster would show its records.

    after-commit: the records are in the topic, and the leader never hears of it.
    """
    if not kafka.is_mock:
        pytest.skip("the topics of this test belong on the broker of the test's own process")
    source, out, commits = (kafka.topic() for _ in range(3))
    ground.arm("taskmanager", 0, f"{point}:3")  # where the subtask goes, since both are free
    ground.wait_whole()
    key = f"kafka-{point}"
    job = Job(key, key=key, checkpoint_interval_ms=300)
    stream = job.read_kafka(kafka.servers, source, new_partitions_every_ms=500)
    stream.write_kafka(kafka.servers, out, commits_topic=commits)
    with Feed(kafka, source):
        ground.client.submit(key, job.graph())
        ground.wait_until(lambda: len(set(kafka.read(out))) == PIECES * PIECE, "every record is in the topic")
    ground.wait_until(lambda: ground.client.job(key).attempt >= 2, "a task manager has died at a commit")
    ground.client.cancel(key)
    found = Counter(int(value or b"-1") for _, value in kafka.read(out))
    assert set(found) == set(range(PIECES * PIECE))
    assert set(found.values()) == {1}
