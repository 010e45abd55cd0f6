"""The client at a coordinator, and at somebody who pretends to be one: what each gets to see of the secret."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import grpc
import pytest
from lockgate_common.security import Credentials
from lockgate_coordinator.runtime.guard import Guard
from lockgate_coordinator.runtime.process import Coordinator
from lockgate_proto import messages as m
from lockgate_proto.codec import encode
from lockgate_proto.rpc import SERVER_OPTIONS, SERVICES

from lockgate.client import Client, NotAllowed
from tests.integration.coordinator.conftest import SECRET, NewCoordinator, graph, leading, poll

pytestmark = pytest.mark.integration

PATIENCE_MS = 60_000
GET_LEADER = SERVICES["JobService"]["GetLeader"].path


class Impostor:
    """Listens where a coordinator may have been, names itself the leader, and keeps all that it is sent.

    behind: passes every other call on to this address, unchanged.
    """

    def __init__(self, record: m.LeaderRecord, behind: str = "") -> None:
        self.heard: list[tuple[str, str, bytes]] = []
        self._pool = ThreadPoolExecutor(4)
        self._server = grpc.server(self._pool, options=SERVER_OPTIONS)
        self._server.add_generic_rpc_handlers((self,))
        self.address = f"127.0.0.1:{Credentials().bind(self._server, '127.0.0.1:0')}"
        self._record = replace(record, address=self.address, token=record.token + 1)
        self._behind = grpc.insecure_channel(behind) if behind else None
        self._server.start()

    def service(self, details: Any) -> Any:
        """For grpcio."""
        metadata = tuple((key, value) for key, value in details.invocation_metadata if not key.startswith("user-"))
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self._answer(details.method, request, metadata, context)
        )

    def _answer(self, method: str, request: bytes, metadata: Any, context: grpc.ServicerContext) -> bytes:
        self.heard.append((method, repr(metadata), request))
        if method == GET_LEADER and not metadata:
            return encode(self._record)
        if self._behind is None:
            return b""
        try:
            return bytes(self._behind.unary_unary(method)(request, metadata=metadata, timeout=10))
        except grpc.RpcError as error:
            context.set_trailing_metadata(tuple(error.trailing_metadata() or ()))
            context.abort(error.code(), error.details())
            raise AssertionError from error

    def stop(self) -> None:
        self._server.stop(None).wait()
        self._pool.shutdown()
        if self._behind is not None:
            self._behind.close()


@pytest.fixture
def leader(new_coordinator: NewCoordinator) -> Coordinator:
    return leading(new_coordinator())


@pytest.fixture
def impostor(leader: Coordinator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Impostor]]:
    monkeypatch.setattr("lockgate.client.client.UNPROVEN_MS", 300)  # so long a stranger may be a leader of before
    made: list[Impostor] = []

    def make(behind: str = "") -> Impostor:
        poll(lambda: leader.elector.leader)
        record = leader.elector.leader
        assert record is not None
        made.append(Impostor(record, behind))
        return made[-1]

    yield make
    for impostor in made:
        impostor.stop()


def client_of(*addresses: str) -> Client:
    return Client(addresses, credentials=SECRET, patience_ms=PATIENCE_MS)


def test_a_client_shows_its_coordinator_no_secret(leader: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    at_once = Guard.at_once

    def noting(guard: Guard, method: str, metadata: Any) -> Any:
        shown.append(repr(metadata))
        return at_once(guard, method, metadata)

    monkeypatch.setattr(Guard, "at_once", noting)
    with client_of(leader.address) as client:
        client.submit("job", graph())
        assert [job.job_key for job in client.jobs()] == ["job"]
        for update in client.watch("job"):
            assert update is not None
            break
    assert len(shown) >= 4
    assert not [text for text in shown if SECRET.secret in text]


def test_an_impostor_leader_gets_neither_secret_nor_job(impostor: Callable[..., Impostor]) -> None:
    stranger = impostor()
    with client_of(stranger.address) as client:
        with pytest.raises(NotAllowed, match="does not prove that it knows the cluster's secret"):
            client.submit("job", graph(name="with-a-password"))
        with pytest.raises(NotAllowed, match="does not prove"):
            client.jobs()
        with pytest.raises(NotAllowed, match="does not prove"):
            list(client.watch("job"))
    assert {method.rpartition("/")[2] for method, _, _ in stranger.heard} == {"GetLeader", "List", "Watch"}
    for _, metadata, request in stranger.heard:
        assert SECRET.secret not in metadata
        assert b"with-a-password" not in request


def test_a_proxy_to_the_leader_is_admitted_nowhere(leader: Coordinator, impostor: Callable[..., Impostor]) -> None:
    between = impostor(behind=leader.address)
    with client_of(between.address) as client, pytest.raises(NotAllowed):
        client.submit("job", graph())
    assert between.heard[-1][0] != SERVICES["JobService"]["Submit"].path
    with client_of(leader.address) as client:
        assert client.jobs() == ()


def test_a_leader_that_was_started_again_at_its_address_is_found_again(leader: Coordinator) -> None:
    with client_of(leader.address) as client:
        before = client.leader()
        client._leader = replace(before, instance="of the process before")
        assert client.jobs() == ()
        client._leader = m.LeaderRecord(address=leader.address)  # as a standby's hint names it
        assert client.jobs() == ()
        client._leader = replace(before, instance="of the process before")
        client.submit("job", graph())  # which goes only to a process that has proved itself
        assert [job.job_key for job in client.jobs()] == ["job"]


def test_a_wrong_secret_is_one_error_at_once(leader: Coordinator) -> None:
    with (
        Client([leader.address], credentials=Credentials("another secret entirely"), patience_ms=PATIENCE_MS) as client,
        pytest.raises(NotAllowed, match="LOCKGATE_SECRET_FILE"),
    ):
        client.jobs()
