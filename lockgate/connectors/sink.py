"""A sink of the author's own: `Stream.write_to(sink)`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING

from lockgate_proto.transactions import Transaction

if TYPE_CHECKING:
    import pyarrow as pa


class CustomSink(ABC):
    """Stages rows where nobody sees them, and shows them when their checkpoint is complete.

        rows --stage--> durable, invisible --commit--> visible
                                 |----------abort----> gone

    Pickled once, and used by every subtask of the sink in a copy of its own. Calls never overlap, but come from several
    threads. Each method but `staged` may be called again with the same transaction, by another process on another
    machine, and then has to leave things as they are. `lockgate.testing.check_sink` tries that.

    An exception is a fault. In `stage` it fails the checkpoint, elsewhere the attempt: the job restarts, as its restart
    strategy says, and shows the exception's text.
    """

    def open(self) -> None:  # noqa: B027  most sinks need nothing
        """Called on the task manager before anything else: the place to connect."""

    @abstractmethod
    def stage(self, transaction: Transaction, rows: pa.Table) -> None:
        """Keeps all rows of a transaction, durable when it returns, and invisible. Replaces what it had staged before.

        The end of a process may leave it half done; such a transaction is never committed.
        """

    @abstractmethod
    def commit(self, transaction: Transaction) -> None:
        """Shows what is staged, all of it at once. Nothing happens when it was committed before."""

    @abstractmethod
    def abort(self, transaction: Transaction) -> None:
        """Removes what is staged, or half staged. Nothing happens when there is nothing, or when it was committed."""

    @abstractmethod
    def staged(self) -> Iterable[str]:
        """Names (`Transaction.name`) of what is staged, or half staged, and neither committed nor aborted.

        Of all subtasks and jobs: which of them are left over from attempts that died is found out by their names.
        """

    def close(self) -> None:  # noqa: B027  most sinks hold nothing
        """Called when the subtask ends; not when its process dies. What is staged stays."""
