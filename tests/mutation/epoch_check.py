"""A leader's transaction no longer checks `/epoch`."""

from __future__ import annotations

from collections.abc import Sequence

from lockgate_ha.grant import LeadershipGrant
from lockgate_ha.session_store import SessionStore
from lockgate_ha.store import Operation


def _commit(self: SessionStore, grant: LeadershipGrant, operations: Sequence[Operation]) -> None:
    del grant
    self._current().transact(tuple(operations))


assert hasattr(SessionStore, "commit")
SessionStore.commit = _commit  # type: ignore[method-assign]
