"""A standby's follower against a scripted leader over real gRPC: what the replaced leader learns."""

from __future__ import annotations

import asyncio
import dataclasses
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from lockgate_common.proof import Peer
from lockgate_common.security import Credentials
from lockgate_common.serving.calls import Call
from lockgate_coordinator.runtime.follow import Follower
from lockgate_coordinator.runtime.health import Health
from lockgate_coordinator.runtime.rpc_server import RpcServer
from lockgate_coordinator.runtime.settings import CoordinatorSettings
from lockgate_devtools.cluster.ports import choose
from lockgate_proto.codec import encode
from lockgate_proto.messages import FollowRequest, LeaderBeat, LeaderRecord
from lockgate_proto.rpc import SERVER_OPTIONS, full_name, handler, path

from tests.impostor import Impostor

pytestmark = pytest.mark.integration

WAIT_S = 120.0
SECRET = Credentials(secret="a secret of this test")

NewFollower = Callable[..., Follower]


class Reports:
    """What a follower reports, as (name, token) in order."""

    def __init__(self, unanswering: Callable[[int], None] = lambda _: None) -> None:
        self.report_unanswering = unanswering
        self.silence: queue.Queue[tuple[str, int]] = queue.Queue()

    def report_leader_gone(self, token: int) -> None: ...

    def report_not_leading(self, token: int) -> None: ...

    def report_silent(self, token: int, patience_ms: int) -> None:
        assert patience_ms >= 1_000
        self.silence.put(("silent", token))

    def report_answered(self, token: int) -> None:
        self.silence.put(("answered", token))


class CutOffLeader:
    """Beats as the leader of token 1, whoever leads by now, and notes who asked it under which token."""

    def __init__(self, port: int) -> None:
        self.requests: queue.Queue[FollowRequest] = queue.Queue()
        self._over = threading.Event()
        self.may_beat = threading.Event()
        self.may_beat.set()
        self._pool = ThreadPoolExecutor(4, "cut-off-leader")
        self._server = grpc.server(self._pool, options=SERVER_OPTIONS)
        self._server.add_generic_rpc_handlers((handler("FollowService", self),))
        self.port = Credentials().bind(self._server, f"127.0.0.1:{port}")
        self._me = Peer(f"127.0.0.1:{self.port}", "")
        self._server.start()
        self.record = LeaderRecord(token=1, address=f"127.0.0.1:{self.port}", coordinator_id="former")

    def Follow(self, request: FollowRequest, context: grpc.ServicerContext) -> Iterator[LeaderBeat]:
        answer = SECRET.answer(self._me, path("FollowService", "Follow"), tuple(context.invocation_metadata()))
        assert answer
        context.send_initial_metadata(answer)
        self.requests.put(request)
        while context.is_active() and not self._over.wait(0.05):
            while not self.may_beat.wait(0.05):
                if self._over.is_set() or not context.is_active():
                    return
            yield LeaderBeat(1, True, "former")

    def stop(self) -> None:
        self._over.set()
        self._server.stop(0).wait()
        self._pool.shutdown()


@pytest.fixture
def former() -> Iterator[CutOffLeader]:
    leader = CutOffLeader(*choose(1))  # one that nothing else takes while a test has stopped it
    yield leader
    leader.stop()


@pytest.fixture
def new_follower(tmp_path: Path) -> Iterator[NewFollower]:
    made: list[Follower] = []

    def make(unanswering: Callable[[int], None] = lambda _: None, reports: Reports | None = None) -> Follower:
        settings = CoordinatorSettings(
            zookeeper="127.0.0.1:1", storage=str(tmp_path), heartbeat_ms=50, credentials=SECRET
        )
        follower = Follower(settings, "standby", reports or Reports(unanswering))
        made.append(follower)
        follower.start()
        return follower

    yield make
    for follower in made:
        follower.stop()


@pytest.fixture
def follower(new_follower: NewFollower) -> Follower:
    return new_follower()


@pytest.mark.parametrize("is_this_one", [True, False], ids=["this coordinator leads now", "another one leads now"])
def test_a_replaced_leader_is_notified_of_the_later_token(
    former: CutOffLeader, follower: Follower, is_this_one: bool
) -> None:
    follower.follow(former.record, 1)
    assert former.requests.get(timeout=WAIT_S) == FollowRequest("standby", 1)
    other = LeaderRecord(token=2, address="127.0.0.1:1", coordinator_id="other")
    follower.follow(None if is_this_one else other, 2)
    assert former.requests.get(timeout=WAIT_S) == FollowRequest("standby", 2)


