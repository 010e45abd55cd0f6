"""grpc.health.v1 and server reflection."""

from __future__ import annotations

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from lockgate_proto.rpc import full_name

SERVICES = ("JobService", "ControlService", "FollowService")
LEADER = "lockgate.leader"


class Health:
    """`""` and the services are SERVING while the process is up, `lockgate.leader` while it leads."""

    def __init__(self) -> None:
        self._servicer = health.HealthServicer()
        self.leading(False)

    def add_to(self, server: grpc.Server) -> None:
        """Registers health and reflection with the server."""
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)
        names = [full_name(name) for name in SERVICES]
        reflection.enable_server_reflection((*names, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
        for name in ("", *names):
            self._servicer.set(name, health_pb2.HealthCheckResponse.SERVING)

    def leading(self, yes: bool) -> None:
        """Says whether this process leads."""
        response = health_pb2.HealthCheckResponse
        self._servicer.set(LEADER, response.SERVING if yes else response.NOT_SERVING)

    def stop(self) -> None:
        """Everything NOT_SERVING: the process is going away."""
        self._servicer.enter_graceful_shutdown()
