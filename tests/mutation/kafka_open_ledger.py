"""The Kafka ledger believes what open and aborted transactions have noted."""

from __future__ import annotations

from typing import Any

from lockgate_taskmanager.spark.kafka_client import Kafka
from lockgate_taskmanager.spark.sinks.kafka_ledger import KafkaLedger

_init = KafkaLedger.__init__


class _Believing:
    """A Kafka whose consumers read uncommitted records."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kafka, name)

    def consumer(self, **settings: Any) -> Any:
        return self._kafka.consumer(**{**settings, "isolation.level": "read_uncommitted"})


def _made(self: KafkaLedger, kafka: Kafka, *others: Any) -> None:
    _init(self, _Believing(kafka), *others)  # type: ignore[arg-type]


KafkaLedger.__init__ = _made  # type: ignore[method-assign,assignment]
