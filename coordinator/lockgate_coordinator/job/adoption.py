"""The running attempt that an earlier leader has left, as its task managers report it.

A new leader adopts it when every subtask of the job still runs where the record of the attempt says; otherwise it
starts another attempt from the newest completed checkpoint. Until it decides, reports of the subtasks are noted here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lockgate_proto.messages import (
    AttemptId,
    AttemptProgress,
    AttemptRecord,
    CheckpointCommitted,
    JobGraph,
    LeaderFailover,
    SubtaskId,
    SubtaskPhase,
    SubtaskProgress,
    SubtaskReport,
)

from lockgate_coordinator.graph.bounds import MAX_PARALLELISM
from lockgate_coordinator.graph.execution_graph import SubtaskKey
from lockgate_coordinator.graph.shape import committers, subtasks
from lockgate_coordinator.graph.slots import SlotOffer
from lockgate_coordinator.job.events import Committed, Gone, Report, Reported

MAX_SPLIT_BYTES = 16 << 20
"""Names of the splits that were assigned in the attempt: they have to fit into a message to their lister."""

_RUNS = frozenset({SubtaskPhase.SUBTASK_RUNNING, SubtaskPhase.SUBTASK_EXHAUSTED})
_ENDS = frozenset({SubtaskPhase.SUBTASK_FAILED, SubtaskPhase.SUBTASK_CANCELED})
_STATES = {
    SubtaskPhase.SUBTASK_PHASE_UNSPECIFIED: "had not started",
    SubtaskPhase.SUBTASK_FAILED: "has failed",
    SubtaskPhase.SUBTASK_CANCELED: "was cancelled",
}


class Adoption:
    """What task managers report under this leader before it knows, or begins, the job's attempt."""

    def __init__(self, graph: JobGraph) -> None:
        self._vertices = frozenset(vertex.id for vertex in graph.vertices)
        self._found: dict[str, dict[AttemptId, AttemptProgress]] = {}  # by task manager
        # By task manager, in reports, which may come before a registration.
        self._phase: dict[str, dict[SubtaskId, SubtaskPhase]] = {}
        self._committed: dict[str, dict[SubtaskId, int]] = {}

    def found(self, task_manager_id: str, progress: AttemptProgress | None) -> None:
        """A task manager has registered and still runs an attempt of the job."""
        if progress is not None and progress.attempt is not None:
            self._found.setdefault(task_manager_id, {})[progress.attempt] = progress

    def reported(self, task_manager_id: str, report: Report) -> None:
        """A report of a subtask, or that nothing of an attempt runs there any more."""
        match report:
            case Reported(SubtaskReport(SubtaskId() as subtask, phase)) if self._is_possible(subtask):
                phases = self._phase.setdefault(task_manager_id, {})
                phases[subtask] = max(phase, phases.get(subtask, phase))
            case Committed(CheckpointCommitted(SubtaskId() as subtask, number)) if self._is_possible(subtask):
                committed = self._committed.setdefault(task_manager_id, {})
                committed[subtask] = max(number, committed.get(subtask, number))
            case Gone(gone=gone):
                if gone.attempt is not None:
                    self._found.get(task_manager_id, {}).pop(gone.attempt, None)

    def lost(self, task_manager_id: str) -> None:
        """Its process has ended, or left."""
        for known in (self._found, self._phase, self._committed):
            known.pop(task_manager_id, None)

    def subtasks(self, ids: Sequence[AttemptId], places: Sequence[str]) -> Mapping[SubtaskKey, SubtaskProgress]:
        """How far the subtasks of the attempt are that run where they were placed.

        ids: of the attempt in which the subtasks in slot i began; places: task manager of slot i.
        """
        return {
            (item.vertex_id, item.subtask): self._now(name, attempt, item)
            for name, found in self._found.items()
            for attempt, progress in found.items()
            for item in progress.subtasks
            if item.vertex_id in self._vertices and _place(places, item.subtask) == name
            if 0 <= item.subtask < len(ids) and ids[item.subtask] == attempt
        }

    def problem(
        self,
        found: Mapping[SubtaskKey, SubtaskProgress],
        ids: Sequence[AttemptId],
        places: Sequence[str],
        graph: JobGraph,
        slots: Sequence[SlotOffer],
        objection: str,
    ) -> str:
        """Why the attempt cannot be adopted, in words; "" when it can.

        found: the answer of `subtasks`; ids, places: as there; graph: normalized. slots: those that the job has been
        granted. objection: what else stands against it.
        """
        if objection:
            return objection
        for then, slot in zip(places, slots, strict=False):
            if then != slot.task_manager_id:
                missing = f"{then} has not come back in time, or has no slot for it any more"
                return missing if then else "a task manager of the attempt is gone"
        wanted = subtasks(graph)
        for key in wanted:
            name = f"{key[0]}-{key[1]}"
            if key not in found:
                return f"no task manager has reported how far {name} is"
            if found[key].phase not in _RUNS:
                return f"{name} {_STATES.get(found[key].phase, 'is in a state that is unknown here')}"
        if stray := self._stray(ids, places):
            return stray
        if sum(len(split.split) for item in found.values() for split in item.assigned) > MAX_SPLIT_BYTES:
            return "its sources have been assigned too many splits"
        return "the job has another parallelism now" if len(found) != len(set(wanted)) else ""

    def committed_id(self, found: Mapping[SubtaskKey, SubtaskProgress], places: Sequence[str], graph: JobGraph) -> int:
        """The newest checkpoint that every sink has committed as far as is known, 0 for none. As `problem`."""
        sinks = committers(graph)
        there = {vertex for vertex, _ in sinks}
        if {key for key in found if key[0] in there} != set(sinks) or not self._found.keys() >= set(places):
            return 0  # a sink, perhaps of another parallelism, has not been heard of
        return min((found[key].committed_id for key in sinks), default=0)

    def _stray(self, ids: Sequence[AttemptId], places: Sequence[str]) -> str:
        """A subtask of a slot that has begun again since, beside those that run on: its cancellation has not arrived.

        It would take every message to them for its own, and commit what the newer one reads again.
        """
        for name, attempt in sorted(set(zip(places, ids, strict=False)), key=lambda item: (item[0], item[1].attempt)):
            progress = self._found.get(name, {}).get(attempt)
            for item in progress.subtasks if progress is not None else ():
                if 0 <= item.subtask < len(ids) and ids[item.subtask].attempt > attempt.attempt:
                    what = f"{item.vertex_id}-{item.subtask} of attempt {attempt.attempt}"
                    return f"{name} still runs {what}, which has been replaced"
        return ""

    def _now(self, task_manager_id: str, attempt: AttemptId, item: SubtaskProgress) -> SubtaskProgress:
        phases, committed = self._phase.get(task_manager_id, {}), self._committed.get(task_manager_id, {})
        if not phases and not committed:
            return item
        key = SubtaskId(attempt, item.vertex_id, item.subtask)
        phase = max(item.phase, phases.get(key, item.phase))
        committed_id = max(item.committed_id, committed.get(key, 0))
        return replace(item, phase=phase, committed_id=committed_id)

    def _is_possible(self, subtask: SubtaskId) -> bool:
        return subtask.vertex_id in self._vertices and 0 <= subtask.subtask < MAX_PARALLELISM


def _place(places: Sequence[str], index: int) -> str:
    return places[index] if 0 <= index < len(places) else ""


def may_go_on(progress: AttemptProgress) -> bool:
    """Whether no subtask of the attempt has ended on this task manager, so that a new leader may adopt it."""
    return not any(item.phase in _ENDS for item in progress.subtasks)


def is_wanted(graph: JobGraph) -> bool:
    """Whether the job's author wants running attempts to be adopted."""
    return graph.leader_failover is LeaderFailover.LEADER_FAILOVER_REATTACH


def slot_ids(newest: AttemptId, record: AttemptRecord) -> tuple[AttemptId, ...]:
    """By slot: the attempt in which its subtasks began. newest: that of the record."""
    numbers = record.slot_attempts or (newest.attempt,) * len(record.task_manager_ids)
    known = {number: replace(newest, attempt=number) for number in set(numbers)}
    return tuple(map(known.__getitem__, numbers))
