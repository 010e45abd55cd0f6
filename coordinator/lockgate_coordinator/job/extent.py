"""How much of a job restarts after a failure: the slots of a lost task manager or of a failed subtask, or everything.

A part restarts while the rest runs on, where nothing crosses between the two (graph/regions.py), or where what crosses
can be sent again and dropped (lockgate_proto/parts.py), and the job does nothing else than run. The part begins
from the newest completed checkpoint; the rest is beyond it. Checkpoints pause until all runs.
"""

from __future__ import annotations

from lockgate_proto.messages import CheckpointMetadata, FailureCause, JobGraph, JobState

from lockgate_coordinator.checkpoint.coordinator import CheckpointCoordinator
from lockgate_coordinator.graph.regions import Slots, affected, bond_of_all
from lockgate_coordinator.graph.shape import source_vertices, vertex_shapes
from lockgate_coordinator.job.attempt import Attempt, AttemptFailed
from lockgate_coordinator.job.orders import Orders

ALL = Slots()
"""The part that is everything."""


def extent(
    failed: AttemptFailed, attempt: Attempt, state: JobState, snapshots: CheckpointCoordinator, orders: Orders
) -> tuple[Slots, str]:
    """The slots that restart, or ALL and why, as a clause."""
    execution = attempt.execution
    part = execution.slots_on(failed.lost) if failed.lost else ALL
    if failed.subtask is not None:
        part |= {failed.subtask[1]}
    part, bond = affected(attempt.graph, part, execution.slots_beside)
    because = _whole_because(failed, part, bond, attempt, state, snapshots, orders)
    return (part, "") if not because else (ALL, because)


def _whole_because(
    failed: AttemptFailed,
    part: Slots,
    bond: str,
    attempt: Attempt,
    state: JobState,
    snapshots: CheckpointCoordinator,
    orders: Orders,
) -> str:
    """bond: why it is more than what has failed."""
    graph = attempt.graph
    if why := bond_of_all(graph):
        return why
    if not part:
        return "no subtask is known to have failed alone"
    if {key[1] for key in attempt.execution.subtasks} <= part:
        return bond or "all of it has failed"
    if state is not JobState.RUNNING and not _could_not_begin(failed, part, attempt):
        return f"the job was {state.name}"
    if not orders.is_idle or not snapshots.final.is_open:
        return "the job was being stopped or rescaled, or its input had ended"
    snapshot = snapshots.completed.restore_point
    if _has_other_shape(graph, snapshot):
        return "its newest checkpoint was taken at another parallelism"
    if (snapshot is None or snapshot.run_id != attempt.id.run_id) and _has_ended(part, attempt):
        return "a source in it has read all, and no checkpoint of this run says yet how much that was"
    since = snapshot.checkpoint_id if snapshot is not None else 0
    return attempt.gaps.problem(part, since, attempt.execution)


def _could_not_begin(failed: AttemptFailed, part: Slots, attempt: Attempt) -> bool:
    """True for a part that restarts and cannot read its state because the storage is away: it tries again alone."""
    execution = attempt.execution
    begins = {key[1] for key in execution.subtasks} - {key[1] for key in execution.begun_before()}
    return failed.cause is FailureCause.STORAGE_AWAY and execution.is_mixed and part <= begins


def _has_ended(part: Slots, attempt: Attempt) -> bool:
    """Whether a source's subtask has: it would look up its ends again, and its receivers, which have had them, would
    drop what has come since.
    """
    keys = ((vertex.id, slot) for vertex in source_vertices(attempt.graph) for slot in part)
    return any(attempt.execution.is_exhausted(key) for key in keys)


def _has_other_shape(graph: JobGraph, snapshot: CheckpointMetadata | None) -> bool:
    """True where a restore moves state from one slot to another."""
    if snapshot is None:
        return False
    now = {shape.vertex_id: shape.parallelism for shape in vertex_shapes(graph)}
    return any(now.get(shape.vertex_id) != shape.parallelism for shape in snapshot.vertices)
