"""How much one client may have, how it learns its limit, and that others have theirs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from grpc import StatusCode
from lockgate_common.roles import ANONYMOUS, OWNER, Principal, Role
from lockgate_common.serving.refusals import RETRY_METADATA, Refused, TooMuch
from lockgate_coordinator.graph.bounds import MAX_VERTICES
from lockgate_coordinator.runtime import client_limits
from lockgate_coordinator.runtime.access import is_of_a_process
from lockgate_coordinator.runtime.client_limits import EXEMPT, Client, ClientLimits, Limits
from lockgate_coordinator.runtime.guard import status
from lockgate_coordinator.runtime.job_service import JobService
from lockgate_coordinator.runtime.settings import CoordinatorSettings
from lockgate_proto.messages import RescaleRequest, VertexParallelism
from lockgate_proto.rpc import path

ALICE, BOB = (Principal(name, frozenset({Role.READ})) for name in ("alice", "bob"))


def refusal(call: Callable[[], object]) -> TooMuch:
    with pytest.raises(TooMuch) as caught:
        call()
    return caught.value


def many(client: Client, now_s: float) -> int:
    """How many requests are let in at one moment."""
    count = 0
    try:
        while count < 10_000:
            client.request(now_s)
            count += 1
    except TooMuch:
        pass
    return count


def test_requests_come_in_bursts_and_at_a_rate() -> None:
    client = Client(Limits(requests=10))
    assert many(client, 100.0) == 20
    assert many(client, 100.0) == 0
    assert many(client, 100.5) == 5
    assert many(client, 1_000.0) == 20  # no more is saved up


def test_the_refusal_says_which_limit_and_when_to_try_again() -> None:
    client = Client(Limits(requests=10))
    many(client, 100.0)
    refused = refusal(lambda: client.request(100.0))
    assert str(refused) == (
        "this client makes more than 10 requests a second (coordinator.max_client_requests); try again in 0.1 s"
    )
    code, details, trailing = status(refused, "/lockgate.v1.JobService/List")
    assert (code, details, trailing) == (StatusCode.RESOURCE_EXHAUSTED, str(refused), ((RETRY_METADATA, "101"),))
    client.request(100.0 + refused.retry_ms / 1_000)  # and then it is let in


def test_open_streams() -> None:
    client = Client(Limits(streams=2))
    with client.stream():
        with client.stream():
            assert "has 2 streams open, the limit (coordinator.max_client_streams); try again in" in str(
                refusal(client.stream().__enter__)
            )
        with client.stream():
            pass


def test_calls_that_wait_and_streams_are_counted_apart() -> None:
    client = Client(Limits(streams=1, calls=2))
    with client.stream(), client.call(), client.call():
        assert not client.is_idle(1e9)
        text = "waits for 2 calls, the limit (coordinator.max_client_calls); try again in"
        assert text in str(refusal(client.call().__enter__))
    with client.call():
        pass
    assert client.is_idle(1e9)


def test_strangers_leave_its_share_to_whoever_has_the_secret_at_their_address() -> None:
    limits = ClientLimits(Limits(streams=1))
    with limits.client(ANONYMOUS, "ipv4:127.0.0.1:1", 1.0).stream():
        refusal(limits.client(ANONYMOUS, "ipv4:127.0.0.1:2", 1.0).stream().__enter__)
        with limits.client(OWNER, "ipv4:127.0.0.1:3", 1.0).stream():
            pass


def test_bytes_that_are_in_work_and_one_request_of_any_size() -> None:
    client = Client(Limits(bytes=100))
    with client.holds(1_000):
        assert "have 1,001 bytes (coordinator.max_client_bytes); try again in" in str(
            refusal(client.holds(1).__enter__)
        )
    with client.holds(60), client.holds(40):
        refusal(client.holds(1).__enter__)
    with client.holds(100):
        pass


def test_limits_of_one_client_do_not_affect_another() -> None:
    clients = ClientLimits(Limits(requests=10))
    alice = clients.client(ALICE, "ipv4:10.0.0.1:1", 100.0)
    assert many(alice, 100.0) == 20
    assert clients.client(ALICE, "ipv4:10.0.0.2:7", 100.0) is alice  # wherever she calls from
    assert many(clients.client(BOB, "ipv4:10.0.0.1:1", 100.0), 100.0) == 20  # the same address
    anonymous = clients.client(ANONYMOUS, "ipv4:10.0.0.1:1", 100.0)
    assert many(anonymous, 100.0) == 20
    owner = clients.client(OWNER, "ipv4:10.0.0.1:99", 100.0)
    assert many(owner, 100.0) == 20
    assert clients.client(OWNER, "ipv4:10.0.0.1:100", 100.0) is owner  # the secret says nothing of who it is
    assert many(clients.client(OWNER, "ipv4:10.0.0.2:1", 100.0), 100.0) == 20


def test_clients_that_do_nothing_are_forgotten_and_others_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_limits, "_KEPT_APART", 3)
    clients = ClientLimits(Limits(requests=10))

    def of(name: str, now_s: float) -> Client:
        return clients.client(Principal(name, frozenset()), "ipv4:10.0.0.1:1", now_s)

    with ExitStack() as open_streams:
        open_streams.enter_context(of("watching", 100.0).stream())
        open_streams.enter_context(of("sending", 100.0).holds(1))
        kept = [of("watching", 100.0), of("sending", 100.0)]
        many(busy := of("busy", 109.0), 109.0)
        assert of("new", 110.0) is of("newer", 110.0)  # all are busy: these two count as one
        assert len(clients._clients) == 3
        assert of("new", 112.0) is not of("newer", 112.0)  # the busy one has been quiet
        assert [of("watching", 112.0), of("sending", 112.0)] == kept
        assert of("busy", 112.0) is not busy
        assert len(clients._clients) == 3


def test_only_the_clusters_own_processes_are_exempt() -> None:
    connect, get_cluster = path("ControlService", "Connect"), path("JobService", "GetCluster")
    assert is_of_a_process(connect, OWNER, forwarded=False)
    assert is_of_a_process(get_cluster, OWNER, forwarded=True)
    assert not is_of_a_process(get_cluster, OWNER, forwarded=False)
    for stranger in (ALICE, ANONYMOUS):
        assert not is_of_a_process(connect, stranger, forwarded=True)
        assert not is_of_a_process(get_cluster, stranger, forwarded=True)
    with EXEMPT.holds(2**40), EXEMPT.holds(2**40), EXEMPT.stream():
        assert many(EXEMPT, 1_000.0) == many(EXEMPT, 0.0) == 10_000


def test_a_rescale_that_names_more_vertices_than_a_job_has_never_reaches_the_leader_s_thread() -> None:
    nothing: Any = None
    service = JobService(CoordinatorSettings("z:1", "/s"), "a:1", nothing, nothing, nothing)
    wanted = (VertexParallelism("count", 2),) * (MAX_VERTICES + 1)
    with pytest.raises(Refused, match="1001 vertices are named") as caught:
        service.Rescale(RescaleRequest("job", wanted), nothing)
    assert caught.value.code is StatusCode.INVALID_ARGUMENT
