"""A job of thousands of subtasks in the simulation, and what its leaders have to do for it. Counted, not timed."""

from __future__ import annotations

import contextlib
from collections import Counter
from cProfile import Profile
from dataclasses import dataclass, replace
from itertools import pairwise
from pstats import Stats
from typing import Any, cast

from lockgate_proto.messages import AssignSplits, CheckpointMetadata, Deploy, Edge, JobResult, Partitioning

from tests.simulation.coordinator import installed
from tests.simulation.crowd import SINK, SOURCE, CrowdTaskManager, begins, sealed
from tests.simulation.job import SimulatedJob, ledger, source, transform
from tests.simulation.oracle import Oracle
from tests.simulation.orders import Order
from tests.simulation.simulation import Outcome, Run, Scenario
from tests.simulation.taskmanager import TaskPlan, replacements

JOB = "job-0"
SLOTS = 10  # of each task manager
MIDDLE = ("map", "filter")
VERTICES = (SOURCE, *MIDDLE, SINK)
INTERVAL_MS = 1_000
SPARE = 1  # task managers
FAULTS = ((3_700.0, "kill_leader"), (5_800.0, "kill_task_manager"))
CANCEL = (9_300.0, Order(cancel=True))
_COUNTED = ("/lockgate_coordinator/", "/lockgate_ha/", "/lockgate_common/", "/lockgate_proto/")


def crowd_job(slots: int) -> SimulatedJob:
    """Four vertices in so many slots, between which no record crosses."""
    vertices = [source(SOURCE, slots, 0, slots), *(transform(name, slots) for name in MIDDLE), ledger(SINK, slots)]
    edges = [Edge(before, behind, Partitioning.FORWARD) for before, behind in pairwise(VERTICES)]
    wide = tuple(replace(vertex, max_parallelism=max(slots, vertex.max_parallelism)) for vertex in vertices)
    return SimulatedJob(JOB, wide, tuple(edges), INTERVAL_MS, timeout_ms=10_000)


def crowd_scenario(subtasks: int, seed: int = 1) -> Scenario:
    """Some checkpoints, the death of the leader, then that of a task manager, and a cancel; checkpoints in between."""
    slots = subtasks // len(VERTICES)
    return Scenario(
        seed,
        task_managers=slots // SLOTS + SPARE,
        faults=FAULTS,
        orders=(CANCEL,),
        job=crowd_job(slots),
        reattach=True,
        plan=TaskPlan(slots=SLOTS),
    )


class CrowdOracle(Oracle):
    """The same of the invariants, but for records: there are none."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        vertices = self._jobs[JOB].vertices
        self._wanted = {(vertex.id, index) for vertex in vertices for index in range(vertex.parallelism)}
        self._sinks = tuple(index for name, index in self._wanted if name == SINK)

    def _check_cut(self, job: SimulatedJob, metadata: CheckpointMetadata) -> None:
        found = Counter((state.vertex_id, state.subtask) for state in metadata.subtasks)
        if found.keys() != self._wanted or found.total() != len(self._wanted):
            different = sorted(found.keys() ^ self._wanted)[:3]
            self._world.violate(f"[1] checkpoint {metadata.checkpoint_id}: {found.total()} subtasks, {different}")
        self._durable |= {sealed(job.key, metadata.checkpoint_id, index) for index in self._sinks}

    def _check_upserts(self, *_: Any) -> None:
        """There are no tables."""

    def given_out(self, order: AssignSplits) -> None:
        """Splits begin at their beginning [3]. See TakeoverOracle as well."""
        if any(split.offset for split in order.splits):
            self._world.violate(f"[3] {order} skips records")

    def shaped(self, deploy: Deploy) -> None:
        """Counts what begins, once for each attempt."""
        if deploy.attempt is None or deploy.attempt in self._shaped:
            return
        self._shaped.add(deploy.attempt)
        slots = [slot for found in begins(deploy.layout).values() for slot in found]
        self.begun.update((name, slot) for name in VERTICES for slot in slots)

    def _check_cancelled(self, key: str, result: JobResult) -> None:
        """All processes live and have answered: every sink shows the newest checkpoint [5]."""
        newest = self._newest(key)
        behind = [index for index in self._sinks if self._visible.get((key, SINK, index)) != newest]
        if behind or result.error:
            self._world.violate(f"[5] {key} has ended, and {len(behind)} sinks are behind {newest}: {result.error}")


class CrowdRun(Run):
    """A cluster of such task managers."""

    oracle_class = CrowdOracle
    task_manager_class = CrowdTaskManager

    def kill_task_manager(self) -> None:
        """SIGKILL of one that runs something."""
        next(tm for tm in self.task_managers.values() if tm.is_alive and tm.deployments.running()).crash()


@dataclass(frozen=True)
class Work:
    """calls: made by the coordinators' code, also those of built-in functions; checkpoints: completed ones."""

    outcome: Outcome
    checkpoints: int
    calls: int


def work_of(subtasks: int, seed: int = 1) -> Work:
    """Runs the scenario. Raises Violation."""
    run = CrowdRun(crowd_scenario(subtasks, seed))
    run.world.most_events = run.world.most_a_second = 100_000 + 20 * subtasks
    profile = Profile()
    with contextlib.closing(run.disks), installed(run.world, replacements(run.world)):
        profile.enable()
        try:
            outcome = run.go()
        finally:
            profile.disable()
    return Work(outcome, len(run.oracle.completed[JOB]), calls_in(profile))


def calls_in(profile: Profile) -> int:
    """Calls of functions of the coordinators, and by them."""
    found = cast("Any", Stats(profile)).stats
    total = 0
    for (file, _, _), (_, calls, _, _, callers) in found.items():
        if _is_counted(file):
            total += calls
        elif file == "~":  # built in
            total += sum(numbers[0] for (caller, _, _), numbers in callers.items() if _is_counted(caller))
    return total


def _is_counted(file: str) -> bool:
    return any(part in file for part in _COUNTED)
