"""The client of a cluster. `Client.connect()` locates it; see `find_cluster`."""

from __future__ import annotations

from lockgate.client.client import Client
from lockgate.client.errors import (
    ClientError,
    ClusterUnreachable,
    InvalidJob,
    JobFailed,
    KeyTaken,
    NotAllowed,
    UnknownJob,
)
from lockgate.client.handle import JobHandle
from lockgate.client.target import ClusterTarget, find_cluster
from lockgate.client.watch import TERMINAL, JobWatch

__all__ = [
    "TERMINAL",
    "Client",
    "ClientError",
    "ClusterTarget",
    "ClusterUnreachable",
    "InvalidJob",
    "JobFailed",
    "JobHandle",
    "JobWatch",
    "KeyTaken",
    "NotAllowed",
    "UnknownJob",
    "find_cluster",
]
