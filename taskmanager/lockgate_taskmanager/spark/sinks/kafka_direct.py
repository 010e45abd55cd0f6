"""Rows as records of a Kafka topic as they arrive: at least once.

A snapshot waits until Kafka has acknowledged what was written before its barrier, and for nothing else: where Kafka is
slower than the job, the producer's queue is never empty. After a failure later records are written again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from lockgate_common.amounts import counted
from lockgate_proto.messages import KafkaSink as KafkaOptions
from lockgate_proto.messages import SinkTransaction

from lockgate_taskmanager.spark.kafka_client import Kafka
from lockgate_taskmanager.spark.sinks.kafka_rows import produce, records, require_topic
from lockgate_taskmanager.spark.sinks.transaction import Pending, Sink, SinkContext
from lockgate_taskmanager.state.backend import SnapshotWriter
from lockgate_taskmanager.task.program import ProgramError, StateUnreadable, Unavailable

_STALL_S = 60.0  # without an acknowledgement
_LOOK_S = 0.05


class DirectKafkaSink(Sink):
    """Writes at least once. A record that Kafka did not accept fails the attempt: no later snapshot may skip it."""

    def __init__(self, context: SinkContext, options: KafkaOptions) -> None:
        """Raises UserError for options that cannot be used."""
        super().__init__(context)
        self._options = options
        self._kafka = Kafka(options.servers, options.options, context.where, context.limits)
        self._producer: Any = None
        self._failure: ProgramError | None = None
        self._epochs = [_Epoch()]  # those that Kafka has not acknowledged completely, and the current one

    def prepare(self, schema: pa.Schema) -> None:
        records(schema.empty_table(), self._options, self.context.where)
        if self._producer is None:
            require_topic(self._kafka, self._options.topic, self.context.where)
            self._producer = self._kafka.producer(**{"delivery.report.only.error": False})

    def write(self, table: pa.Table) -> None:
        epoch = self._epochs[-1]

        def acknowledged(error: Any, _message: Any) -> None:
            if error is not None and self._failure is None:
                self._failure = self._kafka.failed("did not accept a record", error)
            epoch.add(-1)  # last: whoever finds nothing left looks for a failure

        rows = records(table, self._options, self.context.where)
        epoch.add(rows.num_rows)
        with self._kafka.explained("did not accept a record"):
            produce(self._producer, self._options.topic, rows, self._require_going, on_delivery=acknowledged)
            self._producer.poll(0)
        self._require_going()

    def close(self) -> None:
        """Records that no snapshot has waited for may be lost, and are written again."""
        if self._producer is not None:
            self._producer.purge()
            self._producer.poll(0)  # without it the producer and what its callbacks hold would never be released
            self._producer = None

    def flush(self, epochs: Sequence[_Epoch]) -> None:
        """Waits until Kafka has acknowledged their records. From any thread. Raises what `write` does."""
        left = sum(epoch.unacknowledged for epoch in epochs)
        deadline = time.monotonic() + _STALL_S
        while left:
            self._require_going()
            producer = self._producer
            if producer is None or time.monotonic() > deadline:
                raise Unavailable(f"{self.context.where}: Kafka did not accept {counted(left, 'record')} in time")
            producer.flush(_LOOK_S)  # unlike a poll, it does not wait for `linger.ms`
            before, left = left, sum(epoch.unacknowledged for epoch in epochs)
            if left < before:
                deadline = time.monotonic() + _STALL_S
        self._require_going()

    def _require_going(self) -> None:
        """Raises Canceled, and what Kafka has refused a record with."""
        self.require_live()
        if self._failure is not None:
            raise self._failure

    def _seal(self, checkpoint_id: int) -> Pending | None:
        if self._producer is None:
            return None
        sealed = [epoch for epoch in self._epochs if epoch.unacknowledged]
        self._epochs = [*sealed, _Epoch()]
        return _Flush(self, checkpoint_id, sealed)

    def _commit(self, pending: Pending) -> None:
        """Everything is in Kafka already."""

    def _commit_restored(self, transaction: SinkTransaction) -> None:
        if transaction.rows is not None:
            raise StateUnreadable(
                f"checkpoint {transaction.checkpoint_id} has output for {self.context.where} that may not be in Kafka;"
                ' start it with mode="exactly_once", as it was'
            )


class _Epoch:
    """Counts what was written between two barriers and is not acknowledged. From any thread."""

    def __init__(self) -> None:
        self.unacknowledged = 0
        self._lock = threading.Lock()

    def add(self, records: int) -> None:
        """Negative for acknowledged ones."""
        with self._lock:
            self.unacknowledged += records


class _Flush:
    """Nothing is pending, but the snapshot has to wait."""

    def __init__(self, sink: DirectKafkaSink, checkpoint_id: int, epochs: Sequence[_Epoch]) -> None:
        self._sink = sink
        self._checkpoint_id = checkpoint_id
        self._epochs = tuple(epochs)

    @property
    def checkpoint_id(self) -> int:
        return self._checkpoint_id

    def persist(self, writer: SnapshotWriter) -> SinkTransaction:  # noqa: ARG002
        self._sink.flush(self._epochs)
        owner = self._sink.context.owner
        return SinkTransaction(
            checkpoint_id=self._checkpoint_id, subtask=owner.subtask, job_key=owner.job_key, run_id=owner.run_id
        )
