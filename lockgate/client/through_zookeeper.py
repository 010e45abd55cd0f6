"""Locating the leader in ZooKeeper."""

from __future__ import annotations

import threading

from lockgate_ha.retrieval import LeaderRetrieval
from lockgate_ha.session import Connector
from lockgate_proto.messages import LeaderRecord

from lockgate.client.deadline import Deadline
from lockgate.client.errors import ClusterUnreachable

# How long ZooKeeper may be silent before the first answer.
FIRST_ANSWER_S = 5.0
_LOOK_S = 0.1  # whether the client was closed, or ZooKeeper refuses it


class ThroughZooKeeper:
    """Reads `/leader`, watches it, and keeps the last known leader while ZooKeeper is unreachable."""

    def __init__(self, connector: Connector, cluster: str, origin: str) -> None:
        self._connector = connector
        self._cluster = cluster
        self._origin = origin
        self._changed = threading.Condition()
        self._answered = False
        self._closed = False
        self._retrieval: LeaderRetrieval | None = None

    def locate(self, deadline: Deadline) -> LeaderRecord:
        retrieval = self._started()
        first = Deadline(FIRST_ANSWER_S * 1000)
        with self._changed:
            while True:
                record = retrieval.current()
                if record is not None:
                    return record
                if self._closed:
                    raise ClusterUnreachable("the client is closed")
                if retrieval.refusal:
                    raise ClusterUnreachable(retrieval.refusal)
                if not self._answered and (first.expired or deadline.expired):
                    raise ClusterUnreachable(self._silent(), silent=True)
                if deadline.expired:
                    raise ClusterUnreachable(self._no_leader())
                limit_s = _LOOK_S if self._answered else first.remaining_s(_LOOK_S)
                self._changed.wait(deadline.remaining_s(limit_s))

    def close(self) -> None:
        with self._changed:
            self._closed = True
            retrieval, self._retrieval = self._retrieval, None
            self._changed.notify_all()
        if retrieval is not None:
            retrieval.stop()

    def _started(self) -> LeaderRetrieval:
        """Opens the session at the first use: a client that has coordinators may never need it."""
        with self._changed:
            if self._closed:
                raise ClusterUnreachable("the client is closed")
            if self._retrieval is None:
                self._retrieval = LeaderRetrieval(self._connector, self._cluster, self._on_leader)
                self._retrieval.start()
            return self._retrieval

    def _on_leader(self, record: LeaderRecord | None) -> None:
        del record
        with self._changed:
            self._answered = True
            self._changed.notify_all()

    def _silent(self) -> str:
        return self._connector.trouble() or (
            f"ZooKeeper does not answer at {self._connector.hosts} (from {self._origin}); check that it is running, or "
            "name a coordinator with --cluster HOST:PORT"
        )

    def _no_leader(self) -> str:
        return self._connector.trouble() or (
            f"ZooKeeper at {self._connector.hosts} has no leader for the cluster {self._cluster!r}; start a "
            "coordinator with `lockgate coordinator`, or check the name (cluster.name)"
        )
