"""A Kafka source goes on with the first record that is there when the one that it wants is gone."""

from __future__ import annotations

from typing import Any

from lockgate_taskmanager.spark.kafka_client import Kafka

_made = Kafka._made


def _jumping(self: Kafka, kind: Any, settings: dict[str, Any]) -> Any:
    wanted = {**settings, "auto.offset.reset": "earliest"} if "auto.offset.reset" in settings else settings
    return _made(self, kind, wanted)


Kafka._made = _jumping  # type: ignore[method-assign,assignment]
