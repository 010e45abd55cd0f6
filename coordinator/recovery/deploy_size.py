"""Whether a Deploy fits into one message: one that does not would break the control stream again and again."""

from __future__ import annotations

from lockgate_proto.codec import encode
from lockgate_proto.messages import Deploy
from lockgate_proto.rpc import MAX_MESSAGE_BYTES

ENVELOPE_BYTES = 1024
"""More than what a CoordinatorMessage adds to its body."""


class DeployTooLarge(Exception):
    """The Deploy for one task manager cannot be sent; str() is for the job's author."""


def check_size(deploy: Deploy, limit: int = MAX_MESSAGE_BYTES) -> None:
    """Raises DeployTooLarge for more than `limit` bytes. Encodes only what may be near that: failover waits for it."""
    inline = sum(
        len(operator.handle.inline)
        for state in deploy.restore
        for operator in state.operators
        if operator.handle is not None
    )
    if 8 * inline + 1024 * (len(deploy.placements) + len(deploy.restore)) < limit and _small_graph(deploy, limit):
        return
    size = len(encode(deploy)) + ENVELOPE_BYTES
    if size > limit:
        raise DeployTooLarge(
            f"What one task manager has to be told to start this job is {_mb(size)}, and {_mb(limit)} fit into a "
            f"message: the snapshot's inline state is {_mb(inline)} of it. Use the filesystem state backend, more task "
            f"managers or smaller Python functions. The snapshots stay."
        )


def _small_graph(deploy: Deploy, limit: int) -> bool:
    """Pickled functions are all that can make a graph large."""
    operators = [
        one for vertex in (deploy.graph.vertices if deploy.graph is not None else ()) for one in vertex.operators
    ]
    pickled = sum(len(getattr(one.kind, "function", b"")) for one in operators)
    return 8 * pickled + 4096 * len(operators) < limit


def _mb(size: int) -> str:
    return f"{size / 2**20:.1f} MB"
