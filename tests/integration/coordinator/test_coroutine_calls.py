"""A method that is a coroutine is served on the loop; what is large, or blocks, is done on a worker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from lockgate_common.security import Credentials
from lockgate_common.serving.call_places import CallPlaces
from lockgate_coordinator.runtime import rpc_server
from lockgate_coordinator.runtime.rpc_server import RpcServer, UnaryCall
from lockgate_proto import rpc
from lockgate_proto.messages import KeyedValue, OperatorKeys, QueryStateRequest, QueryStateResponse

pytestmark = pytest.mark.integration

LARGE = 1 << 20


class Service:
    """A job service that notes the threads."""

    def __init__(self, threads: dict[str, str]) -> None:
        self._threads = threads

    async def QueryState(self, request: QueryStateRequest, call: UnaryCall) -> QueryStateResponse:
        self._threads["handled"] = _thread()
        self._threads["worked"] = await call.work(_thread)
        size = request.checkpoint_id
        call.is_large = size == LARGE
        return QueryStateResponse(7, (KeyedValue(value="x" * size),))

    def __getattr__(self, name: str) -> Any:
        return lambda *_: pytest.fail(f"{name} was called")


def _thread() -> str:
    return threading.current_thread().name.partition("_")[0]


@contextmanager
def _server(service: Service) -> Iterator[Any]:
    credentials, method = Credentials(secret="a-secret-of-this-test"), rpc.path("JobService", "QueryState")
    server = RpcServer(credentials, "127.0.0.1:0")
    places = {name: CallPlaces(1, "streams are open") for name in rpc.SERVICES["JobService"]}
    server.serve("JobService", service, places)
    server.start()
    try:
        metadata = credentials.introduction(server.peer, method).metadata
        with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            call = rpc.call(channel, "JobService", "QueryState")
            yield lambda request: call(request, timeout=60, metadata=metadata)
    finally:
        server.stop(0)


@pytest.mark.parametrize(
    ("key_bytes", "answer_bytes", "decoded", "encoded"),
    [
        (10, 10, "rpc-loop", "rpc-loop"),
        (LARGE, 10, "rpc-asks", "rpc-loop"),
        (10, LARGE, "rpc-loop", "rpc-asks"),
    ],
)
def test_where_a_call_of_a_coroutine_is_served(
    monkeypatch: pytest.MonkeyPatch, key_bytes: int, answer_bytes: int, decoded: str, encoded: str
) -> None:
    threads: dict[str, str] = {}

    def decode(*arguments: Any, _of: Any = rpc_server.decode) -> Any:
        threads["decoded"] = _thread()
        return _of(*arguments)

    def encode(response: Any, _of: Any = rpc_server.encode) -> bytes:
        threads["encoded"] = _thread()
        return bytes(_of(response))

    monkeypatch.setattr(rpc_server, "decode", decode)
    monkeypatch.setattr(rpc_server, "encode", encode)
    with _server(Service(threads)) as ask:
        found = ask(QueryStateRequest("job", answer_bytes, (OperatorKeys("op", ("x" * key_bytes,)),)))
    assert found.checkpoint_id == 7
    assert threads == {"handled": "rpc-loop", "worked": "rpc-asks", "decoded": decoded, "encoded": encoded}
