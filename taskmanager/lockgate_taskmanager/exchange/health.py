"""grpc.health.v1 of a task manager, on the port of its exchange. Anybody may ask, so little is read, and few may wait.

grpcio's own servicer ends a malformed question with a stack trace in the log, and lets any number of watchers hold the
threads that channels need.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc import StatusCode
from grpc_health.v1 import health_pb2
from lockgate_proto import rpc

NAME = "grpc.health.v1.Health"
MAX_WATCHES = 64  # each holds a thread
_LARGEST = 4 * 1024  # bytes of a question
_State = health_pb2.HealthCheckResponse


class ExchangeHealth:
    """`""` is SERVING while the server is open, `lockgate.ready` from `ready` on; neither after `stop`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._states = {"": _State.SERVING, rpc.READY: _State.NOT_SERVING}
        self._is_stopped = False
        self._watches = 0

    @property
    def handler(self) -> grpc.GenericRpcHandler:
        """What a server is given."""
        handlers: dict[str, Any] = {
            "Check": grpc.unary_unary_rpc_method_handler(self._check),
            "Watch": grpc.unary_stream_rpc_method_handler(self._watch),
        }
        return grpc.method_handlers_generic_handler(NAME, handlers)

    def ready(self) -> None:
        """It takes part now."""
        self._set({rpc.READY: _State.SERVING})

    def stop(self) -> None:
        """Everything is NOT_SERVING from now on."""
        self._set(dict.fromkeys(self._states, _State.NOT_SERVING))
        self._is_stopped = True

    # -- inside -------------------------------------------------------------------------------------------------------

    def _set(self, states: dict[str, int]) -> None:
        with self._changed:
            if not self._is_stopped:
                self._states = self._states | states
                self._changed.notify_all()

    def _check(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        state = self._states.get(_asked(data, context))
        if state is None:
            context.abort(StatusCode.NOT_FOUND, "no such service is known here")
        return bytes(_State(status=state).SerializeToString())

    def _watch(self, data: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        name = _asked(data, context)
        with self._changed:
            if self._watches >= MAX_WATCHES:
                context.abort(StatusCode.RESOURCE_EXHAUSTED, f"{MAX_WATCHES} health watches are open, the most allowed")
            self._watches += 1
        try:
            context.add_callback(self._wake)
            told = None
            while context.is_active():
                state = self._states.get(name, _State.SERVICE_UNKNOWN)
                if state != told:
                    yield _State(status=state).SerializeToString()
                    told = state
                with self._changed:
                    self._changed.wait_for(
                        lambda: not context.is_active() or self._states.get(name, _State.SERVICE_UNKNOWN) != told  # noqa: B023
                    )
        finally:
            with self._changed:
                self._watches -= 1

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


def _asked(data: bytes, context: grpc.ServicerContext) -> str:
    """The service that is asked about. Ends the call where the question cannot be read."""
    if len(data) > _LARGEST:
        context.abort(
            StatusCode.RESOURCE_EXHAUSTED, f"this method takes {_LARGEST:,} bytes, and these are {len(data):,}"
        )
    try:
        return str(health_pb2.HealthCheckRequest.FromString(data).service)
    except DecodeError:
        context.abort(StatusCode.INVALID_ARGUMENT, "this is no HealthCheckRequest")
        raise AssertionError("abort raises") from None
