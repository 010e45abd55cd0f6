"""A Kafka source reads what open and aborted transactions have written."""

from __future__ import annotations

from typing import Any

from lockgate_taskmanager.spark.kafka_client import Kafka

_consumer = Kafka.consumer


def consumer(self: Kafka, **settings: Any) -> Any:
    return _consumer(self, **{"isolation.level": "read_uncommitted", **settings})


Kafka.consumer = consumer  # type: ignore[method-assign]
