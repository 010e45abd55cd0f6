"""One of thousands of simulated task managers: what is deployed there runs at once, has no records, and takes part.

Control stream, session, fence and heartbeats are those of every simulated task manager. Subtask i of the source has
read n records at checkpoint n; the sink seals a transaction at each checkpoint, and shows it once that is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

from lockgate_proto.codec import decode, encode
from lockgate_proto.layout import began_in
from lockgate_proto.messages import (
    AcknowledgeCheckpoint,
    AssignSplits,
    AttemptGone,
    AttemptId,
    AttemptProgress,
    BatchedReport,
    CancelAttempt,
    CheckpointCommitted,
    Deploy,
    NotifyCheckpointComplete,
    OperatorCounters,
    OperatorState,
    ReportBatch,
    SourceState,
    SplitState,
    StateHandle,
    StateKind,
    SubtaskCounters,
    SubtaskId,
    SubtaskPhase,
    SubtaskProgress,
    SubtaskReport,
    SubtaskState,
    TriggerCheckpoint,
)

from tests.layouts import layout_in
from tests.simulation.storage import Transaction
from tests.simulation.taskmanager import SimulatedDeployments, SimulatedTaskManager

SOURCE, SINK = "source", "ledger"
READ = f"{SOURCE}-read"  # its operator
RUNS = SubtaskPhase.SUBTASK_RUNNING


@lru_cache(maxsize=8)
def begins(data: bytes) -> Mapping[str, tuple[int, ...]]:
    """Task manager id to the slots that begin there."""
    layout = layout_in(data)
    newest, found = max(layout.began, default=0), dict[str, list[int]]()
    for slot, number in enumerate(layout.slots):
        if (name := layout.participants[number].task_manager_id) and began_in(layout, slot) == newest:
            found.setdefault(name, []).append(slot)
    return {name: tuple(slots) for name, slots in found.items()}


@dataclass
class Crew:
    """The subtasks of one attempt on one task manager. splits: by source subtask; committed: by all of its sinks."""

    attempt: AttemptId
    ids: tuple[SubtaskId, ...]
    splits: dict[int, tuple[SplitState, ...]] = field(default_factory=dict)
    complete: set[int] = field(default_factory=set)
    committed: int = 0

    def state(self, subtask: SubtaskId, checkpoint_id: int) -> SubtaskState:
        """What a subtask puts into a snapshot."""
        name, index = subtask.vertex_id, subtask.subtask
        if name != SOURCE:
            return SubtaskState(name, index)
        splits = tuple(SplitState(known.split, checkpoint_id, known.end) for known in self.splits.get(index, ()))
        content = encode(SourceState(splits, index in self.complete))
        handle = StateHandle(inline=content, size_bytes=len(content))
        return SubtaskState(name, index, (OperatorState(READ, StateKind.SOURCE_STATE, handle),))

    def progress(self) -> AttemptProgress:
        """For a new leader."""
        return AttemptProgress(self.attempt, tuple(map(self._progress, self.ids)))

    def _progress(self, subtask: SubtaskId) -> SubtaskProgress:
        name, index = subtask.vertex_id, subtask.subtask
        if name != SOURCE or index not in self.splits:
            return SubtaskProgress(name, index, RUNS, self.committed)
        return SubtaskProgress(name, index, RUNS, self.committed, True, self.splits[index], index in self.complete)


class CrowdDeployments:
    """Stands for lockgate_taskmanager.runtime.deployments.Deployments."""

    def __init__(self, process: SimulatedTaskManager) -> None:
        self._process = process
        self._crews: dict[AttemptId, Crew] = {}
        self._newest = 0

    def handle(self, body: Any) -> None:
        """One message of the leader."""
        match body:
            case Deploy(attempt=AttemptId() as attempt) if attempt.attempt > self._newest:
                self._deploy(attempt, body)
            case AssignSplits(subtask=SubtaskId(attempt=AttemptId() as attempt) as subtask):
                if (crew := self._crews.get(attempt)) is not None:
                    crew.splits[subtask.subtask] = (*crew.splits.get(subtask.subtask, ()), *body.splits)
                    crew.complete |= {subtask.subtask} if body.complete else set()
            case TriggerCheckpoint(attempt=AttemptId() as attempt, checkpoint_id=number):
                self._soon(attempt, lambda crew: self._acknowledge(crew, number))
            case NotifyCheckpointComplete(attempt=AttemptId() as attempt, checkpoint_id=number):
                self._soon(attempt, lambda crew: self._commit(crew, number))
            case CancelAttempt(attempt=AttemptId() as attempt, slots=slots):
                self._cancel(attempt, frozenset(slots))

    def running(self) -> tuple[AttemptId, ...]:
        """As the real ones."""
        return tuple(self._crews)

    def progress(self) -> tuple[AttemptProgress, ...]:
        """As the real ones."""
        return tuple(crew.progress() for crew in self._crews.values())

    def counters(self) -> tuple[SubtaskCounters, ...]:
        """Of one subtask of each attempt."""
        work = (OperatorCounters(READ, records_out=self._newest),)
        return tuple(SubtaskCounters(crew.ids[0], work) for crew in self._crews.values())

    def tasks(self, _: AttemptId) -> dict[SubtaskId, Any]:
        """None that could fail by itself."""
        return {}

    def cancel_all(self, _: str) -> None:
        """As the real ones."""
        self._crews.clear()

    def _soon(self, attempt: AttemptId, call: Any) -> None:
        """Calls with the crew of an attempt, if there is one then."""
        crew = self._crews.get(attempt)
        if crew is not None:
            process = self._process
            process.later(process.world.delay(1, 20), lambda: call(crew) if self._crews.get(attempt) is crew else None)

    def _deploy(self, attempt: AttemptId, deploy: Deploy) -> None:
        self._newest = attempt.attempt
        self._crews = {known: crew for known, crew in self._crews.items() if known.attempt in deploy.beside}
        slots = begins(deploy.layout)[self._process.id]
        graph = layout_in(deploy.layout).graph
        assert graph is not None
        ids = tuple(SubtaskId(attempt, vertex.id, slot) for vertex in graph.vertices for slot in slots)
        crew = self._crews[attempt] = Crew(attempt, ids, committed=deploy.restored_checkpoint_id)
        if deploy.restored_checkpoint_id:
            self._restore(crew, deploy)
        self._soon(attempt, self._report_running)

    def _restore(self, crew: Crew, deploy: Deploy) -> None:
        number = deploy.restored_checkpoint_id
        for state in deploy.restore:
            for operator in state.operators:
                assert operator.handle is not None
                source = decode(SourceState, operator.handle.inline)
                if any(split.offset != number for split in source.splits):
                    self._process.world.violate(f"[1] {state} is to be restored as that of checkpoint {number}")
                crew.splits[state.subtask] = source.splits
                crew.complete |= {state.subtask} if source.complete else set()
        if {key.subtask for key in crew.ids} != crew.splits.keys():
            self._process.world.violate(f"[1] {crew.ids} begin at checkpoint {number} with {crew.splits}")
        self._show(crew, number)

    def _report_running(self, crew: Crew) -> None:
        self._report(SubtaskReport(subtask, RUNS) for subtask in crew.ids)

    def _acknowledge(self, crew: Crew, number: int) -> None:
        self._report(
            AcknowledgeCheckpoint(subtask, number, crew.state(subtask, number), 10, 5, 1) for subtask in crew.ids
        )

    def _commit(self, crew: Crew, number: int) -> None:
        self._show(crew, number)
        crew.committed = number
        self._report(CheckpointCommitted(subtask, number) for subtask in crew.ids)

    def _show(self, crew: Crew, number: int) -> None:
        for subtask in crew.ids:
            if subtask.vertex_id == SINK:
                self._process.outputs.publish(sealed(crew.attempt.job_key, number, subtask.subtask))

    def _cancel(self, attempt: AttemptId, slots: frozenset[int]) -> None:
        crew = self._crews.get(attempt)
        if crew is None:
            return
        crew.ids = tuple(subtask for subtask in crew.ids if slots and subtask.subtask not in slots)
        if not crew.ids:
            del self._crews[attempt]
            self._process.report(AttemptGone(attempt))

    def _report(self, bodies: Iterable[Any]) -> None:
        self._process.report(ReportBatch(tuple(map(BatchedReport, bodies))))


class CrowdTaskManager(SimulatedTaskManager):
    """Its subtasks are a few numbers each."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.deployments = cast("SimulatedDeployments", CrowdDeployments(self))


def sealed(job_key: str, checkpoint_id: int, subtask: int) -> Transaction:
    """What a sink has sealed at a checkpoint, whichever attempt it was in."""
    return Transaction(job_key, SINK, checkpoint_id, subtask, 0, ())
