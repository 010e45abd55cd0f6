"""What the client asks for again, for how long, and what it never asks for twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from lockgate_proto import messages as m

from lockgate.client import ClusterUnreachable
from lockgate.client import deadline as deadline_module
from lockgate.client.client import Client
from lockgate.client.errors import NotPossible

SAVEPOINT = m.CompletedCheckpoint(9, "file:///s/chk-9/_metadata", kind=m.CheckpointKind.SAVEPOINT)
ANSWERS: dict[str, Any] = {
    "TriggerSavepoint": m.TriggerSavepointResponse(SAVEPOINT),
    "Stop": m.StopResponse(SAVEPOINT),
    "Rescale": m.RescaleResponse(),
}
ORDERS: dict[str, Callable[[Client, int], object]] = {
    "TriggerSavepoint": lambda client, timeout_ms: client.savepoint("job", timeout_ms),
    "Stop": lambda client, timeout_ms: client.stop("job", timeout_ms=timeout_ms),
    "Rescale": lambda client, timeout_ms: client.rescale("job", {"v": 2}, timeout_ms),
}
every_order = pytest.mark.parametrize("method", ORDERS)


class Failed(grpc.RpcError, grpc.Call):
    """A call that has ended with a status."""

    def __init__(self, status: grpc.StatusCode, text: str) -> None:
        self._status, self._text = status, text

    def code(self) -> grpc.StatusCode:
        return self._status

    def details(self) -> str:
        return self._text

    def initial_metadata(self) -> tuple[()]:
        return ()

    def trailing_metadata(self) -> tuple[()]:
        return ()

    def is_active(self) -> bool:
        return False

    def time_remaining(self) -> None:
        return None

    def cancel(self) -> None:
        """It has ended."""

    def add_callback(self, callback: Callable[[], None]) -> bool:
        del callback
        return False


class Leader:
    """Of one client, on a clock that only the calls move. Each call takes so long, and fails as the next status says.

    takes_s: None for as long as the client waits.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        self.takes_s: float | None = 0.0
        self.failures: list[Failed] = []
        self.asked: list[tuple[str, Any, float | None]] = []
        monkeypatch.setattr(deadline_module, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        self.client = Client(["127.0.0.1:1"], patience_ms=30_000)
        monkeypatch.setattr(self.client, "locate", lambda _deadline: m.LeaderRecord("c1", 1, "127.0.0.1:1"))
        monkeypatch.setattr(self.client, "_ask", self._answer)
        monkeypatch.setattr(self.client, "pause", self._pass)

    def _pass(self, seconds: float) -> None:
        self.now_s += seconds

    def _answer(self, _leader: m.LeaderRecord, method: str, request: Any, limit_s: float | None) -> Any:
        self.asked.append((method, request, limit_s))
        if self.takes_s is None:
            assert limit_s is not None, "the client would wait for ever"
            self._pass(limit_s)
            raise Failed(grpc.StatusCode.DEADLINE_EXCEEDED, "")
        self._pass(self.takes_s)
        if self.failures:
            raise self.failures.pop(0)
        return ANSWERS[method]


@pytest.fixture
def leader(monkeypatch: pytest.MonkeyPatch) -> Iterator[Leader]:
    made = Leader(monkeypatch)
    yield made
    made.client.close()


@every_order
@pytest.mark.parametrize("timeout_ms", [0, 3_000])
def test_what_was_begun_and_has_failed_is_not_begun_again(leader: Leader, method: str, timeout_ms: int) -> None:
    leader.failures = [Failed(grpc.StatusCode.ABORTED, "count-0 declined it. The job runs on.")]
    with pytest.raises(NotPossible, match=r"^count-0 declined it\. The job runs on\.$"):
        ORDERS[method](leader.client, timeout_ms)
    assert [name for name, *_ in leader.asked] == [method]


@every_order
def test_without_a_timeout_the_leader_ends_it_not_the_client(leader: Leader, method: str) -> None:
    leader.takes_s = 600.0
    ORDERS[method](leader.client, 0)
    assert [limit_s for *_, limit_s in leader.asked] == [None]


@every_order
def test_a_leader_lost_after_minutes_is_followed_by_the_next(leader: Leader, method: str) -> None:
    leader.takes_s = 600.0
    leader.failures = [Failed(grpc.StatusCode.UNAVAILABLE, "Socket closed")]
    ORDERS[method](leader.client, 0)
    (_, first, _), (_, repeated, _) = leader.asked
    assert first == repeated


@every_order
def test_a_leader_that_always_asks_to_try_again_is_given_up(leader: Leader, method: str) -> None:
    leader.failures = [Failed(grpc.StatusCode.UNAVAILABLE, "try again")] * 1_000
    with pytest.raises(ClusterUnreachable, match=r"did not answer in time: .*try again"):
        ORDERS[method](leader.client, 0)
    assert leader.now_s == pytest.approx(30.0, abs=1.0)


@pytest.mark.parametrize(
    ("method", "advice"),
    [
        ("TriggerSavepoint", "ask again with request id [0-9a-f]{32} to get the same savepoint"),
        ("Stop", "an order to stop remains in effect: stop the job again to wait for it"),
        ("Rescale", "the job may be rescaled all the same: rescale it again to wait for it"),
    ],
)
def test_an_order_without_an_answer_says_how_to_learn_of_its_outcome(leader: Leader, method: str, advice: str) -> None:
    leader.takes_s = None
    with pytest.raises(ClusterUnreachable, match=f"; {advice}$") as caught:
        ORDERS[method](leader.client, 3_000)
    if method == "TriggerSavepoint":
        assert leader.asked[0][1].request_id in str(caught.value)
    assert leader.now_s == pytest.approx(8.0, abs=0.2)
