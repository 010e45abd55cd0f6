"""The coordination store as coordinators see it: reads, and transactions fenced by a LeadershipGrant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from lockgate_ha.grant import LeadershipGrant
from lockgate_ha.protection import Protection


@dataclass(frozen=True, slots=True)
class Create:
    """Makes a node. Its parent must exist, it must not. `sequential` lets the server append a rising number.

    shared: others than its owner may read it and make nodes below it.
    """

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Put:
    """Replaces the data of an existing node, of exactly `version` when given."""

    path: str
    data: bytes
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Removes an existing node without children, of exactly `version` when given."""

    path: str
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """Makes the transaction conditional on a node's existence, and on exactly `version` when given."""

    path: str
    version: int | None = None


Operation = Create | Put | Delete | Check


class CoordinationStore(Protocol):
    """Small durable records. Paths are absolute. Calls block for at most about the session timeout; thread-safe.

    When ZooKeeper is not connected calls fail at once with StoreUnavailable; nothing is queued. Data is what is stored:
    its users seal and unseal records.
    """

    @property
    def protection(self) -> Protection:
        """What seals the cluster's records."""
        ...

    def read(self, path: str) -> bytes | None:
        """The data of a node, None when it does not exist. Raises StoreUnavailable."""
        ...

    def read_all(self, paths: Sequence[str]) -> tuple[bytes | None, ...]:
        """As `read` of each, in that order, in the time of one. Raises StoreUnavailable."""
        ...

    def children(self, path: str) -> tuple[str, ...]:
        """The sorted names of a node's children, () when it has none or does not exist. Raises StoreUnavailable."""
        ...

    def commit(self, grant: LeadershipGrant, operations: Sequence[Operation]) -> None:
        """Applies all operations or none, in one transaction that first checks that `/epoch` is still `grant.token`.

        Raises Fenced (a later grant exists), Conflict (an operation's precondition failed), StoreUnavailable (nothing
        written), OutcomeUnknown (read back: call `settle`, then `read`), RecordTooLarge.
        """
        ...

    def settle(self, timeout_ms: int) -> None:
        """Waits until reads show the outcome of every earlier write. Raises StoreUnavailable after `timeout_ms`."""
        ...
