"""The coordination store as coordinators see it: reads, and transactions fenced by a LeadershipGrant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ha.grant import LeadershipGrant


@dataclass(frozen=True, slots=True)
class Create:
    """Makes a node. Its parent must exist, it must not. `sequential` lets the server append a rising number."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class Put:
    """Replaces the data of a node that exists, of exactly `version` when one is given."""

    path: str
    data: bytes
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Removes a node that exists and has no children, of exactly `version` when one is given."""

    path: str
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """Holds the transaction to a node's existence, and to exactly `version` when one is given."""

    path: str
    version: int | None = None


Operation = Create | Put | Delete | Check


class CoordinationStore(Protocol):
    """Small durable records. Paths are absolute. Calls block for at most about the session timeout; thread-safe.

    When ZooKeeper is not connected calls fail at once with StoreUnavailable; nothing is queued.
    """

    def read(self, path: str) -> bytes | None:
        """The data of a node, None when it does not exist. Raises StoreUnavailable."""
        ...

    def children(self, path: str) -> tuple[str, ...]:
        """The sorted names of a node's children, () when it has none or does not exist. Raises StoreUnavailable."""
        ...

    def commit(self, grant: LeadershipGrant, operations: Sequence[Operation]) -> None:
        """Does all operations or none, in one transaction that first checks that `/epoch` is still `grant.token`.

        Raises Fenced (a later grant exists), Conflict (an operation did not fit), StoreUnavailable (nothing written),
        OutcomeUnknown (read back: call `settle`, then `read`), RecordTooLarge.
        """
        ...

    def settle(self, timeout_ms: int) -> None:
        """Waits until reads show the outcome of every write made before. Raises StoreUnavailable after `timeout_ms`."""
        ...
