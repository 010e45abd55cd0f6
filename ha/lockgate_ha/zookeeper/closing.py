"""Closes what a ZooKeeper server of ours leaves open to everyone: its root, its quotas, and what clusters are below.

Where anyone may make nodes, anyone fills the server's memory, takes names before their owners, and sets quotas.
"""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Sequence

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry
from kazoo.security import ACL, make_acl, make_digest_acl
from lockgate_common.tls import TlsFiles

from lockgate_ha.errors import StoreUnavailable
from lockgate_ha.paths import ROOT
from lockgate_ha.protection import Owner, maker, superuser
from lockgate_ha.zookeeper.reasons import no_answer
from lockgate_ha.zookeeper.tls import transport

RESERVED = ("/", "/zookeeper", "/zookeeper/quota")

_kazoo_logger = logging.getLogger(f"{__name__}.kazoo")
_kazoo_logger.setLevel(logging.CRITICAL)  # it warns at every attempt to connect; one error is raised here


def super_digest(secret: str) -> str:
    """What the server is told of its superuser: a hash of what nobody can guess."""
    user = superuser(secret)
    hashed = hashlib.sha1(f"{user.user}:{user.password}".encode(), usedforsecurity=False).digest()  # as ZooKeeper does
    return f"{user.user}:{base64.b64encode(hashed).decode()}"


def close_to_strangers(
    address: str, secret: str, *, shared: bool, tls: TlsFiles | None = None, timeout_ms: int = 10_000
) -> None:
    """For clusters of this secret; may be repeated. Takes nodes over that others have made their own.

    address: of one server, which was started with `super_digest(secret)`; shared: clusters of other secrets may make
    their nodes. Raises StoreUnavailable.
    """
    user = superuser(secret)
    client = KazooClient(
        address,
        auth_data=[("digest", f"{user.user}:{user.password}")],
        logger=_kazoo_logger,
        command_retry=KazooRetry(max_tries=-1, deadline=timeout_ms / 1000),  # a quorum may come and go at the start
        **transport(tls, checks_host=False),  # it may listen at addresses by which no client knows it
    )
    try:
        client.start(timeout_ms / 1000)
        client.retry(_close, client, RESERVED, _rights(maker(secret), shared=False))
        client.retry(_close, client, (ROOT,), _rights(maker(secret), shared=shared))
    except KazooTimeoutError as error:
        raise StoreUnavailable(no_answer(address, tls)) from error
    except KazooException as error:
        raise StoreUnavailable(f"ZooKeeper at {address} was not closed to strangers: {error!r}") from error
    finally:
        client.stop()
        client.close()


def _close(client: KazooClient, paths: Sequence[str], rights: list[ACL]) -> None:
    for path in paths:
        try:
            client.create(path, b"", acl=rights)
        except NodeExistsError:
            if client.get_acls(path)[0] != rights:
                client.set_acls(path, rights)


def _rights(owner: Owner, *, shared: bool) -> list[ACL]:
    return [
        make_digest_acl(owner.user, owner.password, all=True),
        make_acl("world", "anyone", read=True, create=shared),
    ]
