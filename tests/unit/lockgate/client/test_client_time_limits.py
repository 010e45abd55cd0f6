"""Calls for which the leader may wait have more time than it takes at most."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from lockgate_coordinator.runtime.state_queries import WAIT_MS
from lockgate_proto import messages as m

from lockgate.client.client import Client

LEADER = m.LeaderRecord("c1", 1, "127.0.0.1:1")


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (lambda client: client.query("job", {"op": [[1]]}), m.QueryStateResponse(7)),
        (lambda client: client.offsets("job"), m.ListCheckpointsResponse()),
    ],
    ids=["query", "offsets"],
)
def test_reading_the_storage_may_take_as_long_as_the_leader_waits(
    ask: Callable[[Client], object], answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []

    def answered(_leader: m.LeaderRecord, _method: str, _request: Any, limit_s: float) -> Any:
        limits.append(limit_s)
        return answer

    with Client(["127.0.0.1:1"]) as client:
        monkeypatch.setattr(client, "locate", lambda _deadline: LEADER)
        monkeypatch.setattr(client, "_ask", answered)
        ask(client)
    (limit_s,) = limits
    assert limit_s > WAIT_MS / 1000
