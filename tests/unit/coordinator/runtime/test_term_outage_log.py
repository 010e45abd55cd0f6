"""While ZooKeeper is away, a term tries again several times a second and says so once a minute."""

from __future__ import annotations

import threading

import pytest
from lockgate_common.recurring_log import RecurringLog
from lockgate_coordinator.runtime.errors import Stopped
from lockgate_coordinator.runtime.term_fence import TermFence
from lockgate_ha.errors import StoreUnavailable
from lockgate_ha.grant import LeadershipGrant


class _Tries:
    """Stands for ZooKeeper's absence: a read that fails ten times, each ten seconds after the one before."""

    def __init__(self, over: threading.Event) -> None:
        self.count, self._over = 0, over

    def now_ms(self) -> int:
        return self.count * 10_000

    def read(self) -> None:
        self.count += 1
        if self.count == 10:
            self._over.set()
        raise StoreUnavailable("connection refused")


def test_an_outage_of_zookeeper_is_a_line_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockgate_coordinator.runtime.term_fence._RETRY_S", 0)
    over = threading.Event()
    tries = _Tries(over)
    fence = TermFence(LeadershipGrant(1, "c", "s"), over, lambda _: None, RecurringLog(tries.now_ms))
    with pytest.raises(Stopped):
        fence.read(tries.read)
    assert [record.getMessage() for record in caplog.records] == [
        "ZooKeeper does not answer, trying again: connection refused",
        "ZooKeeper does not answer, trying again: connection refused (5 more times since the last line)",
    ]
