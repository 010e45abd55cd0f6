"""An oracle for what a leader decides while a part of a job restarts and the rest runs on.

What it checks holds at any time; it is restarts of a part that could break it, as only there something runs on.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from lockgate_coordinator.graph.slots import RequestSlots, SlotEffect, SlotEvent, SlotPool, SlotsOffered
from lockgate_coordinator.job import effects, events
from lockgate_coordinator.job.job_master import JobMaster
from lockgate_proto.messages import (
    AttemptId,
    CheckpointCommitted,
    Deploy,
    DiscoverSplits,
    JobResult,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    SplitsDiscovered,
    TriggerCheckpoint,
)

from tests.simulation.world import World

DOUBT = "partially committed"
"""In the result of a job of which the leader does not know whether all sinks have committed its newest checkpoint."""


class _Job:
    """What one leader has ordered and heard of one job."""

    def __init__(self, world: World, master: JobMaster) -> None:
        self._world, self._master = world, master
        # By task manager and attempt: checkpoints that were triggered there, and of which no end was announced.
        self._open: defaultdict[tuple[str, AttemptId], set[int]] = defaultdict(set)
        self._asked: dict[tuple[AttemptId, str], int] = {}  # by lister and source: the request that is not answered
        self._sinks: frozenset[tuple[str, int]] = frozenset()
        self._committed: dict[tuple[str, int], int] = {}

    def heard(self, event: events.Event) -> None:
        """Is about to be handled."""
        for single in events.singles(event):
            match single:
                case events.TaskManagerReport(_, events.Committed(committed)):
                    self._has_committed(committed)
                case events.TaskManagerReport(_, events.SplitsFound(found)):
                    self._listed(found)

    def _has_committed(self, committed: CheckpointCommitted) -> None:
        attempt, subtask = self._master.attempts.current, committed.subtask
        if attempt is None or subtask is None or not attempt.owns(subtask):
            return
        if self._sinks != frozenset(attempt.sinks):  # at another parallelism
            self._sinks, self._committed = frozenset(attempt.sinks), {}
        key = (subtask.vertex_id, subtask.subtask)
        self._committed[key] = max(committed.checkpoint_id, self._committed.get(key, 0))

    def _listed(self, found: SplitsDiscovered) -> None:
        if found.attempt is None:
            return
        asked = self._asked.get((found.attempt, found.vertex_id))
        if asked is not None and found.round in (0, asked):  # 0: of a task manager that does not name it
            del self._asked[found.attempt, found.vertex_id]

    def decided(self, wanted: list[effects.Effect]) -> None:
        """Is about to be carried out."""
        for effect in wanted:
            match effect:
                case effects.Send(name, body):
                    self._sends(name, body)
                case effects.PersistResult(result):
                    self._ends(result)

    def _sends(self, name: str, body: Any) -> None:
        match body:
            case TriggerCheckpoint(attempt=AttemptId() as attempt, checkpoint_id=number):
                self._open[name, attempt].add(number)
            case NotifyCheckpointComplete(attempt=AttemptId() as attempt, checkpoint_id=number):
                self._open[name, attempt] = {other for other in self._open[name, attempt] if other > number}
            case NotifyCheckpointAborted(attempt=AttemptId() as attempt, checkpoint_id=number, and_earlier=earlier):
                known = self._open[name, attempt]
                self._open[name, attempt] = {item for item in known if item > number or (item < number and not earlier)}
            case Deploy():
                self._begins()
            case DiscoverSplits(attempt=AttemptId() as attempt, vertex_id=vertex, round=number):
                if self._asked.setdefault((attempt, vertex), number) != number:
                    self._world.violate(f"[3] {name} lists what is new of {vertex}, and its last answer is ignored")

    def _begins(self) -> None:
        """What runs on takes part in nothing any more that what begins does not take part in [1]."""
        attempt = self._master.attempts.current
        assert attempt is not None
        for name in attempt.execution.task_managers():
            for known in attempt.execution.ids_on(name):
                if known != attempt.id and self._open[name, known]:
                    text = f"a part begins in {attempt.id}, and {known} on {name} runs on"
                    self._world.violate(f"[1] {text}: it does not know how {self._open[name, known]} ended")

    def _ends(self, result: JobResult) -> None:
        """A leader that knows that everything is committed does not say that it may not be [5]."""
        checkpoints = self._master.checkpoints()
        newest = checkpoints.newest if checkpoints is not None else None
        if DOUBT not in result.error or newest is None or not self._sinks:
            return
        if all(self._committed.get(key, 0) >= newest.checkpoint_id for key in self._sinks):
            self._world.violate(f"[5] every sink has said that it has committed {newest.checkpoint_id}: {result.error}")


class _Slots:
    """What jobs that keep some of their slots have asked one pool for."""

    def __init__(self, world: World, pool: SlotPool) -> None:
        self._world, self._pool = world, pool
        self._requests: dict[str, RequestSlots] = {}

    def handled(self, event: SlotEvent, found: list[SlotEffect]) -> None:
        """What runs on has the slots in which it runs, as long as their task manager is there [7]."""
        if isinstance(event, RequestSlots):
            self._requests[event.job_key] = event
        for offer in found:
            if isinstance(offer, SlotsOffered) and (request := self._requests.pop(offer.job_key)).keeps:
                there = {known.task_manager_id for known in self._pool.task_managers()}
                self._check(request, offer, there)

    def _check(self, request: RequestSlots, offer: SlotsOffered, there: set[str]) -> None:
        for slot in request.keeps:
            wanted, given = request.preferred[slot], offer.slots[slot].task_manager_id
            if wanted in there and given != wanted:
                text = f"{request.job_key} runs on in slot {slot} of {wanted}"
                self._world.violate(f"[7] {text}, and gets one of {given} in its place")


def watched(world: World) -> list[tuple[Any, str, Any]]:
    """(class, name, replacement): every leader is watched while it decides."""
    handle, handle_slots = JobMaster.handle, SlotPool.handle
    jobs: dict[JobMaster, _Job] = {}
    pools: dict[SlotPool, _Slots] = {}

    def decide(self: JobMaster, event: events.Event, now_ms: int) -> list[effects.Effect]:
        job = jobs.get(self) or jobs.setdefault(self, _Job(world, self))
        job.heard(event)
        wanted = handle(self, event, now_ms)
        job.decided(wanted)
        return wanted

    def give(self: SlotPool, event: SlotEvent, now_ms: int) -> list[SlotEffect]:
        pool = pools.get(self) or pools.setdefault(self, _Slots(world, self))
        found = handle_slots(self, event, now_ms)
        pool.handled(event, found)
        return found

    return [(JobMaster, "handle", decide), (SlotPool, "handle", give)]
