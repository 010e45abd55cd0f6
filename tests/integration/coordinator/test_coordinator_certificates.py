"""tls.mutual at a coordinator: who may connect, what a certificate is good for, what the others read, and renewal."""

from __future__ import annotations

import logging
import re
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from lockgate_common.certificates import load_authority
from lockgate_common.roles import Role
from lockgate_common.security import Credentials, TlsFiles
from lockgate_common.serving import wrong_tries
from lockgate_common.token_book import issue
from lockgate_coordinator.runtime import entrance
from lockgate_coordinator.runtime.callers import Admission
from lockgate_coordinator.runtime.calls import ClientCall
from lockgate_coordinator.runtime.process import Coordinator
from lockgate_proto import messages as m

from lockgate.cli import run
from lockgate.client import Client, ClientError, NotAllowed, directory
from lockgate.client.channels import Channels
from tests.certificates import ended_certificate, make_certificates
from tests.integration.coordinator.conftest import (
    SECRET,
    WAIT_S,
    Caller,
    NewCoordinator,
    NewTaskManager,
    graph,
    leading,
    poll,
)
from tests.integration.coordinator.test_coordinator_roles import MAY, PATHS
from tests.integration.coordinator.test_coordinator_roles import _code as code_of

pytestmark = pytest.mark.integration

ROLES = sorted(role.value for role in Role)


@dataclass
class MutualCluster:
    """A leader that asks for certificates, and callers with one, by name."""

    leader: Coordinator
    server: TlsFiles
    clients: dict[str, TlsFiles]

    def client(self, name: str, secret: str = "") -> Client:
        return Client([self.leader.address], credentials=Credentials(secret, self.clients[name]), patience_ms=WAIT_MS)

    def let_days_pass(self, days: int) -> None:
        """For the coordinator's own clock, not for handshakes."""
        self.leader._server._guard._callers._now_s = lambda: time.time() + days * 86_400


WAIT_MS = int(WAIT_S * 1000)
REFUSED = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNIMPLEMENTED)


@pytest.fixture
def cluster(new_coordinator: NewCoordinator, tmp_path: Path) -> MutualCluster:
    folder = tmp_path / "tls"
    server = replace(make_certificates(folder), mutual=True)
    clients = {name: make_certificates(folder, name, hosts=()) for name in (*ROLES, "guest")}
    clients["none"] = TlsFiles(authority=server.authority)
    other = make_certificates(tmp_path / "other", "admin")
    clients["foreign"] = replace(other, authority=server.authority)
    clients["ended"] = ended_certificate(folder, "ended")
    clients["mistaken"] = replace(clients["admin"], authority=other.authority)
    roles = {role: (role,) for role in ROLES} | {"ended": ("admin",)}
    tokens = tmp_path / "tokens.json"
    leader = leading(
        new_coordinator(
            credentials=Credentials(SECRET.secret, server), certificate_roles=roles, tokens_file=str(tokens)
        )
    )
    return MutualCluster(leader, server, clients)


def test_every_rpc_with_every_certificate(cluster: MutualCluster) -> None:
    found: dict[str, set[str]] = {}
    for name in (*ROLES, "guest"):
        with Credentials(tls=cluster.clients[name]).channel(cluster.leader.address) as channel:
            grpc.channel_ready_future(channel).result(WAIT_S)
            for method, path in PATHS.items():
                code = code_of(channel, path, ())
                assert code is not grpc.StatusCode.UNAUTHENTICATED
                if code not in REFUSED:
                    found.setdefault(method, set()).add(name)
    assert found == {
        method: set(callers) & set(ROLES) | ({"guest"} if "nobody" in callers else set())
        for method, callers in MAY.items()
        if set(callers) & set(ROLES)
    }


