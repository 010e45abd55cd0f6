"""Who may call what: every rpc with every role, with nothing, and with what has ended; and what the audit log says."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import pytest
from lockgate_common.proof import Peer
from lockgate_common.security import Credentials, TlsFiles
from lockgate_common.serving import wrong_tries
from lockgate_common.token import Token, parse_jwt, parse_token
from lockgate_common.token_book import issue, remove
from lockgate_coordinator.runtime import entrance, job_service, rpc_server
from lockgate_coordinator.runtime.access import ACCESS
from lockgate_coordinator.runtime.audit import AuditedCall
from lockgate_coordinator.runtime.jwt_issuer import JwtIssuer
from lockgate_coordinator.runtime.process import Coordinator
from lockgate_proto import messages as m
from lockgate_proto.codec import decode, encode
from lockgate_proto.rpc import SERVICES
from lockgate_taskmanager.exchange.fencing import TokenFence
from lockgate_taskmanager.exchange.registry import GateRegistry
from lockgate_taskmanager.exchange.server import ExchangeServer

from lockgate.client import Client, ClientError, NotAllowed
from tests.certificates import make_certificates
from tests.fuzz.rpcs import services
from tests.integration.coordinator.conftest import SECRET, NewCoordinator, graph, leading, poll
from tests.jwts import ISSUER, TestingIssuer, ec_key
from tests.quick_credentials import hash_quickly, note_waits

pytestmark = pytest.mark.integration

ROLES = ("read", "submit", "code", "operate", "admin")
UNKNOWN = ("nobody", "wrong", "ended", "removed", "jwt ended", "jwt of another key", "jwt for others", "jwt of no role")


def _with(*roles: str) -> set[str]:
    """Callers with one of these roles, by a token or a JWT."""
    return {*roles, *(f"jwt {role}" for role in roles if role in ROLES)}


READ = _with(*ROLES, "secret")
CALLERS = (*UNKNOWN, *sorted(READ))
SUBMIT, OPERATE = _with("submit", "code", "admin", "secret"), _with("operate", "admin", "secret")
MAY = {
    "GetLeader": set(CALLERS),
    "Get": READ,
    "List": READ,
    "Watch": READ,
    "ListCheckpoints": READ,
    "GetCheckpoint": READ,
    "GetStory": READ,
    "GetCluster": READ,
    "QueryState": SUBMIT,
    "Submit": SUBMIT,
    "Cancel": OPERATE,
    "Release": OPERATE,
    "TriggerSavepoint": OPERATE,
    "Stop": OPERATE,
    "Rescale": OPERATE,
    "DisposeSavepoint": OPERATE,
    "Connect": {"secret"},
    "Follow": {"secret"},
}
PATHS = {name: method.path for service in SERVICES.values() for name, method in service.items()}
PATHS |= {
    name: f"/grpc.health.v1.Health/{name.removeprefix('Health')}" for name in ("Check", "HealthWatch", "HealthList")
}
PATHS |= {"Reflection": "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"}
MAY |= {name: set(CALLERS) for name in ("Check", "HealthWatch", "Reflection")}
NOT_SERVED = ("HealthList", "Open")
CODE = m.Vertex("code", operators=(m.Operator("code", kind=m.KeyedProcess(("k",), b"a pickle", "", "k STRING")),))


@dataclass
class TestingCluster:
    """A leader, and somebody for each role."""

    leader: Coordinator
    file: Path
    tokens: dict[str, Token]
    issuer: TestingIssuer

    def bearer(self, caller: str) -> tuple[tuple[str, str], ...]:
        texts = {"wrong": "not the secret of it", "secret": SECRET.secret} | {
            name: str(token) for name, token in self.tokens.items()
        }
        texts |= {f"jwt {role}": self.issuer.sign(role) for role in ROLES} | {
            "jwt ended": self.issuer.sign("admin", exp=1),
            "jwt of another key": self.issuer.sign("admin", key=ec_key()),
            "jwt for others": self.issuer.sign("admin", aud="another cluster"),
            "jwt of no role": self.issuer.sign("dancer"),
        }
        return Credentials(texts.get(caller, "")).metadata()

    @property
    def leader_issuer(self) -> JwtIssuer:
        found = self.leader._server._guard._callers._issuer
        assert found is not None
        return found

    def client(self, caller: str) -> Client:
        token = self.tokens.get(caller)
        return Client([self.leader.address], credentials=SECRET if token is None else Credentials(token=token))


@pytest.fixture
def cluster(new_coordinator: NewCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestingCluster:
    monkeypatch.setattr(wrong_tries, "_FIRST_S", 0.0)
    hash_quickly(monkeypatch)
    file = tmp_path / "tokens.json"
    issuer = TestingIssuer(tmp_path)
    leader = leading(new_coordinator(tokens_file=str(file), jwt=issuer.settings))
    tokens = {role: issue(file, SECRET.secret, role, (role,), 0) for role in ROLES}
    tokens["ended"] = issue(file, SECRET.secret, "ended", ("admin",), 1)
    tokens["removed"] = issue(file, SECRET.secret, "removed", ("admin",), 0)
    assert remove(file, "removed")
    return TestingCluster(leader, file, tokens, issuer)


def test_the_table_has_every_rpc() -> None:
    """Of every service that there is, whichever process serves it."""
    every = {f"/{name}/{rpc.name}" for name, service in services().items() for rpc in service.methods}
    assert set(PATHS.values()) == every
    assert set(MAY) == set(PATHS) - set(NOT_SERVED)
    assert {PATHS[name] for name in MAY} == set(ACCESS)


def test_every_rpc_with_every_role(cluster: TestingCluster) -> None:
    assert _who_may(cluster, cluster.leader.address, CALLERS) == MAY


def test_every_rpc_of_an_exchange_with_every_role(cluster: TestingCluster) -> None:
    """It knows the secret, and no roles."""
    server = ExchangeServer(SECRET, TokenFence(), GateRegistry())
    address = server.start("127.0.0.1:0")
    try:
        found = _who_may(cluster, address, CALLERS)
    finally:
        server.stop()
    assert found == {"Check": set(CALLERS), "HealthWatch": set(CALLERS), "Open": {"secret"}}


def _who_may(cluster: TestingCluster, address: str, callers: Sequence[str]) -> dict[str, set[str]]:
    """By rpc. Where it is served, no other caller gets further than to the refusal that belongs to what was shown."""
    found: dict[str, set[str]] = {}
    with grpc.insecure_channel(address) as channel:
        for name, path in PATHS.items():
            for caller in callers:
                code = _code(channel, path, cluster.bearer(caller))
                if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
                    is_known = caller not in UNKNOWN and address == cluster.leader.address
                    assert (code is grpc.StatusCode.PERMISSION_DENIED) == is_known
                elif code is not grpc.StatusCode.UNIMPLEMENTED:
                    found.setdefault(name, set()).add(caller)
    return found


def test_wrong_credentials_get_no_details_and_wait_longer_each_time(
    cluster: TestingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = note_waits(monkeypatch)
    monkeypatch.setattr(wrong_tries, "_FIRST_S", 0.25)
    said = set()
    with grpc.insecure_channel(cluster.leader.address) as channel:
        list_jobs = channel.unary_unary(PATHS["List"])
        for caller in UNKNOWN:
            with pytest.raises(grpc.RpcError) as caught:
                list_jobs(b"", metadata=cluster.bearer(caller), timeout=30)
            said.add(caught.value.details())
        stale = SECRET.introduction(Peer(cluster.leader.address, "the process before"), PATHS["List"]).metadata
        assert _code(channel, PATHS["List"], stale) is grpc.StatusCode.UNAUTHENTICATED
        for caller in ("secret", "read", "jwt read"):
            list_jobs(b"", metadata=cluster.bearer(caller), timeout=30)
    assert said == {"the credentials of this call are missing, wrong or no longer valid"}
    assert [delay for delay in waited if delay >= 0.25] == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0]


@pytest.mark.parametrize("shown", ["of another secret", "of a token that was removed", "of nobody"])
def test_wrong_proofs_wait_and_are_logged_like_wrong_bearers(
    cluster: TestingCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, shown: str
) -> None:
    monkeypatch.setattr(wrong_tries, "_STALE_PROOFS", 2)
    monkeypatch.setattr(wrong_tries, "_FIRST_S", 0.25)
    waited = note_waits(monkeypatch)
    me, token = cluster.leader._server.peer, cluster.tokens["removed"]
    makers = {
        "of another secret": lambda: Credentials("not the secret of it").introduction(me, PATHS["List"]).metadata,
        "of a token that was removed": lambda: Credentials(token=token).introduction(me, PATHS["List"]).metadata,
        "of nobody": lambda: (("authorization", f"Lockgate {os.urandom(16).hex()}.{os.urandom(32).hex()}"),),
    }
    with grpc.insecure_channel(cluster.leader.address) as channel:
        for _ in range(6):
            assert _code(channel, PATHS["List"], makers[shown]()) is grpc.StatusCode.UNAUTHENTICATED
        mine = SECRET.introduction(me, PATHS["List"]).metadata
        assert _code(channel, PATHS["List"], mine) is grpc.StatusCode.OK
    assert [delay for delay in waited if delay >= 0.25] == [0.25, 0.5, 1.0, 2.0]
    assert "1 calls with wrong or missing credentials from 127.0.0.1 in a row" in caplog.text


@pytest.mark.parametrize("caller", ["read", "jwt read"])
def test_a_watch_ends_with_the_credentials_that_opened_it(
    cluster: TestingCluster, monkeypatch: pytest.MonkeyPatch, caller: str
) -> None:
    monkeypatch.setattr(entrance, "_LOOK_AGAIN_S", 0.05)
    with cluster.client("secret") as owner, grpc.insecure_channel(cluster.leader.address) as channel:
        owner.submit("job", graph())
        request = encode(m.WatchRequest("job"))
        watch = channel.unary_stream(PATHS["Watch"])
        other = watch(request, metadata=cluster.bearer("jwt admin" if caller == "read" else "admin"), timeout=60)
        stream = watch(request, metadata=cluster.bearer(caller), timeout=60)
        assert next(stream)
        assert next(other)
        if caller == "read":
            assert remove(cluster.file, "read")
        else:
            monkeypatch.setattr(cluster.leader_issuer, "_now_s", lambda: 9e9)
        with pytest.raises(grpc.RpcError) as caught:
            list(stream)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert other.is_active()  # another's, who is still known
        owner.cancel("job")
        assert list(other)


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


def test_the_role_alone_decides_whether_a_job_is_confined(cluster: TestingCluster) -> None:
    for caller, expected in (("submit", True), ("code", False), ("secret", False)):
        for sent in (False, True):
            key = f"{caller}-{sent}"
            with cluster.client(caller) as client:
                client.submit(key, replace(graph(), confined=sent))
            runner = cluster.leader.dispatcher.call(lambda term: term.jobs)[key]
            assert decode(m.JobGraph, runner.record.graph).confined is expected, key


def test_a_private_place_is_refused_with_a_reason(cluster: TestingCluster) -> None:
    source = m.Vertex("source", operators=(m.Operator("read", kind=m.FileSource(path=str(cluster.file))),))
    why = re.escape(
        f"reads {cluster.file} (it belongs to the cluster itself); this needs the role code, which submit does"
    )
    with cluster.client("submit") as client, pytest.raises(NotAllowed, match=why):
        client.submit("job", m.JobGraph(vertices=(source,)))


def test_a_database_is_a_path_whatever_it_looks_like(cluster: TestingCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(cluster.file.parent)
    sink = m.Vertex("v", operators=(m.Operator("write", kind=m.SqlSink("sqlite:///s3://../tokens.json", "t")),))
    with cluster.client("submit") as client, pytest.raises(NotAllowed, match=r"operator 'write' writes .* the cluster"):
        client.submit("job", m.JobGraph(vertices=(sink,)))


def test_a_job_starts_from_its_clusters_folder_or_a_place_that_it_may_use(
    cluster: TestingCluster, tmp_path: Path
) -> None:
    storage = Path(cluster.leader.settings.storage)
    (tmp_path / "link").symlink_to("/etc")
    cases = {
        f"{cluster.file}": "it belongs to the cluster itself",
        "/etc/hostname": "jobs do not use what is in /etc",
        "file:///etc/hostname#": "jobs do not use what is in /etc",
        f"{tmp_path}/link/x": "jobs do not use what is in /etc",
        f"{storage}/default/../../tokens.json": "it belongs to the cluster itself",
    }
    with cluster.client("submit") as client:
        for place, why in cases.items():
            said = re.escape(f"restore_from is {place} ({why}); this needs the role code, which submit does not have")
            with pytest.raises(NotAllowed, match=said):
                client.submit("job", graph(), restore_from=place)
        for place in (f"{storage}/{cluster.leader.settings.cluster}/job/run/chk-1", str(tmp_path / "moved")):
            with pytest.raises(ClientError, match=r"cannot start from .* does not exist"):
                client.submit("job", graph(), restore_from=place)


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
        with grpc.insecure_channel(cluster.leader.address) as channel:
            bearer = Credentials(cluster.issuer.sign("operate", sub="bob\n'")).metadata()
            channel.unary_unary(PATHS["Cancel"])(encode(m.CancelRequest("job-2")), metadata=bearer, timeout=30)
    poll(lambda: len(_audited(caplog)) >= 11)
    lines = [line.partition(" from=")[0] + line.rpartition(":")[2] for line in _audited(caplog)]
    assert lines == [
        "Submit job='job' by='code' asked",
        "Submit job='job' by='code' OK",
        "Cancel job='job' by='operate' asked",
        "Cancel job='job' by='operate' OK",
        "Cancel job='' by='code' PERMISSION_DENIED",
        "Submit job='job-2' by='the secret' asked",
        "Submit job='job-2' by='the secret' OK",
        "Cancel job=\"forged\\nSubmit job='x' by='admin'\" by='the secret' asked",
        "Cancel job=\"forged\\nSubmit job='x' by='admin'\" by='the secret' NOT_FOUND",
        f"Cancel job='job-2' by=\"bob\\n' of {ISSUER}\" asked",
        f"Cancel job='job-2' by=\"bob\\n' of {ISSUER}\" OK",
    ]


def test_a_change_is_logged_before_it_is_made(
    cluster: TestingCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The process may die in between."""
    caplog.set_level(logging.INFO, "lockgate.audit")
    check, before = job_service.check_new, list[str]()

    def noting(job_key: str) -> None:
        before.extend(_audited(caplog))
        check(job_key)

    monkeypatch.setattr(job_service, "check_new", noting)
    with cluster.client("code") as coder:
        coder.submit("job", graph())
    (line,) = before
    assert line.startswith("Submit job='job' by='code' from=")
    assert line.endswith(": asked")


