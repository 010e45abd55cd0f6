"""A ZooKeeper server of ours lets only clusters with its secret make nodes, whoever came first."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl
from lockgate_common.tls import TlsFiles
from lockgate_devtools.zookeeper.server import ZooKeeperEnsemble, ZooKeeperServer
from lockgate_ha import steps
from lockgate_ha.errors import AccessDenied
from lockgate_ha.paths import ROOT, Paths
from lockgate_ha.protection import Protection
from lockgate_ha.zookeeper import connect
from lockgate_ha.zookeeper.rights import rights

from tests.certificates import make_certificates

pytestmark = [pytest.mark.integration, pytest.mark.rotating]

SECRET, OTHER = "the secret of this server", "the one of somebody else"
Client = Callable[..., Any]


@pytest.fixture
def client() -> Iterator[Client]:
    with contextlib.ExitStack() as stack:

        def connected(address: str, **options: Any) -> Any:
            made = KazooClient(address, **options)
            made.start()
            stack.callback(made.close)
            stack.callback(made.stop)
            return made

        yield connected


def make(address: str, cluster: str, secret: str, tls: TlsFiles | None = None) -> None:
    """A cluster's nodes."""
    session = connect(address, protection=Protection(cluster, secret), tls=tls)
    try:
        steps.prepare(session, Paths(cluster))
    finally:
        session.close()


def attempts(stranger: Any) -> dict[str, Callable[[], object]]:
    parents = ("", ROOT, "/zookeeper", "/zookeeper/quota")
    taken = {f"make {path}/mine": lambda path=path: stranger.create(f"{path}/mine", b"x") for path in parents}
    opened = {f"open {path}": lambda path=path: stranger.set_acls(path or "/", OPEN_ACL_UNSAFE) for path in parents}
    return {**taken, **opened, "write": lambda: stranger.set(ROOT, b"x"), "remove": lambda: stranger.delete(ROOT)}


def refused(stranger: Any) -> None:
    for name, attempt in attempts(stranger).items():
        with contextlib.suppress(NoAuthError):
            attempt()
            pytest.fail(f"a stranger could {name}")


@pytest.mark.parametrize("count", [1, 3])
def test_strangers_make_nothing_and_clusters_of_the_secret_do(count: int, tmp_path: Path, client: Client) -> None:
    ensemble = ZooKeeperEnsemble(tmp_path, count, secret=SECRET)
    ensemble.start()
    try:
        make(ensemble.address, "one", SECRET)
        make(ensemble.address, "two", SECRET)
        for server in ensemble.servers:
            refused(client(server.address))
            refused(client(server.address, **rights(Protection("one", OTHER))))
        with pytest.raises(AccessDenied, match="start it with `lockgate zookeeper --shared`"):
            make(ensemble.address, "three", OTHER)
        assert SECRET not in "".join(path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file())
    finally:
        ensemble.stop()


def test_a_name_that_a_stranger_took_first_is_taken_back(own_zookeeper: ZooKeeperServer, client: Client) -> None:
    """Also where the server was open before, as those of earlier versions."""
    stranger, mine = client(own_zookeeper.address), [make_digest_acl("stranger", "x", all=True)]
    stranger.create(ROOT, b"", acl=mine)
    stranger.set_acls("/", mine)
    own_zookeeper.stop()
    server = ZooKeeperServer(own_zookeeper.data_dir, secret=SECRET)
    server.start()
    try:
        make(server.address, "default", SECRET)
        refused(client(server.address, auth_data=[("digest", "stranger:x")]))
    finally:
        server.stop()


def test_clusters_of_other_secrets_have_access_with_shared(tmp_path: Path, client: Client) -> None:
    server = ZooKeeperServer(tmp_path, secret=SECRET, shared=True)
    server.start()
    try:
        make(server.address, "mine", SECRET)
        make(server.address, "other", OTHER)
        stranger = client(server.address, **rights(Protection("other", OTHER)))
        for name in ("open /lockgate", "make /mine", "make /zookeeper/quota/mine", "write", "remove"):
            with pytest.raises(NoAuthError):
                attempts(stranger)[name]()
    finally:
        server.stop()


def test_it_is_closed_over_tls_at_an_address_that_its_certificate_does_not_name(tmp_path: Path) -> None:
    tls = make_certificates(tmp_path / "certificates", hosts=("localhost",))
    server = ZooKeeperServer(tmp_path / "data", tls=tls, secret=SECRET)
    server.start()
    try:
        address = f"localhost:{server.port}"
        make(address, "default", SECRET, tls)
        with pytest.raises(AccessDenied, match="--shared"):
            make(address, "other", OTHER, tls)
    finally:
        server.stop()
