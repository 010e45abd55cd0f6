"""grpc.health.v1 and server reflection of a coordinator."""

from __future__ import annotations

from grpc_reflection.v1alpha import reflection, reflection_pb2
from lockgate_common.serving.call_places import CallPlaces
from lockgate_common.serving.calls import Call
from lockgate_common.serving.health import HEALTH, HealthService, parsed
from lockgate_common.serving.requests import check_free
from lockgate_proto.rpc import LEADER, READY, full_name

from lockgate_coordinator.runtime.rpc_server import RpcServer

SERVICES = ("JobService", "ControlService", "FollowService")
_REFLECTIONS = 100


class Health(HealthService):
    """`""` and the services are SERVING while the process is up, `lockgate.leader` while it leads and can verify it.

    A leader that cannot reach ZooKeeper may have been replaced: it still serves, but does not report that it leads.
    `lockgate.ready` is SERVING from when it has joined, as leader or standby, until it begins to stop.
    """

    def __init__(self) -> None:
        names = ("", *(full_name(name) for name in SERVICES))
        super().__init__(dict.fromkeys(names, True) | {LEADER: False, READY: False})
        self._reflections = CallPlaces(_REFLECTIONS, "reflection streams are open")

    def add_to(self, server: RpcServer) -> None:
        """Registers health and reflection with the server."""
        self.serve(server.thread)
        server.add(HEALTH, {"Check": (False, False, self.check), "Watch": (False, True, self.watch)})
        self._reflection = reflection.ReflectionServicer(
            (*(full_name(name) for name in SERVICES), HEALTH, reflection.SERVICE_NAME)
        )
        server.add(reflection.SERVICE_NAME, {"ServerReflectionInfo": (True, True, self._reflect)})

    def ready(self) -> None:
        """The process has joined. An outage of ZooKeeper does not change that: running jobs are still served."""
        self.set(READY, True)

    def leading(self, yes: bool) -> None:
        """Sets whether this process leads and ZooKeeper can confirm it."""
        self.set(LEADER, yes)

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _reflect(self, call: Call) -> None:
        with self._reflections.one():
            while (data := await call.receive()) is not None:
                check_free(data)
                request = parsed(reflection_pb2.ServerReflectionRequest, data)
                for answer in self._reflection.ServerReflectionInfo(iter((request,)), None):
                    await call.send(answer.SerializeToString())
            call.finish()
