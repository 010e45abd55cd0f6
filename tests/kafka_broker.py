"""A Kafka broker for tests: librdkafka's mock cluster in this process, or the one named by LOCKGATE_TEST_KAFKA.

The mock speaks the protocol over TCP, also to other processes. It cannot make topics, does not fence producers and
shows the records of transactions that are open or were aborted; a broker named in the environment has to do all that.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

SERVERS = os.environ.get("LOCKGATE_TEST_KAFKA", "")
PATIENCE_S = 30.0
PARTITIONS = 4  # of every topic: what the mock gives a topic that is asked for

Record = tuple[bytes | None, bytes | None]


class KafkaBroker:
    """See the module."""

    def __init__(self) -> None:
        self._host = Producer({"bootstrap.servers": SERVERS} if SERVERS else {"test.mock.num.brokers": 1})
        (broker, *_) = self._host.list_topics(timeout=PATIENCE_S).brokers.values()
        self.servers = SERVERS or f"{broker.host}:{broker.port}"
        self.is_mock = not SERVERS

    def topic(self, partitions: int = PARTITIONS) -> str:
        """A new one, empty. Raises AssertionError."""
        name = f"t-{secrets.token_hex(4)}"
        if SERVERS:
            admin = AdminClient({"bootstrap.servers": SERVERS})
            (made,) = admin.create_topics([NewTopic(name, num_partitions=partitions)]).values()
            made.result()
        assert len(self._host.list_topics(name, timeout=PATIENCE_S).topics[name].partitions) in (PARTITIONS, partitions)
        return name

    def produce(self, topic: str, records: Iterable[Record], partition: int = 0) -> None:
        """Appends records to a partition."""
        producer = Producer({"bootstrap.servers": self.servers})
        for key, value in records:
            producer.produce(topic, key=key, value=value, partition=partition)
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0

    def read(self, topic: str) -> list[Record]:
        """Every record of a topic that is committed, partition by partition."""
        count = len(self._host.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions)
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "tests",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
            }
        )
        consumer.assign([TopicPartition(topic, number, 0) for number in range(count)])
        found: dict[int, list[Record]] = {number: [] for number in range(count)}
        at_end: set[int] = set()
        deadline = time.monotonic() + PATIENCE_S
        while len(at_end) < count:
            assert time.monotonic() < deadline, f"the topic {topic} could not be read"
            for message in consumer.consume(1000, 0.05):
                self._take(message, found, at_end)
        consumer.close()
        return [record for number in range(count) for record in found[number]]

    @staticmethod
    def _take(message: Any, found: dict[int, list[Record]], at_end: set[int]) -> None:
        if message.error() is None:
            found[message.partition()].append((message.key(), message.value()))
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            at_end.add(message.partition())
