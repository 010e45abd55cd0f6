"""What the coordinator's shell raises. Every message is one sentence or more for the person who reads it."""

from __future__ import annotations

from grpc import StatusCode


class StorageError(Exception):
    """A file of the HA storage is missing, corrupt or cannot be written. The message names the file.

    retryable: the storage could not be reached; what is missing or corrupt stays so.
    """

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class NotLeading(Exception):
    """This coordinator is a standby; the caller has to go to the leader.

    leader: its `host:port`, "" when nobody is known to lead.
    """

    def __init__(self, leader: str) -> None:
        told = f"the leader is {leader}" if leader else "there is no leader at the moment"
        super().__init__(f"not the leader; {told}")
        self.leader = leader


class Busy(Exception):
    """This leader cannot write just now: it recovers, or ZooKeeper is not reachable. The caller may try again."""


class Refused(Exception):
    """A request that cannot be granted. code: what the call ends with."""

    def __init__(self, code: StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class TooMuch(Refused):
    """More than one client may have. retry_ms: after which it may try again, and after which a client of ours does."""

    def __init__(self, message: str, retry_ms: int) -> None:
        super().__init__(StatusCode.RESOURCE_EXHAUSTED, f"{message}; try again in {retry_ms / 1000:.1f} s")
        self.retry_ms = retry_ms


class Stopped(Exception):
    """The work was dropped because this process no longer leads, or is shutting down."""
