"""The running attempt that an earlier leader has left, as its task managers report it.

A new leader adopts it when every subtask of the job still runs where the record of the attempt says; otherwise it
starts another attempt from the newest completed checkpoint. Until it decides, reports of the subtasks are noted here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lockgate_proto.messages import (
    AttemptId,
    AttemptProgress,
    CheckpointCommitted,
    JobGraph,
    LeaderFailover,
    SubtaskId,
    SubtaskPhase,
    SubtaskProgress,
    SubtaskReport,
)

from lockgate_coordinator.graph.execution_graph import SubtaskKey
from lockgate_coordinator.graph.shape import subtasks
from lockgate_coordinator.graph.slots import SlotOffer
from lockgate_coordinator.job.events import Committed, Gone, Report, Reported

MAX_IN_DOUBT = 1_000
"""Checkpoints since the newest completed one, each of which has to be aborted on every task manager."""

_RUNS = frozenset({SubtaskPhase.SUBTASK_RUNNING, SubtaskPhase.SUBTASK_EXHAUSTED})
_STATES = {
    SubtaskPhase.SUBTASK_PHASE_UNSPECIFIED: "had not started",
    SubtaskPhase.SUBTASK_FAILED: "has failed",
    SubtaskPhase.SUBTASK_CANCELED: "was cancelled",
}


@dataclass(frozen=True, slots=True)
class Doubts:
    """What else may stand against an adoption. in_doubt: checkpoints begun since the newest completed one."""

    has_orders: bool
    in_doubt: int

    def problem(self) -> str:
        """In words; "" for nothing."""
        if self.has_orders:
            return "an order of a client is being carried out"
        return f"{self.in_doubt} checkpoints would have to be aborted" if self.in_doubt > MAX_IN_DOUBT else ""


class Adoption:
    """Of one attempt of the job. places: the task manager of slot i; slot i has subtask i of every vertex."""

    def __init__(self, graph: JobGraph, attempt: AttemptId, places: Sequence[str]) -> None:
        self.attempt = attempt
        self._vertices = frozenset(vertex.id for vertex in graph.vertices)
        self._places = tuple(places)
        self._found: dict[SubtaskKey, SubtaskProgress] = {}  # in the registrations
        self._phase: dict[SubtaskKey, SubtaskPhase] = {}  # in later reports, which may be handled before them
        self._committed: dict[SubtaskKey, int] = {}

    def found(self, task_manager_id: str, progress: AttemptProgress | None) -> None:
        """A task manager has registered and still runs an attempt of the job."""
        if progress is not None and progress.attempt == self.attempt:
            own = {(item.vertex_id, item.subtask): item for item in progress.subtasks}
            self._found |= {key: item for key, item in own.items() if self._is_at(key, task_manager_id)}

    def reported(self, task_manager_id: str, report: Report) -> None:
        """A report under this leader."""
        match report:
            case Reported(SubtaskReport(SubtaskId() as subtask, phase)):
                if (key := self._key(subtask, task_manager_id)) is not None:
                    self._phase[key] = max(phase, self._phase.get(key, phase))
            case Committed(CheckpointCommitted(SubtaskId() as subtask, number)):
                if (key := self._key(subtask, task_manager_id)) is not None:
                    self._committed[key] = max(number, self._committed.get(key, number))
            case Gone(gone=gone) if gone.attempt == self.attempt:
                self.lost(task_manager_id)

    def lost(self, task_manager_id: str) -> None:
        """Nothing of the attempt runs there any more."""
        self._places = tuple("" if name == task_manager_id else name for name in self._places)

    def subtasks(self) -> Mapping[SubtaskKey, SubtaskProgress]:
        """Every subtask in a registration, as it is now."""
        return {
            key: replace(
                item,
                phase=max(item.phase, self._phase.get(key, item.phase)),
                committed_id=max(item.committed_id, self._committed.get(key, 0)),
            )
            for key, item in self._found.items()
        }

    def problem(self, graph: JobGraph, slots: Sequence[SlotOffer], doubts: Doubts) -> str:
        """Why the attempt cannot be adopted, in words; "" when it can. graph: normalized; slots: now the job's."""
        if other := doubts.problem():
            return other
        names = zip(self._places, slots, strict=False)
        for then, slot in names:
            if then != slot.task_manager_id:
                return "a task manager of the attempt is gone" if not then else f"{then} has no slot for it any more"
        found, wanted = self.subtasks(), subtasks(graph)
        for key in wanted:
            name = f"{key[0]}-{key[1]}"
            if key not in found:
                return f"no task manager has reported how far {name} is"
            if found[key].phase not in _RUNS:
                return f"{name} {_STATES.get(found[key].phase, 'is in a state that is unknown here')}"
        return "the job has another parallelism now" if len(found) != len(set(wanted)) else ""

    def _is_at(self, key: SubtaskKey, task_manager_id: str) -> bool:
        is_there = 0 <= key[1] < len(self._places) and self._places[key[1]] == task_manager_id
        return is_there and key[0] in self._vertices

    def _key(self, subtask: SubtaskId, task_manager_id: str) -> SubtaskKey | None:
        """None for a subtask of another attempt, or of another task manager."""
        key = (subtask.vertex_id, subtask.subtask)
        return key if subtask.attempt == self.attempt and self._is_at(key, task_manager_id) else None


def is_wanted(graph: JobGraph) -> bool:
    """Whether the job's author wants running attempts to be adopted."""
    return graph.leader_failover is LeaderFailover.LEADER_FAILOVER_REATTACH
