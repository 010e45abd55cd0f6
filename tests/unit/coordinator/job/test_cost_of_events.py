"""What one event costs the leader does not grow with the number of subtasks. Counted, not timed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import pytest
from lockgate_coordinator.graph.slots import SlotOffer
from lockgate_coordinator.job import effects, events
from lockgate_proto.messages import (
    CheckpointCommitted,
    CheckpointOptions,
    FirstRecord,
    GeneratorSource,
    JobState,
    OperatorCounters,
    SubtaskCounters,
    SubtaskLoad,
    SubtaskPhase,
    SubtaskReport,
)

from tests.unit.coordinator.driver import Driver
from tests.unit.coordinator.jobs import ack, subtask, word_count

FEW, MANY = 100, 1_000
A_TASK_MANAGER = 5
MOST = 1.15


class WideJob(Driver):
    """A job with many subtasks on many task managers, each event as the runtime hands it over."""

    def __init__(self, parallelism: int) -> None:
        super().__init__(
            word_count(
                GeneratorSource(parallelism),
                parallelism=parallelism,
                checkpoints=CheckpointOptions(interval_ms=1_000, timeout_ms=60_000),
            )
        )
        self.keys = [(vertex, index) for vertex in ("read", "count") for index in range(parallelism)]
        names = [f"tm-{index // A_TASK_MANAGER}" for index in range(parallelism)]
        self.deploy(self.recover().request, tuple(SlotOffer(name, f"{name}:1") for name in names))

    def said(self, key: tuple[str, int], report: events.Report) -> events.Event:
        return events.TaskManagerReport(f"tm-{key[1] // A_TASK_MANAGER}", report)

    def running(self, key: tuple[str, int]) -> events.Event:
        report = SubtaskReport(subtask=subtask(*key), phase=SubtaskPhase.SUBTASK_RUNNING)
        return self.said(key, events.Reported(report))

    def acknowledged(self, key: tuple[str, int], checkpoint_id: int) -> events.Event:
        return self.said(key, events.Acknowledged(ack(checkpoint_id, *key)))

    def committed(self, key: tuple[str, int], checkpoint_id: int) -> events.Event:
        return self.said(key, events.Committed(CheckpointCommitted(subtask(*key), checkpoint_id)))

    def heartbeat(self, index: int) -> events.Event:
        mine = [key for key in self.keys if key[1] // A_TASK_MANAGER == index]
        counted, load = (OperatorCounters("counts", 10, 10),), SubtaskLoad(500, 100, 1, 1, True, True)
        counters = tuple(SubtaskCounters(subtask(*key), counted, load=load) for key in mine)
        return self.said(mine[0], events.CountersReported(counters))

    def start(self) -> None:
        for key in self.keys:
            self.give(self.running(key))
        assert self.state is JobState.RUNNING


def steps(master: Driver, these: Sequence[events.Event]) -> float:
    """Python instructions for an event, on average."""
    count = 0

    def local(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "opcode"
        return local

    def trace(frame: FrameType, _event: str, _argument: Any) -> Any:
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return local

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for event in these:
            master.give(event)
    finally:
        sys.settrace(before)
    return count / len(these)


def _reports(job: WideJob) -> Sequence[events.Event]:
    for key in job.keys[:-50]:
        job.give(job.running(key))
    return [job.running(key) for key in job.keys[-50:-1]]


def _heartbeats(job: WideJob) -> Sequence[events.Event]:
    job.start()
    return [job.heartbeat(index) for index in range(3, 13)]


def _first_records(job: WideJob) -> Sequence[events.Event]:
    job.start()
    keys = job.keys[-50:]
    return [job.said(key, events.FirstRecordSeen(FirstRecord(subtask(*key), 1))) for key in keys]


def _acknowledgements(job: WideJob) -> Sequence[events.Event]:
    job.start()
    checkpoint_id = job.trigger()
    for key in job.keys[:-50]:
        job.give(job.acknowledged(key, checkpoint_id))
    return [job.acknowledged(key, checkpoint_id) for key in job.keys[-50:-1]]


def _commits(job: WideJob) -> Sequence[events.Event]:
    job.start()
    checkpoint_id = job.trigger()
    for key in job.keys:
        job.give(job.acknowledged(key, checkpoint_id))
    job.persisted(job.one(effects.PersistCheckpoint))
    for key in job.keys[:-50]:
        job.give(job.committed(key, checkpoint_id))
    return [job.committed(key, checkpoint_id) for key in job.keys[-50:]]


def _ticks(job: WideJob) -> Sequence[events.Event]:
    job.start()
    job.trigger()
    return [events.Tick()] * 20


KINDS: tuple[Callable[[WideJob], Sequence[events.Event]], ...] = (
    _reports,
    _heartbeats,
    _first_records,
    _acknowledgements,
    _commits,
    _ticks,
)


def measured() -> dict[str, tuple[float, float]]:
    """Instructions for an event of each kind, in the small and in the large job."""
    costs = {}
    for make in KINDS:
        few, many = WideJob(FEW), WideJob(MANY)
        costs[make.__name__] = steps(few, make(few)), steps(many, make(many))
    return costs


@pytest.fixture(scope="module")
def costs() -> dict[str, tuple[float, float]]:
    """Measured in a process of its own: what traces here may be traced itself, or interrupted."""
    program = f"import json; from {__name__} import measured; print(json.dumps(measured()))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {name: (small, large) for name, (small, large) in json.loads(found.stdout).items()}


@pytest.mark.parametrize("kind", [make.__name__ for make in KINDS])
def test_an_event_costs_the_same_in_a_large_job(kind: str, costs: dict[str, tuple[float, float]]) -> None:
    small, large = costs[kind]
    assert small > 0
    assert large <= MOST * small, f"{small:,.0f} instructions for an event with {FEW} slots, {large:,.0f} with {MANY}"
