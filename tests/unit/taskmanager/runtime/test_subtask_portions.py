"""What a program puts out in portions: barriers, room and the end of the attempt are looked at between them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import Any

import pytest
from lockgate_common.story_log import Outside
from lockgate_proto.messages import (
    AttemptId,
    Barrier,
    CheckpointMode,
    CheckpointOptions,
    EndOfInput,
    JobGraph,
    SubtaskId,
    SubtaskPhase,
    SubtaskReport,
    SubtaskState,
    Vertex,
    Watermark,
)
from lockgate_taskmanager.barrier.events import BarrierOvertakes
from lockgate_taskmanager.exchange.elements import ChannelId
from lockgate_taskmanager.runtime.output_set import OutputSet
from lockgate_taskmanager.runtime.subtask_task import SubtaskTask
from lockgate_taskmanager.task.program import Batch, ProgramContext

from tests.unit.taskmanager.runtime.stories_of import story_of

WAIT_S = 60.0


class Stored:
    """A snapshot that is there at once."""

    def persist(self) -> SubtaskState:
        return SubtaskState("v", 0)

    def release(self) -> None: ...


class Portioned:
    """A program that puts three portions out at each watermark, and writes down what it is asked for."""

    is_source = False

    def __init__(self, story: list[str], is_settled: bool, meanwhile: Callable[[], None]) -> None:
        """meanwhile: what happens while the first portion is made."""
        self.story, self.is_settled, self.meanwhile = story, is_settled, meanwhile
        self._left = 0

    def open(self) -> Batch:
        return Batch()

    def tick(self, unix_ms: int) -> Batch:  # noqa: ARG002
        return Batch()

    def wakes_at(self) -> None: ...

    def advance(self, watermark_ms: int) -> Batch:
        self.story.append(f"advance {watermark_ms}")
        self._left = 2
        self.meanwhile()
        return Batch(has_more=True, is_settled=self.is_settled)

    def finish(self) -> Batch:
        return self.advance(-1)

    def go_on(self) -> Batch:
        self._left -= 1
        self.story.append("go on")
        return Batch(has_more=self._left > 0, is_settled=self.is_settled or not self._left)

    def snapshot(self, checkpoint_id: int, order: Any = None) -> Stored:  # noqa: ARG002
        self.story.append(f"snapshot {checkpoint_id}")
        return Stored()

    def commit(self, checkpoint_id: int) -> bool:  # noqa: ARG002
        return False

    def counters(self) -> tuple[()]:
        return ()

    def cancel(self) -> None: ...

    def close(self) -> None: ...


class Downstream:
    """An output channel that writes down what is sent, and has room or not."""

    is_accepted = True

    def __init__(self, story: list[str]) -> None:
        self.story = story
        self.room = True
        self.was_asked = threading.Event()
        self.has_watermark, self.has_barrier = threading.Event(), threading.Event()

    def start(self) -> None: ...

    def send(self, element: Any) -> None:
        self.story.append(f"send {type(element).__name__}")
        if isinstance(element, Watermark):
            self.has_watermark.set()

    def has_room(self) -> bool:
        if not self.room:
            self.was_asked.set()
        return self.room

    def overtake(self, barrier: Barrier) -> tuple[()]:
        self.story.append(f"barrier {barrier.checkpoint_id}")
        self.has_barrier.set()
        return ()

    def cancel(self) -> None: ...


class TestingSubtask:
    """A subtask in the middle of a job whose barriers overtake."""

    def __init__(self, folder: Path, *, is_settled: bool = True) -> None:
        self.story: list[str] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.exhausted, self.ended = threading.Event(), threading.Event()
        program = Portioned(self.story, is_settled, lambda: self.meanwhile())
        options = CheckpointOptions(mode=CheckpointMode.UNALIGNED)
        graph = JobGraph("job", (Vertex("v"),), checkpoints=options)
        context = ProgramContext(SubtaskId(AttemptId("job", "run", 1), "v", 0), graph, str(folder))
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
        self.behind = Downstream(self.story)
        self.task.connect(OutputSet({("down", 0): self.behind}, {0: "down"}))  # type: ignore[dict-item]
        self.task.start()

    def report(self, body: Any) -> None:
        if isinstance(body, SubtaskReport) and body.phase is SubtaskPhase.SUBTASK_EXHAUSTED:
            self.exhausted.set()

    def barrier(self) -> None:
        self.task.post(BarrierOvertakes(Barrier(1, unaligned=True)))

    def close(self) -> None:
        self.task.cancel(Outside.PROCESS)
        assert self.ended.wait(WAIT_S)
        self.uploads.shutdown()


def test_a_barrier_is_looked_at_between_two_portions_that_are_settled(tmp_path: Path) -> None:
    testing = TestingSubtask(tmp_path)
    try:
        testing.meanwhile = testing.barrier
        testing.task.gate.put(0, Watermark(7))
        assert testing.behind.has_watermark.wait(WAIT_S)
        assert testing.story == ["advance 7", "snapshot 1", "barrier 1", "go on", "go on", "send Watermark"]
    finally:
        testing.close()


def test_a_barrier_waits_for_the_last_portion_where_they_are_not_settled(tmp_path: Path) -> None:
    testing = TestingSubtask(tmp_path, is_settled=False)
    try:
        testing.meanwhile = testing.barrier
        testing.task.gate.put(0, Watermark(7))
        testing.task.gate.put(0, EndOfInput())
        assert testing.exhausted.wait(WAIT_S)
        assert testing.story[:4] == ["advance 7", "go on", "go on", "send Watermark"]
        assert testing.story[4:6] == ["snapshot 1", "barrier 1"]
    finally:
        testing.close()


def test_the_next_portion_is_made_when_there_is_room_and_a_barrier_need_not_wait_for_it(tmp_path: Path) -> None:
    testing = TestingSubtask(tmp_path)
    try:
        testing.meanwhile = lambda: setattr(testing.behind, "room", False)
        testing.task.gate.put(0, Watermark(7))
        assert testing.behind.was_asked.wait(WAIT_S)
        testing.barrier()
        assert testing.behind.has_barrier.wait(WAIT_S)
        assert testing.story == ["advance 7", "snapshot 1", "barrier 1"]
        testing.behind.room = True
        testing.task.gate.wake()
        assert testing.behind.has_watermark.wait(WAIT_S)
        assert testing.story[3:] == ["go on", "go on", "send Watermark"]
    finally:
        testing.close()


def test_at_the_end_of_the_input_a_barrier_follows_all_records(tmp_path: Path) -> None:
    testing = TestingSubtask(tmp_path)
    try:
        testing.meanwhile = testing.barrier
        testing.task.gate.put(0, EndOfInput())
        assert testing.behind.has_barrier.wait(WAIT_S)
        assert testing.story == ["advance -1", "go on", "go on", "send EndOfInput", "snapshot 1", "barrier 1"]
    finally:
        testing.close()


@pytest.mark.parametrize("is_settled", [True, False])
def test_a_cancelled_subtask_makes_no_further_portion(tmp_path: Path, is_settled: bool) -> None:
    testing = TestingSubtask(tmp_path, is_settled=is_settled)
    testing.meanwhile = testing.task.cancel
    testing.task.gate.put(0, Watermark(7))
    assert testing.ended.wait(WAIT_S)
    assert testing.story == ["advance 7"]
    testing.close()
