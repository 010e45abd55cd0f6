"""The Kafka broker that tests use: noida-db's, a process of its own, or the one named by LOCKGATE_TEST_KAFKA_SERVERS.

It speaks Kafka's protocol and keeps transactions as Kafka does: it fences the older producer of a name, hides what open
and aborted transactions have written, and its end offsets count marks. It does not end a dead producer's transaction
when `transaction.timeout.ms` is over, and what it holds is lost when it dies. Tests are skipped where it is not
installed, unless it is required.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import socket
import stat
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from lockgate_common.ports import choose

REQUIRED = "LOCKGATE_TEST_KAFKA"
"""Set to `required` where a skip is to count as a failure."""
SERVERS = "LOCKGATE_TEST_KAFKA_SERVERS"
"""`host:port` of a broker to be used in place of the tests' own."""
PATIENCE_S = 120.0
PARTITIONS = 4  # of every topic
_QUIET = {"log_level": 0}  # or clients tell of the broker's end

Record = tuple[bytes | None, bytes | None]


class KafkaBroker:
    """A broker that runs. servers: its address, for clients."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self._admin = AdminClient({"bootstrap.servers": servers, **_QUIET})

    def topic(self, partitions: int = PARTITIONS) -> str:
        """A new one, empty; its name."""
        name = f"t-{secrets.token_hex(4)}"
        (made,) = self._admin.create_topics([NewTopic(name, num_partitions=partitions)]).values()
        made.result(PATIENCE_S)
        return name

    def produce(self, topic: str, records: Iterable[Record], partition: int = 0) -> None:
        """Appends records to a partition, each once, also where an answer of the broker is lost."""
        producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True, **_QUIET})
        for key, value in records:
            producer.produce(topic, key=key, value=value, partition=partition)
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0

    def producer(self, name: str) -> Producer:
        """A transactional one of that name; it fences an older one."""
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": name, **_QUIET})
        producer.init_transactions(PATIENCE_S)
        return producer

    def remove_before(self, topic: str, partition: int, offset: int) -> None:
        """Takes away what lies before the offset, as retention does."""
        (removed,) = self._admin.delete_records([TopicPartition(topic, partition, offset)]).values()
        removed.result(PATIENCE_S)

    def read(self, topic: str) -> list[Record]:
        """Every record of a topic that is committed, partition by partition."""
        count = len(self._admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions)
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


@contextlib.contextmanager
def broker_for_tests(folder: Path) -> Iterator[KafkaBroker]:
    """One that runs. folder: an empty one of its own, for its log and its data."""
    switch, servers = os.environ.get(REQUIRED, ""), os.environ.get(SERVERS, "")
    if switch not in ("", "required"):
        pytest.fail(f"{REQUIRED} is {switch!r}, but can only be 'required'; a broker's address belongs in {SERVERS}")
    if servers:
        yield KafkaBroker(servers)
        return
    found = importlib.util.find_spec("noida_db")
    if found is None or found.origin is None:
        reason = f"noida-db is not installed, and {SERVERS} names no broker"
        if switch:
            pytest.fail(reason)
        pytest.skip(reason)
    program = Path(found.origin).with_name("noida-db")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    with _started(program, folder) as address:
        yield KafkaBroker(address)


@contextlib.contextmanager
def _started(program: Path, folder: Path) -> Iterator[str]:
    """Its address, `host:port`."""
    (port,) = choose("127.0.0.1", 1)
    log, data = folder / "log", folder / "data"
    command = [str(program), "start", "--only", "kafka", "--data-dir", str(data)]
    command += ["--host", "127.0.0.1", "--kafka-port", str(port)]
    with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            _wait(process, port, log)
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
            return
        time.sleep(0.01)
    raise AssertionError(f"the Kafka broker did not start, see {log}")