def test_no_rpc_once_the_certificate_of_the_connection_has_ended(
    cluster: MutualCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handshake was before that."""
    monkeypatch.setattr(wrong_tries, "_FIRST_S", 0.0)
    with (
        Credentials(tls=cluster.clients["admin"]).channel(cluster.leader.address) as channel,
        Credentials(tls=cluster.clients["admin"]).channel(cluster.leader.address) as other,
    ):
        for connection in (channel, other):
            grpc.channel_ready_future(connection).result(WAIT_S)
        allowed = {name for name, path in PATHS.items() if code_of(channel, path, ()) not in REFUSED}
        assert {"List", "Cancel"} < allowed
        assert code_of(other, PATHS["List"], SECRET.metadata()) is grpc.StatusCode.OK
        cluster.let_days_pass(2)
        still = {name for name, path in PATHS.items() if code_of(channel, path, ()) not in REFUSED}
        assert still == {name for name, callers in MAY.items() if "nobody" in callers}
        assert code_of(other, PATHS["List"], SECRET.metadata()) is grpc.StatusCode.OK, "the secret has no end"


@pytest.mark.parametrize("name", ["none", "foreign", "ended", "mistaken"])
def test_no_rpc_without_a_certificate_of_the_authority(cluster: MutualCluster, name: str) -> None:
    with Credentials(tls=cluster.clients[name]).channel(cluster.leader.address) as channel:
        for path in PATHS.values():
            assert code_of(channel, path, SECRET.metadata()) is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("none", "for clients without a certificate; set tls.certificate and tls.key"),
        ("foreign", "its authority has not signed the certificate .*set tls.certificate and tls.key"),
        ("mistaken", "has a certificate that is not of the authority .*set tls.authority"),
    ],
)
def test_a_client_learns_which_setting_is_missing(
    cluster: MutualCluster,
    name: str,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(directory, "FIRST_ANSWER_MS", 500)  # it is not let in
    with cluster.client(name, SECRET.secret) as client:
        poll(lambda: re.match(f"{cluster.leader.address} .*{sentence}", _error(client)))
    files = cluster.clients[name]
    for part in ("certificate", "key", "authority"):
        monkeypatch.setenv(f"LOCKGATE_TLS_{part.upper()}", getattr(files, part))
    health = ["health", cluster.leader.address, "--timeout", str(WAIT_S)]
    poll(lambda: run(health) == 1 and re.search(f"is not ready: it .*{sentence}", capsys.readouterr().out))


def test_the_health_command_shows_its_certificate(
    cluster: MutualCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for part in ("certificate", "key", "authority"):
        monkeypatch.setenv(f"LOCKGATE_TLS_{part.upper()}", getattr(cluster.clients["guest"], part))
    poll(lambda: run(["health", cluster.leader.address, "--timeout", str(WAIT_S)]) == 0)
    assert "is ready" in capsys.readouterr().out


def test_a_certificate_appears_in_the_audit_log(cluster: MutualCluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lockgate.audit")
    with cluster.client("submit") as author, cluster.client("guest") as guest:
        author.submit("job", graph())
        with pytest.raises(NotAllowed, match="needs the role operate, which certificate submit does not have"):
            author.cancel("job")
        with pytest.raises(NotAllowed, match="needs the role operate, which certificate guest does not have"):
            guest.cancel("job")
    lines = [record.getMessage() for record in caplog.records if record.name == "lockgate.audit"]
    assert [line.partition(" from=")[0] for line in lines] == [
        "Submit job='job' by='certificate submit'",
        "Submit job='job' by='certificate submit'",
        "Cancel job='' by='certificate submit'",
        "Cancel job='' by='certificate guest'",
    ]


@pytest.mark.parametrize("renewed", [True, False])
def test_a_watch_lives_as_long_as_its_certificate(
    cluster: MutualCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renewed: bool
) -> None:
    """With a new one the client opens it again."""
    monkeypatch.setattr(entrance, "_LOOK_AGAIN_S", 0.02)
    monkeypatch.setattr(wrong_tries, "_FIRST_S", 0.0)
    looks, look = threading.Semaphore(0), entrance.Entrance._again

    def again(self: entrance.Entrance, call: ClientCall) -> Awaitable[Admission]:
        looks.release()
        return look(self, call)

    monkeypatch.setattr(entrance.Entrance, "_again", again)
    with cluster.client("admin") as owner, cluster.client("read") as reader:
        owner.submit("job", graph())
        lost: list[str] = []
        watch = reader.watch("job", lost.append)
        assert watch.poll(WAIT_MS) is not None
        for _ in range(5):
            assert looks.acquire(timeout=WAIT_S)
        assert not lost
        if renewed:
            authority = load_authority(tmp_path / "tls")
            assert authority is not None
            new, mine = authority.issue(tmp_path, "read", (), 5), cluster.clients["read"]
            shutil.copy(new.certificate, mine.certificate)
            shutil.copy(new.key, mine.key)
        cluster.let_days_pass(2)
        if renewed:
            poll(lambda: lost or (watch.poll(10) and False))
            assert "the certificate of this connection has expired" in lost[0]
            with cluster.client("guest", SECRET.secret) as by_secret:
                by_secret.cancel("job")
            poll(lambda: watch.ended or (watch.poll(10) and False))
        else:
            with pytest.raises(NotAllowed, match="missing, wrong or no longer valid"):
                poll(lambda: watch.poll(10) and False)


def test_credentials_of_a_call_take_precedence_over_the_certificate(cluster: MutualCluster, tmp_path: Path) -> None:
    with cluster.client("guest", SECRET.secret) as owner:
        assert owner.jobs() == ()
    with cluster.client("admin", "not the secret of it") as wrong, pytest.raises(NotAllowed):
        wrong.jobs()
    token = issue(tmp_path / "tokens.json", SECRET.secret, "reader", ("read",), 0)
    both = Credentials(tls=cluster.clients["admin"], token=token)
    with Client([cluster.leader.address], credentials=both) as client:
        assert client.jobs() == ()
        with pytest.raises(NotAllowed, match="which reader does not have"):
            client.cancel("job")


def test_a_standby_and_a_task_manager_show_theirs(
    cluster: MutualCluster, new_coordinator: NewCoordinator, new_task_manager: NewTaskManager
) -> None:
    credentials = Credentials(SECRET.secret, cluster.server)
    standby = new_coordinator(credentials=credentials)
    task_manager = new_task_manager(credentials=credentials)
    poll(lambda: task_manager.connect(cluster.leader.address).status is None)
    with Client([standby.address], credentials=credentials, patience_ms=WAIT_MS) as client:
        poll(lambda: len(client.cluster().task_managers) == 1)


def test_a_standby_with_another_authority_names_the_wrong_setting(
    cluster: MutualCluster, new_coordinator: NewCoordinator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "lockgate_coordinator.runtime.follow")
    other = replace(make_certificates(tmp_path / "other", "standby"), mutual=True)
    new_coordinator(credentials=Credentials(SECRET.secret, other))
    poll(lambda: caplog.records)
    (said,) = {record.getMessage() for record in caplog.records}
    assert said.startswith(f"the leader {cluster.leader.address} cannot be followed: it has a certificate that is not")
    assert "set tls.authority" in said


def test_renewed_certificates_are_shown_without_a_restart(
    cluster: MutualCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = _serial(cluster)
    new = make_certificates(tmp_path / "tls", "renewed")
    caplog.set_level(logging.INFO, "lockgate_common.tls")
    Path(cluster.server.certificate).write_bytes(Path(new.certificate).read_bytes())  # the key is to follow
    assert [_serial(cluster) for _ in range(3)] == [first] * 3
    Path(cluster.server.key).write_text(Path(new.key).read_text()[:50])
    assert _serial(cluster) == first
    Path(cluster.server.key).write_bytes(Path(new.key).read_bytes())
    assert _serial(cluster) == _serial_of(new.certificate) != first
    said = [record.getMessage() for record in caplog.records if record.name == "lockgate_common.tls"]
    assert [line.partition(": ")[0] for line in said] == [
        "the TLS files have changed but are unusable, so the previous ones stay in use",
        "the TLS files have changed but are unusable, so the previous ones stay in use",
        "new TLS files are in use",
    ]
    assert "does not belong to the certificate" in said[0]
    assert "is incomplete" in said[1]


def test_another_authority_takes_over_while_all_run(
    cluster: MutualCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file is replaced under a client that is connected; one that keeps its old ones cannot connect again."""
    kept = TlsFiles(*(shutil.copy(path, tmp_path) for path in _paths(cluster.clients["admin"])))
    mine = cluster.clients["admin"]
    with cluster.client("admin") as client:
        assert client.jobs() == ()
        open_before = Caller(cluster.leader.address, Credentials(SECRET.secret, kept))
        new = {name: make_certificates(tmp_path / "new", name) for name in ("server", "admin")}
        for name, files in (("server", cluster.server), ("admin", mine)):
            for old, fresh in zip(_paths(files), _paths(new[name]), strict=True):
                shutil.copy(fresh, old)
        assert client.jobs() == ()
        assert open_before("List", m.ListRequest()).jobs == ()  # over the connection that was there
        open_before.close()
    monkeypatch.setattr(directory, "FIRST_ANSWER_MS", 3_000)
    with Client([cluster.leader.address], credentials=Credentials(tls=kept), patience_ms=WAIT_MS) as late:
        poll(lambda: "not of the authority" in _error(late))


def test_while_the_authority_changes_both_count(cluster: MutualCluster, tmp_path: Path) -> None:
    new = make_certificates(tmp_path / "new", "admin", hosts=())
    with Path(cluster.server.authority).open("ab") as both:
        both.write(Path(new.authority).read_bytes())
    for files in (replace(new, authority=cluster.server.authority), cluster.clients["admin"]):
        with Client([cluster.leader.address], credentials=Credentials(tls=files), patience_ms=WAIT_MS) as client:
            assert client.jobs() == ()


def test_a_client_opens_another_channel_for_new_certificates(tmp_path: Path) -> None:
    """The old one, which a watch may still use, would show the old certificate whenever it connects again."""
    mine, new = make_certificates(tmp_path, "mine"), make_certificates(tmp_path, "new")
    channels = Channels(Credentials(tls=mine))
    first = channels.to("127.0.0.1:1")
    assert channels.to("127.0.0.1:1") is first
    shutil.copy(new.certificate, mine.certificate)
    assert channels.to("127.0.0.1:1") is first
    shutil.copy(new.key, mine.key)
    second = channels.to("127.0.0.1:1")
    assert second is not first
    assert channels.to("127.0.0.1:1") is second
    channels.close()
    for channel in (first, second):
        with pytest.raises(ValueError, match="closed channel"):
            channel.unary_unary("/x/y")(b"")


def _error(client: Client) -> str:
    """Of a call that must not succeed. A busy machine may be late with the handshake, which is another one."""
    with pytest.raises(ClientError) as caught:
        client.jobs()
    return str(caught.value)


def _paths(files: TlsFiles) -> tuple[str, str, str]:
    return files.certificate, files.key, files.authority


def _serial(cluster: MutualCluster) -> int:
    """Of the certificate that the server shows in a handshake made now."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    host, _, port = cluster.leader.address.rpartition(":")
    with socket.create_connection((host, int(port)), WAIT_S) as plain, context.wrap_socket(plain) as secured:
        shown = secured.getpeercert(binary_form=True)
    assert shown is not None
    return x509.load_der_x509_certificate(shown).serial_number


def _serial_of(path: str) -> int:
    return x509.load_pem_x509_certificate(Path(path).read_bytes()).serial_number
