"""A state that grows is named in the log, with its operator and size, each time that it has doubled."""

from __future__ import annotations

import logging
import threading
from concurrent import futures
from typing import Any

import pytest
from lockgate_common.backlog import Backlog
from lockgate_common.story_log import Outside
from lockgate_proto.messages import (
    AcknowledgeCheckpoint,
    AttemptId,
    ConsoleSink,
    CountWindow,
    Deduplicate,
    FileSource,
    IntervalJoin,
    JobGraph,
    KeyedAggregate,
    KeyedProcess,
    MemoryBackend,
    Operator,
    OperatorState,
    RecordFunction,
    RocksdbBackend,
    StateBackend,
    StateHandle,
    StateKind,
    SubtaskId,
    SubtaskState,
    TriggerCheckpoint,
    TumblingWindow,
    Vertex,
    Window,
    WindowProcess,
)
from lockgate_taskmanager.runtime.output_set import OutputSet
from lockgate_taskmanager.runtime.snapshot_figures import figures_of
from lockgate_taskmanager.runtime.state_growth import LARGE_BYTES, LARGE_ON_DISK_BYTES, StateGrowth, contents_of
from lockgate_taskmanager.runtime.subtask_task import SubtaskTask
from lockgate_taskmanager.task.effects import Acknowledge
from lockgate_taskmanager.task.program import Batch, Idle, ProgramContext

from tests.unit.taskmanager.runtime.stories_of import story_of

WAIT_S = 60.0
MB = 1 << 20
ATTEMPT = AttemptId("job", "run", 1)
OPERATORS = (Operator("rules", "", RecordFunction()), Operator("totals", "", KeyedAggregate(("k",))))
FILES, ROCKSDB = StateBackend(), StateBackend(RocksdbBackend())


def named(growth: StateGrowth, *sizes: tuple[str, int]) -> list[str]:
    return [sentence.partition(";")[0] for sentence in growth.sentences(sizes)]


def test_each_operator_is_named_once_for_each_doubling() -> None:
    growth = StateGrowth(OPERATORS, FILES)
    assert named(growth, ("totals", LARGE_BYTES - 1), ("rules", 1)) == []
    assert named(growth, ("totals", LARGE_BYTES), ("rules", 1)) == [
        "the state of operator 'totals' has 256.0 MiB, in memory"
    ]
    assert named(growth, ("totals", 2 * LARGE_BYTES - 1), ("rules", 1)) == []
    assert named(growth, ("totals", 9 * LARGE_BYTES), ("rules", 300 * MB)) == [
        "the state of operator 'totals' has 2.2 GiB, in memory",
        "the state of operator 'rules' has 300.0 MiB, in memory",
    ]
    assert named(growth, ("totals", 1), ("rules", 1)) == []
    assert named(growth, ("totals", 15 * LARGE_BYTES), ("rules", 300 * MB)) == []
    assert len(named(growth, ("totals", 16 * LARGE_BYTES), ("rules", 300 * MB))) == 1


def test_in_rocksdb_keyed_state_is_on_the_disk_and_an_objects_is_not() -> None:
    growth = StateGrowth(OPERATORS, ROCKSDB)
    assert named(growth, ("totals", LARGE_ON_DISK_BYTES - 1), ("rules", LARGE_BYTES)) == [
        "the state of operator 'rules' has 256.0 MiB, in memory"
    ]
    assert named(growth, ("totals", LARGE_ON_DISK_BYTES), ("rules", LARGE_BYTES)) == [
        "the state of operator 'totals' has 1.0 GiB, on the disk of the task manager"
    ]


