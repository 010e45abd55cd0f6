"""Closes what a ZooKeeper server of ours leaves open to everyone: its root, its quotas, and what clusters are below.

Where anyone may make nodes, anyone fills the server's memory, takes names before their owners, and sets quotas.
"""

from __future__ import annotations

from collections.abc import Sequence

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError
from kazoo.retry import KazooRetry
from kazoo.security import ACL, make_digest_acl_credential
from lockgate_common.tls import TlsFiles

from lockgate_ha.errors import StoreUnavailable
from lockgate_ha.paths import ROOT
from lockgate_ha.protection import maker, superuser
from lockgate_ha.zookeeper.rights import acl, login
from lockgate_ha.zookeeper.tool_client import connected

RESERVED = ("/", "/zookeeper", "/zookeeper/quota")


def super_digest(secret: str) -> str:
    """The value of the server's `superDigest`: its superuser, and a hash of a password that cannot be guessed."""
    user = superuser(secret)
    return str(make_digest_acl_credential(user.user, user.password))


def close_to_strangers(
    address: str, secret: str, *, shared: bool, tls: TlsFiles | None = None, timeout_ms: int = 10_000
) -> None:
    """For clusters of this secret; may be repeated. Takes nodes over that others have made their own.

    address: of one server, which was started with `super_digest(secret)`; shared: clusters of other secrets may make
    their nodes. Raises StoreUnavailable.
    """
    users, owner = [login(superuser(secret))], maker(secret)
    retry = KazooRetry(max_tries=-1, deadline=timeout_ms / 1000)  # a quorum may come and go at the start
    try:  # a server may listen at addresses by which no client knows it, so its name is not compared
        with connected(address, users, tls, timeout_ms, retry=retry, checks_host=False) as client:
            client.retry(_close, client, RESERVED, acl(owner, read=True))
            client.retry(_close, client, (ROOT,), acl(owner, read=True, create=shared))
    except KazooException as error:
        raise StoreUnavailable(f"access to ZooKeeper at {address} was not restricted: {error!r}") from error


def _close(client: KazooClient, paths: Sequence[str], rights: list[ACL]) -> None:
    for path in paths:
        try:
            client.create(path, b"", acl=rights)
        except NodeExistsError:
            if client.get_acls(path)[0] != rights:
                client.set_acls(path, rights)
