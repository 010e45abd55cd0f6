"""What an elector does in ZooKeeper, step by step over any Session: join the line, look, claim, release."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

from lockgate_proto.codec import MalformedMessage, decode, encode
from lockgate_proto.messages import LeaderRecord

from ha.election_messages import Contender, View, is_contender_name
from ha.epoch import need_next, token_of
from ha.errors import Conflict, CorruptRecord
from ha.paths import ROOT, Paths
from ha.session import Node, Session
from ha.store import Check, Create, Delete, Operation, Put

logger = logging.getLogger(__name__)


def prepare(session: Session, paths: Paths) -> None:
    """Makes the persistent nodes of the cluster that do not exist yet. May be done by several at once."""
    if session.get(paths.results) is not None:
        return  # the last one made
    for path, data in (
        (ROOT, b""),
        (paths.base, b""),
        (paths.epoch, b"0"),
        (paths.contenders, b""),
        (paths.jobs, b""),
        (paths.results, b""),
    ):
        if session.get(path) is None:
            try:
                session.transact([Create(path, data)])
            except Conflict:
                if session.get(path) is None:
                    raise  # not made by another coordinator in the meantime


def join(session: Session, paths: Paths, nonce: str, me: LeaderRecord, rejoin: bool) -> str:
    """Makes sure that one contender of this `nonce` exists, last in line with `rejoin`. Returns its node name.

    May be repeated after an unknown outcome: the nonce tells the own contender from others.
    """
    prefix = f"c-{nonce}-"
    mine = [name for name in session.children(paths.contenders) if name.startswith(prefix)]
    if len(mine) == 1 and not rejoin:
        return mine[0]
    for name in mine:
        session.transact([Delete(f"{paths.contenders}/{name}")])
    data = encode(LeaderRecord(address=me.address, session=session.id, pid=me.pid, coordinator_id=me.coordinator_id))
    (path,) = session.transact([Create(f"{paths.contenders}/{prefix}", data, ephemeral=True, sequential=True)])
    return path.rsplit("/", 1)[1]


Known = dict[str, LeaderRecord | None]
"""By node below `/contenders`: its record, which never changes; None where it is no contender."""


def read_view(session: Session, paths: Paths, known: Known, watch: Callable[[], None]) -> View:
    """Reads `/epoch`, `/leader`, `/challenge` and the line, and watches them.

    known: caches what stands below `/contenders`. What is no contender's node is left out and logged once: whoever
    left it there must not stop the elections.
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
                known[name] = _contender(f"{paths.contenders}/{name}", node)
    found = (Contender(name, record) for name, record in known.items() if record is not None)
    line = sorted(found, key=lambda one: one.position)
    record = None if leader is None else read_leader_record(leader.data, leader.owner)
    mine = leader is not None and leader.owner == session.id
    return View(token, epoch.version, record, mine, tuple(line), challenge is not None)


def _contender(path: str, node: Node) -> LeaderRecord | None:
    """None for a node that no coordinator made: theirs have a number and go with their session."""
    if node.owner and is_contender_name(path.rsplit("/", 1)[1]):
        return read_leader_record(node.data, node.owner)
    logger.warning("the ZooKeeper node %s was made by no coordinator; it is ignored, and can be deleted", path)
    return None


def read_leader_record(data: bytes, owner: str) -> LeaderRecord:
    """The record, or when it cannot be decoded one that has only the owning session (no address: nobody probes it)."""
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
    """The grant, in one transaction. Raises Conflict when someone was faster, or the challenged leader has answered,
    TokensExhausted when the token is beyond the last one.

    Deleting `/leader` cannot hit a newer leader than the one seen: its grant would have changed `/epoch` too.
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
    operations.append(Create(paths.leader, encode(record), ephemeral=True))
    session.transact(operations)


def challenge(session: Session, paths: Paths, token: int) -> None:
    """Makes `/challenge`, which says whom it is meant for, unless there is one."""
    with contextlib.suppress(Conflict):
        session.transact([Create(paths.challenge, str(token).encode(), ephemeral=True)])


def answer_challenge(session: Session, paths: Paths) -> None:
    """Deletes `/challenge`, if it is there."""
    with contextlib.suppress(Conflict):
        session.transact([Delete(paths.challenge)])


def release(session: Session, paths: Paths, token: int, contender: str) -> None:
    """Deletes `/leader` if it is of `token` and of this session, and the own contender: the next in line is then first.

    The epoch's version guards what happens in between.
    """
    epoch, leader = session.get(paths.epoch), session.get(paths.leader)
    if epoch is None or leader is None or token_of(paths.epoch, epoch.data) != token or leader.owner != session.id:
        return
    operations: list[Operation] = [Check(paths.epoch, epoch.version), Delete(paths.leader)]
    place = f"{paths.contenders}/{contender}"
    if session.get(place) is not None:
        operations.append(Delete(place))
    session.transact(operations)
