"""Checks whether a job can be deployed: each task manager's Deploy must fit into one message.

A larger one would break the control stream again and again. So the size is checked before a job is started from a
snapshot, rescaled, moved or submitted under another key, while nothing has been changed yet. At another parallelism a
subtask gets the whole inline state of every subtask that had one of its key groups, so the same snapshot may need
larger messages than before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lockgate_proto.codec import encode
from lockgate_proto.messages import AttemptId, CheckpointMetadata, Deploy, DiscoverSplits, JobGraph
from lockgate_proto.rpc import MAX_MESSAGE_BYTES

from lockgate_coordinator.checkpoint.handles import all_handles
from lockgate_coordinator.graph.execution_graph import ExecutionGraph
from lockgate_coordinator.graph.shape import slots_needed
from lockgate_coordinator.graph.slots import RequestSlots, SlotOffer, SlotPool, SlotsOffered, TaskManagerAdded
from lockgate_coordinator.job.redistribute import SourceStateUnreadable, redistribute

ENVELOPE_BYTES = 1024
"""More than what a CoordinatorMessage adds to its body."""


class DeployTooLarge(Exception):
    """A message with which an attempt begins cannot be sent; str() is for the job's author."""


class TooNarrow(DeployTooLarge):
    """It could be sent if fewer of the job's slots were on that task manager."""


def check_size(deploy: Deploy, limit: int = MAX_MESSAGE_BYTES) -> None:
    """Raises DeployTooLarge beyond `limit` bytes. Encodes only messages that may be near it: a failover waits here."""
    by_slot: Counter[int] = Counter()
    for state in deploy.restore:
        by_slot[state.subtask] += sum(len(handle.inline) for handle in all_handles((state,)))
    inline = by_slot.total()
    if 8 * inline + 1024 * len(deploy.restore) + len(deploy.layout) + ENVELOPE_BYTES < limit:
        return
    size = inline if inline > limit else len(encode(deploy)) + ENVELOPE_BYTES
    if size <= limit:
        return
    is_narrow = len(by_slot) > 1 and max(by_slot.values()) + len(deploy.layout) + ENVELOPE_BYTES <= limit
    text = (
        f"The deployment message of one task manager for this job is {_mb(size)}, and {_mb(limit)} fit into a message: "
        f"the snapshot's inline state is {_mb(inline)} of it. Use {'more task managers, ' if is_narrow else ''}"
        f"a snapshot of the filesystem state backend, or smaller Python functions and connectors. The snapshots stay."
    )
    raise TooNarrow(text) if is_narrow else DeployTooLarge(text)


def check_known(discover: DiscoverSplits, limit: int = MAX_MESSAGE_BYTES) -> None:
    """Raises DeployTooLarge for a request for splits that names more than fit into `limit` bytes. See check_size."""
    names = len("".join(discover.known).encode()) + 6 * len(discover.known)  # and in front of each, its length
    files = sum(4 * len(handle.path) + len(handle.inline) + 1024 for handle in discover.files)
    if names + files + ENVELOPE_BYTES < limit:
        return
    size = len(encode(discover)) + ENVELOPE_BYTES
    if size > limit:
        raise DeployTooLarge(
            f"The names of the {len(discover.known):,} known files, or other splits, of source '{discover.vertex_id}' "
            f"are {_mb(size)}, and {_mb(limit)} fit into a message. Use the filesystem state backend, which stores "
            "those of finished ones in files, or several sources, or fewer and larger files. The snapshots stay."
        )


def _mb(size: int) -> str:
    return f"{size / 2**20:.1f} MB"


def deploy_problem(graph: JobGraph, metadata: CheckpointMetadata | None, places: Sequence[str]) -> str:
    """Why `graph` cannot be started from the snapshot, a sentence; empty when it can.

    graph: normalized. places: present task manager of slot i. New slots are assumed to be on the task manager with the
    most slots, because their place is known only once they are granted.
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
    """Why `graph` cannot be started from the snapshot on these task managers, with all slots free; else empty.

    graph: normalized. task_manager_slots: of every registered one. Empty as well when there are too few slots to tell.
    """
    pool = SlotPool()
    for number, slots in enumerate(task_manager_slots):
        pool.handle(TaskManagerAdded(str(number), "", slots), 0)
    for answer in pool.handle(RequestSlots("", 1, slots_needed(graph)), 0):
        if isinstance(answer, SlotsOffered):
            return deploy_problem(graph, metadata, [slot.task_manager_id for slot in answer.slots])
    return ""
