"""A word count without Spark: FakeFactory builds programs that keep everything in dicts.

What the sinks have made visible and where tests want trouble stands in one World, shared by every program.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from lockgate_common.backlog import Backlog
from lockgate_proto.messages import (
    ConsoleSink,
    Edge,
    GeneratorSource,
    JobGraph,
    KeyedAggregate,
    Operator,
    OperatorCounters,
    OperatorState,
    Partitioning,
    SplitState,
    StateHandle,
    StateKind,
    SubtaskState,
    Vertex,
    Watermark,
)
from lockgate_taskmanager.task.program import (
    AtWork,
    Batch,
    Canceled,
    Emission,
    Exhausted,
    Idle,
    Poll,
    ProgramContext,
    Snapshot,
    SnapshotOrder,
    SubtaskProgram,
    UserError,
)

WORDS = 13
SCHEMA = pa.schema([("word", pa.string())])


def word(split: str, position: int) -> str:
    """The record at one position of a split."""
    return f"w{(int(split) * 7 + position) % WORDS}"


def expected(rows: int, splits: int) -> dict[str, int]:
    """The counts of the whole input."""
    counts: dict[str, int] = {}
    for split in range(splits):
        for position in range(rows):
            counts[word(str(split), position)] = counts.get(word(str(split), position), 0) + 1
    return counts


def word_count_graph(parallelism: int = 2) -> JobGraph:
    """words --HASH--> count, with a sink at the end of count."""
    return JobGraph(
        name="word count",
        vertices=(
            Vertex("words", "words", parallelism, 128, (Operator("read", kind=GeneratorSource()),)),
            Vertex(
                "count",
                "count",
                parallelism,
                128,
                (Operator("sum", kind=KeyedAggregate(keys=("word",))), Operator("show", kind=ConsoleSink())),
            ),
        ),
        edges=(Edge("words", "count", Partitioning.HASH, ("word",)),),
    )


@dataclass
class World:
    """What the test sees and what it wants to go wrong."""

    batch_rows: int = 10
    limit: int | None = None  # sources pause at this position of every split
    limits: dict[str, int] = field(default_factory=dict)  # and at this one of some
    visible: dict[str, int] = field(default_factory=dict)
    opened: list[ProgramContext] = field(default_factory=list)
    closed: list[ProgramContext] = field(default_factory=list)
    process_gate: threading.Event = field(default_factory=threading.Event)  # cleared: count blocks in process()
    # by subtask, when there are any: each call of process() with records needs one
    permits: dict[int, threading.Semaphore] = field(default_factory=dict)
    ignores_cancel: bool = False
    lost_interrupts: int = 0  # so many calls of cancel() come when nothing runs yet that they could stop
    fail_process: Exception | None = None
    fail_open: Exception | None = None
    fail_persist: Exception | None = None
    persist_gate: threading.Event = field(default_factory=threading.Event)
    event_time: bool = False  # sources send watermarks: the least position that a split of theirs has come to
    # of count: subtask, event time, words received until then
    watermarks: list[tuple[int, int, int]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    # one source subtask emits this many bytes more per row
    padding: int = 0

    def __post_init__(self) -> None:
        self.process_gate.set()
        self.persist_gate.set()


class FakeFactory:
    """A ProgramFactory."""

    def __init__(self, world: World) -> None:
        self.world = world

    def build(self, context: ProgramContext) -> SubtaskProgram:
        return (WordSource if context.subtask.vertex_id == "words" else WordCount)(self.world, context)

    def discover(self, graph: JobGraph, vertex_id: str, known: Sequence[str]) -> tuple[tuple[SplitState, ...], bool]:
        """Splits "0" and "1" of 100 rows."""
        if not any(vertex.id == vertex_id for vertex in graph.vertices):
            raise UserError(f"no vertex {vertex_id}")
        return tuple(SplitState(name, 0, 100) for name in ("0", "1") if name not in known), True

    def interrupt_user_code(self, thread: int) -> None:
        """Does nothing: there is no author's code here."""

    def warm_python(self) -> None:
        """There is no Spark here."""


