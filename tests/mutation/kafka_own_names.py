"""Each attempt of a Kafka sink has a producer of a name of its own, so it fences none."""

from __future__ import annotations

import secrets
from typing import Any

from lockgate_taskmanager.spark.kafka_client import Kafka

_producer = Kafka.producer


def producer(self: Kafka, **settings: Any) -> Any:
    name = settings.get("transactional.id")
    return _producer(self, **{**settings, **({"transactional.id": name + secrets.token_hex(4)} if name else {})})


Kafka.producer = producer  # type: ignore[method-assign]
