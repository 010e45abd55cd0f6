"""Validates Kafka sources and sinks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from lockgate_proto.messages import KafkaSink, KafkaSource
from lockgate_proto.operators import COMMITS_TOPIC

_SERVER = re.compile(r"[^,\s:@/]+:\d+|\[[0-9a-fA-F:]+\]:\d+")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_OURS = {  # options on which the guarantees depend
    "auto.offset.reset": "the source's offsets are in snapshots, and starting= says where the first ones are",
    "bootstrap.servers": "the servers have their own field",
    "metadata.broker.list": "the servers have their own field",
    "enable.auto.commit": "the source's offsets are in snapshots",
    "enable.auto.offset.store": "the source's offsets are in snapshots",
    "enable.idempotence": "it is always on",
    "enable.partition.eof": "the source needs it",
    "transactional.id": "it is made from the job's run and the operator",
}


def source_problems(source: KafkaSource) -> Iterator[str]:
    """Of a Kafka source, as sentences."""
    yield from _server_problems(source.servers, "reads from")
    if not source.topics:
        yield "reads from Kafka but names no topic."
    for topic in source.topics:
        yield from _topic_problems(topic, "reads from")
    for topic, count in Counter(source.topics).items():
        if count > 1:
            yield f"names the topic '{topic}' {count} times."
    if source.poll_interval_ms < 0:
        yield f"has a poll interval of {source.poll_interval_ms} ms: it cannot be negative."
    yield from _option_problems(source.options)


def sink_problems(sink: KafkaSink) -> Iterator[str]:
    """Of a Kafka sink, as sentences."""
    yield from _server_problems(sink.servers, "writes to")
    if not sink.topic:
        yield "writes to Kafka but names no topic."
    for topic in filter(None, (sink.topic, sink.commits_topic)):
        yield from _topic_problems(topic, "writes to")
    if sink.topic == (sink.commits_topic or COMMITS_TOPIC):
        yield f"records its commits in the topic that it writes to ('{sink.topic}'): they need a separate topic."
    if not sink.value:
        yield "writes to Kafka but names no column for the records' values."
    yield from _option_problems(sink.options)


def _server_problems(servers: str, does: str) -> Iterator[str]:
    if not servers:
        yield f"{does} Kafka but names no servers, for example 'kafka-1:9092,kafka-2:9092'."
    elif not all(_SERVER.fullmatch(part.strip()) for part in servers.split(",")):  # not shown: it may hold a password
        yield f"{does} Kafka at servers that are not host:port, separated by commas."


def _topic_problems(topic: str, does: str) -> Iterator[str]:
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        yield f"{does} the topic '{topic}', but a topic's name has 1 to 249 of A-Z a-z 0-9 . _ -"


def _option_problems(options: Mapping[str, str]) -> Iterator[str]:
    for name in options:
        if name in _OURS:
            yield f"has the option '{name}', which cannot be chosen: {_OURS[name]}."
        elif name.startswith("kafka."):
            yield f"has the option '{name}': write it without 'kafka.'; options are librdkafka's."
