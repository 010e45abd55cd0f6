"""Sends traces to an OTLP receiver: the only module that imports OpenTelemetry. Never holds the caller up."""

from __future__ import annotations

import logging
import queue
import random
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from lockgate_common.metrics.family import Tally
from lockgate_common.recurring_log import RecurringLog
from lockgate_common.settings import SettingsError
from lockgate_proto.rpc import NO_RETRIES

from lockgate_coordinator.job.trace import Build, Span

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan

log = logging.getLogger(__name__)

WAITING = 100
"""Traces that wait at most; further ones are dropped."""
_AT_ONCE = 500  # spans of one message
_EXPORT_S = 5
_STOP_S = 2.0


class TraceExport:
    """A bounded queue, and the thread that empties it. start() and stop() once each."""

    def __init__(self, endpoint: str, coordinator_id: str, cluster: str) -> None:
        """endpoint: `http://host:port` or `https://host:port` of OTLP over gRPC. Raises SettingsError."""
        if not _is_installed():
            raise SettingsError("otlp: traces need OpenTelemetry on every coordinator: pip install 'lockgate[otel]'")
        self.outcomes = Tally()
        """Traces by `sent`, `failed` and `dropped`."""
        self._endpoint, self._id, self._cluster = endpoint, coordinator_id, cluster
        self._queue: queue.Queue[Build] = queue.Queue(WAITING)
        self._is_over = False
        self._trouble = RecurringLog()
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)

    def offer(self, build: Build) -> None:
        """Takes a trace, or drops it when too many wait. From any thread, at once."""
        try:
            self._queue.put_nowait(build)
        except queue.Full:
            self.outcomes.add("dropped")

    def start(self) -> None:
        """Starts sending. OpenTelemetry is loaded on its own thread."""
        self._thread.start()

    def stop(self) -> None:
        """Sends no more; waits a little for what is being sent."""
        self._is_over = True
        self.offer(lambda: ())  # wakes the thread; if the queue is full it is awake
        if self._thread.ident is not None:
            self._thread.join(_STOP_S)

    def _run(self) -> None:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource

        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it logs each try; see _failed
        is_plain = self._endpoint.startswith("http://")
        options: Any = (NO_RETRIES,)  # its hint knows only texts
        exporter = OTLPSpanExporter(
            endpoint=self._endpoint, insecure=is_plain, timeout=_EXPORT_S, channel_options=options
        )
        who = {"service.name": "lockgate", "service.instance.id": self._id, "lockgate.cluster": self._cluster}
        resource = Resource.create(who)
        while not self._is_over:
            build = self._queue.get()
            try:
                self._send(exporter, readable(build(), resource))
            except Exception:
                self._failed(exc_info=True)
        exporter.shutdown()

    def _send(self, exporter: Any, spans: Sequence[ReadableSpan]) -> None:
        from opentelemetry.sdk.trace.export import SpanExportResult

        for at in range(0, len(spans), _AT_ONCE):
            if exporter.export(spans[at : at + _AT_ONCE]) is not SpanExportResult.SUCCESS:
                self._failed()
                return
        if spans:
            self.outcomes.add("sent")

    def _failed(self, **options: Any) -> None:
        self.outcomes.add("failed")
        if not self._is_over:
            text = "a trace could not be sent to %s (coordinator.otlp); others may be dropped meanwhile"
            self._trouble.warning(log, "traces", text, self._endpoint, **options)


def _is_installed() -> bool:
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.grpc") is not None
    except ModuleNotFoundError:
        return False


def readable(spans: Sequence[Span], resource: Resource) -> list[ReadableSpan]:
    """One trace in OpenTelemetry's own form, with new ids."""
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

    trace_id, scope = random.getrandbits(128) or 1, InstrumentationScope("lockgate")
    flags = TraceFlags(TraceFlags.SAMPLED)
    contexts = [SpanContext(trace_id, random.getrandbits(64) or 1, False, flags) for _ in spans]
    return [
        ReadableSpan(
            span.name,
            contexts[place],
            contexts[span.parent] if place else None,
            resource,
            dict(span.attributes),
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.OK),
            start_time=span.start_us * 1_000,
            end_time=span.end_us * 1_000,
            instrumentation_scope=scope,
        )
        for place, span in enumerate(spans)
    ]