def test_it_is_notified_even_if_it_could_not_be_reached_at_first(
    former: CutOffLeader, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockgate_coordinator.runtime.follow._NOTIFY_AGAIN_S", 0.05)
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


def test_a_leader_that_is_only_unreachable_is_not_notified(former: CutOffLeader, follower: Follower) -> None:
    follower.follow(former.record, 1)
    assert former.requests.get(timeout=WAIT_S) == FollowRequest("standby", 1)
    follower.follow(None, 0)
    follower.follow(dataclasses.replace(former.record), 1)  # seen again
    assert former.requests.get(timeout=WAIT_S) == FollowRequest("standby", 1)


@pytest.fixture
def mute() -> Iterator[LeaderRecord]:
    """A port that accepts connections and never answers: the kernel's side of a stuck process."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield LeaderRecord(token=1, address=f"127.0.0.1:{listener.getsockname()[1]}", coordinator_id="mute")


def test_a_leader_that_never_answered_is_reported_although_its_port_is_open(
    mute: LeaderRecord, new_follower: NewFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockgate_coordinator.runtime.follow.SILENT_S", 0.5)
    tokens: queue.Queue[int] = queue.Queue()
    new_follower(unanswering=tokens.put).follow(mute, 1)
    assert tokens.get(timeout=WAIT_S) == 1


def test_a_leader_whose_port_is_open_and_that_sends_nothing_is_reported_as_silent(
    mute: LeaderRecord, new_follower: NewFollower
) -> None:
    reports = Reports()
    new_follower(reports=reports).follow(mute, 1)
    for _ in range(3):
        assert reports.silence.get(timeout=WAIT_S) == ("silent", 1), "again and again, as long as it is"


def test_a_leader_that_sends_heartbeats_again_has_answered(
    former: CutOffLeader, new_follower: NewFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A health check that is answered counts as well, and would hide that heartbeats do."""
    monkeypatch.setattr("lockgate_coordinator.runtime.follow._is_answer", lambda _: False)
    reports = Reports()
    new_follower(reports=reports).follow(former.record, 1)
    former.requests.get(timeout=WAIT_S)
    former.may_beat.clear()
    while reports.silence.get(timeout=WAIT_S) != ("silent", 1):
        pass
    former.may_beat.set()
    while reports.silence.get(timeout=WAIT_S) != ("answered", 1):
        pass


def test_a_leader_that_answers_other_calls_does_not_count_as_stuck(
    new_follower: NewFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: queue.Queue[None] = queue.Queue()

    class Busy(Health):
        async def check(self, call: Call) -> None:
            asked.put(None)
            await super().check(call)

    monkeypatch.setattr("lockgate_coordinator.runtime.follow.SILENT_S", 0.0)
    monkeypatch.setattr("lockgate_coordinator.runtime.follow.ANSWER_S", WAIT_S)
    server, tokens = RpcServer(SECRET, "127.0.0.1:0"), queue.Queue[int]()

    async def never(_stream: object) -> None:
        await asyncio.Event().wait()

    server.add(full_name("FollowService"), {"Follow": (False, True, never)})
    Busy().add_to(server)
    server.start()
    peer = server.peer
    leader = LeaderRecord(token=1, address=peer.address, coordinator_id="busy", instance=peer.instance)
    new_follower(unanswering=tokens.put).follow(leader, 1)
    try:
        for _ in range(3):
            asked.get(timeout=WAIT_S)
        assert tokens.empty()
    finally:
        server.stop(0)


def test_a_planted_leader_gets_no_secret_and_is_not_followed(
    new_follower: NewFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockgate_coordinator.runtime.follow.SILENT_S", 0.2)
    tokens: queue.Queue[int] = queue.Queue()
    with Impostor([encode(LeaderBeat(3, True, "planted"))]) as impostor:
        new_follower(unanswering=tokens.put).follow(LeaderRecord(token=3, address=impostor.address), 3)
        assert SECRET.secret not in impostor.metadata_lines.get(timeout=WAIT_S)
        assert tokens.get(timeout=WAIT_S) == 3  # what it says counts as no answer
