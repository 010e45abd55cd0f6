"""Sends traces to an OTLP receiver: the only module that imports OpenTelemetry. Never holds the caller up."""

from __future__ import annotations

import logging
import os
import queue
import random
import re
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from lockgate_common.metrics.family import Tally
from lockgate_common.recurring_log import RecurringLog
from lockgate_common.settings import SettingsError
from lockgate_common.story_log import cut
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
_FILES = re.compile(r"OTEL_EXPORTER_OTLP_(TRACES_)?(CERTIFICATE|CLIENT_KEY|CLIENT_CERTIFICATE)")


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
        self._remarks = _Remarks(self._thread)

    def offer(self, build: Build) -> None:
        """Takes a trace, or drops it when too many wait. From any thread, at once."""
        try:
            self._queue.put_nowait(build)
        except queue.Full:
            if not self._is_over:
                self.outcomes.add("dropped")
                text = "a trace is dropped: %d others wait to be sent to %s (coordinator.otlp)"
                self._trouble.warning(log, "dropped", text, WAITING, self._endpoint)

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
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it logs each try
        said = logging.getLogger("opentelemetry.exporter.otlp.proto.grpc.exporter")
        said.setLevel(logging.ERROR)
        said.filters.insert(0, self._remarks)  # before its own, which leaves repetitions out
        made = self._made()
        while True:
            build = self._queue.get()
            if self._is_over:
                break
            made = made or self._made()
            try:
                self.outcomes.add(self._sent(build, *made) if made is not None else "failed")
            except Exception:
                self.outcomes.add("failed")
                self._warn("an internal error", exc_info=True)
        said.removeFilter(self._remarks)
        if made is not None:
            made[0].shutdown()

    def _made(self) -> tuple[Any, Resource] | None:
        """The exporter, and what describes this process. None, which is logged, where a setting of OpenTelemetry's own
        is wrong: the next trace tries again, since a file may come later.
        """
        try:
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource

            options: Any = (NO_RETRIES,)  # its hint knows only texts
            is_plain = self._endpoint.startswith("http://")
            if not is_plain:
                _check_files()
            exporter = OTLPSpanExporter(
                endpoint=self._endpoint, insecure=is_plain, timeout=_EXPORT_S, channel_options=options
            )
            who = {"service.name": "lockgate", "service.instance.id": self._id, "lockgate.cluster": self._cluster}
            return exporter, Resource.create(who)
        except Exception as error:
            self._warn(f"{type(error).__name__}: {error}")
            return None

    def _sent(self, build: Build, exporter: Any, resource: Resource) -> str:
        """The outcome."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        spans = readable(build(), resource)
        for at in range(0, len(spans), _AT_ONCE):
            if exporter.export(spans[at : at + _AT_ONCE]) is not SpanExportResult.SUCCESS:
                self._warn(self._remarks.newest)
                return "failed"
        return "sent"

    def _warn(self, reason: str, **options: Any) -> None:
        if not self._is_over:
            text = "no trace can be sent to %s (coordinator.otlp): %s"
            self._trouble.warning(log, "traces", text, self._endpoint, cut(reason), **options)


class _Remarks(logging.Filter):
    """Keeps the newest error that OpenTelemetry would log of a trace, since it raises none: the receiver's status."""

    def __init__(self, thread: threading.Thread) -> None:
        super().__init__()
        self.newest = ""
        self._thread = thread

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is logged: not if it is of the traces sent here."""
        if record.thread != self._thread.ident:
            return True
        self.newest = record.getMessage()
        return False


def _check_files() -> None:
    """Raises OSError. OpenTelemetry would take the system's certificates for a file that is not there."""
    for name, path in os.environ.items():
        if _FILES.fullmatch(name) and path:
            with open(path, "rb"):
                pass


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