class FakeSnapshot:
    """A Snapshot whose state travels inline."""

    def __init__(self, world: World, state: SubtaskState) -> None:
        self._world, self._state = world, state

    def persist(self) -> SubtaskState:
        self._world.persist_gate.wait(60)
        if self._world.fail_persist is not None:
            raise self._world.fail_persist
        return self._state

    def release(self) -> None: ...


class FakeProgram:
    """What both have in common."""

    is_source = False
    operator = irreproducible = ""

    def __init__(self, world: World, context: ProgramContext) -> None:
        self._world, self._context = world, context
        self._canceled = threading.Event()
        self._records_in = self._records_out = 0

    def counters(self) -> tuple[OperatorCounters, ...]:
        return (OperatorCounters(self.operator, self._records_in, self._records_out),)

    def cancel(self) -> None:
        if self._world.lost_interrupts > 0:
            self._world.lost_interrupts -= 1
        else:
            self._canceled.set()

    def close(self) -> None:
        with self._world.lock:
            self._world.closed.append(self._context)

    def warm_up(self) -> None:
        """Never called for what is deployed."""
        raise AssertionError(f"{self._context.subtask} is deployed, not warmed up")

    def tick(self, unix_ms: int) -> Batch:  # noqa: ARG002
        """Nothing goes by the wall clock."""
        return Batch()

    def place(self) -> None:
        return None

    def at_work(self) -> AtWork | None:
        return None

    def wakes_at(self) -> int | None:
        """Never."""
        return None

    def backlog(self) -> Backlog:
        """Unknown."""
        return Backlog()

    def advance(self, watermark_ms: int) -> Batch:
        with self._world.lock:
            self._world.watermarks.append((self._context.subtask.subtask, watermark_ms, self._records_in))
        return Batch()

    def finish(self) -> Batch:
        return Batch()

    def commit(self, checkpoint_id: int) -> bool:  # noqa: ARG002
        return False

    def _note_open(self) -> None:
        with self._world.lock:
            self._world.opened.append(self._context)
        if self._world.fail_open is not None:
            raise self._world.fail_open

    def _restored(self) -> dict[str, object]:
        if self._context.restore is None:
            return {}
        restored = json.loads(self._context.restore.operators[0].handle.inline)
        counters = self._context.restore.counters[0]
        self._records_in, self._records_out = counters.records_in, counters.records_out
        return dict(restored)

    def _frozen(self, content: dict[str, object]) -> Snapshot:
        handle = StateHandle(inline=json.dumps(content).encode())
        me = self._context.subtask
        operators = (OperatorState(self.operator, StateKind.SOURCE_STATE, handle),)
        return FakeSnapshot(self._world, SubtaskState(me.vertex_id, me.subtask, operators, self.counters()))


