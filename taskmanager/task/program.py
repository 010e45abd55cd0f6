"""What a subtask runs: the interface between the task loop and the operators compiled for it.

The loop (taskmanager.runtime) owns time, channels, barriers and threads; a program (taskmanager.spark) owns the
operators, their state and Spark. Records cross as Arrow tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
from lockgate_proto.messages import (
    FailurePlace,
    JobGraph,
    OperatorCounters,
    SplitState,
    SubtaskId,
    SubtaskState,
    Watermark,
)


class ProgramError(Exception):
    """Base of what a program raises on purpose. `str()` is one or more sentences for the pipeline's author."""


class UserError(ProgramError):
    """The job itself is wrong (unknown column, unreadable path, wrong type), which is known without any record.

    A restart cannot help.
    """


class DataError(ProgramError):
    """An expression, the author's code or a sink refuses records: it would refuse them again, and takes others.

    text: without the operator; where: how messages call the operator, put in front. operator_id, column: where known.
    query, fragment: the line of SQL that Spark was at, and the part of it.
    """

    def __init__(
        self,
        text: str,
        *,
        where: str = "",
        operator_id: str = "",
        column: str = "",
        query: str = "",
        fragment: str = "",
    ) -> None:
        super().__init__(f"{where}: {text}" if where else text)
        self.text = text
        self.operator_id, self.column = operator_id, column
        self.query, self.fragment = query, fragment

    def at(self, where: str, operator_id: str, column: str = "") -> DataError:
        """The same, once it is known which operator it was."""
        text = f"{self.text} (column '{column}')" if column and f"'{column}'" not in self.text else self.text
        return DataError(
            text, where=where, operator_id=operator_id, column=column, query=self.query, fragment=self.fragment
        )


class Defect(ProgramError):
    """What runs the operators fails by a mistake of its own, on what it was given."""


class UserCodeFailed(ProgramError):
    """The author's code has raised what may pass, such as an OSError: a restart may help."""


class Unavailable(ProgramError):
    """What the job talks to (a database, a server) is away or refuses for now: a restart may help."""


class StateUnreadable(ProgramError):
    """A state file is missing or corrupt: an operator has to choose what to restore from."""


class SnapshotTooLarge(ProgramError):
    """The state does not fit its backend; the checkpoint is declined and the stream goes on."""


class Canceled(ProgramError):
    """The work was interrupted by `SubtaskProgram.cancel`."""


@dataclass(frozen=True, slots=True)
class Emission:
    """Records for one downstream subtask over one edge.

    edge: index into `JobGraph.edges`; target: downstream subtask index;
    table: its rows (may be empty only in the prologue, which carries the schema).
    """

    edge: int
    target: int
    table: pa.Table


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch has gone through the chain.

    reached_sink: rows that reached a sink operator of this chain (0 where the chain has none);
    watermark: of a source, how far event time has come behind these records; None for nothing new;
    read_rows, read_bytes: of a source, what it has read for them;
    held_back_ms: of `advance`, how much older than that watermark the records that leave later may be;
    has_more: this is a portion, `go_on` gives the next one; is_settled: a snapshot taken between these holds what is
    still to come.
    """

    emissions: tuple[Emission, ...] = ()
    reached_sink: int = 0
    watermark: Watermark | None = None
    read_rows: int = 0
    read_bytes: int = 0
    held_back_ms: int = 0
    has_more: bool = False
    is_settled: bool = True


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing to read now: ask again after `wait_ms`, or when splits are assigned."""

    wait_ms: int


@dataclass(frozen=True, slots=True)
class Exhausted:
    """Every split is read to its end and no further one will come."""


@dataclass(frozen=True, slots=True)
class AtWork:
    """What a program is doing at this moment. what: names the operator; since_ms: for so long in this call."""

    what: str
    since_ms: int


Poll = Batch | Idle | Exhausted


@dataclass(frozen=True, slots=True)
class ProgramContext:
    """Everything a program is built from.

    checkpoint_directory: URI; the program writes state under `chk-<id>/` in it.
    restore: this subtask's part of the restored checkpoint, None on a fresh start.
    is_rehearsal: the program is built to be warm for a later one: its sinks touch nothing.
    """

    subtask: SubtaskId
    graph: JobGraph
    checkpoint_directory: str
    restore: SubtaskState | None = None
    restored_checkpoint_id: int = 0
    parallelism: Mapping[str, int] = field(default_factory=dict)  # vertex id to parallelism
    is_rehearsal: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotOrder:
    """What kind of snapshot is wanted.

    base_id: a checkpoint that is certainly complete and whose files stay for now: what is stored may build on it, or on
    nothing but itself. 0: there is none. is_savepoint: it has to be whole by itself.
    """

    base_id: int = 0
    is_savepoint: bool = False


