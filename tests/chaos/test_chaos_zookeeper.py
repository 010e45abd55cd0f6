"""ZooKeeper is in trouble, on three servers: no job restarts, and no leader changes without need."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from lockgate_devtools.cluster import sockets
from lockgate_devtools.cluster.links import Links
from lockgate_devtools.zookeeper.server import ZooKeeperEnsemble
from lockgate_ha.paths import Paths
from lockgate_ha.session import Session
from lockgate_ha.zookeeper import connect
from lockgate_proto.messages import JobEventKind, LeaderFailover

from tests.chaos.history import History
from tests.chaos.testing_cluster import TestingCluster
from tests.drained import PATIENCE_S
from tests.ledger_job import LedgerJob
from tests.slow_disk import slow_syncs
from tests.zookeeper_sessions import expire, live_sessions

pytestmark = pytest.mark.chaos

REATTACH = LeaderFailover.LEADER_FAILOVER_REATTACH
_SESSION_MS = 6_000
"""A client leaves a server that does not answer after two thirds of it, which must not be the end of the session."""
_CUT_S = 2.0
"""Between Lockgate's processes: four heartbeats, and far from the silence after which one counts as lost."""


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    servers = ZooKeeperEnsemble(tmp_path_factory.mktemp("zookeeper"), 3)
    servers.start(60_000)
    yield servers
    servers.stop()


@pytest.fixture(scope="module")
def testing(ensemble: ZooKeeperEnsemble, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestingCluster]:
    with TestingCluster(
        tmp_path_factory.mktemp("chaos"),
        zookeepers=0,
        zookeeper=ensemble.address,
        relayed=sockets.is_known(),
        coordinator={"heartbeat_timeout_ms": 20_000, "session_timeout_ms": _SESSION_MS},
    ) as cluster:
        cluster.wait_complete()
        yield cluster


def test_every_member_is_killed_in_turn_and_so_is_the_ensembles_leader(
    testing: TestingCluster, ensemble: ZooKeeperEnsemble
) -> None:
    with testing.history() as history, testing.ledger() as job:
        job.wait_checkpoints(1)
        for server in ensemble.servers:
            server.kill()
            job.wait_checkpoints(2)
            server.start(60_000)
        _check_nothing_restarted(job)
    assert len(history.epochs) == 1
    history.check()


@pytest.mark.parametrize("lost_s", [2 * _SESSION_MS / 1000, pytest.param(60.0, marks=pytest.mark.soak)])
def test_records_flow_while_the_quorum_is_lost_for_longer_than_a_session(
    testing: TestingCluster, ensemble: ZooKeeperEnsemble, lost_s: float
) -> None:
    """No checkpoint can complete meanwhile; the next one does when the servers are back."""
    with testing.history() as history, testing.ledger() as job:
        job.wait_checkpoints(1)
        with _quorum_lost(ensemble):
            read = _records_read(job)
            job.pause(lost_s)  # longer than a session lives: that is what is tested
            assert _records_read(job) > read
        job.wait_checkpoints(2)
        _check_nothing_restarted(job)
    assert len(history.epochs) == 1
    history.check()


def test_a_leader_that_dies_while_the_quorum_is_lost_is_replaced_when_it_is_back(
    testing: TestingCluster, ensemble: ZooKeeperEnsemble
) -> None:
    """Nothing leads meanwhile, and records flow."""
    with testing.history() as history, testing.ledger(failover=REATTACH) as job:
        job.wait_checkpoints(1)
        with _quorum_lost(ensemble):
            number = testing.kill_leader()
            job.pause(2 * _SESSION_MS / 1000)
        job.wait_checkpoints(2)
        testing.cluster.wait_ready("coordinator", number, PATIENCE_S)
        _check_nothing_restarted(job)
    assert len(history.epochs) == 2
    history.check()


@pytest.mark.rotating
@pytest.mark.parametrize("sync_s", [1.0, pytest.param(5.0, marks=pytest.mark.soak)])
def test_every_sync_of_zookeeper_takes_long(
    testing: TestingCluster, ensemble: ZooKeeperEnsemble, sync_s: float
) -> None:
    """A second is slow. Five are more than the servers grant each other: they elect leaders all the time, and sessions
    end, so that another coordinator may adopt the job.
    """
    with testing.history() as history, testing.ledger(failover=REATTACH) as job:
        job.wait_checkpoints(1)
        with slow_syncs([server.pid for server in ensemble.servers if server.pid], sync_s) as slow:
            read = _records_read(job)
            job.pause(4 * _SESSION_MS / 1000)
            assert _records_read(job) > read
            assert slow.count >= len(ensemble.servers)
        job.wait_checkpoints(2)
        _check_nothing_restarted(job)
    assert len(history.epochs) == 1 or sync_s > 1
    history.check()


