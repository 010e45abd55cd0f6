"""What a subtask runs: the interface between the task loop and the operators compiled for it.

The loop (`runtime`) owns time, channels, barriers and threads; a program (`spark`) owns the operators, their state and
Spark. Records are passed as Arrow tables.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
from lockgate_common.backlog import Backlog
from lockgate_proto.messages import (
    FailurePlace,
    JobGraph,
    OperatorCounters,
    SplitRange,
    SplitState,
    SubtaskId,
    SubtaskState,
    Watermark,
)


class ProgramError(Exception):
    """Base of the errors that a program raises on purpose.

    `str()` is one or more sentences for the pipeline's author.
    """


class UserError(ProgramError):
    """The job itself is wrong (unknown column, unreadable path, wrong type), independent of any record.

    A restart does not help.
    """


class StateRefused(UserError):
    """The state of the author's object cannot be taken or stored, now and after a restart."""


class DataError(ProgramError):
    """An expression, the author's code or a sink rejects certain records. It would reject them again, and accepts
    others.

    text: without the operator; where: the operator's name in messages, put in front. operator_id, column: where known.
    query, fragment: the line of SQL that failed, and the part of it.
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
        """The same error with the operator added."""
        text = f"{self.text} (column '{column}')" if column and f"'{column}'" not in self.text else self.text
        return DataError(
            text, where=where, operator_id=operator_id, column=column, query=self.query, fragment=self.fragment
        )


class Defect(ProgramError):
    """Our own code, Spark or Arrow failed on its input because of a bug."""


class UserCodeFailed(ProgramError):
    """The author's code raised an error that may be transient, such as an OSError: a restart may help.

    is_environmental: its type shows that the record is not the cause.
    """

    def __init__(self, text: str, *, is_environmental: bool = False) -> None:
        super().__init__(text)
        self.is_environmental = is_environmental


class Unavailable(ProgramError):
    """A system that the job uses (a database, a server) is down or refuses for now: a restart may help."""


class StateUnreadable(ProgramError):
    """A state file is missing or corrupt: the operator has to choose what to restore from."""


class StorageUnavailable(ProgramError):
    """The snapshot storage cannot return a snapshot for now. Not a fault of the job; the restore is retried."""


class SnapshotTooLarge(ProgramError):
    """The state does not fit its backend; the checkpoint is declined and the stream continues."""


class Irreproducible(ProgramError):
    """The subtask cannot start again beside others: its chain may make something else of what they have had."""


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
    """A micro-batch has passed through the chain.

    reached_sink: rows that reached a sink operator of this chain (0 without a sink);
    watermark: of a source, its event time after these records; None when unchanged;
    read_rows, read_bytes, ranges: of a source, the input read for them;
    held_back_ms: of `advance`, how much older than that watermark the records emitted later may be;
    has_more: this is one portion, `go_on` returns the next; is_settled: a snapshot taken between these portions
    contains what is still to be emitted.
    """

    emissions: tuple[Emission, ...] = ()
    reached_sink: int = 0
    watermark: Watermark | None = None
    read_rows: int = 0
    read_bytes: int = 0
    held_back_ms: int = 0
    has_more: bool = False
    is_settled: bool = True
    ranges: tuple[SplitRange, ...] = ()


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing to read now: poll again after `wait_ms`, or when splits are assigned.

    is_held: there is, but a checkpoint has to be complete first.
    """

    wait_ms: int
    is_held: bool = False


@dataclass(frozen=True, slots=True)
class Exhausted:
    """Every split is read to its end and no more will be added."""


@dataclass(frozen=True, slots=True)
class AtWork:
    """What a program is doing now. what: names the operator; since_ms: the time spent in this call so far."""

    what: str
    since_ms: int


Poll = Batch | Idle | Exhausted


@dataclass(slots=True)
class EngineTime:
    """What the engine's jobs of one subtask have taken, retries included. Only its own thread writes it."""

    jobs: int = 0
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """One job has ended."""
        self.jobs, self.seconds = self.jobs + 1, self.seconds + seconds


@dataclass(frozen=True, slots=True)
class ProgramContext:
    """Everything a program is built from.

    checkpoint_directory: URI; the program writes state under `chk-<id>/` in it.
    restore: this subtask's part of the restored checkpoint, None on a fresh start.
    is_warmup: the program only warms up plans for a later one: its sinks write nothing. is_beside: the subtask starts
    again beside others that run on, and exchanges records with them; received: how far each receiver has had its
    splits, if it is that of a source.
    """

    subtask: SubtaskId
    graph: JobGraph
    checkpoint_directory: str
    restore: SubtaskState | None = None
    restored_checkpoint_id: int = 0
    parallelism: Mapping[str, int] = field(default_factory=dict)  # parallelism by vertex id
    is_warmup: bool = False
    is_beside: bool = False
    received: Sequence[Mapping[str, int]] = ()
    engine_time: EngineTime = field(default_factory=EngineTime, compare=False)

    @property
    def copied_run(self) -> str:
        """The run id if task managers keep local copies of its state files, else ""."""
        attempt = self.subtask.attempt
        return attempt.run_id if self.graph.standby_replicas and attempt is not None else ""


