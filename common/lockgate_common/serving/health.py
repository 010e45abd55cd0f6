"""grpc.health.v1, for every caller. The loop answers it, which proves that the loop makes progress, without a thread.

grpcio's own servicer ends a malformed question with a stack trace in the log, and lets any number of watchers hold the
threads of its server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.message import DecodeError
from grpc import StatusCode
from grpc_health.v1 import health_pb2

from lockgate_common.serving.call_places import CallPlaces
from lockgate_common.serving.calls import Call
from lockgate_common.serving.event_loop import Bell, LoopThread
from lockgate_common.serving.refusals import Refused
from lockgate_common.serving.requests import one_request

HEALTH = "grpc.health.v1.Health"
MAX_WATCHES = 1_000

_Status = health_pb2.HealthCheckResponse


class HealthService:
    """The services of one process that it tells apart, and whether each is SERVING."""

    def __init__(self, serving: Mapping[str, bool]) -> None:
        """serving: at the start, by service; others are not found."""
        self._states = {name: _state(yes) for name, yes in serving.items()}
        self._is_stopped = False
        self._bells: set[Bell] = set()  # changed on the loop only
        self._thread: LoopThread | None = None
        self._watches = CallPlaces(MAX_WATCHES, "health watches are open")

    def serve(self, thread: LoopThread) -> None:
        """Answers on this loop from now on. Before its first call."""
        self._thread = thread

    def set(self, service: str, yes: bool) -> None:
        """Sets whether it is SERVING. From any thread; without effect after `stop`."""
        self._change({service: _state(yes)})

    def stop(self) -> None:
        """Sets everything to NOT_SERVING permanently: the process is stopping."""
        self._change(dict.fromkeys(self._states, _Status.NOT_SERVING))
        self._is_stopped = True

    async def check(self, call: Call) -> None:
        """Answers a Check. Raises Refused."""
        state = self._states.get(await _requested_service(call))
        if state is None:
            raise Refused(StatusCode.NOT_FOUND, "this server has no such service")
        call.finish(data=_Status(status=state).SerializeToString())

    async def watch(self, call: Call) -> None:
        """Answers a Watch. Raises Refused, PeerGone."""
        assert self._thread is not None
        with self._watches.one():
            name, reported = await _requested_service(call), None
            bell = Bell(self._thread)
            self._bells.add(bell)
            try:
                while True:
                    state = self._states.get(name, _Status.SERVICE_UNKNOWN)
                    if state != reported:
                        await call.send(_Status(status=state).SerializeToString())
                        reported = state
                    await bell.wait()
            finally:
                self._bells.discard(bell)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _change(self, states: dict[str, int]) -> None:
        if self._is_stopped:
            return
        self._states = self._states | states  # replaced as a whole: it is read on the loop
        if self._thread is not None:
            self._thread.post(self._ring)

    def _ring(self) -> None:
        for bell in self._bells:
            bell.ring()


def parsed(kind: type[Any], data: bytes) -> Any:
    """A message of others' contracts. Raises Refused."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise Refused(StatusCode.INVALID_ARGUMENT, f"this is not a {kind.__name__}") from error


async def _requested_service(call: Call) -> str:
    data = await one_request(call, is_free=True)
    return str(parsed(health_pb2.HealthCheckRequest, data or b"").service)


def _state(serving: bool) -> int:
    return int(_Status.SERVING if serving else _Status.NOT_SERVING)
