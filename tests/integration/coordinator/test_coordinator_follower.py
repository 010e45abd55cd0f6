"""A standby's follower against a scripted leader over real gRPC: what the leader is told when it was replaced."""

from __future__ import annotations

import dataclasses
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from lockgate_proto.messages import FollowRequest, LeaderBeat, LeaderRecord
from lockgate_proto.rpc import SERVER_OPTIONS, handler
from lockgate_proto.security import Credentials

from coordinator.runtime.follow import Follower
from coordinator.runtime.settings import CoordinatorSettings
from lockgate.local.ports import choose

pytestmark = pytest.mark.integration

WAIT_S = 60.0


class CutOffLeader:
    """Beats as the leader of token 1, whoever leads by now, and notes who asked it under which token."""

    def __init__(self, port: int) -> None:
        self.requests: queue.Queue[FollowRequest] = queue.Queue()
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(4, "cut-off-leader")
        self._server = grpc.server(self._pool, options=SERVER_OPTIONS)
        self._server.add_generic_rpc_handlers((handler("FollowService", self),))
        self.port = Credentials().bind(self._server, f"127.0.0.1:{port}")
        self._server.start()
        self.record = LeaderRecord(token=1, address=f"127.0.0.1:{self.port}", coordinator_id="former")

    def Follow(self, request: FollowRequest, context: grpc.ServicerContext) -> Iterator[LeaderBeat]:
        self.requests.put(request)
        while context.is_active() and not self._over.wait(0.05):
            yield LeaderBeat(1, True, "former")

    def stop(self) -> None:
        self._over.set()
        self._server.stop(0).wait()
        self._pool.shutdown()


@pytest.fixture
def former() -> Iterator[CutOffLeader]:
    leader = CutOffLeader(*choose(1))  # one that nobody takes while a test has stopped it
    yield leader
    leader.stop()


@pytest.fixture
def follower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Follower]:
    settings = CoordinatorSettings(zookeeper="127.0.0.1:1", storage=str(tmp_path_factory.mktemp("storage")))
    made = Follower(settings, "standby", gone=lambda _: None, not_leading=lambda _: None)
    made.start()
    yield made
    made.stop()


@pytest.mark.parametrize("is_this_one", [True, False], ids=["this coordinator leads now", "another one leads now"])
def test_a_leader_that_was_replaced_is_told_of_the_later_token(
    former: CutOffLeader, follower: Follower, is_this_one: bool
) -> None:
    follower.follow(former.record, 1)
    assert former.requests.get(timeout=WAIT_S) == FollowRequest("standby", 1)
    other = LeaderRecord(token=2, address="127.0.0.1:1", coordinator_id="other")
    follower.follow(None if is_this_one else other, 2)
    assert former.requests.get(timeout=WAIT_S) == FollowRequest("standby", 2)


def test_it_is_told_also_when_it_could_not_be_reached_at_first(
    former: CutOffLeader, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.runtime.follow._TELL_AGAIN_S", 0.05)
    follower.follow(former.record, 1)
    former.requests.get(timeout=WAIT_S)
    former.stop()  # cut off from everybody
    follower.follow(None, 0)
    follower.follow(None, 2)
    back = CutOffLeader(former.port)
    try:
        assert back.requests.get(timeout=WAIT_S) == FollowRequest("standby", 2)
    finally:
        back.stop()


def test_a_leader_that_is_only_out_of_sight_is_told_nothing(former: CutOffLeader, follower: Follower) -> None:
    follower.follow(former.record, 1)
    assert former.requests.get(timeout=WAIT_S) == FollowRequest("standby", 1)
    follower.follow(None, 0)
    follower.follow(dataclasses.replace(former.record), 1)  # seen again
    assert former.requests.get(timeout=WAIT_S) == FollowRequest("standby", 1)
