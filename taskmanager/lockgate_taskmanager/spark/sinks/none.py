"""Replaces a sink in a warm-up: writes nothing."""

from __future__ import annotations

import pyarrow as pa
from lockgate_proto.messages import SinkTransaction

from lockgate_taskmanager.spark.sinks.transaction import Pending, Sink


class NoSink(Sink):
    """Accepts everything and writes nothing."""

    @property
    def is_transactional(self) -> bool:
        return False

    def prepare(self, schema: pa.Schema) -> None:
        pass

    def write(self, table: pa.Table) -> None:
        pass

    def _seal(self, checkpoint_id: int) -> Pending | None:  # noqa: ARG002
        return None

    def _commit(self, pending: Pending) -> None:
        """Nothing is ever pending."""

    def _commit_restored(self, transaction: SinkTransaction) -> None:
        """Nothing is ever pending."""
