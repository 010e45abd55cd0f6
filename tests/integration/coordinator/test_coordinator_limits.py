"""One client that has too much, and others that work meanwhile; and addresses that try wrong credentials."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from lockgate_common.proof import Peer
from lockgate_common.security import Credentials
from lockgate_common.serving import wrong_tries
from lockgate_common.token_book import issue
from lockgate_coordinator.runtime import rpc_server
from lockgate_coordinator.runtime.client_limits import Limits
from lockgate_coordinator.runtime.process import Coordinator
from lockgate_proto import messages as m
from lockgate_proto.codec import encode
from lockgate_proto.rpc import path

from lockgate.client import Client, ClusterUnreachable, NotAllowed
from lockgate.client.deadline import Deadline
from tests.integration.coordinator.conftest import SECRET, NewCoordinator, NewTaskManager, graph, leading, poll
from tests.quick_credentials import hash_quickly

pytestmark = pytest.mark.integration

LIST, WATCH, SUBMIT = (path("JobService", name) for name in ("List", "Watch", "Submit"))
RATE = 20


@dataclass
class LimitedCluster:
    """A leader on a clock that stands unless a client waits, and tokens."""

    leader: Coordinator
    file: Path
    now_s: float = 1_000.0

    def token(self, name: str) -> Credentials:
        return Credentials(token=issue(self.file, SECRET.secret, name, ("admin",), 0))

    def bearer(self, name: str) -> tuple[tuple[str, str], ...]:
        return Credentials(str(self.token(name).token)).metadata()


@pytest.fixture
def cluster(new_coordinator: NewCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LimitedCluster:
    monkeypatch.setattr(wrong_tries, "_FIRST_S", 0.0)
    hash_quickly(monkeypatch)
    file = tmp_path / "tokens.json"
    limits = {"max_client_requests": RATE, "max_client_streams": 2, "max_client_bytes": 1_000}
    made = LimitedCluster(leading(new_coordinator(tokens_file=str(file), **limits)), file)
    monkeypatch.setattr(made.leader._server._entrance, "_now_s", lambda: made.now_s)
    return made


class PatientClient(Client):
    """Waits on the clock of the test. pauses: how long, in seconds."""

    def __init__(self, cluster: LimitedCluster, name: str) -> None:
        super().__init__([cluster.leader.address], credentials=cluster.token(name))
        self._cluster = cluster
        self.pauses: list[float] = []

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self._cluster.now_s += seconds


@pytest.fixture
def channel(cluster: LimitedCluster) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(cluster.leader.address) as channel:
        yield channel


def refused(call: grpc.UnaryUnaryMultiCallable | grpc.UnaryStreamMultiCallable, *rest: Any) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as caught:
        list(call(rest[0], metadata=rest[1], timeout=30))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert int(dict(caught.value.trailing_metadata())["lockgate-retry-ms"]) >= 100
    return caught.value


def test_a_client_that_floods_is_refused_and_another_works(
    cluster: LimitedCluster, channel: grpc.Channel, new_task_manager: NewTaskManager
) -> None:
    list_jobs, flood, stop = channel.unary_unary(LIST), cluster.bearer("flood"), threading.Event()
    codes: set[grpc.StatusCode] = set()

    def keep_calling() -> None:
        while not stop.is_set():
            try:
                list_jobs(b"", metadata=flood, timeout=30)
            except grpc.RpcError as error:
                codes.add(error.code())

    flooding = threading.Thread(target=keep_calling)
    flooding.start()
    try:
        poll(lambda: codes)
        assert "more than 20 requests a second" in refused(list_jobs, b"", flood).details()
        with PatientClient(cluster, "worker") as worker:
            worker.submit("job", graph())
            new_task_manager().connect(cluster.leader.address)
            assert [job.job_key for job in worker.jobs()] == ["job"]
            worker.cancel("job")
            assert not worker.pauses
    finally:
        stop.set()
        flooding.join()
    assert codes == {grpc.StatusCode.RESOURCE_EXHAUSTED}


def test_calls_of_one_client_that_wait_leave_room_for_others(
    cluster: LimitedCluster, channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster.leader._server._entrance._limits, "_limits", Limits(calls=2))
    begun, go_on, check = threading.Semaphore(0), threading.Event(), rpc_server.check_request

    def waiting(request: object) -> None:
        check(request)
        if isinstance(request, m.GetRequest):
            begun.release()
            assert go_on.wait(60)

    monkeypatch.setattr(rpc_server, "check_request", waiting)
    get, eager, data = (
        channel.unary_unary(path("JobService", "Get")),
        cluster.bearer("eager"),
        encode(m.GetRequest("x")),
    )
    calls = [get.future(data, metadata=eager, timeout=60) for _ in range(2)]
    try:
        for _ in calls:
            assert begun.acquire(timeout=60)
        assert "waits for 2 calls" in refused(get, data, eager).details()
        with PatientClient(cluster, "other") as other:
            assert other.jobs() == ()
    finally:
        go_on.set()
    assert {call.exception().code() for call in calls} == {grpc.StatusCode.NOT_FOUND}
    assert channel.unary_unary(LIST)(b"", metadata=eager, timeout=30) is not None


def test_the_client_waits_for_the_given_time_and_continues(cluster: LimitedCluster) -> None:
    with PatientClient(cluster, "eager") as client:
        for _ in range(4 * RATE):
            assert client.jobs() == ()
        assert client.pauses
        assert all(0.1 <= pause < 0.2 for pause in client.pauses)
        assert sum(client.pauses) >= 1.5  # a burst of two seconds, and as much again at the rate


def test_streams_of_one_client(cluster: LimitedCluster, channel: grpc.Channel) -> None:
    watch, eager = channel.unary_stream(WATCH), cluster.bearer("eager")
    request = encode(m.WatchRequest("job"))
    with PatientClient(cluster, "other") as other:
        other.submit("job", graph())
        streams = [watch(request, metadata=eager, timeout=60) for _ in range(2)]
        for stream in streams:
            assert next(stream)
        assert "has 2 streams open" in refused(watch, request, eager).details()
        updates = other.watch("job")
        assert updates.poll(30_000) is not None
        updates.close()
        streams[0].cancel()
        again = []

        def opens() -> bool:
            again.append(watch(request, metadata=eager, timeout=60))
            cluster.now_s += 1.0
            try:
                return bool(next(again[-1]))
            except grpc.RpcError:
                return False

        poll(opens)
        for stream in (streams[1], *again):
            stream.cancel()


def test_a_watch_that_finds_no_place_gets_one_later(cluster: LimitedCluster, channel: grpc.Channel) -> None:
    with PatientClient(cluster, "eager") as client:
        client.submit("job", graph())
        eager = Credentials(str(client._credentials.token)).metadata()
        request = encode(m.WatchRequest("job"))
        streams = [channel.unary_stream(WATCH)(request, metadata=eager, timeout=60) for _ in range(2)]
        for stream in streams:
            assert next(stream)
        lost: list[str] = []
        updates = client.watch("job", lost.append)
        assert updates.poll(1_000) is None
        assert client.pauses
        for stream in streams:
            stream.cancel()
        assert updates.poll(30_000) is not None
        updates.close()
        assert lost == []  # the leader was there all the time


def test_bytes_of_requests_in_work(cluster: LimitedCluster, channel: grpc.Channel) -> None:
    """What another request has in work is counted by hand: only a storage that hangs keeps one there."""
    eager, name = cluster.bearer("eager"), "x" * 900
    with PatientClient(cluster, "other") as other:
        other.submit("job", graph())
        client = cluster.leader._server._entrance._limits._clients["as other"]
        with client.holds(900):
            request = encode(m.SubmitRequest("job-2", graph(name=name)))
            assert (
                "(coordinator.max_client_bytes)" in refused(channel.unary_unary(SUBMIT), request, _of(other)).details()
            )
        channel.unary_unary(SUBMIT)(request, metadata=_of(other), timeout=30)
        request = encode(m.SubmitRequest("job-3", graph(name=name)))
        channel.unary_unary(SUBMIT)(request, metadata=eager, timeout=30)


def _of(client: Client) -> tuple[tuple[str, str], ...]:
    return Credentials(str(client._credentials.token)).metadata()


def test_a_client_gives_up_in_time(cluster: LimitedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with Client([cluster.leader.address], credentials=cluster.token("eager")) as client:
        for _ in range(2 * RATE):
            client.jobs()
        pauses: list[float] = []
        monkeypatch.setattr(client, "pause", pauses.append)
        monkeypatch.setattr(Deadline, "expired", property(lambda _deadline: len(pauses) > 1))
        with pytest.raises(ClusterUnreachable, match=r"more than 20 requests a second"):
            client.jobs()


def test_task_managers_are_exempt(cluster: LimitedCluster, new_task_manager: NewTaskManager) -> None:
    for _ in range(5):
        assert new_task_manager().connect(cluster.leader.address).status is None  # more than two streams


def test_valid_credentials_are_accepted_from_an_address_with_many_wrong_ones(
    cluster: LimitedCluster, channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = cluster.leader._server.peer
    with pytest.raises(grpc.RpcError):
        channel.unary_unary(LIST)(b"", metadata=Credentials("wrong").metadata(), timeout=30)
    monkeypatch.setattr(wrong_tries, "_WAITING_OF_ONE", 0)
    assert "too many wrong credentials" in refused(channel.unary_unary(LIST), b"", ()).details()
    assert channel.unary_unary(LIST)(b"", metadata=cluster.bearer("a"), timeout=30) is not None
    assert channel.unary_unary(LIST)(b"", metadata=SECRET.metadata(), timeout=30) is not None
    with Client([me.address], credentials=SECRET) as owner, Client([me.address], credentials=cluster.token("b")) as b:
        assert owner.jobs() == b.jobs() == ()
    stale = SECRET.introduction(Peer(me.address, "the process before"), LIST).metadata
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(LIST)(b"", metadata=stale, timeout=30)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    with Client([me.address], credentials=Credentials("a wrong secret of it")) as stranger, pytest.raises(NotAllowed):
        stranger.jobs()