@pytest.mark.parametrize(("most", "text"), [(0, "16.0 MiB"), (16 * MB, "16.0 MiB"), (8 * MB, "8.0 MiB")])
def test_half_of_what_the_memory_backend_allows_is_named_once(most: int, text: str) -> None:
    growth, half = StateGrowth(OPERATORS, StateBackend(MemoryBackend(most))), (most or 16 * MB) // 2
    assert named(growth, ("rules", 1), ("totals", half - 2)) == []
    (sentence,) = growth.sentences([("rules", MB), ("totals", half - MB)])
    assert f"the state has {half / MB:.1f} MiB of the {text} that the memory backend allows a subtask" in sentence
    assert f"{half / MB - 1:.1f} MiB of it in operator 'totals'" in sentence
    assert named(growth, ("rules", MB), ("totals", half)) == []


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (KeyedAggregate(), "every key that ever came; a window, or a process function with a ttl"),
        (KeyedAggregate(window=Window(TumblingWindow(1))), "shorter windows"),
        (WindowProcess(), "shorter windows"),
        (CountWindow(), "the last records of every key"),
        (Deduplicate(), "give deduplicate() a ttl"),
        (Deduplicate(ttl_ms=1), "a shorter one leaves fewer"),
        (IntervalJoin(), "a shorter interval"),
        (KeyedProcess(), "clear states, or declare them with a ttl"),
        (RecordFunction(), "whatever its object adds to it"),
        (FileSource(), "a position for each split"),
        (ConsoleSink(), "not committed yet"),
    ],
)
def test_what_can_be_done_depends_on_the_operator(kind: Any, says: str) -> None:
    assert says in contents_of(Operator("x", "", kind))


def test_a_join_has_the_size_of_both_sides() -> None:
    sides = tuple(
        OperatorState("join", StateKind.KEYED_STATE, StateHandle(path="file", size_bytes=size)) for size in (3, 4)
    )
    done = Acknowledge(1, SubtaskState("v", 0, sides), 1, 1, 1)
    assert figures_of(done).state_bytes == (("join", 7),)


class Grows:
    """A source that waits, whose state is twice as large in each snapshot."""

    is_source = True

    def __init__(self) -> None:
        self.size = LARGE_BYTES // 2

    def open(self) -> Batch:
        return Batch()

    def poll(self) -> Idle:
        return Idle(3_600_000)

    def backlog(self) -> Backlog:
        return Backlog()

    def snapshot(self, checkpoint_id: int, order: Any) -> Grows:  # noqa: ARG002
        self.size *= 2
        return self

    def persist(self) -> SubtaskState:
        handle = StateHandle(path="somewhere", size_bytes=self.size)
        return SubtaskState("v", 1, (OperatorState("totals", StateKind.KEYED_STATE, handle),))

    def release(self) -> None: ...

    def place(self) -> None:
        return None

    def wakes_at(self) -> int | None:
        return None

    def counters(self) -> tuple[()]:
        return ()

    def cancel(self) -> None: ...

    def close(self) -> None: ...


def test_a_subtask_logs_it_with_its_checkpoint(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    graph = JobGraph("job", (Vertex("v", operators=OPERATORS),))
    context = ProgramContext(SubtaskId(ATTEMPT, "v", 1), graph, "")
    program, acknowledged, ended = Grows(), threading.Semaphore(0), threading.Event()
    factory: Any = type("Factory", (), {"build": lambda _self, _context: program})()

    def report(body: Any) -> None:
        if isinstance(body, AcknowledgeCheckpoint):
            acknowledged.release()

    with futures.ThreadPoolExecutor(1) as uploads:
        task = SubtaskTask(context, [], factory, uploads, report, lambda _: ended.set(), story_of(context))
        task.connect(OutputSet({}, {}))
        task.start()
        for checkpoint_id in (1, 2):
            task.post(TriggerCheckpoint(ATTEMPT, checkpoint_id))
            assert acknowledged.acquire(timeout=WAIT_S)
        task.cancel(Outside.PROCESS)
        assert ended.wait(WAIT_S)
    found = [record for record in caplog.records if "the state of" in record.getMessage()]
    assert [record.getMessage().partition(", in")[0] for record in found] == [
        "v[1]: the state of operator 'totals' has 256.0 MiB",
        "v[1]: the state of operator 'totals' has 512.0 MiB",
    ]
    assert [record.checkpoint for record in found] == [1, 2]  # type: ignore[attr-defined]
