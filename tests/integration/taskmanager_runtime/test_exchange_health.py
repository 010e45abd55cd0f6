"""grpc.health.v1 at the exchange, which anybody may ask: what cannot be read, what is too large, and too many."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from grpc import StatusCode
from grpc_health.v1 import health_pb2, health_pb2_grpc
from lockgate_common.security import Credentials
from lockgate_common.serving import health
from lockgate_proto.rpc import READY
from lockgate_taskmanager.exchange.fencing import TokenFence
from lockgate_taskmanager.exchange.registry import GateRegistry
from lockgate_taskmanager.exchange.server import ExchangeServer

from tests.integration.taskmanager_runtime.scripted_coordinator import until

pytestmark = pytest.mark.integration

WAIT_S = 60.0
MAX_WATCHES = 64
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExchangeServer]:
    monkeypatch.setattr(health, "MAX_WATCHES", MAX_WATCHES)
    made = ExchangeServer(Credentials("a secret of this test"), TokenFence(), GateRegistry())
    yield made
    made.stop()


@pytest.fixture
def channel(server: ExchangeServer) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.start("127.0.0.1:0")) as made:
        yield made


def asked(service: str = READY) -> health_pb2.HealthCheckRequest:
    return health_pb2.HealthCheckRequest(service=service)


def refusal(channel: grpc.Channel, method: str, data: bytes) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as caught:
        list(channel.stream_stream(f"/grpc.health.v1.Health/{method}")(iter((data,)), timeout=WAIT_S))
    return caught.value


@pytest.mark.parametrize("method", ["Check", "Watch"])
def test_unreadable_or_too_large_requests_are_refused(
    channel: grpc.Channel, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert refusal(channel, method, b"\xff\xff").code() is StatusCode.INVALID_ARGUMENT
    assert refusal(channel, method, asked("x" * 5_000).SerializeToString()).code() is StatusCode.RESOURCE_EXHAUSTED
    assert refusal(channel, "List", b"").code() is StatusCode.UNIMPLEMENTED
    assert not [record for record in caplog.records if record.exc_info]


def test_a_missing_service_is_not_found_and_watched_until_it_appears(channel: grpc.Channel) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    with pytest.raises(grpc.RpcError) as caught:
        stub.Check(asked("other"), timeout=WAIT_S)
    assert caught.value.code() is StatusCode.NOT_FOUND
    watch = stub.Watch(asked("other"), timeout=WAIT_S)
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    watch.cancel()


def test_a_watcher_receives_each_change_and_the_end(server: ExchangeServer, channel: grpc.Channel) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    watch = stub.Watch(asked(), timeout=WAIT_S)
    assert next(watch).status == NOT_SERVING
    server.ready()
    assert next(watch).status == SERVING
    server.ready()
    server._health.stop()
    assert next(watch).status == NOT_SERVING
    server.ready()
    assert stub.Check(asked("")).status == NOT_SERVING, "it does not come back"
    watch.cancel()


def test_watches_are_bounded_and_their_places_are_given_back(channel: grpc.Channel) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    watches = [stub.Watch(asked(), timeout=WAIT_S) for _ in range(MAX_WATCHES)]
    for watch in watches:
        assert next(watch).status == NOT_SERVING
    assert refusal(channel, "Watch", b"").code() is StatusCode.RESOURCE_EXHAUSTED
    assert stub.Check(asked(), timeout=WAIT_S).status == NOT_SERVING
    for watch in watches:
        watch.cancel()
    until(lambda: opens(stub), "the stream opens")


def opens(stub: health_pb2_grpc.HealthStub) -> bool:
    watch = stub.Watch(asked(), timeout=WAIT_S)
    try:
        return next(watch) is not None
    except grpc.RpcError:
        return False
    finally:
        watch.cancel()
