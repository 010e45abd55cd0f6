"""Rows as records of a Kafka topic, in one Kafka transaction for each checkpoint.

Another process cannot take over a Kafka transaction, so rows wait in the snapshot. The commit writes them together with
a record in the ledger (see `kafka_ledger`) that names the checkpoint: a repeated commit finds it and does nothing. Its
producer is named after the subtask that staged the rows, and Kafka lets only the newest producer of a name write: once
it is initialized, no other process can be in the middle of the same commit, and the ledger is conclusive.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from lockgate_proto.messages import KafkaSink as KafkaOptions
from lockgate_proto.messages import SinkTransaction

from lockgate_taskmanager.spark import faults
from lockgate_taskmanager.spark.kafka_client import Kafka
from lockgate_taskmanager.spark.sinks.kafka_ledger import KafkaLedger, LedgerPlace
from lockgate_taskmanager.spark.sinks.kafka_rows import produce, records, require_sizes, require_topic
from lockgate_taskmanager.spark.sinks.transaction import Owner, Pending, RowsPending, Sink, SinkContext, restored_rows
from lockgate_taskmanager.state.backend import SnapshotWriter
from lockgate_taskmanager.task.program import StateUnreadable, UserError

_COMMIT_TIMEOUT_S = 60.0
_ABORT_TIMEOUT_S = 2.0
_LOOK_S = 0.5  # how often a wait looks for a cancel


class KafkaSink(Sink):
    """Writes exactly once. Connects when the schema is known, or when a restored transaction has to be committed."""

    def __init__(self, context: SinkContext, options: KafkaOptions) -> None:
        """Raises UserError for options that cannot be used."""
        super().__init__(context)
        self._options = options
        self._kafka = Kafka(options.servers, options.options, context.where, context.limits)
        self._ledger = KafkaLedger(
            self._kafka, options.commits_topic, context.operator_id, context.where, self.require_live
        )
        self._place: LedgerPlace | None = None
        self._open: list[pa.Table] = []
        self._producers: dict[Owner, Any] = {}
        # of the subtasks that have a producer here; only this process adds to it
        self._committed: dict[Owner, int] = {}
        self._newest: dict[Owner, int] = {}  # the highest restored checkpoint with something to commit

    def prepare(self, schema: pa.Schema) -> None:
        records(schema.empty_table(), self._options, self.context.where)
        self._connect()

    def write(self, table: pa.Table) -> None:
        """Also refuses a record that is too large: at the commit, its checkpoint would be complete already."""
        if table.num_rows:
            rows = records(table, self._options, self.context.where)
            require_sizes(rows, self._kafka.most_record_bytes, self.context.where)
            self._open.append(rows)

    def close(self) -> None:
        self._producers.clear()
        self._committed.clear()

    def _connect(self) -> LedgerPlace:
        if self._place is None:
            require_topic(self._kafka, self._options.topic, self.context.where)
            self._place = self._ledger.end()
        return self._place

    def _seal(self, checkpoint_id: int) -> Pending | None:
        opened, self._open = self._open, []
        return _KafkaPending(self.context, checkpoint_id, opened, self._connect()) if opened else None

    def _commit(self, pending: Pending) -> None:
        assert isinstance(pending, _KafkaPending)
        self._show(pending.table, pending.checkpoint_id, self.context.owner, pending.place)

    def restore(self, transactions: Sequence[SinkTransaction]) -> None:
        """Makes the producers that are needed, then commits.

        A dead attempt may have left transactions open, which block reading the ledger; making a producer of its name
        aborts one. So all producers are made before anything waits for the ledger. And only the necessary ones: a run
        that continues after its savepoint must not be disturbed for transactions that it has committed.
        """
        places = {
            id(transaction): self._place_of(transaction) for transaction in transactions if transaction.rows is not None
        }
        needed = [
            transaction
            for transaction in transactions
            if id(transaction) in places and self._is_missing(transaction, places[id(transaction)])
        ]
        for transaction in sorted(needed, key=lambda checkpoint: checkpoint.checkpoint_id):
            owner = self.context.owner_of(transaction)
            self._make_producer(owner)
            self._newest[owner] = transaction.checkpoint_id
        super().restore(needed)

    def _commit_restored(self, transaction: SinkTransaction) -> None:
        rows = restored_rows(transaction)
        if rows is not None:
            place = self._place_of(transaction)
            self._show(rows, transaction.checkpoint_id, self.context.owner_of(transaction), place)

    def _place_of(self, transaction: SinkTransaction) -> LedgerPlace:
        """The ledger position of its commit, if it is committed. Raises StateUnreadable, UserError."""
        here, place = self._connect(), LedgerPlace.parse(transaction.name)
        if place is None:
            raise StateUnreadable(
                f"checkpoint {transaction.checkpoint_id} has output of another kind of sink for {self.context.where};"
                " start it with the same kind of sink as before"
            )
        if (place.cluster, place.topic) != (here.cluster, here.topic):
            raise UserError(
                f"{self.context.where}: the snapshot has output for the Kafka cluster {place.cluster}, whose commits"
                f" are recorded in its topic {place.topic}, and the sink has {here.cluster} and {here.topic}; start "
                "with the servers and the commits_topic that it had"
            )
        return place

    def _is_missing(self, transaction: SinkTransaction, place: LedgerPlace) -> bool:
        """False when a first look at the ledger finds the commit."""
        owner, wanted = self.context.owner_of(transaction), transaction.checkpoint_id
        return self._ledger.committed(owner, place.offset, wanted, waits=False) < wanted

    def _show(self, rows: pa.Table, checkpoint_id: int, owner: Owner, place: LedgerPlace) -> None:
        """Writes the rows unless they are committed.

        owner: the subtask that staged them, in a rescaled job possibly another one.
        """
        try:
            producer = self._make_producer(owner)
            if owner not in self._committed:  # not before there is a producer, see the module docstring
                newest = self._newest.get(owner, checkpoint_id)
                self._committed[owner] = self._ledger.committed(owner, place.offset, newest)
            if self._committed[owner] < checkpoint_id:
                self._write(producer, rows, owner, checkpoint_id)
                self._committed[owner] = checkpoint_id
        except BaseException:
            self._give_up(owner)
            raise

    def _make_producer(self, owner: Owner) -> Any:
        """The only producer of the owner's name that may write from now on."""
        if owner not in self._producers:
            name = f"lockgate/{owner.job_key}/{owner.run_id}/{self.context.operator_id}/{owner.subtask}"
            producer = self._kafka.producer(**{"transactional.id": name})
            with self._kafka.explained("did not accept the sink's producer"):
                self._patiently(producer.init_transactions)
            self._producers[owner] = producer
        return self._producers[owner]

    def _write(self, producer: Any, rows: pa.Table, owner: Owner, checkpoint_id: int) -> None:
        with self._kafka.explained(f"did not accept the rows of checkpoint {checkpoint_id}"):
            producer.begin_transaction()
            produce(producer, self._options.topic, rows, self.require_live)
            self._note(producer, owner, checkpoint_id)
            # the commit would flush, too; a process can die here with all records in Kafka
            deadline = time.monotonic() + _COMMIT_TIMEOUT_S
            while producer.flush(_LOOK_S) and time.monotonic() < deadline:
                self.require_live()
            faults.point("inside-commit")
            self._patiently(producer.commit_transaction)

    def _patiently(self, call: Callable[[float], object]) -> None:
        """Calls it with short timeouts; librdkafka goes on where it was. Raises KafkaException, Canceled."""
        deadline = time.monotonic() + _COMMIT_TIMEOUT_S
        while True:
            self.require_live()
            try:
                call(_LOOK_S)
            except Exception as error:
                if not self._kafka.has_timed_out(error) or time.monotonic() > deadline:
                    raise
            else:
                return

    def _note(self, producer: Any, owner: Owner, checkpoint_id: int) -> None:
        """Writes the ledger record. Records of later checkpoints will follow it."""

        def noted(error: Any, message: Any) -> None:
            if error is None and self._place is not None:
                self._place = replace(self._place, offset=max(self._place.offset, message.offset()))

        key, note = self._ledger.key(owner), str(checkpoint_id).encode()
        producer.produce(self._ledger.topic, key=key, value=note, partition=0, on_delivery=noted)

    def _give_up(self, owner: Owner) -> None:
        """Aborts a transaction that a failed commit has left open, if possible; otherwise the next producer of the name
        does.
        """
        producer = self._producers.pop(owner, None)
        self._committed.pop(owner, None)
        if producer is not None:
            with contextlib.suppress(Exception):
                producer.abort_transaction(_ABORT_TIMEOUT_S)


class _KafkaPending(RowsPending):
    """Rows, and the ledger position after which the record of their commit will be."""

    def __init__(
        self, context: SinkContext, checkpoint_id: int, opened: Sequence[pa.Table], place: LedgerPlace
    ) -> None:
        super().__init__(context, checkpoint_id, pa.concat_tables(opened))
        self.place = place

    def persist(self, writer: SnapshotWriter) -> SinkTransaction:
        return replace(super().persist(writer), name=self.place.name)
