"""Kafka sources and sinks as the author of a pipeline names them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lockgate_proto.messages import KafkaSink, KafkaSource, KafkaStart, KafkaWriteMode
from lockgate_proto.operators import COMMITS_TOPIC

from lockgate.pipeline import checks
from lockgate.pipeline.errors import PipelineError

_STARTS = {"earliest": KafkaStart.KAFKA_EARLIEST, "latest": KafkaStart.KAFKA_LATEST}
_MODES = {"exactly_once": KafkaWriteMode.KAFKA_EXACTLY_ONCE, "at_least_once": KafkaWriteMode.KAFKA_AT_LEAST_ONCE}
_EXAMPLE = "kafka-1:9092,kafka-2:9092"


def source(
    servers: Any, topics: str | Iterable[str], starting: Any, bounded: bool, interval_ms: Any, options: Any
) -> KafkaSource:
    """The source of `read_kafka`. Raises PipelineError."""
    named = (topics,) if isinstance(topics, str) else tuple(topics)
    listed = tuple(checks.text("read_kafka", "topics", topic, "orders") for topic in named)
    if not listed:
        raise PipelineError('read_kafka() needs a topic, such as read_kafka("kafka-1:9092", "orders")')
    return KafkaSource(
        servers=_servers("read_kafka", servers),
        topics=listed,
        starting=checks.one_of("read_kafka()", "starting", starting, _STARTS),
        bounded=bool(bounded),
        poll_interval_ms=0 if bounded else checks.whole("read_kafka()", "new_partitions_every_ms", interval_ms, 100),
        options=_options("read_kafka", options),
    )


def sink(servers: Any, topic: Any, key: Any, value: Any, mode: Any, commits_topic: Any, options: Any) -> KafkaSink:
    """The sink of `write_kafka`. Raises PipelineError."""
    return KafkaSink(
        servers=_servers("write_kafka", servers),
        topic=checks.text("write_kafka", "a topic", topic, "totals"),
        key="" if key is None else checks.text("write_kafka", "key=", key, "city"),
        value=checks.text("write_kafka", "value=", value, "value"),
        mode=checks.one_of("write_kafka()", "mode", mode, _MODES),
        commits_topic=checks.text("write_kafka", "commits_topic=", commits_topic, COMMITS_TOPIC),
        options=_options("write_kafka", options),
    )


def _servers(method: str, servers: Any) -> str:
    return ",".join(part.strip() for part in checks.text(method, "servers", servers, _EXAMPLE).split(","))


def _options(method: str, options: Any) -> Mapping[str, str]:
    return checks.settings(method, options, '{"client.id": "shop"}, names and values of librdkafka')
