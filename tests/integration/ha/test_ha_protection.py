"""A cluster's nodes in ZooKeeper belong to its secret: no other secret opens them, and records stay where they are."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import pytest
from lockgate_ha import steps
from lockgate_ha.errors import AccessDenied, CorruptRecord, StoreError, UnsealedRecord
from lockgate_ha.grant import LeadershipGrant
from lockgate_ha.paths import ROOT, Paths
from lockgate_ha.protection import UNPROTECTED, Protection
from lockgate_ha.records import JobRecords
from lockgate_ha.retrieval import LeaderRetrieval
from lockgate_ha.session import Session
from lockgate_ha.session_store import SessionStore
from lockgate_ha.store import Check, Create, Delete, Put
from lockgate_proto.codec import encode
from lockgate_proto.messages import CompletedCheckpoint, JobRecord, LeaderRecord

from tests.integration.ha.conftest import KINDS, TLS, WAIT_S, World

OTHER = "another secret, of somebody else"


@pytest.fixture
def protection(cluster_name: str) -> Protection:
    """These tests are about clusters with a secret."""
    return Protection(cluster_name, "a secret of this test")


@pytest.fixture(params=["no secret", "another secret"])
def stranger(request: pytest.FixtureRequest, world: World) -> Session:
    """A session of somebody who can reach ZooKeeper."""
    return world.open(UNPROTECTED if request.param == "no secret" else Protection(world.cluster, OTHER))


def lead(world: World) -> tuple[Session, JobRecords, LeadershipGrant]:
    """A leader by the elector's own steps, with one job that has one checkpoint."""
    session, paths = world.open(), Paths(world.cluster)
    steps.prepare(session, paths)
    contender = steps.join(session, paths, "a", LeaderRecord(address="a:1"), rejoin=False)
    steps.claim(session, paths, contender, LeaderRecord(1, "a:1", session.id), 0, False)
    steps.challenge(session, paths, 1)
    grant, records = (
        LeadershipGrant(1, "a", session.id),
        JobRecords(SessionStore(world.cluster, session), world.cluster),
    )
    records.submit(grant, JobRecord("job", "run", graph=b"a graph with code in it"))
    records.add_checkpoint(grant, "job", CompletedCheckpoint(1, pointer="file:///chk-1"))
    return session, records, grant


def every_node(session: Session, path: str) -> list[str]:
    below = [node for name in session.children(path) for node in every_node(session, f"{path}/{name}")]
    return [path, *below]


@pytest.mark.parametrize("world", [*KINDS, TLS], indirect=True)
def test_a_stranger_gets_at_no_node_of_the_cluster(world: World, stranger: Session) -> None:
    session, _, _ = lead(world)
    paths = every_node(session, Paths(world.cluster).base)
    assert len(paths) >= 14
    attempts: tuple[Callable[[str], object], ...] = (
        stranger.get,
        stranger.children,
        lambda path: stranger.get_all([path]),
        lambda path: stranger.transact([Put(path, b"mine")]),
        lambda path: stranger.transact([Delete(path)]),
        lambda path: stranger.transact([Create(f"{path}/mine")]),
        lambda path: stranger.transact([Check(path)]),
    )
    for path in paths:
        for attempt in attempts:
            if attempt is attempts[4] and path == Paths(world.cluster).base:
                continue  # a right on the root; it has children, so that it cannot be deleted by anybody
            with pytest.raises(AccessDenied, match="another secret"):
                attempt(path)
    with pytest.raises(StoreError):
        stranger.transact([Delete(Paths(world.cluster).base)])


def test_a_stranger_can_have_a_cluster_beside_it(world: World) -> None:
    lead(world)
    beside = Protection(f"{world.cluster}-beside", OTHER)
    session = world.open(beside)
    steps.prepare(session, Paths(beside.cluster))
    assert session.get(ROOT) is not None
    with pytest.raises(AccessDenied):
        session.get(Paths(world.cluster).base)
    with pytest.raises(AccessDenied):
        world.open().get(Paths(beside.cluster).base)


def test_the_secret_is_in_no_node(world: World) -> None:
    session, _, _ = lead(world)
    for path in every_node(session, Paths(world.cluster).base):
        node = session.get(path)
        assert node is not None
        assert world.protection.secret.encode() not in node.data


