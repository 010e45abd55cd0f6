"""From topic to topic each record comes once, when the task manager dies around a commit of the sink."""

from __future__ import annotations

import itertools
import threading
from collections import Counter

import pytest
from lockgate_proto.messages import JobState

from lockgate import Job
from tests.chaos.ground import Ground
from tests.kafka_broker import PARTITIONS, KafkaBroker

pytestmark = pytest.mark.chaos

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
    with Feed(kafka, source) as feed:
        ground.client.submit(key, job.graph())
        ground.wait_until(lambda: ground.client.job(key).attempt >= 2, "a task manager has died at a commit")
        so_far = feed.sent
        ground.wait_until(lambda: len(set(kafka.read(out))) > so_far, "records from after that are in the topic")
        feed.close()
        ground.wait_until(lambda: len(set(kafka.read(out))) == feed.sent, "every record is in the topic")
    ground.client.cancel(key)
    ground.wait_until(lambda: ground.client.job(key).state is JobState.CANCELED, "the end")
    found = Counter(int(value or b"-1") for _, value in kafka.read(out))
    assert set(found) == set(range(feed.sent))
    assert set(found.values()) == {1}
