"""The Kafka sink does not look whether a checkpoint's rows, or newer ones, are there already."""

from __future__ import annotations

from lockgate_taskmanager.spark.sinks.kafka_ledger import KafkaLedger
from lockgate_taskmanager.spark.sinks.transaction import Owner


def committed(self: KafkaLedger, owner: Owner, since: int, enough: int, *, waits: bool = True) -> int:
    del self, owner, since, enough, waits
    return 0


assert hasattr(KafkaLedger, "committed")
KafkaLedger.committed = committed  # type: ignore[method-assign]
