"""Queries to the coordinators of a local cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
from lockgate_common.proof import Peer
from lockgate_common.security import Credentials
from lockgate_proto.messages import GetClusterRequest, GetLeaderRequest, LeaderRecord
from lockgate_proto.rpc import call, path


def leader(addresses: Sequence[str], credentials: Credentials, timeout_s: float) -> LeaderRecord | None:
    """The leader with the highest token that any of them reports; None when none of them reports one."""
    answers = (_leader_at(address, credentials, timeout_s) for address in addresses)
    found = [answer for answer in answers if answer is not None and answer.token]
    return max(found, key=lambda record: record.token, default=None)


def registered_task_managers(addresses: Sequence[str], credentials: Credentials, timeout_s: float) -> int:
    """How many task managers have registered with the leader; 0 when there is no leader."""
    record = leader(addresses, credentials, timeout_s)
    if record is None:
        return 0
    introduction = credentials.introduction(Peer(record.address, record.instance), path("JobService", "GetCluster"))
    with credentials.channel(record.address) as channel:
        ask: Any = call(channel, "JobService", "GetCluster")
        try:
            status, ended = ask.with_call(GetClusterRequest(), timeout=timeout_s, metadata=introduction.metadata)
            introduction.check(ended.initial_metadata())
        except grpc.RpcError:
            return 0
    return len(status.task_managers)


def _leader_at(address: str, credentials: Credentials, timeout_s: float) -> LeaderRecord | None:
    with credentials.channel(address) as channel:
        try:
            record: LeaderRecord = call(channel, "JobService", "GetLeader")(GetLeaderRequest(), timeout=timeout_s)
            return record
        except grpc.RpcError:
            return None
