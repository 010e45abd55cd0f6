"""Errors between a coordinator and ZooKeeper. Each says what is known about the write."""

from __future__ import annotations

from lockgate_proto.release import newer_text


class StoreError(Exception):
    """Base of all errors of the coordination store."""


class StoreUnavailable(StoreError):
    """ZooKeeper cannot be reached now. Nothing was written; the same call may be retried later."""


class SessionLost(StoreUnavailable):
    """ZooKeeper has expired the session, or it was closed. Nothing was written, and the session never comes back."""


class AccessDenied(StoreUnavailable):
    """ZooKeeper refuses this process a node: it is protected, and not with this process's secret. Nothing was written.

    path: the node; is_there: False where the server does not let this process make it
    """

    def __init__(self, path: str, is_there: bool = True) -> None:
        super().__init__(
            f"ZooKeeper refuses access to {path}: it belongs to a cluster with another secret; use that one's secret "
            "file (--secret-file), or another cluster name (cluster.name)"
            if is_there
            else f"ZooKeeper does not let this secret create {path}; use the secret file with which it was started "
            "(--secret-file), or start it with `lockgate zookeeper --shared`"
        )
        self.path = path


class OutcomeUnknown(StoreError):
    """The connection broke during a write: it may or may not have been applied, or still may be.

    Read back before acting.
    """


class Fenced(StoreError):
    """A later grant exists, or this one's session is gone: this write and every later one is refused.

    seen: the token that ZooKeeper holds now (may equal the grant's own when only the session is gone)
    """

    def __init__(self, token: int, seen: int, detail: str = "") -> None:
        super().__init__(detail or f"the write under token {token} was refused: the cluster is at token {seen}")
        self.token = token
        self.seen = seen


class Conflict(StoreError):
    """The write contradicts the stored data, so none of its transaction was applied.

    path: the node in conflict; reason: one sentence
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class RecordTooLarge(StoreError):
    """The records of one transaction exceed what ZooKeeper accepts (1 MB). Nothing was written."""


class TokensExhausted(StoreError):
    """There is no fencing token after the one in `/epoch`. The message says what to do."""


class ClusterInUse(StoreError):
    """A cluster cannot be moved now. The message says what to do."""


def refusal_of(error: StoreError) -> str:
    """Why this process will never get at the cluster as it is; "" for what may be over soon."""
    return str(error) if isinstance(error, AccessDenied | UnsealedRecord) else ""


class ZooKeeperStartError(Exception):
    """A ZooKeeper server could not be started. The message is one sentence that tells the user what to do."""


class CorruptRecord(StoreError):
    """A node does not hold the data that its path requires. The message names it; nothing else is affected."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"the ZooKeeper node {path} cannot be read: {reason}")
        self.path = path


class UnsealedRecord(CorruptRecord):
    """A record that was not written there by a process which knows the cluster's secret. Nothing in it is used."""


class NewerRecord(StoreError):
    """A record that a newer version has written. It is left as it is; a coordinator of that version can read it."""

    def __init__(self, path: str, found: int, known: int) -> None:
        super().__init__(newer_text(f"the ZooKeeper node {path}", found, known))
        self.path = path
