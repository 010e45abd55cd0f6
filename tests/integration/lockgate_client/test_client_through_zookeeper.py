"""Finding the leader in ZooKeeper: the embedded twin, driven by hand, and the real one."""

from __future__ import annotations

import threading

import pytest
from lockgate_devtools.zookeeper.server import ZooKeeperServer
from lockgate_ha.embedded import EmbeddedZooKeeper
from lockgate_ha.paths import Paths
from lockgate_ha.session import Session
from lockgate_ha.store import Create, Delete
from lockgate_ha.zookeeper import connect
from lockgate_proto import messages as m
from lockgate_proto.codec import encode

from lockgate.client import Client, ClusterUnreachable
from lockgate.client import directory as directory_module
from lockgate.client.deadline import Deadline
from lockgate.client.through_zookeeper import ThroughZooKeeper
from tests.integration.lockgate_client.fake_cluster import PATIENCE_MS, Cluster

pytestmark = pytest.mark.integration


def announce(session: Session, cluster: str, record: m.LeaderRecord) -> None:
    """What a coordinator that was granted leadership leaves in ZooKeeper."""
    path = Paths(cluster).leader
    folders = path.split("/")[1:-1]
    for depth in range(len(folders)):
        parent = "/" + "/".join(folders[: depth + 1])
        if session.get(parent) is None:
            session.transact([Create(parent)])
    if session.get(path) is not None:
        session.transact([Delete(path)])
    session.transact([Create(path, encode(record))])


def test_the_leader_is_waited_for_and_changes_are_seen() -> None:
    server = EmbeddedZooKeeper()
    session = server.open()
    directory = ThroughZooKeeper(server.connector(), "c", "the test")
    late = threading.Timer(0.1, announce, [session, "c", m.LeaderRecord(1, "a:1")])
    late.start()
    assert directory.locate(Deadline(PATIENCE_MS)).address == "a:1"
    late.join()
    directory.close()


def test_no_leader_and_no_zookeeper_are_distinguished() -> None:
    server = EmbeddedZooKeeper()
    directory = ThroughZooKeeper(server.connector(), "c", "the test")
    directory._started()
    with directory._changed:
        assert directory._changed.wait_for(lambda: directory._answered, PATIENCE_MS / 1000)
    with pytest.raises(ClusterUnreachable, match="has no leader for the cluster 'c'"):
        directory.locate(Deadline(50))
    directory.close()
    server.stop()
    directory = ThroughZooKeeper(server.connector(), "c", "--zookeeper")
    with pytest.raises(ClusterUnreachable, match=r"ZooKeeper does not answer at .* \(from --zookeeper\)"):
        directory.locate(Deadline(300))
    directory.close()


def test_a_client_follows_zookeeper_from_leader_to_leader(
    cluster: Cluster, zookeeper: ZooKeeperServer, cluster_name: str
) -> None:
    session = connect(zookeeper.address)
    try:
        announce(session, cluster_name, cluster.coordinators[0].record())
        with Client(zookeeper=zookeeper.address, cluster=cluster_name, patience_ms=PATIENCE_MS) as client:
            client.submit("k", m.JobGraph("j", (m.Vertex("v"),)))
            cluster.lead(cluster.coordinators[1])
            cluster.coordinators[0].die()
            announce(session, cluster_name, cluster.coordinators[1].record())
            assert client.job("k").state is m.JobState.RUNNING
            assert client.leader().token == 2
    finally:
        session.close()


def test_zookeeper_helps_when_the_known_coordinators_are_unreachable(
    cluster: Cluster, zookeeper: ZooKeeperServer, cluster_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory_module, "FIRST_ANSWER_MS", 100)
    monkeypatch.setattr(directory_module, "TURN_S", PATIENCE_MS / 1000)
    session = connect(zookeeper.address)
    try:
        announce(session, cluster_name, cluster.coordinators[0].record())
        with Client(["127.0.0.1:1"], zookeeper.address, cluster=cluster_name) as client:
            assert client.jobs() == ()
    finally:
        session.close()


def test_neither_coordinators_nor_zookeeper_is_reported_soon() -> None:
    with (
        Client(["127.0.0.1:1"], "127.0.0.1:2", origin=".lockgate/cluster.json") as client,
        pytest.raises(ClusterUnreachable, match=r"no coordinator answers at 127.0.0.1:1 \(from .lockgate"),
    ):
        client.jobs()
