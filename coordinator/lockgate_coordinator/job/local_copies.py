"""Which files of the newest snapshot each task manager keeps on its own disk, so that a restart reads no storage.

A subtask restarts where it was, or elsewhere if its task manager is lost. So each task manager of the attempt keeps
what its own subtasks have stored, and some others keep the same as its heirs: those with free slots, first the ones
that the job does not run on. A lost place is granted to an heir, see `heirs`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lockgate_proto.codec import decode
from lockgate_proto.messages import CheckpointMetadata, KeepCopies, SinkState, StateHandle, StateKind, SubtaskState

from lockgate_coordinator.checkpoint.completed import CompletedCheckpoints
from lockgate_coordinator.checkpoint.handles import all_handles
from lockgate_coordinator.job.attempt import Attempt
from lockgate_coordinator.job.job_attempts import JobAttempts

MOST_FILES = 50_000
"""In one order; of more, no copies are kept. Its size is about 250 bytes a file, and 64 MiB fit in a message."""


@dataclass(frozen=True, slots=True)
class Copies:
    """Of one snapshot. orders: by task manager id; places: that of each slot; heirs: of each of these, best first.

    too_many: number of files by the task managers that are to keep none, as it exceeds MOST_FILES.
    """

    orders: Mapping[str, KeepCopies]
    places: tuple[str, ...]
    heirs: Mapping[str, tuple[str, ...]]
    too_many: Mapping[str, int] = field(default_factory=dict)

    def preferred(self, wanted: Sequence[str]) -> tuple[str, ...]:
        """The task manager to ask for each slot. wanted: those that are left, "" for lost ones."""
        found, turns = list[str](), dict[str, int]()
        for number, name in enumerate(wanted):
            lost = self.places[number] if number < len(self.places) else ""
            heirs = self.heirs.get(lost, ())
            if not name and heirs:  # several slots are spread over all heirs
                turns[lost] = turns.get(lost, -1) + 1
                name = heirs[turns[lost] % len(heirs)]
            found.append(name)
        return tuple(found)


def copies(
    attempts: JobAttempts, completed: CompletedCheckpoints | None, free_slots: Mapping[str, int]
) -> Copies | None:
    """None unless the job asks for copies, has a snapshot, and has lost no part that it waits to restart.

    free_slots: by task manager id.
    """
    attempt, snapshot = attempts.current, completed.restore_point if completed is not None else None
    if not attempts.graph.standby_replicas or attempt is None or snapshot is None or attempt.execution.has_lost:
        return None
    mine = set(attempt.execution.task_managers())
    spares = sorted(
        (name for name, free in free_slots.items() if free > 0),
        key=lambda name: (name in mine, -free_slots[name], name),
    )
    replicas = attempts.graph.standby_replicas
    heirs = {place: tuple([name for name in spares if name != place][:replicas]) for place in sorted(mine)}
    found = dict(_files(snapshot, attempt, heirs))
    too_many = {name: len(files) for name, files in found.items() if len(files) > MOST_FILES}
    orders = {
        name: KeepCopies(attempt.id, snapshot.checkpoint_id, tuple(files) if name not in too_many else ())
        for name, files in found.items()
    }
    return Copies(orders, attempts.places, heirs, too_many)


def _files(
    snapshot: CheckpointMetadata, attempt: Attempt, heirs: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, list[StateHandle]]]:
    by_keeper: dict[str, list[StateHandle]] = {name: [] for name in heirs}
    for state in snapshot.subtasks:
        key = (state.vertex_id, state.subtask)
        if key not in attempt.execution.subtasks:
            continue
        place = attempt.execution.task_manager_of(key)
        files = list(files_of(state))
        for name in (place, *heirs[place]):
            by_keeper.setdefault(name, []).extend(files)
    yield from by_keeper.items()


def files_of(state: SubtaskState) -> Iterator[StateHandle]:
    """Every file that a restart reads, also the rows that sinks have staged."""
    for handle in all_handles((state,)):
        if handle.path:
            yield handle
    for operator in state.operators:
        if operator.kind is StateKind.SINK_STATE and operator.handle is not None and operator.handle.inline:
            for pending in decode(SinkState, operator.handle.inline).pending:
                if pending.rows is not None and pending.rows.path:
                    yield pending.rows