BY_ITSELF = SnapshotOrder()


class Snapshot(Protocol):
    """A frozen, consistent copy of a program's state. `persist` runs on a background thread, once."""

    def persist(self) -> SubtaskState:
        """Uploads and returns the handles, durable. Raises SnapshotTooLarge or OSError; leaves nothing referenced.

        Releases what it holds, whatever happens.
        """
        ...

    def release(self) -> None:
        """It will not be persisted: lets go of memory and scratch files. Idempotent, from any thread."""
        ...


class SubtaskProgram(Protocol):
    """All operators of one subtask. Every method but `cancel` is called from the subtask's own thread."""

    @property
    def is_source(self) -> bool:
        """True when the first operator is a source: `poll` is called, never `process`."""
        ...

    def open(self) -> Batch:
        """Restores state, commits what the restored sinks had pending, compiles what can be compiled.

        Returns the prologue: where the output schema is known, one empty table per edge and target, so that
        downstream subtasks compile (and refuse) before the first record. Raises UserError, StateUnreadable.
        """
        ...

    def assign(self, splits: Sequence[SplitState], complete: bool) -> None:
        """Adds splits to a source; unknown before, in order. `complete`: no further ones will come.

        None and not complete: the leader has dealt, and there is none for this subtask yet.
        """
        ...

    def poll(self) -> Poll:
        """Runs one micro-batch of a source through the whole chain; sized adaptively. Raises UserError, Canceled."""
        ...

    def process(self, source_vertex: str, table: pa.Table) -> Batch:
        """Runs a received micro-batch through the chain. An empty table is a prologue: compile, emit the own one."""
        ...

    def advance(self, watermark_ms: int) -> Batch:
        """Event time has come to `watermark_ms` behind everything received: fires what is due. Never falls."""
        ...

    def go_on(self) -> Batch:
        """The next portion behind a batch that has more, as large as one Spark job may well take.

        Until a batch has no more, nothing else is called but `counters` and, behind a settled one, `snapshot` and
        `commit`.
        """
        ...

    def tick(self, unix_ms: int) -> Batch:
        """The wall clock says so, milliseconds since 1970, also to what is processed next: fires what is due.

        Called before `process` and `advance`, and when `wakes_at` has come; not after the end of the input. Costs next
        to nothing where nothing is due.
        """
        ...

    def wakes_at(self) -> int | None:
        """When `tick` wants to be called although nothing has come in; None: it need not be."""
        ...

    def place(self) -> FailurePlace | None:
        """Where it is at work: asked when one of the other methods has raised. None: that says nothing."""
        ...

    def at_work(self) -> AtWork | None:
        """The call that it is in; None between two. From any thread."""
        ...

    def rehearse(self) -> None:
        """Runs what is compiled over no records, so that the first real batch finds it warm."""
        ...

    def finish(self) -> Batch:
        """End of input on every channel: flush. Called once, before `Exhausted` counts as reached."""
        ...

    def snapshot(self, checkpoint_id: int, order: SnapshotOrder = SnapshotOrder()) -> Snapshot:
        """Freezes state: microseconds to milliseconds, never proportional to the state. Sinks seal a transaction."""
        ...

    def commit(self, checkpoint_id: int) -> None:
        """Makes everything sealed up to `checkpoint_id` visible. Idempotent. Raises OSError or UserError."""
        ...

    def counters(self) -> tuple[OperatorCounters, ...]:
        """Records in and out per operator since the job's first start (restored with the state)."""
        ...

    def cancel(self) -> None:
        """From any thread: interrupts a running Spark job; pending calls raise Canceled. Returns at once."""
        ...

    def close(self) -> None:
        """Releases files and plans. Idempotent. Staged output stays: only a later commit or cleanup decides on it."""
        ...


class ProgramFactory(Protocol):
    """Builds programs; one per task manager process."""

    def build(self, context: ProgramContext) -> SubtaskProgram:
        """A program for one subtask, not yet opened. Raises UserError when an operator is unknown here."""
        ...

    def discover(self, graph: JobGraph, vertex_id: str, known: Sequence[str]) -> tuple[tuple[SplitState, ...], bool]:
        """Lists a source's splits beyond `known`; True when none will ever be added. Raises UserError."""
        ...

    def warm_python(self) -> None:
        """Starts a Python worker, which takes a second that a first Python function need not wait for. Never raises.

        For a time when nothing runs here. A job with Python functions does it by itself, also in its rehearsal.
        """
        ...
