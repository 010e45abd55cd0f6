"""Rows as records of a Kafka topic as they arrive: at least once.

A snapshot waits until Kafka has acknowledged everything that was written before its barrier. After a failure later
records are written again.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from lockgate_proto.messages import KafkaSink as KafkaOptions
from lockgate_proto.messages import SinkTransaction

from lockgate_taskmanager.spark.kafka_client import Kafka
from lockgate_taskmanager.spark.sinks.kafka_rows import produce, records, require_topic
from lockgate_taskmanager.spark.sinks.transaction import Pending, Sink, SinkContext
from lockgate_taskmanager.state.backend import SnapshotWriter
from lockgate_taskmanager.task.program import ProgramError, StateUnreadable, Unavailable

_FLUSH_TIMEOUT_S = 60.0


class DirectKafkaSink(Sink):
    """Writes at least once. A record that Kafka did not accept fails the attempt: no later snapshot may skip it."""

    def __init__(self, context: SinkContext, options: KafkaOptions) -> None:
        """Raises UserError for options that cannot be used."""
        super().__init__(context)
        self._options = options
        self._kafka = Kafka(options.servers, options.options, context.where, context.limits)
        self._producer: Any = None
        self._failure: ProgramError | None = None

    def prepare(self, schema: pa.Schema) -> None:
        records(schema.empty_table(), self._options, self.context.where)
        if self._producer is None:
            require_topic(self._kafka, self._options.topic, self.context.where)
            self._producer = self._kafka.producer(**{"delivery.report.only.error": True, "on_delivery": self._refused})

    def write(self, table: pa.Table) -> None:
        with self._kafka.explained("did not accept a record"):
            produce(self._producer, self._options.topic, records(table, self._options, self.context.where))
            self._producer.poll(0)
        self._require_taken()

    def close(self) -> None:
        """Records that no snapshot has waited for may be lost, and are written again."""
        if self._producer is not None:
            self._producer.purge()
            self._producer = None

    def flush(self) -> None:
        """Waits until Kafka has acknowledged everything. From any thread. Raises UserError, Unavailable."""
        producer = self._producer
        if producer is None or producer.flush(_FLUSH_TIMEOUT_S):
            raise Unavailable(f"{self.context.where}: Kafka did not accept all records within {_FLUSH_TIMEOUT_S:g} s")
        self._require_taken()

    def _refused(self, error: Any, message: Any) -> None:
        del message
        if error is not None and self._failure is None:
            self._failure = self._kafka.failed("did not accept a record", error)

    def _require_taken(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _seal(self, checkpoint_id: int) -> Pending | None:
        return _Flush(self, checkpoint_id) if self._producer is not None else None

    def _commit(self, pending: Pending) -> None:
        """Everything is in Kafka already."""

    def _commit_restored(self, transaction: SinkTransaction) -> None:
        if transaction.rows is not None:
            raise StateUnreadable(
                f"checkpoint {transaction.checkpoint_id} has output for {self.context.where} that may not be in Kafka;"
                ' start it with mode="exactly_once", as it was'
            )


class _Flush:
    """Nothing is pending, but the snapshot has to wait."""

    def __init__(self, sink: DirectKafkaSink, checkpoint_id: int) -> None:
        self._sink = sink
        self._checkpoint_id = checkpoint_id

    @property
    def checkpoint_id(self) -> int:
        return self._checkpoint_id

    def persist(self, writer: SnapshotWriter) -> SinkTransaction:  # noqa: ARG002
        self._sink.flush()
        owner = self._sink.context.owner
        return SinkTransaction(
            checkpoint_id=self._checkpoint_id, subtask=owner.subtask, job_key=owner.job_key, run_id=owner.run_id
        )
