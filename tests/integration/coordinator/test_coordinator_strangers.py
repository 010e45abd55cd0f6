"""What a coordinator reads of a caller that it does not know, and how much of one that it knows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from lockgate_common.security import Credentials
from lockgate_common.serving import requests
from lockgate_coordinator.runtime import rpc_server
from lockgate_coordinator.runtime.process import Coordinator
from lockgate_proto import messages as m
from lockgate_proto.rpc import MAX_MESSAGE_BYTES, SERVICES

from tests.certificates import make_certificates
from tests.integration.coordinator.conftest import SECRET, Caller, NewCoordinator, leading
from tests.integration.coordinator.fake_task_manager import WAIT_S

pytestmark = pytest.mark.integration

EMPTY_VERTICES = b"\x12\x02\x12\x00" + b"".join(b"\x12\x02\x12\x00" for _ in range(50_000))
REFLECTION = "grpc.reflection.v1alpha.ServerReflection"
METHODS = [
    (service, name)
    for service in ("JobService", "ControlService", "FollowService")
    for name in SERVICES[service]
    if name != "GetLeader"
]


@pytest.fixture(params=["plain text", "TLS"])
def credentials(request: pytest.FixtureRequest, tmp_path: Path) -> Credentials:
    """The cluster's."""
    tls = make_certificates(tmp_path / "tls") if request.param == "TLS" else None
    return Credentials(SECRET.secret, tls)


@pytest.fixture
def leader(new_coordinator: NewCoordinator, credentials: Credentials) -> Coordinator:
    return leading(new_coordinator(credentials=credentials))


@pytest.fixture
def friend(leader: Coordinator, credentials: Credentials) -> Iterator[Caller]:
    """Who knows the secret."""
    caller = Caller(leader.address, credentials)
    yield caller
    caller.close()


@pytest.fixture
def raw(leader: Coordinator, credentials: Credentials) -> Iterator[Callable[..., grpc.RpcError]]:
    """Sends bytes to a method and returns how the call fails."""
    plain = [("grpc.max_send_message_length", MAX_MESSAGE_BYTES)]
    if credentials.tls is None:
        channel = grpc.insecure_channel(leader.address, plain)
    else:
        authority = Path(credentials.tls.authority).read_bytes()
        channel = grpc.secure_channel(leader.address, grpc.ssl_channel_credentials(authority), plain)

    def fail(service: str, name: str, data: bytes, secret: str = "", **more: Any) -> grpc.RpcError:
        metadata = Credentials(secret).metadata()
        call = channel.stream_stream(SERVICES[service][name].path)
        with pytest.raises(grpc.RpcError) as caught:
            list(call(iter((data,)), metadata=metadata, timeout=WAIT_S, **more))
        return caught.value

    yield fail
    channel.close()


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what the server has decoded."""
    sizes: list[int] = []
    decode = rpc_server.decode

    def noting(kind: type[Any], data: bytes, *rest: Any) -> Any:
        sizes.append(len(data))
        return decode(kind, data, *rest)

    monkeypatch.setattr(rpc_server, "decode", noting)
    return sizes


@pytest.mark.parametrize("secret", ["", "not the secret of it"], ids=["no secret", "wrong secret"])
@pytest.mark.parametrize(("service", "name"), METHODS, ids=[f"{service}.{name}" for service, name in METHODS])
def test_nothing_is_decoded_of_a_caller_that_is_not_admitted(
    raw: Callable[..., grpc.RpcError], decoded: list[int], service: str, name: str, secret: str
) -> None:
    assert raw(service, name, EMPTY_VERTICES, secret).code() is grpc.StatusCode.UNAUTHENTICATED
    assert decoded == []


def test_a_compressed_request_is_refused_unread(
    raw: Callable[..., grpc.RpcError], decoded: list[int], friend: Caller
) -> None:
    refused = raw("JobService", "Submit", bytes(4_000_000), SECRET.secret, compression=grpc.Compression.Gzip)
    assert refused.code() is grpc.StatusCode.UNIMPLEMENTED
    assert decoded == []
    assert friend("List", m.ListRequest()).jobs == ()


def test_a_request_of_countless_elements_is_refused_before_they_are_made(
    raw: Callable[..., grpc.RpcError], friend: Caller
) -> None:
    vertices = b"\x12\x00" * 1_000_000
    graph = b"\x12" + _varint(len(vertices)) + vertices
    refused = raw("JobService", "Submit", graph, SECRET.secret)
    assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.details() == "the message has more than 100,000 elements"
    assert friend("List", m.ListRequest()).jobs == ()


def test_an_unreadable_request_is_not_the_servers_fault(friend: Caller, caplog: pytest.LogCaptureFixture) -> None:
    methods = ("grpc.health.v1.Health/Check", "grpc.health.v1.Health/Watch", f"{REFLECTION}/ServerReflectionInfo")
    for method in methods:
        with pytest.raises(grpc.RpcError) as refused:
            list(friend._channel.stream_stream(f"/{method}")(iter((b"\xff\xff",)), timeout=WAIT_S))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert refused.value.details().startswith("this is not a ")
    assert not [record for record in caplog.records if record.exc_info]


def test_methods_without_credentials_take_small_requests_only(
    raw: Callable[..., grpc.RpcError], friend: Caller, credentials: Credentials
) -> None:
    assert raw("JobService", "GetLeader", bytes(5_000)).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    health = health_pb2_grpc.HealthStub(friend._channel)
    for method in (health.Check, lambda request, timeout: next(health.Watch(request, timeout=timeout))):
        with pytest.raises(grpc.RpcError) as caught:
            method(health_pb2.HealthCheckRequest(service="s" * 5_000), timeout=WAIT_S)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    asked = reflection_pb2.ServerReflectionRequest(file_containing_symbol="s" * 5_000)
    stub = reflection_pb2_grpc.ServerReflectionStub(friend._channel)
    with pytest.raises(grpc.RpcError) as caught:
        list(stub.ServerReflectionInfo(iter([asked]), metadata=credentials.metadata(), timeout=WAIT_S))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_the_leader_and_health_are_public(leader: Coordinator, credentials: Credentials) -> None:
    stranger = Caller(leader.address, Credentials("", credentials.tls))
    try:
        assert stranger("GetLeader", m.GetLeaderRequest()).address == leader.address
        check = health_pb2_grpc.HealthStub(stranger._channel).Check
        assert check(health_pb2.HealthCheckRequest(), timeout=WAIT_S).status == health_pb2.HealthCheckResponse.SERVING
    finally:
        stranger.close()


def test_a_free_method_that_is_sent_no_request_ends(friend: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_FREE_WAIT_S", 0.05)
    for path in ("/grpc.health.v1.Health/Check", SERVICES["JobService"]["GetLeader"].path):
        with pytest.raises(grpc.RpcError) as caught:
            friend._channel.stream_unary(path)(_silence(ended := threading.Event()), timeout=WAIT_S)
        ended.set()
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "no request arrived" in caught.value.details()


def _silence(ended: threading.Event) -> Iterator[bytes]:
    ended.wait(WAIT_S)
    yield b""


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes((*out, number))
