"""Takes the place of a sink in a rehearsal: touches nothing."""

from __future__ import annotations

import pyarrow as pa
from lockgate_proto.messages import SinkTransaction

from taskmanager.spark.sinks.transaction import Pending, Sink


class NoSink(Sink):
    """See the module."""

    @property
    def is_transactional(self) -> bool:
        """See Sink."""
        return False

    def prepare(self, schema: pa.Schema) -> None:
        """See Sink."""

    def write(self, table: pa.Table) -> None:
        """See Sink."""

    def _seal(self, checkpoint_id: int) -> Pending | None:  # noqa: ARG002
        return None

    def _commit(self, pending: Pending) -> None:
        """Nothing is ever pending."""

    def _commit_restored(self, transaction: SinkTransaction) -> None:
        """Nothing is ever pending."""
