"""What the coordinators of a local cluster say of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
from lockgate_proto.messages import ClusterStatus, GetClusterRequest, GetLeaderRequest, LeaderRecord
from lockgate_proto.rpc import call
from lockgate_proto.security import Credentials


def leader(addresses: Sequence[str], credentials: Credentials, timeout_s: float) -> LeaderRecord | None:
    """The leader with the highest token that any of them names, None when none of them knows one."""
    answers = (_ask(address, credentials, "GetLeader", GetLeaderRequest(), timeout_s) for address in addresses)
    found = [answer for answer in answers if answer is not None and answer.token]
    return max(found, key=lambda record: record.token, default=None)


def registered_task_managers(addresses: Sequence[str], credentials: Credentials, timeout_s: float) -> int:
    """How many task managers have registered with the leader; 0 when nobody leads."""
    record = leader(addresses, credentials, timeout_s)
    if record is None:
        return 0
    status: ClusterStatus | None = _ask(record.address, credentials, "GetCluster", GetClusterRequest(), timeout_s)
    return len(status.task_managers) if status is not None else 0


def _ask(address: str, credentials: Credentials, method: str, request: Any, timeout_s: float) -> Any:
    with credentials.channel(address) as channel:
        try:
            return call(channel, "JobService", method)(request, timeout=timeout_s, metadata=credentials.metadata())
        except grpc.RpcError:
            return None