@pytest.mark.rotating
def test_a_leader_that_dies_while_every_sync_of_zookeeper_takes_long_is_adopted(
    testing: TestingCluster, ensemble: ZooKeeperEnsemble
) -> None:
    with testing.history() as history, testing.ledger(failover=REATTACH) as job:
        job.wait_checkpoints(1)
        with slow_syncs([server.pid for server in ensemble.servers if server.pid], 1.0):
            number = testing.kill_leader()
            testing.wait_until(lambda: bool(_times(job, JobEventKind.ATTEMPT_ADOPTED)), "the job is adopted")
            job.wait_checkpoints(1)
        testing.cluster.wait_ready("coordinator", number, PATIENCE_S)
        _check_nothing_restarted(job)
    history.check()


def test_a_leader_whose_session_is_ended_from_outside_is_replaced_and_its_job_adopted_within_three_tries(
    testing: TestingCluster,
) -> None:
    with testing.history() as history, testing.ledger(failover=REATTACH) as job:
        job.wait_checkpoints(1)
        tries = 0
        while tries < 3 and not _times(job, JobEventKind.ATTEMPT_ADOPTED):  # or it took longer than a new leader waits
            tries += 1
            _end_leaders_session(testing, history)
            job.wait_checkpoints(2)
        assert _times(job, JobEventKind.ATTEMPT_ADOPTED) == 1
        assert _times(job, JobEventKind.ATTEMPT_NOT_ADOPTED) == tries - 1
        assert job.check_exact().attempt == tries
    history.check()


def test_the_sessions_of_all_but_the_coordinators_are_ended_from_outside(
    testing: TestingCluster, ensemble: ZooKeeperEnsemble
) -> None:
    with testing.history() as history, testing.ledger() as job:
        job.wait_checkpoints(1)
        with _session(testing) as session:
            others = live_sessions(ensemble.servers[0].data_dir) - _coordinators(session, testing)
        ended = sum(expire(ensemble.servers[0].address, session_id) for session_id in others)
        assert ended >= testing.cluster.options.taskmanagers
        job.wait_checkpoints(2)
        _check_nothing_restarted(job)
    assert len(history.epochs) == 1
    history.check()


@pytest.mark.rotating
@pytest.mark.skipif(not sockets.is_known(), reason="the system does not say which process owns a socket")
@pytest.mark.parametrize("one_way", [False, True], ids=["both-ways", "one-way"])
def test_one_link_of_each_pair_is_cut(testing: TestingCluster, one_way: bool) -> None:
    """The leader's session moves to another server; between processes, all arrives late.

    If a busy machine takes too long over that, the session ends and the next leader adopts the job.
    """
    links = testing.cluster.links
    assert links is not None
    with testing.history() as history, testing.ledger(failover=REATTACH) as job:
        job.wait_checkpoints(1)
        leader = f"coordinator-{testing.leader_number()}"
        member = min(_members(links, leader))
        with links.cut_off(leader, member, one_way=one_way):
            testing.wait_until(lambda: bool(_members(links, leader) - {member}), "the session moves")
            job.wait_checkpoints(1)
        for one, other in (("taskmanager-0", leader), ("taskmanager-1", "taskmanager-0")):
            with links.cut_off(one, other, one_way=one_way):
                job.pause(_CUT_S)
            job.wait_checkpoints(2)
        _check_nothing_restarted(job)
    history.check()


def _members(links: Links, process: str) -> set[str]:
    """The ZooKeeper servers to which a process has a connection."""
    return {name for name in links.servers_of(process) if name.startswith("zookeeper-")}


@contextlib.contextmanager
def _quorum_lost(ensemble: ZooKeeperEnsemble) -> Iterator[None]:
    """Two of three servers are dead while the block runs."""
    for server in ensemble.servers[:2]:
        server.kill()
    try:
        yield
    finally:
        ensemble.start(60_000)


def _records_read(job: LedgerJob) -> int:
    return sum(operator.records_out for operator in job.status.operators)


def _end_leaders_session(testing: TestingCluster, history: History) -> None:
    """From outside; returns when another term has begun."""
    terms = len(history.epochs)
    with _session(testing) as session:
        leader = session.get(Paths(testing.cluster.options.cluster).leader)
    assert leader is not None
    assert expire(testing.cluster.zookeeper.partition(",")[0], int(leader.owner, 16))
    testing.wait_until(lambda: len(history.epochs) > terms, "another term begins")


def _times(job: LedgerJob, kind: JobEventKind) -> int:
    return sum(event.kind is kind for event in job.observer.events)


def _check_nothing_restarted(job: LedgerJob) -> None:
    status = job.check_exact()
    assert (status.attempt, status.restarts) == (1, 0)


def _coordinators(session: Session, testing: TestingCluster) -> set[int]:
    """The sessions of all coordinators."""
    contenders = Paths(testing.cluster.options.cluster).contenders
    nodes = session.get_all([f"{contenders}/{name}" for name in session.children(contenders)])
    return {int(node.owner, 16) for node in nodes if node is not None}


@contextlib.contextmanager
def _session(testing: TestingCluster) -> Iterator[Session]:
    with contextlib.closing(connect(testing.cluster.zookeeper, protection=testing.protection)) as session:
        yield session
