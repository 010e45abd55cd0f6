"""Who may call what: every rpc with every role, with nothing, and with what has ended; and what the audit log says."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc
import pytest
from argon2 import PasswordHasher
from lockgate_common import token_book
from lockgate_common.proof import Peer
from lockgate_common.security import Credentials
from lockgate_common.token import Token, parse_token
from lockgate_common.token_book import issue, remove
from lockgate_coordinator.runtime import rpc_server
from lockgate_coordinator.runtime.access import ACCESS
from lockgate_coordinator.runtime.process import Coordinator
from lockgate_proto import messages as m
from lockgate_proto.rpc import SERVICES

from lockgate.client import Client, ClientError, NotAllowed
from tests.integration.coordinator.conftest import SECRET, NewCoordinator, graph, leading, poll

pytestmark = pytest.mark.integration

READ = {"read", "submit", "code", "operate", "admin", "secret"}
CALLERS = ("nobody", "wrong", "ended", "removed", *sorted(READ))
MAY = {
    "GetLeader": set(CALLERS),
    "Get": READ,
    "List": READ,
    "Watch": READ,
    "ListCheckpoints": READ,
    "GetStory": READ,
    "GetCluster": READ,
    "Submit": {"submit", "code", "admin", "secret"},
    "Cancel": {"operate", "admin", "secret"},
    "Release": {"operate", "admin", "secret"},
    "TriggerSavepoint": {"operate", "admin", "secret"},
    "Stop": {"operate", "admin", "secret"},
    "Rescale": {"operate", "admin", "secret"},
    "DisposeSavepoint": {"operate", "admin", "secret"},
    "Connect": {"secret"},
    "Follow": {"secret"},
}
PATHS = {name: method.path for service in SERVICES.values() for name, method in service.items() if name != "Open"}
PATHS |= {"Check": "/grpc.health.v1.Health/Check"}
MAY |= {"Check": set(CALLERS)}
CODE = m.Vertex("code", operators=(m.Operator("code", kind=m.KeyedProcess(("k",), b"a pickle", "", "k STRING")),))


@dataclass
class TestingCluster:
    """A leader, and somebody for each role."""

    leader: Coordinator
    file: Path
    tokens: dict[str, Token]

    def bearer(self, caller: str) -> tuple[tuple[str, str], ...]:
        texts = {"wrong": "not the secret of it", "secret": SECRET.secret} | {
            name: str(token) for name, token in self.tokens.items()
        }
        return Credentials(texts.get(caller, "")).metadata()

    def client(self, caller: str) -> Client:
        token = self.tokens.get(caller)
        return Client([self.leader.address], credentials=SECRET if token is None else Credentials(token=token))


@pytest.fixture
def cluster(new_coordinator: NewCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestingCluster:
    monkeypatch.setattr(rpc_server, "_REFUSAL_S", 0.0)
    monkeypatch.setattr(
        token_book, "PasswordHasher", partial(PasswordHasher, time_cost=1, memory_cost=8, parallelism=1)
    )
    file = tmp_path / "tokens.json"
    leader = leading(new_coordinator(tokens_file=str(file)))
    tokens = {role: issue(file, SECRET.secret, role, (role,), 0) for role in sorted(READ - {"secret"})}
    tokens["ended"] = issue(file, SECRET.secret, "ended", ("admin",), 1)
    tokens["removed"] = issue(file, SECRET.secret, "removed", ("admin",), 0)
    assert remove(file, "removed")
    return TestingCluster(leader, file, tokens)


def test_the_table_has_every_rpc_of_a_coordinator() -> None:
    assert set(MAY) == set(PATHS)
    assert set(PATHS.values()) <= set(ACCESS)


def test_every_rpc_with_every_role(cluster: TestingCluster) -> None:
    found: dict[str, set[str]] = {}
    with grpc.insecure_channel(cluster.leader.address) as channel:
        for name, path in PATHS.items():
            for caller in CALLERS:
                code = _code(channel, path, cluster.bearer(caller))
                unknown = caller in ("nobody", "wrong", "ended", "removed")
                refused = grpc.StatusCode.UNAUTHENTICATED if unknown else grpc.StatusCode.PERMISSION_DENIED
                if code is not refused:
                    assert code not in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
                    found.setdefault(name, set()).add(caller)
    assert found == MAY


def test_wrong_credentials_get_no_details_and_wait(cluster: TestingCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    sleep = rpc_server.asyncio.sleep

    async def noting(seconds: float) -> None:
        waited.append(seconds)
        await sleep(0)

    monkeypatch.setattr(rpc_server.asyncio, "sleep", noting)
    monkeypatch.setattr(rpc_server, "_REFUSAL_S", 0.25)
    said = set()
    with grpc.insecure_channel(cluster.leader.address) as channel:
        for caller in ("nobody", "wrong", "ended", "removed"):
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(PATHS["List"])(b"", metadata=cluster.bearer(caller), timeout=30)
            said.add(caught.value.details())
    assert said == {"the credentials of this call are missing, wrong or no longer valid"}
    assert waited.count(0.25) == 4


def test_a_client_with_a_token_never_shows_it_in_the_open(
    cluster: TestingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    at_once = rpc_server.Guard.at_once

    def noting(guard: rpc_server.Guard, method: str, metadata: object) -> object:
        shown.append(repr(metadata))
        return at_once(guard, method, metadata)

    monkeypatch.setattr(rpc_server.Guard, "at_once", noting)
    token = cluster.tokens["submit"]
    with cluster.client("submit") as client:
        assert client.submit("job", graph()).created
        assert client.job("job").job_key == "job"
        with pytest.raises(NotAllowed, match="needs the role operate, which submit does not have"):
            client.cancel("job")
        with pytest.raises(NotAllowed, match=r"operator 'code', which has a Python function .* needs the role code"):
            client.submit("other", m.JobGraph(vertices=(CODE,)))
    assert len(shown) >= 5
    assert not [text for text in shown if token.random in text or token.check in text]


def test_a_proof_with_a_token_is_for_one_process_alone(cluster: TestingCluster) -> None:
    me = cluster.leader._server.peer
    credentials = Credentials(token=cluster.tokens["admin"])
    with grpc.insecure_channel(cluster.leader.address) as channel:
        for peer in (me, Peer("127.0.0.1:1", me.instance), Peer(me.address, "another")):
            metadata = credentials.introduction(peer, PATHS["List"]).metadata
            code = _code(channel, PATHS["List"], metadata)
            assert (code is grpc.StatusCode.UNAUTHENTICATED) == (peer != me)
            assert _code(channel, PATHS["Cancel"], metadata) is grpc.StatusCode.UNAUTHENTICATED  # another method


def test_a_change_of_the_file_counts_at_once(cluster: TestingCluster) -> None:
    with cluster.client("read") as client:
        assert client.jobs() == ()
        assert remove(cluster.file, "read")
        with pytest.raises(NotAllowed):
            client.jobs()
        cluster.tokens["later"] = issue(cluster.file, SECRET.secret, "later", ("read",), 0)
    with cluster.client("later") as client:
        assert client.jobs() == ()


def test_the_caller_that_changes_a_job_is_logged(cluster: TestingCluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lockgate.audit")
    with cluster.client("code") as coder, cluster.client("operate") as operator, cluster.client("secret") as owner:
        coder.submit("job", graph())
        coder.jobs()
        operator.cancel("job")
        with pytest.raises(NotAllowed):
            coder.cancel("job")
        owner.submit("job-2", graph())
        with pytest.raises(Exception, match="forged"):
            owner.cancel("forged\nSubmit job='x' by='admin'")
    poll(lambda: len(_audited(caplog)) >= 5)
    lines = [line.partition(" from=")[0] + line.rpartition(":")[2] for line in _audited(caplog)]
    assert lines == [
        "Submit job='job' by='code' OK",
        "Cancel job='job' by='operate' OK",
        "Cancel job='' by='code' PERMISSION_DENIED",
        "Submit job='job-2' by='the secret' OK",
        "Cancel job=\"forged\\nSubmit job='x' by='admin'\" by='the secret' NOT_FOUND",
    ]


def test_a_token_of_another_cluster_is_worth_nothing(cluster: TestingCluster, tmp_path: Path) -> None:
    foreign = issue(tmp_path / "other.json", "the secret of another cluster", "me", ("admin",), 0)
    assert parse_token(str(foreign)) == foreign
    with (
        Client([cluster.leader.address], credentials=Credentials(token=foreign)) as client,
        pytest.raises(NotAllowed),
    ):
        client.jobs()


def _audited(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "lockgate.audit"]


def _code(channel: grpc.Channel, path: str, metadata: tuple[tuple[str, str], ...]) -> grpc.StatusCode:
    call = channel.stream_stream(path)(iter((b"",)), metadata=metadata, timeout=30)
    try:
        for _ in call:
            call.cancel()
            return grpc.StatusCode.OK
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def test_a_token_is_for_coordinators_alone(cluster: TestingCluster) -> None:
    token = Credentials(token=cluster.tokens["read"])
    with pytest.raises(ClientError, match="a token does not open ZooKeeper"):
        Client(zookeeper="127.0.0.1:1", credentials=token)
    with Client([cluster.leader.address], "127.0.0.1:1", credentials=token) as client:
        assert client.jobs() == ()
    assert cluster.tokens["read"].random not in repr(token)
    assert SECRET.secret not in repr(SECRET)
