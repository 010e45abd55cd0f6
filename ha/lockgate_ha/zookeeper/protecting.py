"""Moves a cluster that was made without a secret, or with another one, to the protection of a secret."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError, NoNodeError
from kazoo.security import OPEN_ACL_UNSAFE
from lockgate_common.tls import TlsFiles
from lockgate_proto.codec import MalformedMessage, decode, encode
from lockgate_proto.messages import JobRecord

from lockgate_ha.errors import AccessDenied, ClusterInUse, StoreUnavailable, UnsealedRecord
from lockgate_ha.paths import ROOT, Paths, text_of
from lockgate_ha.protection import Protection
from lockgate_ha.zookeeper.closing import RESERVED
from lockgate_ha.zookeeper.rights import acl_of, handed_over, logins
from lockgate_ha.zookeeper.tls import check
from lockgate_ha.zookeeper.tool_client import connected


class SnapshotUnread(Exception):
    """A snapshot that cannot be read. The message is a sentence."""


@dataclass(frozen=True, slots=True)
class Protected:
    """What was done. nodes: all of the cluster; records: those that were sealed now; jobs: keys of the jobs there.

    starts: of these, those whose start is pinned now, with the snapshot; unread: with the reason why it cannot be.
    """

    nodes: int
    records: int
    jobs: tuple[str, ...]
    starts: Mapping[str, str]
    unread: Mapping[str, str]


def protect(
    hosts: str,
    former: Protection,
    protection: Protection,
    checksum_of: Callable[[str], str],
    tls: TlsFiles | None = None,
    timeout_ms: int = 10_000,
) -> Protected:
    """Seals every record of the cluster and makes every node the owner's. May be repeated after a failure.

    Jobs of versions without seals that still have to start from a snapshot get its checksum, as it is now, into their
    record. checksum_of: of a snapshot's metadata, by its pointer; raises SnapshotUnread.

    former: how the cluster is protected now; records that neither it nor `protection` has sealed are refused, unless it
    has no secret: then what is there is believed. Raises ClusterInUse while a coordinator is there, StoreUnavailable
    (AccessDenied), UnsealedRecord, SecurityError for files of `tls`.
    """
    paths = Paths(protection.cluster)
    with _client(hosts, former, protection, tls, timeout_ms) as client:
        if client.exists(paths.base) is None:
            raise ClusterInUse(f"ZooKeeper at {hosts} has no cluster {protection.cluster!r}; check cluster.name")
        if contenders := _children(client, paths.contenders):
            raise ClusterInUse(
                f"{len(contenders)} coordinators of cluster {protection.cluster!r} are running; stop them and every "
                "task manager first (a coordinator that was killed counts for a few seconds more)"
            )
        nodes = [*_below(client, paths.base), paths.base]  # the mark of the cluster comes last
        records = sum(_protect(client, path, paths, former, protection) for path in nodes)
        for path in (*RESERVED, ROOT):
            _hand_over(client, path, former, protection)
        jobs = tuple(text_of(name) for name in sorted(_children(client, paths.jobs)))
        starts: dict[str, str] = {}
        unread: dict[str, str] = {}
        for key in jobs:
            try:
                if snapshot := _pin_start(client, paths, protection, key, checksum_of):
                    starts[key] = snapshot
            except SnapshotUnread as error:
                unread[key] = str(error)
    return Protected(len(nodes), records, jobs, starts, unread)


def _pin_start(
    client: KazooClient, paths: Paths, protection: Protection, key: str, checksum_of: Callable[[str], str]
) -> str:
    """The snapshot that a job has to start from, if only its name was in the record. Raises SnapshotUnread."""
    path = paths.graph(key)
    with contextlib.suppress(NoNodeError, MalformedMessage):
        stored, stat = client.get(path)
        record = decode(JobRecord, protection.unseal(path, stored))
        if record.restore_from and not record.restore_checksum and not _children(client, paths.checkpoints(key)):
            pinned = replace(record, restore_checksum=checksum_of(record.restore_from))
            client.set(path, protection.seal(path, encode(pinned)), stat.version)
            return record.restore_from
    return ""


def _protect(client: KazooClient, path: str, paths: Paths, former: Protection, protection: Protection) -> bool:
    """One node. True when its record was sealed now."""
    try:
        stored, stat = client.get(path)
    except NoNodeError:
        return False  # of a session that has just ended
    if stat.ephemeralOwner:
        return False
    data = _moved(path, stored, paths, former, protection)
    if data != stored:
        client.set(path, data, stat.version)
    client.set_acls(path, acl_of(protection, shared=False))
    return bool(data != stored)


def _hand_over(client: KazooClient, path: str, former: Protection, protection: Protection) -> None:
    """A node above the cluster, as far as it belongs to the former secret, or `/lockgate` to everyone."""
    with contextlib.suppress(NoAuthError):  # others' own
        found = client.get_acls(path)[0]
        is_open = path == ROOT and found == list(OPEN_ACL_UNSAFE)
        wanted = acl_of(protection, shared=True) if is_open else handed_over(found, former, protection)
        if wanted != found:
            client.set_acls(path, wanted)


def _moved(path: str, stored: bytes, paths: Paths, former: Protection, protection: Protection) -> bytes:
    if path == paths.base:
        return protection.mark(paths)
    if not stored or path in (paths.epoch, paths.challenge):
        return stored
    with contextlib.suppress(UnsealedRecord):
        protection.unseal(path, stored)
        return stored
    return protection.seal(path, former.unseal(path, stored))


def _below(client: KazooClient, path: str) -> list[str]:
    below = [f"{path}/{name}" for name in _children(client, path)]
    return [node for child in below for node in (*_below(client, child), child)]


def _children(client: KazooClient, path: str) -> list[str]:
    try:
        return list(client.get_children(path))
    except NoNodeError:
        return []


@contextlib.contextmanager
def _client(
    hosts: str, former: Protection, protection: Protection, tls: TlsFiles | None, timeout_ms: int
) -> Iterator[KazooClient]:
    check(tls)
    try:
        with connected(hosts, [*logins(former), *logins(protection)], tls, timeout_ms) as client:
            yield client
    except NoAuthError as error:
        raise AccessDenied(Paths(protection.cluster).base) from error
    except KazooException as error:
        raise StoreUnavailable(f"ZooKeeper at {hosts} failed: {error!r}; run this again") from error
