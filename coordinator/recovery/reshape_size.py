"""Whether a job can be told to start from a snapshot: at another parallelism, in other places, under another key.

Asked before that is begun, when everything can still stay as it is.

At another parallelism a subtask gets the whole inline state of every subtask that had one of its key groups, so the
same snapshot may need larger messages than before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lockgate_proto.messages import AttemptId, CheckpointMetadata, JobGraph

from coordinator.graph.execution_graph import ExecutionGraph
from coordinator.graph.shape import slots_needed
from coordinator.graph.slots import SlotOffer, SlotPool, SlotsGranted, SlotsRequested, TaskManagerAdded
from coordinator.recovery.deploy_size import DeployTooLarge, check_size
from coordinator.recovery.redistribute import SourceStateUnreadable, redistribute


def deploy_problem(graph: JobGraph, metadata: CheckpointMetadata | None, places: Sequence[str]) -> str:
    """Why `graph` cannot be started from the snapshot, a sentence; empty when it can.

    graph: normalized. places: task manager of slot i as it is now. Slots that are new are taken to be where most are:
    nobody knows before they are granted.
    """
    if metadata is None:
        return ""
    most = Counter(name for name in places if name).most_common(1)
    names = [name or (most[0][0] if most else "") for name in places]
    names += [most[0][0] if most else ""] * slots_needed(graph)
    slots = [SlotOffer(name, "") for name in names[: slots_needed(graph)]]
    try:
        restore = redistribute(graph, metadata)
        for _, deploy in ExecutionGraph(graph, AttemptId(), slots).deployments(restore, metadata.checkpoint_id, ""):
            check_size(deploy)
    except (DeployTooLarge, SourceStateUnreadable) as error:
        return str(error)
    return ""


def start_problem(graph: JobGraph, metadata: CheckpointMetadata, task_manager_slots: Sequence[int]) -> str:
    """Why `graph` cannot be started from the snapshot on task managers of which all slots are free; else empty.

    graph: normalized. task_manager_slots: of every registered one. Nothing can be said when they are too few.
    """
    pool = SlotPool()
    for number, slots in enumerate(task_manager_slots):
        pool.handle(TaskManagerAdded(str(number), "", slots), 0)
    for answer in pool.handle(SlotsRequested("", 1, slots_needed(graph)), 0):
        if isinstance(answer, SlotsGranted):
            return deploy_problem(graph, metadata, [slot.task_manager_id for slot in answer.slots])
    return ""
