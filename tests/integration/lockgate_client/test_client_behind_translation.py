"""Clients that know the coordinators by other addresses than these advertise: published ports, a shared address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import pytest
from lockgate_proto import messages as m

from lockgate.client import Client
from tests.integration.lockgate_client.fake_cluster import PATIENCE_MS, Cluster

pytestmark = pytest.mark.integration

GRAPH = m.JobGraph("wordcount", (m.Vertex("v", "v", 1, 128),))
ELSEWHERE = "coordinator-{}.nowhere.invalid:7070"


@pytest.fixture
def hidden(cluster: Cluster) -> Cluster:
    """Coordinators that advertise names which mean nothing here."""
    for number, coordinator in enumerate(cluster.coordinators, start=1):
        coordinator.advertised = ELSEWHERE.format(number)
    return cluster


@contextmanager
def client_of(cluster: Cluster) -> Iterator[Client]:
    with Client(cluster.addresses, patience_ms=PATIENCE_MS) as made:
        yield made


def test_the_leader_is_reached_where_it_was_asked(hidden: Cluster) -> None:
    with client_of(hidden) as client:
        assert client.submit("k", GRAPH).created
        assert client.leader().address == ELSEWHERE.format(1)  # what the cluster calls it


def test_a_standbys_hint_leads_to_the_new_leader(hidden: Cluster) -> None:
    with client_of(hidden) as client:
        client.submit("k", GRAPH)
        hidden.lead(hidden.coordinators[1])
        asked = hidden.coordinators[1].calls.count("GetLeader")
        assert client.job("k").state is m.JobState.RUNNING
        assert hidden.coordinators[1].calls.count("GetLeader") == asked
        assert hidden.coordinators[1].calls.count("Get") == 1


def test_a_watch_continues_at_the_next_leader(hidden: Cluster) -> None:
    leader, standby = hidden.coordinators[:2]
    with client_of(hidden) as client:
        client.submit("k", GRAPH)
        watch = client.watch("k")
        assert isinstance(watch.poll(PATIENCE_MS), m.JobStatus)
        assert leader.watched.acquire(timeout=PATIENCE_MS / 1000)
        leader.send("die")
        assert isinstance(watch.poll(PATIENCE_MS), m.JobStatus)
        assert standby.calls.count("Watch") == 1
        watch.close()


def test_one_address_for_all_coordinators_leads_to_the_advertised_one(cluster: Cluster) -> None:
    """As behind a load balancer: the answer came by way of the shared address, but so do the refusals."""
    leader, balancer = cluster.coordinators[0], cluster.coordinators[1]

    def answer_for_the_leader(method: str, context: grpc.ServicerContext) -> None:
        if method == "GetLeader":
            context.set_trailing_metadata((("lockgate-coordinator", leader.advertised),))

    balancer.fail = answer_for_the_leader
    with Client([balancer.address], patience_ms=PATIENCE_MS) as client:
        assert client.submit("k", GRAPH).created
    assert balancer.calls.count("Submit") == 1  # refused there, then by the leader's own address
