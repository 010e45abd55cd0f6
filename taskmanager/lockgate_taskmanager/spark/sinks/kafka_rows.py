"""Rows as Kafka records: a key and a value, both bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from lockgate_proto.messages import KafkaSink as KafkaOptions

from lockgate_taskmanager.spark.kafka_client import Kafka
from lockgate_taskmanager.task.program import DataError, UserError

_FULL_WAIT_S = 0.1
_OVERHEAD_BYTES = 36  # what librdkafka adds for lengths, offset and time when it judges a record's size


def records(table: pa.Table, options: KafkaOptions, where: str) -> pa.Table:
    """The columns `key`, if the sink has one, and `value`, as bytes. Raises UserError."""
    chosen = {"key": options.key, "value": options.value} if options.key else {"value": options.value}
    return pa.table({name: _bytes(table, column, name, where) for name, column in chosen.items()})


def require_sizes(rows: pa.Table, most_bytes: int, where: str) -> None:
    """Raises DataError for a record that librdkafka does not take. most_bytes: its `message.max.bytes`."""
    if not rows.num_rows:
        return
    sizes = [pc.fill_null(pc.binary_length(column), 0).cast(pa.int64()) for column in rows.columns]
    longest = pc.max(sizes[0] if len(sizes) == 1 else pc.add(*sizes)).as_py() + _OVERHEAD_BYTES
    if longest > most_bytes:
        raise DataError(
            f"a record has {longest:,} bytes, and the option message.max.bytes allows {most_bytes:,}: filter such rows"
            " out, or raise it here and in the topic (max.message.bytes)",
            where=where,
        )


def produce(producer: Any, topic: str, rows: pa.Table, may_wait: Callable[[], None], **settings: Any) -> None:
    """Sends records in order; waits while the producer's queue is full. Raises KafkaException.

    may_wait: called before each wait; what it raises ends the call. settings: of every record, for `Producer.produce`.
    """
    values = rows.column("value").to_pylist()
    keys = rows.column("key").to_pylist() if "key" in rows.column_names else [None] * len(values)
    for key, value in zip(keys, values, strict=True):
        while True:
            try:
                producer.produce(topic, value=value, key=key, **settings)
                break
            except BufferError:
                may_wait()
                producer.poll(_FULL_WAIT_S)


def require_topic(kafka: Kafka, topic: str, where: str) -> None:
    """Raises UserError when the topic does not exist."""
    consumer = kafka.consumer()
    try:
        if not kafka.partitions(consumer, topic):
            raise UserError(f"{where}: Kafka has no topic {topic}; create it first")
    finally:
        consumer.close()


def _bytes(table: pa.Table, column: str, role: str, where: str) -> pa.ChunkedArray:
    if column not in table.column_names:
        columns = ", ".join(table.column_names)
        raise UserError(f"{where}: unknown {role} column '{column}'; the columns are: {columns}")
    found = table.column(column)
    kind = found.type
    if not any(is_it(kind) for is_it in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)):
        raise UserError(
            f"{where}: the {role} column '{column}' is {kind}, but Kafka takes STRING or BINARY: cast it, or write"
            f" to_json(struct(*)) AS {column} for whole rows"
        )
    return found.cast(pa.binary())