@dataclass(frozen=True, slots=True)
class SnapshotOrder:
    """What kind of snapshot to take.

    base_id: a checkpoint that is certainly complete and whose files are kept for now: an increment may build on it and
    on no other. 0: there is none. is_savepoint: the snapshot has to be self-contained.
    """

    base_id: int = 0
    is_savepoint: bool = False


BY_ITSELF = SnapshotOrder()


class Snapshot(Protocol):
    """A frozen, consistent copy of a program's state. `persist` runs on a background thread, once."""

    def persist(self) -> SubtaskState:
        """Uploads the state and returns durable handles. Raises SnapshotTooLarge or OSError; leaves nothing referenced.

        Releases its resources in every case.
        """
        ...

    def release(self) -> None:
        """It will not be persisted: frees memory and scratch files. Idempotent, from any thread."""
        ...


class SubtaskProgram(Protocol):
    """All operators of one subtask. Every method except `cancel` is called from the subtask's own thread."""

    @property
    def is_source(self) -> bool:
        """True when the first operator is a source: `poll` is called, never `process`."""
        ...

    def open(self) -> Batch:
        """Restores state, commits the pending transactions of restored sinks, compiles what can be compiled.

        Returns the prologue: where the output schema is known, one empty table per edge and target, so that downstream
        subtasks compile (and may refuse) before the first record. Raises UserError, StateUnreadable.
        """
        ...

    def assign(self, splits: Sequence[SplitState], complete: bool) -> None:
        """Adds new splits to a source, in order. `complete`: no further ones will be added.

        None and not complete: the splits are assigned, and this subtask has none yet.
        """
        ...

    def poll(self) -> Poll:
        """Runs one adaptively sized micro-batch of a source through the chain. Raises UserError, Canceled."""
        ...

    @property
    def is_behind(self) -> bool:
        """True for a source that has not come yet to where its receivers are, see ProgramContext.received."""
        ...

    @property
    def irreproducible(self) -> str:
        """Why other micro-batches of the records that it has read may give other results, as a clause. From any thread.

        Of what is made again while others run on, see lockgate_proto.parts. "": for no known reason, or not yet known.
        """
        ...

    def backlog(self) -> Backlog:
        """Of a source: what waits, as far as the last polls have shown it. Sends no request, so it is cheap."""
        ...

    def process(self, source_vertex: str, table: pa.Table) -> Batch:
        """Runs a received micro-batch through the chain. An empty table is a prologue: compile, and emit a prologue."""
        ...

    def advance(self, watermark_ms: int) -> Batch:
        """Event time has reached `watermark_ms` for everything received: fires what is due. Never decreases."""
        ...

    def go_on(self) -> Batch:
        """The next portion of a batch that has more, as large as one Spark job should take.

        Until a batch has no more, only `counters` and, after a settled portion, `snapshot` and `commit` are called.
        """
        ...

    def tick(self, unix_ms: int) -> Batch:
        """Sets the wall clock, in milliseconds since 1970, also for the next input: fires what is due.

        Called once for each poll of the input, before all calls of `process` and `advance` that follow from it, so that
        these have one time; and at `wakes_at`. Not after the end of the input. Cheap when nothing is due.
        """
        ...

    def wakes_at(self) -> int | None:
        """When `tick` has to be called even without input; None: never."""
        ...

    def place(self) -> FailurePlace | None:
        """The operator in which the last call failed: asked when another method has raised. None: not known."""
        ...

    def at_work(self) -> AtWork | None:
        """The running call; None between two calls. From any thread."""
        ...

    def warm_up(self) -> None:
        """Runs the compiled plans over no records, so that the first real batch finds them warm."""
        ...

    def finish(self) -> Batch:
        """End of input on every channel: flush. Called once, before `Exhausted` counts as reached."""
        ...

    def snapshot(self, checkpoint_id: int, order: SnapshotOrder = SnapshotOrder()) -> Snapshot:
        """Freezes state in microseconds to milliseconds, independent of the state's size. Sinks seal a transaction."""
        ...

    def commit(self, checkpoint_id: int) -> bool:
        """Makes everything sealed up to `checkpoint_id` visible; True if there was any of it. Idempotent.

        Raises OSError or UserError.
        """
        ...

    def counters(self) -> tuple[OperatorCounters, ...]:
        """Records in and out per operator since the job's first start (restored with the state)."""
        ...

    def cancel(self) -> None:
        """From any thread: interrupts a running Spark job; pending calls raise Canceled. Returns at once."""
        ...

    def close(self) -> None:
        """Releases files and plans. Idempotent.

        Staged output is kept: only a later commit or clean-up decides about it.
        """
        ...


class ProgramFactory(Protocol):
    """Builds programs; one per task manager process."""

    def build(self, context: ProgramContext) -> SubtaskProgram:
        """A program for one subtask, not yet opened. Raises UserError for an operator that is unknown here."""
        ...

    def discover(self, graph: JobGraph, vertex_id: str, known: Collection[str]) -> tuple[tuple[SplitState, ...], bool]:
        """Lists a source's splits beyond `known`; True when no more will ever be added. Raises UserError."""
        ...

    def interrupt_user_code(self, thread: int) -> None:
        """Interrupts the author's code if it is running in the given thread of this process. May be repeated."""
        ...

    def warm_python(self) -> None:
        """Starts a Python worker in advance: it takes a second that the first Python function would wait for. Never
        raises.

        Call it while nothing runs here. A job with Python functions starts one itself, in its warm-up too.
        """
        ...
