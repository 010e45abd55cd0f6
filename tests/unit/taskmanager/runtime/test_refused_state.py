"""A state that cannot be stored ends its subtask, also while that waits for input."""

from __future__ import annotations

import threading
from concurrent import futures
from typing import Any

import pytest
from lockgate_common.backlog import Backlog
from lockgate_common.story_log import Outside
from lockgate_proto.messages import (
    AttemptId,
    DeclineCheckpoint,
    FailureCause,
    FailurePlace,
    JobGraph,
    SubtaskId,
    SubtaskPhase,
    SubtaskReport,
    TriggerCheckpoint,
    Vertex,
)
from lockgate_taskmanager.runtime.output_set import OutputSet
from lockgate_taskmanager.runtime.subtask_task import SubtaskTask
from lockgate_taskmanager.task.program import Batch, Idle, ProgramContext, StateRefused

from tests.unit.taskmanager.runtime.stories_of import story_of

WAIT_S = 60.0
ATTEMPT = AttemptId("job", "run", 1)


class Snapshot:
    """It is refused while it is stored, when the subtask waits for input again."""

    def __init__(self, waits: threading.Event) -> None:
        self._waits = waits

    def persist(self) -> Any:
        assert self._waits.wait(WAIT_S)
        raise StateRefused("its state cannot be pickled")

    def release(self) -> None: ...


class Waiting:
    """A source that has nothing to read for an hour. is_early: its state is refused at the barrier already."""

    is_source = True

    def __init__(self, is_early: bool) -> None:
        self.is_early, self.is_idle = is_early, threading.Event()

    def open(self) -> Batch:
        return Batch()

    def poll(self) -> Idle:
        self.is_idle.set()
        return Idle(3_600_000)

    def backlog(self) -> Backlog:
        return Backlog()

    def snapshot(self, checkpoint_id: int, order: Any) -> Snapshot:  # noqa: ARG002
        if self.is_early:
            raise StateRefused("its state cannot be pickled")
        self.is_idle.clear()
        return Snapshot(self.is_idle)

    def place(self) -> FailurePlace:
        return FailurePlace("op")

    def wakes_at(self) -> int | None:
        return None

    def counters(self) -> tuple[()]:
        return ()

    def cancel(self) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize("is_early", [True, False])
def test_it_fails_with_the_sentence_and_declines_nothing(is_early: bool) -> None:
    context = ProgramContext(SubtaskId(ATTEMPT, "v", 0), JobGraph("job", (Vertex("v"),)), "")
    program, reports, failed = Waiting(is_early), list[Any](), threading.Event()
    factory: Any = type("Factory", (), {"build": lambda _self, _context: program})()

    def report(body: Any) -> None:
        reports.append(body)
        if isinstance(body, SubtaskReport) and body.phase is SubtaskPhase.SUBTASK_FAILED:
            failed.set()

    with futures.ThreadPoolExecutor(1) as uploads:
        ended = threading.Event()
        task = SubtaskTask(context, [], factory, uploads, report, lambda _: ended.set(), story_of(context))
        task.connect(OutputSet({}, {}))
        task.start()
        assert program.is_idle.wait(WAIT_S)
        task.post(TriggerCheckpoint(ATTEMPT, 1))
        assert failed.wait(WAIT_S), reports
        task.cancel(Outside.PROCESS)
        assert ended.wait(WAIT_S)
    (failure,) = [body for body in reports if isinstance(body, SubtaskReport) and body.cause]
    assert failure.cause is FailureCause.USER_ERROR
    assert "its state cannot be pickled" in failure.error
    assert failure.place is not None
    assert failure.place.operator_id == ("op" if is_early else ""), "it is at other records meanwhile"
    assert not any(isinstance(body, DeclineCheckpoint) for body in reports)
