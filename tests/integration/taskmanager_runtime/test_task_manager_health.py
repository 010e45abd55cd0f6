"""What a task manager says of its health, from its start through failovers to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from lockgate_common.security import Credentials
from lockgate_proto.messages import Register
from lockgate_proto.rpc import READY
from lockgate_taskmanager.runtime.task_manager import TaskManager

from tests.integration.taskmanager_runtime.scripted_coordinator import WAIT_S, ScriptedCoordinator

pytestmark = pytest.mark.integration

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def _history(stub: health_pb2_grpc.HealthStub) -> Iterator[int]:
    """Every state of `lockgate.ready`, from now to the end of the process."""
    answers = stub.Watch(health_pb2.HealthCheckRequest(service=READY), timeout=3 * WAIT_S)
    try:
        for answer in answers:
            yield answer.status
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            raise


def test_it_is_ready_once_a_leader_has_taken_it_and_stays_so_through_failovers(
    new_coordinator: Callable[..., ScriptedCoordinator],
    new_task_manager: Callable[..., TaskManager],
    credentials: Credentials,
) -> None:
    first, second = new_coordinator(token=1), new_coordinator(token=2)
    manager = new_task_manager("tm-0")
    with credentials.channel(manager.exchange_address) as channel:
        grpc.channel_ready_future(channel).result(WAIT_S)
        stub = health_pb2_grpc.HealthStub(channel)

        def says(service: str) -> int:
            return int(stub.Check(health_pb2.HealthCheckRequest(service=service)).status)

        history = _history(stub)
        assert next(history) == NOT_SERVING
        first.refusal = grpc.StatusCode.ALREADY_EXISTS, "the id tm-0 is in use"
        manager.on_leader(first.record)
        first.wait(lambda: first.refused_count >= 2)  # a stream to a leader is not enough
        assert (says(READY), says("")) == (NOT_SERVING, SERVING)
        first.refusal = None
        assert next(history) == SERVING
        first.die()
        assert says(READY) == SERVING
        manager.on_leader(None)
        manager.on_leader(second.record)
        second.wait_for(Register)
        assert says(READY) == SERVING
        manager.stop()
        assert SERVING not in history, "it was not ready for a while"
