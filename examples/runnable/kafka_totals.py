"""Totals by city from one Kafka topic into another. The broker is librdkafka's mock cluster, in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from examples.frame import Example, Place
from examples.frame.example import compare
from lockgate import Job, count

_ORDERS, _TOTALS, _COMMITS = "orders", "totals", "lockgate-commits"
_CITIES, _RECORDS = ("Accra", "Bergen", "Cusco", "Dakar", "Essen"), 160_000
_PARTITIONS = 4  # of every topic of the mock cluster, which keeps 5 MiB of each
_WAIT_S = 10.0
_AT_ONCE = 20_000  # a producer holds 100,000 records


@cache
def _broker() -> Producer:
    """It lives as long as the process, and listens on its own port."""
    return Producer({"test.mock.num.brokers": 1, "log_level": 0})


def _servers() -> str:
    (found,) = _broker().list_topics(timeout=_WAIT_S).brokers.values()
    return f"{found.host}:{found.port}"


def _make_input(place: Place) -> int:
    for topic in (_ORDERS, _TOTALS, _COMMITS):
        _broker().list_topics(topic, timeout=_WAIT_S)  # the mock cluster knows no other way to make one
    choice, producer = place.random(), Producer({"bootstrap.servers": _servers()})
    for number in range(_RECORDS):
        producer.produce(_ORDERS, value=choice.choice(_CITIES), partition=number % _PARTITIONS)
        if number % _AT_ONCE == 0:
            producer.flush()
    producer.flush()
    return _RECORDS


def _pipeline(place: Place) -> Job:  # noqa: ARG001  what it writes is in the broker
    job = Job("kafka totals", parallelism=2, checkpoint_interval_ms=500)
    orders = job.read_kafka(_servers(), _ORDERS, bounded=True)
    totals = orders.select("CAST(value AS STRING) AS city").key_by("city").aggregate(n=count())
    totals.select("city", "CAST(n AS STRING) AS n").write_kafka(_servers(), _TOTALS, key="city", value="n")
    return job


def _check(place: Place) -> list[str]:  # noqa: ARG001
    wanted = Counter((record.value() or b"").decode() for record in _records(_ORDERS))
    totals = {(record.key() or b"").decode(): int(record.value() or b"0") for record in _records(_TOTALS)}
    return compare(totals, wanted, "number of orders of")


def _records(topic: str) -> Iterator[Message]:
    """Everything in a topic, each partition in its order; what comes last for a key is its total."""
    settings = {"group.id": "check", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({**settings, "bootstrap.servers": _servers(), "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(_PARTITIONS)])
    ends = 0
    while ends < _PARTITIONS:
        for message in consumer.consume(1_000, _WAIT_S / 100):
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                ends += 1
            else:
                raise RuntimeError(error.str())
    consumer.close()


EXAMPLE = Example("totals by city from one Kafka topic into another, exactly once", _make_input, _pipeline, _check)
