"""The permission to write: the holder of a LeadershipGrant was made leader by ZooKeeper under its token.

Holding one does not prove that it is still valid. No code asks "am I the leader?"; every write carries the grant and
ZooKeeper refuses it when a later grant exists (see `lockgate_ha.store`).
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LeadershipGrant:
    """One term of leadership.

    token: the FencingToken; strictly greater than that of every earlier grant of the cluster
    coordinator_id: the coordinator that holds the grant
    session: the ZooKeeper session that holds `/leader`, hexadecimal
    epoch_version: of `/epoch` since the grant, if known: it saves the first write a read
    """

    token: int
    coordinator_id: str
    session: str
    epoch_version: int | None = field(default=None, compare=False)
