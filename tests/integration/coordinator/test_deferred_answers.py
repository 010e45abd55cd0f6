"""Answers that come later: a long one is made on a worker, a short one on the loop, without two more switches."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import grpc
import pytest
from lockgate_common.security import Credentials
from lockgate_common.serving.call_places import CallPlaces
from lockgate_coordinator.runtime.rpc_server import Later, RpcServer
from lockgate_proto import rpc
from lockgate_proto.messages import QueryStateRequest, QueryStateResponse

pytestmark = pytest.mark.integration


class Deferring:
    """A job service that defers every answer."""

    def __init__(self, *, is_quick: bool) -> None:
        self.is_quick = is_quick
        self.thread = ""

    def QueryState(self, _request: QueryStateRequest, _call: Any) -> Later[int]:
        answer: Future[int] = Future()
        answer.set_result(7)
        return Later(answer, "late", 60.0, self._made, lambda _: self.is_quick)

    def _made(self, number: int) -> QueryStateResponse:
        self.thread = threading.current_thread().name
        return QueryStateResponse(number)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: pytest.fail(f"{name} was called")


@pytest.mark.parametrize(("is_quick", "thread"), [(True, "rpc-loop"), (False, "rpc-asks")])
def test_where_a_deferred_answer_is_made(is_quick: bool, thread: str) -> None:
    credentials = Credentials(secret="a-secret-of-this-test")
    service, server = Deferring(is_quick=is_quick), RpcServer(credentials, "127.0.0.1:0")
    places = {name: CallPlaces(1, "streams are open") for name in rpc.SERVICES["JobService"]}
    server.serve("JobService", service, places)
    server.start()
    try:
        metadata = credentials.introduction(server.peer, rpc.path("JobService", "QueryState")).metadata
        with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            call = rpc.call(channel, "JobService", "QueryState")
            found = call(QueryStateRequest("job"), timeout=60, metadata=metadata)
    finally:
        server.stop(0)
    assert found.checkpoint_id == 7
    assert service.thread.startswith(thread)
