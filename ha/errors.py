"""What can go wrong between a coordinator and ZooKeeper. Each error says what is known about the write."""

from __future__ import annotations


class StoreError(Exception):
    """Base of everything that the coordination store raises."""


class StoreUnavailable(StoreError):
    """ZooKeeper cannot be reached now. Nothing was written; the same call may be made again later."""


class SessionLost(StoreUnavailable):
    """ZooKeeper has expired the session, or it was closed. Nothing was written, and this session never comes back."""


class OutcomeUnknown(StoreError):
    """The connection broke during a write: it may have happened, or not, or may still. Read back before acting."""


class Fenced(StoreError):
    """A later grant exists, or this one's session is gone: the write was refused and every later one will be.

    seen: the token that ZooKeeper holds now (may equal the grant's own when only the session is gone)
    """

    def __init__(self, token: int, seen: int, detail: str = "") -> None:
        super().__init__(detail or f"the write under token {token} was refused: the cluster is at token {seen}")
        self.token = token
        self.seen = seen


class Conflict(StoreError):
    """The write contradicts what is stored, so none of its transaction was done.

    path: the node that stood in the way; reason: one sentence
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class RecordTooLarge(StoreError):
    """The records of one transaction exceed what ZooKeeper accepts (1 MB). Nothing was written."""


class TokensExhausted(StoreError):
    """There is no fencing token after the one that `/epoch` holds. The message says what to do."""


class ZooKeeperStartError(Exception):
    """A ZooKeeper server could not be started. The message is one sentence that tells the user what to do."""


class CorruptRecord(StoreError):
    """A node does not hold what its place says. The message names it; nothing else is touched."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"the ZooKeeper node {path} cannot be read: {reason}")
        self.path = path
