"""Custom sinks: `Stream.write_to(sink)`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING

from lockgate_proto.transactions import Transaction

if TYPE_CHECKING:
    import pyarrow as pa


class CustomSink(ABC):
    """Stages rows invisibly, and makes them visible when their checkpoint is complete.

        rows --stage--> durable, invisible --commit--> visible
                                 |----------abort----> gone

    Pickled once, and used by every subtask of the sink in a copy of its own. Calls never overlap, but come from several
    threads. Each method except `staged` may be called again with the same transaction, by another process on another
    machine, and must then have no further effect. `lockgate.testing.check_sink` tests that.

    An exception in `stage` fails the checkpoint, elsewhere the attempt: the job restarts according to its restart
    strategy, and shows the exception's text.
    """

    def open(self) -> None:  # noqa: B027  most sinks need nothing
        """Called on the task manager before any other method: the place to connect."""

    @abstractmethod
    def stage(self, transaction: Transaction, rows: pa.Table) -> None:
        """Stores all rows of a transaction: durable on return, and invisible. Replaces rows staged for it earlier.

        A process that dies may leave it half done; such a transaction is never committed.
        """

    @abstractmethod
    def commit(self, transaction: Transaction) -> None:
        """Makes the staged rows visible atomically. Does nothing when they were committed before."""

    @abstractmethod
    def abort(self, transaction: Transaction) -> None:
        """Removes staged or partially staged rows. Does nothing when there are none, or they were committed."""

    @abstractmethod
    def staged(self) -> Iterable[str]:
        """Names (`Transaction.name`) of transactions that are fully or partially staged, and neither committed nor
        aborted.

        For all subtasks and jobs: leftovers of dead attempts are recognized by their names.
        """

    def close(self) -> None:  # noqa: B027  most sinks hold nothing
        """Called when the subtask ends; not when its process dies. Staged rows stay."""
