"""grpc.health.v1 and server reflection."""

from __future__ import annotations

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from lockgate_proto.rpc import LEADER, READY, full_name

SERVICES = ("JobService", "ControlService", "FollowService")


class Health:
    """`""` and the services are SERVING while the process is up, `lockgate.leader` while it leads and can verify it.

    A leader that cannot reach ZooKeeper may have been replaced: it goes on serving and does not call itself leader.
    `lockgate.ready` is SERVING from when it has joined the others, as a leader or a standby, until it is asked to stop.
    """

    def __init__(self) -> None:
        self._servicer = health.HealthServicer()
        self.leading(False)
        self._servicer.set(READY, health_pb2.HealthCheckResponse.NOT_SERVING)

    def add_to(self, server: grpc.Server) -> None:
        """Registers health and reflection with the server."""
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)
        names = [full_name(name) for name in SERVICES]
        reflection.enable_server_reflection((*names, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
        for name in ("", *names):
            self._servicer.set(name, health_pb2.HealthCheckResponse.SERVING)

    def ready(self) -> None:
        """It takes part now. An outage of ZooKeeper does not take that back: what runs is still served."""
        self._servicer.set(READY, health_pb2.HealthCheckResponse.SERVING)

    def leading(self, yes: bool) -> None:
        """Says whether this process leads, and ZooKeeper is there to confirm it."""
        response = health_pb2.HealthCheckResponse
        self._servicer.set(LEADER, response.SERVING if yes else response.NOT_SERVING)

    def stop(self) -> None:
        """Everything NOT_SERVING: the process is going away."""
        self._servicer.enter_graceful_shutdown()