def test_a_record_that_was_not_written_by_the_cluster_is_refused(world: World) -> None:
    """As when somebody has got around the rights: a superuser of ZooKeeper, or another server at its address."""
    session, records, _ = lead(world)
    path = Paths(world.cluster).graph("job")
    session.transact([Put(path, encode(JobRecord("job", "run", graph=b"a graph of somebody else")))])
    with pytest.raises(UnsealedRecord, match="not sealed with the cluster's secret"):
        records.job("job")
    session.transact([Put(path, Protection(world.cluster, OTHER).seal(path, encode(JobRecord("job", "run"))))])
    with pytest.raises(UnsealedRecord, match="for another path or another secret"):
        records.found("job")
    assert records.jobs() == ()


def test_a_record_that_was_copied_elsewhere_is_refused(world: World) -> None:
    session, records, grant = lead(world)
    paths = Paths(world.cluster)
    records.submit(grant, JobRecord("other", "run-2"))
    stored = session.get(paths.graph("job"))
    assert stored is not None
    session.transact([Put(paths.graph("other"), stored.data)])
    with pytest.raises(UnsealedRecord):
        records.job("other")
    pointer = session.get(paths.checkpoint("job", 1))
    assert pointer is not None
    session.transact([Create(paths.checkpoint("job", 2), pointer.data)])
    with pytest.raises(UnsealedRecord):
        records.checkpoints("job")
    counter = session.get(paths.checkpoint_id("job"))
    assert counter is not None
    session.transact([Put(paths.checkpoint_id("job"), b"99")])
    with pytest.raises(CorruptRecord):
        records.checkpoint_id("job")


def test_a_planted_leader_is_ignored(world: World, caplog: pytest.LogCaptureFixture) -> None:
    session, _, _ = lead(world)
    path = Paths(world.cluster).leader
    retrieval = LeaderRetrieval(world.connector, world.cluster)
    retrieval.start()
    try:
        known = retrieval.wait(round(WAIT_S * 1000))
        assert known is not None
        assert known.address == "a:1"
        session.transact([Put(path, encode(LeaderRecord(9, "127.0.0.1:1", "5")))])
        deadline = time.monotonic() + WAIT_S
        while retrieval.current() is not None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert "it names no leader" in caplog.text
    finally:
        retrieval.stop()


def test_a_planted_contender_is_not_in_line(world: World) -> None:
    session, _, _ = lead(world)
    paths = Paths(world.cluster)
    session.transact([Create(f"{paths.contenders}/c-x-", encode(LeaderRecord(address="x:1")), True, True)])
    view = steps.read_view(session, paths, {}, lambda: None)
    assert [contender.record.address for contender in view.contenders] == ["a:1"]


@pytest.mark.parametrize(
    ("made_with", "opened_with", "message"),
    [
        ("", "a secret of this test", "lockgate zookeeper protect"),
        (OTHER, "a secret of this test", "another secret"),
        (OTHER, "", "another secret"),
    ],
    ids=["an old cluster", "another secret", "no secret"],
)
def test_a_cluster_of_another_owner_is_refused_with_a_message(
    world: World, caplog: pytest.LogCaptureFixture, made_with: str, opened_with: str, message: str
) -> None:
    caplog.set_level(logging.WARNING, "lockgate_ha")
    made, opened = Protection(world.cluster, made_with), Protection(world.cluster, opened_with)
    steps.prepare(world.open(made), Paths(world.cluster))
    candidate = world.candidate("a", connector=world.connect(opened))
    candidate.elector.start()
    retrieval = LeaderRetrieval(world.connect(opened), world.cluster)
    retrieval.start()
    deadline = time.monotonic() + WAIT_S
    while not (candidate.elector.refusal and retrieval.refusal):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert message in candidate.elector.refusal
    assert message in retrieval.refusal
    assert not candidate.elector.wait_connected(0)
    assert not retrieval.has_answered
    retrieval.stop()


def test_the_nodes_of_an_expired_session_are_removed_although_they_are_protected(world: World) -> None:
    session, _, _ = lead(world)
    watching = world.open()
    world.expire(session)
    deadline = time.monotonic() + WAIT_S
    while watching.get(Paths(world.cluster).leader) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
