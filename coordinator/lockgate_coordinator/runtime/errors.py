"""The errors of the coordinator's shell. Every message consists of sentences for the user."""

from __future__ import annotations


class StorageError(Exception):
    """A file of the HA storage is missing, corrupt or cannot be written. The message names the file.

    retryable: the storage could not be reached. Missing or corrupt files are not retryable.
    """

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class ForeignSnapshot(StorageError):
    """Neither a record nor the cluster's seal vouches for a snapshot. file: its metadata, for people."""

    def __init__(self, file: str, why: str) -> None:
        super().__init__(f"{file} {why}")
        self.file = file


class NewerFormat(StorageError):
    """A snapshot that a newer version has written."""


class NeedsOperator(Exception):
    """A job can go on only after its operator has done something. The message says what."""


class NotLeading(Exception):
    """This coordinator is a standby; the caller must call the leader.

    leader: its `host:port`, "" when no leader is known.
    """

    def __init__(self, leader: str) -> None:
        where = f"the leader is {leader}" if leader else "there is no leader at the moment"
        super().__init__(f"not the leader; {where}")
        self.leader = leader


class Busy(Exception):
    """This leader cannot write just now: it recovers, or ZooKeeper is not reachable. The caller may try again."""


class Stopped(Exception):
    """The work was dropped because this process no longer leads, or is shutting down."""
