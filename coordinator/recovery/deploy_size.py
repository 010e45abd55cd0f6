"""Whether a Deploy fits into one message: one that does not would break the control stream again and again."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

from lockgate_proto.codec import encode
from lockgate_proto.messages import Deploy
from lockgate_proto.rpc import MAX_MESSAGE_BYTES

from coordinator.checkpoint.handles import all_handles

ENVELOPE_BYTES = 1024
"""More than what a CoordinatorMessage adds to its body."""


class DeployTooLarge(Exception):
    """The Deploy for one task manager cannot be sent; str() is for the job's author."""


def check_size(deploy: Deploy, limit: int = MAX_MESSAGE_BYTES) -> None:
    """Raises DeployTooLarge for more than `limit` bytes. Encodes only what may be near that: failover waits for it."""
    inline = sum(len(handle.inline) for handle in all_handles(deploy.restore))
    if 8 * inline + 1024 * (len(deploy.placements) + len(deploy.restore)) < limit and _small_graph(deploy, limit):
        return
    size = len(encode(deploy)) + ENVELOPE_BYTES
    if size > limit:
        raise DeployTooLarge(
            f"What one task manager has to be told to start this job is {_mb(size)}, and {_mb(limit)} fit into a "
            f"message: the snapshot's inline state is {_mb(inline)} of it. It takes more task managers, a snapshot of "
            f"the filesystem state backend, or smaller Python functions and connectors. The snapshots stay."
        )


def _small_graph(deploy: Deploy, limit: int) -> bool:
    """Pickled functions and connectors are all that can make a graph large."""
    operators = [
        one for vertex in (deploy.graph.vertices if deploy.graph is not None else ()) for one in vertex.operators
    ]
    pickled = sum(_pickled_bytes(one.kind) for one in operators)
    return 8 * pickled + 4096 * len(operators) < limit


def _pickled_bytes(kind: object) -> int:
    """All bytes fields of an operator, so that a kind that is added later counts too."""
    values = (getattr(kind, one.name) for one in fields(kind)) if is_dataclass(kind) else ()
    return sum(len(one) for one in values if isinstance(one, bytes))


def _mb(size: int) -> str:
    return f"{size / 2**20:.1f} MB"
