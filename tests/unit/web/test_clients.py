"""What pages share of one caller's client."""

from __future__ import annotations

from typing import Any, cast

import pytest
from lockgate_proto import messages as m
from lockgate_web import clients
from lockgate_web.clients import HeldClient

from lockgate.client import Client, ClusterUnreachable


class _Cluster:
    """is_there: there is a leader."""

    def __init__(self, *, is_there: bool) -> None:
        self.is_there = is_there
        self.calls = 0

    def jobs(self, *, with_subtasks: bool) -> Any:
        assert not with_subtasks
        self.calls += 1
        if not self.is_there:
            raise ClusterUnreachable("there is no leader")
        return (m.JobStatus("old", submitted_unix_ms=1), m.JobStatus("new", submitted_unix_ms=2))

    def cluster(self) -> m.ClusterStatus:
        return m.ClusterStatus()


def test_pages_share_an_overview() -> None:
    cluster = _Cluster(is_there=True)
    held = HeldClient(cast(Client, cluster))
    assert held.overview() is held.overview()
    assert ([job.job_key for job in held.overview()[1]], cluster.calls) == (["new", "old"], 1)


def test_pages_share_a_failure_and_ask_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = _Cluster(is_there=False)
    held = HeldClient(cast(Client, cluster))
    for _ in range(3):
        with pytest.raises(ClusterUnreachable, match="no leader"):
            held.overview()
    assert cluster.calls == 1
    cluster.is_there = True
    monkeypatch.setattr(clients, "_OVERVIEW_S", -1.0)
    assert held.overview()[1]