class WordSource(FakeProgram):
    """Reads generator splits."""

    is_source = True
    operator = "read"

    def __init__(self, world: World, context: ProgramContext) -> None:
        super().__init__(world, context)
        self._splits: dict[str, list[int]] = {}
        self._complete = False

    def open(self) -> Batch:
        self._note_open()
        restored = self._restored()
        self._splits = dict(restored.get("splits", {}))  # type: ignore[call-overload]
        self._complete = bool(restored.get("complete", False))
        count = self._context.parallelism["count"]
        return Batch(tuple(Emission(0, target, SCHEMA.empty_table()) for target in range(count)))

    def assign(self, splits: Sequence[SplitState], complete: bool) -> None:
        for split in splits:
            assert split.split not in self._splits, "assigned twice"
            self._splits[split.split] = [split.offset, split.end]
        self._complete = self._complete or complete

    def poll(self) -> Poll:
        if self._canceled.is_set():
            raise Canceled("canceled")
        for name, (offset, end) in self._splits.items():
            last = min(end, offset + self._world.batch_rows)
            if self._world.limit is not None:
                last = min(last, self._world.limit)
            last = min(last, self._world.limits.get(name, last))
            if offset < last:
                return self._read(name, offset, last)
        done = all(offset >= end for offset, end in self._splits.values())
        return Exhausted() if done and self._complete else Idle(5)

    def backlog(self) -> Backlog:
        """The rows of its splits that it has not read."""
        return Backlog(records=sum(end - offset for offset, end in self._splits.values()))

    def process(self, source_vertex: str, table: pa.Table) -> Batch:
        """Never called for a source."""
        raise AssertionError(f"{source_vertex} sent {table.num_rows} rows to a source")

    def snapshot(self, checkpoint_id: int, order: SnapshotOrder) -> Snapshot:  # noqa: ARG002
        return self._frozen({"splits": {k: list(v) for k, v in self._splits.items()}, "complete": self._complete})

    def _read(self, name: str, offset: int, last: int) -> Batch:
        self._splits[name][0] = last
        self._records_out += last - offset
        count = self._context.parallelism["count"]
        rows: dict[int, list[str]] = {}
        for position in range(offset, last):
            text = word(name, position)
            rows.setdefault(zlib.crc32(text.encode()) % count, []).append(text + " " * self._world.padding)
        emissions = tuple(Emission(0, target, pa.table({"word": words})) for target, words in rows.items())
        if not self._world.event_time:
            return Batch(emissions)
        open_ones = [offset for offset, end in self._splits.values() if offset < end]
        return Batch(emissions, watermark=Watermark(min(open_ones, default=last) - 1))


class WordCount(FakeProgram):
    """Counts, and shows the counts at each commit."""

    operator = "sum"

    def __init__(self, world: World, context: ProgramContext) -> None:
        super().__init__(world, context)
        self._counts: dict[str, int] = {}
        self._changed: dict[str, int] = {}
        self._pending: list[tuple[int, dict[str, int]]] = []

    def open(self) -> Batch:
        self._note_open()
        restored = self._restored()
        self._counts = dict(restored.get("counts", {}))  # type: ignore[call-overload]
        self._pending = [(number, dict(rows)) for number, rows in restored.get("pending", [])]  # type: ignore[attr-defined]
        self.commit(self._context.restored_checkpoint_id)
        return Batch()

    def assign(self, splits: Sequence[SplitState], complete: bool) -> None:
        """Never called here."""
        raise AssertionError(f"{splits} {complete}")

    def poll(self) -> Poll:
        """Never called here."""
        raise AssertionError("not a source")

    def process(self, source_vertex: str, table: pa.Table) -> Batch:
        assert source_vertex == "words"
        while not self._world.process_gate.wait(0.01):
            if self._canceled.is_set() and not self._world.ignores_cancel:
                raise Canceled("canceled")
        permits = self._world.permits.get(self._context.subtask.subtask)
        while permits is not None and table.num_rows and not permits.acquire(timeout=0.01):
            if self._canceled.is_set():
                raise Canceled("canceled")
        if self._world.fail_process is not None and table.num_rows:
            raise self._world.fail_process
        for value in table.column("word").to_pylist():
            key = value.rstrip()
            self._counts[key] = self._counts.get(key, 0) + 1
            self._changed[key] = self._counts[key]
        self._records_in += table.num_rows
        return Batch(reached_sink=table.num_rows)

    def snapshot(self, checkpoint_id: int, order: SnapshotOrder) -> Snapshot:  # noqa: ARG002
        self._pending.append((checkpoint_id, self._changed))
        self._changed = {}
        return self._frozen({"counts": dict(self._counts), "pending": list(self._pending)})

    def commit(self, checkpoint_id: int) -> bool:
        due = any(number <= checkpoint_id for number, _ in self._pending)
        with self._world.lock:
            for number, rows in self._pending:
                if number <= checkpoint_id:
                    self._world.visible.update(rows)
        self._pending = [item for item in self._pending if item[0] > checkpoint_id]
        return due
