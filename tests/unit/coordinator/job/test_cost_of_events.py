"""What one event costs the leader does not grow with the number of subtasks. Counted, not timed.

Up to 100,000 subtasks: four vertices with a 25,000 subtasks each.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any, Protocol

import pytest
from lockgate_coordinator.graph.slots import (
    RequestSlots,
    RunningAttempt,
    SlotOffer,
    SlotPool,
    SlotsOffered,
    TaskManagerAdded,
)
from lockgate_coordinator.job import effects, events
from lockgate_coordinator.runtime.watch import WatchHub
from lockgate_proto.codec import encode
from lockgate_proto.messages import (
    AttemptProgress,
    AttemptRecord,
    CheckpointCommitted,
    CheckpointOptions,
    FirstRecord,
    GeneratorSource,
    JobEventKind,
    JobGraph,
    JobState,
    LeaderFailover,
    OperatorCounters,
    SubtaskCounters,
    SubtaskLoad,
    SubtaskPhase,
    SubtaskProgress,
    SubtaskReport,
)

from tests.unit.coordinator.driver import Driver
from tests.unit.coordinator.jobs import TOKEN, ack, attempt, subtask, word_count

FEW, MANY = 100, 1_000  # slots
HUGE = 25_000
A_TASK_MANAGER = 5
VERTICES = ("read", "count", "count2", "count3")
MOST = 1.15


class Taker(Protocol):
    """Takes one event after the other."""

    def give(self, event: Any) -> object:
        """Takes one."""
        ...


def wide(parallelism: int) -> JobGraph:
    """A source, and three vertices that count what it reads."""
    graph = word_count(
        GeneratorSource(parallelism),
        parallelism=parallelism,
        checkpoints=CheckpointOptions(interval_ms=1_000, timeout_ms=60_000),
    )
    read, count = graph.vertices
    more = ("count2", "count3")
    return replace(
        graph,
        vertices=(read, count, *(replace(count, id=name, operators=_renamed(count.operators, name)) for name in more)),
        edges=(*graph.edges, *(replace(graph.edges[0], target=name) for name in more)),
        leader_failover=LeaderFailover.LEADER_FAILOVER_REATTACH,
    )


def _renamed(operators: Sequence[Any], name: str) -> tuple[Any, ...]:
    return tuple(replace(operator, id=f"{operator.id}-{name}") for operator in operators)


class WideJob(Driver):
    """A job with many subtasks on many task managers, each event as the runtime hands it over."""

    def __init__(self, parallelism: int, token: int = TOKEN) -> None:
        super().__init__(wide(parallelism), token=token)
        self.keys = [(vertex, index) for vertex in VERTICES for index in range(parallelism)]
        self.names = [f"tm-{index // A_TASK_MANAGER}" for index in range(parallelism)]
        self.offers = tuple(SlotOffer(name, f"{name}:1") for name in self.names)

    def begin(self) -> None:
        """The first attempt is deployed."""
        self.deploy(self.recover().request, self.offers)

    def inherit(self) -> None:
        """Another leader: the attempt runs, and its task managers are about to register."""
        self.request = self.recover(AttemptRecord(attempt=1, task_manager_ids=tuple(self.names))).request

    def registered(self, index: int) -> events.Event:
        """A task manager that runs the attempt."""
        mine = [(vertex, slot) for vertex in VERTICES for slot in self.slots_of(index)]
        subtasks = (SubtaskProgress(*key, SubtaskPhase.SUBTASK_RUNNING, has_assigned=True) for key in mine)
        return events.StillRunning(f"tm-{index}", attempt(), AttemptProgress(attempt(), tuple(subtasks)))

    def slots_of(self, index: int) -> range:
        """The slots of a task manager."""
        return range(index * A_TASK_MANAGER, (index + 1) * A_TASK_MANAGER)

    def said(self, key: tuple[str, int], report: events.Report) -> events.Event:
        return events.TaskManagerReport(f"tm-{key[1] // A_TASK_MANAGER}", report)

    def running(self, key: tuple[str, int]) -> events.Event:
        report = SubtaskReport(subtask=subtask(*key), phase=SubtaskPhase.SUBTASK_RUNNING)
        return self.said(key, events.Reported(report))

    def acknowledged(self, key: tuple[str, int], checkpoint_id: int) -> events.Event:
        return self.said(key, events.Acknowledged(ack(checkpoint_id, *key)))

    def committed(self, key: tuple[str, int], checkpoint_id: int) -> events.Event:
        return self.said(key, events.Committed(CheckpointCommitted(subtask(*key), checkpoint_id)))

    def together(self, index: int, checkpoint_id: int) -> events.Event:
        mine = [(vertex, slot) for vertex in VERTICES for slot in self.slots_of(index)]
        acknowledgements = tuple(events.Acknowledged(ack(checkpoint_id, *key)) for key in mine)
        return events.TaskManagerReports(f"tm-{index}", acknowledgements)

    def heartbeat(self, index: int) -> events.Event:
        mine = [(vertex, slot) for vertex in VERTICES for slot in self.slots_of(index)]
        counted, load = (OperatorCounters("counts", 10, 10),), SubtaskLoad(500, 100, 1, 1, True, True)
        counters = tuple(SubtaskCounters(subtask(*key), counted, load=load) for key in mine)
        return self.said(mine[0], events.CountersReported(counters))

    def start(self) -> None:
        """Every subtask runs."""
        self.begin()
        for key in self.keys:
            self.give(self.running(key))
        assert self.state is JobState.RUNNING


class WaitingPool:
    """The slots of a cluster in which one job waits for the task managers of its attempt."""

    def __init__(self, slots: int) -> None:
        self.pool = SlotPool()
        self.count = slots // A_TASK_MANAGER
        preferred = tuple(f"tm-{index // A_TASK_MANAGER}" for index in range(slots))
        self.last = self.pool.handle(RequestSlots("words", 1, slots, preferred, 500, (), 1, 2_000), 0)

    def give(self, event: TaskManagerAdded) -> object:
        """One task manager registers."""
        self.last = self.pool.handle(event, 0)
        return self.last

    def added(self, index: int) -> TaskManagerAdded:
        """It runs the attempt."""
        running = (RunningAttempt("words", 1, A_TASK_MANAGER),)
        return TaskManagerAdded(f"tm-{index}", f"tm-{index}:1", A_TASK_MANAGER, running=running)


class WatchedJob:
    """A job whose watcher gets what has changed."""

    def __init__(self, job: WideJob) -> None:
        self.job, self.hub = job, WatchHub()
        self.watcher = self.hub.watch(job.master.status(), changes=True)
        self.bytes = [self._sent()]

    def give(self, event: events.Event) -> object:
        """One event, and the status after it."""
        self.job.give(event)
        self.hub.status(self.job.master.status())
        self.bytes.append(self._sent())
        return None

    def _sent(self) -> int:
        shared = self.watcher.take()
        return 0 if shared is None else len(encode(shared.make()))


def steps(master: Taker, these: Sequence[Any]) -> float:
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
    job.begin()
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


def _batches(job: WideJob) -> Sequence[events.Event]:
    """All acknowledgements of one task manager."""
    job.start()
    checkpoint_id = job.trigger()
    count = len(job.names) // A_TASK_MANAGER
    for index in range(count - 10):
        job.give(job.together(index, checkpoint_id))
    return [job.together(index, checkpoint_id) for index in range(count - 10, count - 1)]


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


def _registrations(job: WideJob) -> Sequence[events.Event]:
    job.inherit()
    for index in range(len(job.names) // A_TASK_MANAGER - 10):
        job.give(job.registered(index))
    return [job.registered(len(job.names) // A_TASK_MANAGER - 10 + index) for index in range(9)]


KINDS: tuple[Callable[[WideJob], Sequence[events.Event]], ...] = (
    _reports,
    _heartbeats,
    _first_records,
    _acknowledgements,
    _batches,
    _commits,
    _ticks,
    _registrations,
)


def pool_cost(slots: int) -> float:
    """Instructions for a registration of which a waiting job may hear."""
    waiting = WaitingPool(slots)
    for index in range(waiting.count - 10):
        waiting.give(waiting.added(index))
    return steps(waiting, [waiting.added(waiting.count - 10 + index) for index in range(9)])


def status_cost(slots: int) -> float:
    """Instructions for a heartbeat, and for what a watcher gets after it."""
    job = WideJob(slots)
    job.start()
    for index in range(slots // A_TASK_MANAGER):
        job.give(job.heartbeat(index))
    watched = WatchedJob(job)
    return steps(watched, [job.heartbeat(index) for index in range(3, 13)])


COSTS: tuple[Callable[[int], float], ...] = (pool_cost, status_cost)


def measured(slots: Sequence[int]) -> dict[str, list[float]]:
    """Instructions for an event of each kind, in jobs with so many slots."""
    costs = {}
    for make in KINDS:
        jobs = [WideJob(count) for count in slots]
        costs[make.__name__] = [steps(job, make(job)) for job in jobs]
    for cost in COSTS:
        costs[cost.__name__] = [cost(count) for count in slots]
    return costs


def _measured_elsewhere(*slots: int) -> dict[str, list[float]]:
    """In a process of its own: what traces here may be traced itself, or interrupted."""
    program = f"import json; from {__name__} import measured; print(json.dumps(measured({slots})))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    costs: dict[str, list[float]] = json.loads(found.stdout)
    return costs


@pytest.fixture(scope="module")
def costs() -> dict[str, list[float]]:
    return _measured_elsewhere(FEW, MANY)


NAMES = [make.__name__ for make in (*KINDS, *COSTS)]


def test_what_a_watcher_gets_has_the_size_of_what_has_changed() -> None:
    job = WideJob(MANY)
    job.start()
    watched = WatchedJob(job)
    watched.give(job.heartbeat(3))
    whole, change = watched.bytes
    assert 0 < change < whole / 50


@pytest.mark.parametrize("kind", NAMES)
def test_an_event_costs_the_same_in_a_large_job(kind: str, costs: dict[str, list[float]]) -> None:
    small, large = costs[kind]
    assert small > 0
    assert large <= MOST * small, f"{small:,.0f} instructions for an event with {FEW} slots, {large:,.0f} with {MANY}"


@pytest.mark.slow
@pytest.mark.rotating
@pytest.mark.timeout(600)
def test_an_event_costs_the_same_with_100_000_subtasks() -> None:
    costs = _measured_elsewhere(HUGE // 10, HUGE)
    assert list(costs) == NAMES
    assert {kind: pair for kind, pair in costs.items() if pair[1] > MOST * pair[0]} == {}


@pytest.mark.slow
def test_a_job_of_100_000_subtasks_is_adopted() -> None:
    job = WideJob(HUGE, token=TOKEN + 1)
    job.inherit()
    for index in range(HUGE // A_TASK_MANAGER):
        job.give(job.registered(index))
    job.deploy(job.request, job.offers)
    assert len(job.emitted(JobEventKind.ATTEMPT_ADOPTED)) == 1


def test_the_last_task_manager_of_the_attempt_ends_the_wait_for_slots() -> None:
    waiting = WaitingPool(MANY)
    for index in range(waiting.count):
        assert not any(isinstance(effect, SlotsOffered) for effect in waiting.last)
        waiting.give(waiting.added(index))
    granted = [effect for effect in waiting.last if isinstance(effect, SlotsOffered)]
    assert [len(grant.slots) for grant in granted] == [MANY]