def test_a_change_whose_caller_has_disconnected_is_logged(
    cluster: TestingCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "lockgate.audit")
    begun, go_on, end = threading.Event(), threading.Event(), AuditedCall.end
    check = rpc_server.check_request

    def waiting(request: object) -> None:
        check(request)
        if isinstance(request, m.CancelRequest):
            begun.set()
            assert go_on.wait(60)

    monkeypatch.setattr(rpc_server, "check_request", waiting)
    ended: list[str] = []
    monkeypatch.setattr(AuditedCall, "end", lambda call, outcome: (ended.append(outcome), end(call, outcome))[1])
    with cluster.client("code") as coder, grpc.insecure_channel(cluster.leader.address) as channel:
        coder.submit("job", graph())
        call = channel.unary_unary(PATHS["Cancel"]).future(
            encode(m.CancelRequest("job")), metadata=cluster.bearer("operate"), timeout=60
        )
        assert begun.wait(60)
        call.cancel()
        poll(lambda: "CANCELLED" in ended)
        go_on.set()
        poll(lambda: coder.job("job").state is m.JobState.CANCELED)
    assert [line for line in _audited(caplog) if line.startswith("Cancel ") and line.endswith(": CANCELLED")]


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
    with pytest.raises(ClientError, match="a token gives no access to ZooKeeper"):
        Client(zookeeper="127.0.0.1:1", credentials=token)
    with Client([cluster.leader.address], "127.0.0.1:1", credentials=token) as client:
        assert client.jobs() == ()
    assert cluster.tokens["read"].random not in repr(token)
    assert SECRET.secret not in repr(SECRET)


def test_a_client_with_a_jwt(new_coordinator: NewCoordinator, tmp_path: Path) -> None:
    tls, issuer = make_certificates(tmp_path / "tls"), TestingIssuer(tmp_path)
    leader = leading(new_coordinator(credentials=Credentials(SECRET.secret, tls), jwt=issuer.settings))
    authority = TlsFiles(authority=tls.authority)
    mine = Credentials(tls=authority, token=parse_jwt(issuer.sign("submit")))
    with Client([leader.address], credentials=mine) as client:
        assert client.submit("job", graph()).created
        watch = client.watch("job")
        assert watch.poll(30_000) is not None
        watch.close()
        with pytest.raises(NotAllowed, match=f"needs the role operate, which alice of {ISSUER} does not have"):
            client.cancel("job")
    ended = Credentials(tls=authority, token=parse_jwt(issuer.sign("submit", exp=1)))
    with Client([leader.address], credentials=ended) as client, pytest.raises(NotAllowed, match="no longer valid"):
        client.jobs()
