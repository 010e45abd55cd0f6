"""An elector's operations in ZooKeeper, over any Session: join the line, read the view, claim, release."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable

from lockgate_proto.codec import MalformedMessage, decode, encode
from lockgate_proto.messages import LeaderRecord

from lockgate_ha.election_messages import Contender, View, is_contender_name
from lockgate_ha.epoch import need_next, token_of
from lockgate_ha.errors import AccessDenied, Conflict, CorruptRecord, UnsealedRecord
from lockgate_ha.paths import ROOT, Paths
from lockgate_ha.protection import Protection
from lockgate_ha.session import Node, Session
from lockgate_ha.store import Check, Create, Delete, Operation, Put

logger = logging.getLogger(__name__)


def prepare(session: Session, paths: Paths) -> None:
    """Makes the persistent nodes of the cluster that do not exist yet. May be done by several at once.

    Raises UnsealedRecord, AccessDenied for a cluster that was made without the secret of this session, or with another.
    """
    if session.get(paths.results) is None:  # the last one made
        for create in (
            Create(ROOT, shared=True),
            Create(paths.base, session.protection.mark(paths)),
            Create(paths.epoch, b"0"),
            Create(paths.contenders),
            Create(paths.jobs),
            Create(paths.results),
        ):
            if session.get(create.path) is None:
                try:
                    session.transact([create])
                except AccessDenied as error:
                    raise AccessDenied(create.path, is_there=False) from error
                except Conflict:
                    if session.get(create.path) is None:
                        raise  # not made by another coordinator in the meantime
    check_mark(session, paths)


def check_mark(session: Session, paths: Paths) -> None:
    """Raises UnsealedRecord, AccessDenied where the cluster exists and is not one of the session's secret."""
    base = session.get(paths.base)
    if base is not None:
        session.protection.check_mark(paths, base.data)


def join(session: Session, paths: Paths, nonce: str, me: LeaderRecord, rejoin: bool) -> str:
    """Makes sure that one contender with this `nonce` exists, last in line with `rejoin`. Returns its node name.

    May be repeated after an unknown outcome: the nonce identifies this coordinator's contender.
    """
    prefix = f"c-{nonce}-"
    mine = [name for name in session.children(paths.contenders) if name.startswith(prefix)]
    if len(mine) == 1 and not rejoin:
        return mine[0]
    for name in mine:
        session.transact([Delete(f"{paths.contenders}/{name}")])
    record = encode(dataclasses.replace(me, session=session.id, token=0, granted_unix_us=0))
    data = session.protection.seal(paths.contenders, record)  # its own path is not known yet
    (path,) = session.transact([Create(f"{paths.contenders}/{prefix}", data, ephemeral=True, sequential=True)])
    return path.rsplit("/", 1)[1]


Known = dict[str, LeaderRecord | None]
"""By node below `/contenders`: its record, which never changes; None if it is not a contender."""


def read_view(session: Session, paths: Paths, known: Known, watch: Callable[[], None]) -> View:
    """Reads `/epoch`, `/leader`, `/challenge` and the line, and watches them.

    known: caches the nodes below `/contenders`. A node that is not a contender is skipped and logged once: a foreign
    node must not block elections.
    The epoch is read first: a grant in between makes the view refuse to claim, never claim wrongly.
    """
    epoch = session.get(paths.epoch, watch)
    if epoch is None:
        raise CorruptRecord(paths.epoch, "it does not exist")
    token = token_of(paths.epoch, epoch.data)
    leader = session.get(paths.leader, watch)
    challenge = session.get(paths.challenge, watch)
    names = session.children(paths.contenders, watch)
    for gone in known.keys() - set(names):
        del known[gone]
    for name in names:
        if name not in known:
            node = session.get(f"{paths.contenders}/{name}")
            if node is not None:
                known[name] = _contender(session.protection, paths, name, node)
    found = (Contender(name, record) for name, record in known.items() if record is not None)
    line = sorted(found, key=lambda contender: contender.position)
    record = None if leader is None else read_leader_record(session.protection, paths.leader, leader)
    mine = leader is not None and leader.owner == session.id
    return View(token, epoch.version, record, mine, tuple(line), challenge is not None)


def _contender(protection: Protection, paths: Paths, name: str, node: Node) -> LeaderRecord | None:
    """None for a node that no coordinator made: theirs have a number, go with their session, and are sealed."""
    path = f"{paths.contenders}/{name}"
    if node.owner and is_contender_name(name):
        with contextlib.suppress(UnsealedRecord):
            return _leader_record(protection.unseal(paths.contenders, node.data), node.owner)
    logger.warning("the ZooKeeper node %s was not created by a coordinator; it is ignored, and can be deleted", path)
    return None


def read_leader_record(protection: Protection, path: str, node: Node) -> LeaderRecord:
    """The record, or when no coordinator wrote it one that has only the owning session: without address, no leader."""
    try:
        return _leader_record(protection.unseal(path, node.data), node.owner)
    except UnsealedRecord as error:
        logger.error("%s; it names no leader", error)
        return LeaderRecord(session=node.owner)


def _leader_record(data: bytes, owner: str) -> LeaderRecord:
    try:
        return decode(LeaderRecord, data)
    except MalformedMessage:
        return LeaderRecord(session=owner)


def claim(
    session: Session,
    paths: Paths,
    contender: str,
    record: LeaderRecord,
    epoch_version: int,
    replaces_leader: bool,
    unanswered: bool = False,
) -> None:
    """The grant, in one transaction.

    Raises Conflict when another coordinator was faster, or the challenged leader has answered; TokensExhausted when
    there is no further token. Deleting `/leader` cannot affect a newer leader than the one seen: its grant would have
    changed `/epoch`, too.
    """
    need_next(paths.epoch, record.token)
    operations: list[Operation] = [
        Check(f"{paths.contenders}/{contender}"),
        Put(paths.epoch, str(record.token).encode(), epoch_version),
    ]
    if unanswered:
        operations.append(Delete(paths.challenge))
    if replaces_leader:
        operations.append(Delete(paths.leader))
    data = session.protection.seal(paths.leader, encode(record))
    operations.append(Create(paths.leader, data, ephemeral=True))
    session.transact(operations)


def challenge(session: Session, paths: Paths, token: int) -> None:
    """Creates `/challenge` for the leader of `token`, unless it exists."""
    with contextlib.suppress(Conflict):
        session.transact([Create(paths.challenge, str(token).encode(), ephemeral=True)])


def answer_challenge(session: Session, paths: Paths) -> None:
    """Deletes `/challenge`, if it exists."""
    with contextlib.suppress(Conflict):
        session.transact([Delete(paths.challenge)])


def release(session: Session, paths: Paths, token: int, contender: str) -> bool:
    """Deletes `/leader` if it is of `token` and of this session, and the own contender: the next in line is then first.

    The epoch's version guards against changes in between. Returns whether there was such a leader.
    """
    epoch, leader = session.get(paths.epoch), session.get(paths.leader)
    if epoch is None or leader is None or token_of(paths.epoch, epoch.data) != token or leader.owner != session.id:
        return False
    operations: list[Operation] = [Check(paths.epoch, epoch.version), Delete(paths.leader)]
    place = f"{paths.contenders}/{contender}"
    if session.get(place) is not None:
        operations.append(Delete(place))
    session.transact(operations)
    return True
