"""The permission to write: whoever holds a LeadershipGrant was made leader by ZooKeeper under its token.

Holding one does not prove that it is still valid. Nothing asks "am I the leader?"; every write carries the grant and
ZooKeeper refuses it when a later grant exists (see `ha.store`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeadershipGrant:
    """One term of leadership.

    token: the FencingToken; strictly greater than that of every earlier grant of the cluster
    coordinator_id: who was granted
    session: the ZooKeeper session that holds `/leader`, hexadecimal
    """

    token: int
    coordinator_id: str
    session: str
