"""Timers by the wall clock in a subtask's loop: they fire while no input comes, and not after its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent import futures
from typing import Any

from lockgate_common.story_log import Outside
from lockgate_proto.messages import AttemptId, EndOfInput, JobGraph, SubtaskId, SubtaskPhase, SubtaskReport, Vertex
from lockgate_taskmanager.exchange.elements import ChannelId, Element
from lockgate_taskmanager.runtime.subtask_task import SubtaskTask
from lockgate_taskmanager.task.program import AtWork, Batch, ProgramContext

from tests.unit.taskmanager.runtime.stories_of import story_of

WAIT_S = 60.0


class Alarmed:
    """A program that wakes at one time, and notes when it was called and how often it was asked."""

    is_source = False
    irreproducible = ""

    def __init__(self, wakes_at: int) -> None:
        self.alarm: int | None = wakes_at
        self.ticks: list[int] = []
        self.questions = 0
        self.has_fired = threading.Event()

    def open(self) -> Batch:
        return Batch()

    def tick(self, unix_ms: int) -> Batch:
        self.ticks.append(unix_ms)
        if self.alarm is not None and unix_ms >= self.alarm:
            self.alarm = None
            self.has_fired.set()
        return Batch()

    def place(self) -> None:
        return None

    def at_work(self) -> AtWork | None:
        return None

    def wakes_at(self) -> int | None:
        self.questions += 1
        return self.alarm

    def advance(self, watermark_ms: int) -> Batch:  # noqa: ARG002
        return Batch()

    finish = open

    def counters(self) -> tuple[()]:
        return ()

    def cancel(self) -> None: ...

    def close(self) -> None: ...


class Turns:
    """Stands before a gate's poll and counts how often the loop has come there."""

    def __init__(self, poll: Callable[..., list[tuple[int, Element]]]) -> None:
        self._poll, self._begun, self._changed = poll, 0, threading.Condition()

    def __call__(self, *args: Any) -> list[tuple[int, Element]]:
        with self._changed:
            self._begun += 1
            self._changed.notify_all()
        return self._poll(*args)

    @property
    def begun(self) -> int:
        with self._changed:
            return self._begun

    def reach(self, number: int) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._begun >= number, WAIT_S)


class TestingSubtask:
    """One subtask with one input channel."""

    def __init__(self, program: Alarmed) -> None:
        context = ProgramContext(SubtaskId(AttemptId("job", "run", 1), "v", 0), JobGraph("job", (Vertex("v"),)), "")
        self.exhausted, self.ended = threading.Event(), threading.Event()
        factory: Any = type("Factory", (), {"build": lambda _self, _context: program})()
        self.uploads = futures.ThreadPoolExecutor(1)
        self.task = SubtaskTask(
            context,
            [ChannelId("up", 0)],
            factory,
            self.uploads,
            self.report,
            lambda _: self.ended.set(),
            story_of(context),
        )
        self.turns = Turns(self.task.gate.poll)
        self.task.gate.poll = self.turns  # type: ignore[method-assign]
        self.task.start()

    def report(self, body: Any) -> None:
        if isinstance(body, SubtaskReport) and body.phase is SubtaskPhase.SUBTASK_EXHAUSTED:
            self.exhausted.set()

    def close(self) -> None:
        self.task.cancel(Outside.PROCESS)
        assert self.ended.wait(WAIT_S)
        self.uploads.shutdown()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_a_timer_fires_without_input() -> None:
    program = Alarmed(now_ms() + 50)
    testing = TestingSubtask(program)
    try:
        assert program.has_fired.wait(WAIT_S)
        assert len(program.ticks) < 20, "the loop waits, it does not try again and again"
    finally:
        testing.close()


def test_no_timer_fires_after_the_end_of_the_input() -> None:
    program = Alarmed(now_ms() + 3_600_000)
    testing = TestingSubtask(program)
    try:
        testing.task.gate.put(0, EndOfInput())
        assert testing.exhausted.wait(WAIT_S)
        ticks, questions = len(program.ticks), program.questions
        program.alarm = 0
        before = testing.turns.begun
        for turn in (1, 2):  # the loop may not have been back at the gate yet: the second turn is a whole one
            testing.task.gate.wake()
            assert testing.turns.reach(before + turn)
        assert (len(program.ticks), program.questions) == (ticks, questions)
    finally:
        testing.close()
