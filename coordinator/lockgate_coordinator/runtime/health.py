"""grpc.health.v1 and server reflection. Both are answered on the loop, so they prove that it makes progress."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError
from grpc import StatusCode
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2
from lockgate_proto.rpc import LEADER, READY, full_name

from lockgate_coordinator.runtime.admission import Places
from lockgate_coordinator.runtime.calls import Call
from lockgate_coordinator.runtime.errors import Refused
from lockgate_coordinator.runtime.event_loop import Bell
from lockgate_coordinator.runtime.rpc_server import RpcServer, check_free, one_request

SERVICES = ("JobService", "ControlService", "FollowService")
HEALTH = "grpc.health.v1.Health"
_WATCHES = 1_000
_REFLECTIONS = 100

_Status = health_pb2.HealthCheckResponse


class Health:
    """`""` and the services are SERVING while the process is up, `lockgate.leader` while it leads and can verify it.

    A leader that cannot reach ZooKeeper may have been replaced: it goes on serving, but does not report that it leads.
    `lockgate.ready` is SERVING from when it has joined, as leader or standby, until it begins to stop.
    """

    def __init__(self) -> None:
        names = ("", *(full_name(name) for name in SERVICES))
        self._states: dict[str, int] = dict.fromkeys(names, _Status.SERVING)
        self._states |= {LEADER: _Status.NOT_SERVING, READY: _Status.NOT_SERVING}
        self._is_stopped = False
        self._bells: set[Bell] = set()  # changed on the loop only
        self._server: RpcServer | None = None
        self._watches = Places(_WATCHES, "health watches are open")
        self._reflections = Places(_REFLECTIONS, "reflection streams are open")

    def add_to(self, server: RpcServer) -> None:
        """Registers health and reflection with the server."""
        self._server = server
        server.add(HEALTH, {"Check": (False, False, self._check), "Watch": (False, True, self._watch)})
        self._reflection = reflection.ReflectionServicer(
            (*(full_name(name) for name in SERVICES), HEALTH, reflection.SERVICE_NAME)
        )
        server.add(reflection.SERVICE_NAME, {"ServerReflectionInfo": (True, True, self._reflect)})

    def ready(self) -> None:
        """The process has joined. An outage of ZooKeeper does not change that: running jobs are still served."""
        self._set({READY: _Status.SERVING})

    def leading(self, yes: bool) -> None:
        """Sets whether this process leads and ZooKeeper can confirm it."""
        self._set({LEADER: _Status.SERVING if yes else _Status.NOT_SERVING})

    def stop(self) -> None:
        """Sets everything to NOT_SERVING: the process is stopping."""
        self._set(dict.fromkeys(self._states, _Status.NOT_SERVING))
        self._is_stopped = True

    # -- inside -------------------------------------------------------------------------------------------------------

    def _set(self, states: dict[str, int]) -> None:
        if self._is_stopped:
            return
        self._states = self._states | states  # replaced as a whole: it is read on the loop
        if self._server is not None:
            self._server.thread.post(self._ring)

    def _ring(self) -> None:
        for bell in self._bells:
            bell.ring()

    async def _check(self, call: Call) -> None:
        state = self._states.get(await _requested_service(call))
        if state is None:
            raise Refused(StatusCode.NOT_FOUND, "this server has no such service")
        call.finish(data=_Status(status=state).SerializeToString())

    async def _watch(self, call: Call) -> None:
        assert self._server is not None
        with self._watches.one():
            name, reported = await _requested_service(call), None
            bell = Bell(self._server.thread)
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

    async def _reflect(self, call: Call) -> None:
        with self._reflections.one():
            while (data := await call.receive()) is not None:
                check_free(data)
                request = _parsed(reflection_pb2.ServerReflectionRequest, data)
                for answer in self._reflection.ServerReflectionInfo(iter((request,)), None):
                    await call.send(answer.SerializeToString())
            call.finish()


async def _requested_service(call: Call) -> str:
    data = await one_request(call, is_free=True)
    return str(_parsed(health_pb2.HealthCheckRequest, data or b"").service)


def _parsed(kind: type[Any], data: bytes) -> Any:
    """A message of others' contracts. Raises Refused."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise Refused(StatusCode.INVALID_ARGUMENT, f"this is no {kind.__name__}") from error
