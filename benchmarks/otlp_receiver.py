"""A receiver of OpenTelemetry's traces, over gRPC, for measurements and tests. Needs `lockgate[otel]`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


class Receiver(trace_service_pb2_grpc.TraceServiceServicer):  # type: ignore[misc,name-defined]
    """Keeps every span, by trace. endpoint: where it listens; resources: of each export, its attributes."""

    def __init__(self) -> None:
        self.resources: list[dict[str, Any]] = []
        self._traces: dict[bytes, list[Any]] = {}
        self._changed = threading.Condition()
        self._threads = futures.ThreadPoolExecutor(2, "receiver")
        self._server = grpc.server(self._threads)
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)
        self.endpoint = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def Export(self, request: Any, _context: grpc.ServicerContext) -> Any:
        """The rpc."""
        with self._changed:
            for found in request.resource_spans:
                self.resources.append(attributes(found.resource))
                for scope in found.scope_spans:
                    for span in scope.spans:
                        self._traces.setdefault(span.trace_id, []).append(span)
            self._changed.notify_all()
        return trace_service_pb2.ExportTraceServiceResponse()

    @property
    def spans(self) -> int:
        """How many have arrived."""
        with self._changed:
            return sum(map(len, self._traces.values()))

    def until(self, name: str, fits: Callable[[list[Any]], object], limit_s: float) -> list[Any]:
        """The spans of the first trace whose root has this name and that fits; the root first."""

        def found() -> list[Any] | None:
            return next((trace for trace in self._traces.values() if trace[0].name == name and fits(trace)), None)

        with self._changed:
            if not self._changed.wait_for(found, limit_s):
                raise TimeoutError([[span.name for span in trace] for trace in self._traces.values()])
            return found() or []

    def close(self) -> None:
        """Stops the server."""
        self._server.stop(0).wait()
        self._threads.shutdown()


def attributes(span: Any) -> dict[str, Any]:
    """Of a span or a resource, by name."""
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}
