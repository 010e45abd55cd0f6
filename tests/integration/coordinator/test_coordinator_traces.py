"""Traces of checkpoints and failovers, over real OTLP to a receiver that reads OpenTelemetry's own messages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest
from lockgate_common import ports
from lockgate_common.settings import SettingsError
from lockgate_coordinator.job.trace import Span
from lockgate_coordinator.runtime import trace_export
from lockgate_coordinator.runtime.trace_export import WAITING, TraceExport
from lockgate_proto import messages as m

from tests.integration.coordinator.conftest import WAIT_S, NewCaller, NewCoordinator, NewTaskManager, graph, leading
from tests.integration.coordinator.test_coordinator_failover import crash

service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
services = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc")
pytestmark = pytest.mark.integration

ERROR = 2  # Status.STATUS_CODE_ERROR


class Receiver(services.TraceServiceServicer):  # type: ignore[misc,name-defined]
    """Keeps every span, by trace."""

    def __init__(self) -> None:
        self.resources: list[dict[str, Any]] = []
        self._traces: dict[bytes, list[Any]] = {}
        self._changed = threading.Condition()
        self._threads = futures.ThreadPoolExecutor(2, "receiver")
        self._server = grpc.server(self._threads)
        services.add_TraceServiceServicer_to_server(self, self._server)
        self.endpoint = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def Export(self, request: Any, _context: grpc.ServicerContext) -> Any:
        with self._changed:
            for found in request.resource_spans:
                self.resources.append(_attributes(found.resource))
                for scope in found.scope_spans:
                    for span in scope.spans:
                        self._traces.setdefault(span.trace_id, []).append(span)
            self._changed.notify_all()
        return service.ExportTraceServiceResponse()

    def until(self, name: str, fits: Callable[[list[Any]], object]) -> list[Any]:
        """The spans of the first trace whose root has this name and that fits; the root first."""

        def found() -> list[Any] | None:
            return next(
                (trace for trace in self._traces.values() if trace[0].name == name and fits(trace)),
                None,
            )

        with self._changed:
            assert self._changed.wait_for(found, WAIT_S), [
                [span.name for span in each] for each in self._traces.values()
            ]
            return found() or []

    def close(self) -> None:
        self._server.stop(0).wait()
        self._threads.shutdown()


def _attributes(span: Any) -> dict[str, Any]:
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def test_checkpoints_and_failovers_reach_a_receiver(
    receiver: Receiver, new_coordinator: NewCoordinator, new_task_manager: NewTaskManager, caller: NewCaller
) -> None:
    leader = leading(new_coordinator("first", otlp=receiver.endpoint))
    standby = new_coordinator("second", otlp=receiver.endpoint)
    lost = new_task_manager("tm-0").connect(leader.address)
    api = caller(leader)
    api("Submit", m.SubmitRequest("job", graph()))
    root, *parts = receiver.until("checkpoint", lambda spans: len(spans) == 4)
    assert root.parent_span_id == b""
    assert {span.parent_span_id for span in parts} == {root.span_id}
    assert {(span.name, _attributes(span).get("lockgate.task_manager")) for span in parts} == {
        ("snapshot source", "tm-0"),
        ("snapshot count", "tm-0"),
        ("persist", None),
    }
    assert all(root.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano for span in parts)
    about = _attributes(root)
    assert (about["lockgate.job"], about["lockgate.attempt"], about["lockgate.token"]) == ("job", 1, 1)
    assert receiver.resources[0]["service.name"] == "lockgate"
    assert receiver.resources[0]["service.instance.id"] == "first"

    lost.die()
    new_task_manager("tm-1").connect(leader.address)
    spans = receiver.until("failover", lambda found: _attributes(found[0])["lockgate.cause"] == "task_manager_lost")
    by_name = {span.name: span for span in spans}
    assert by_name.keys() >= {"end the attempt", "deploy", "start source", "start count", "first checkpoint"}
    for name in ("start source", "start count"):
        assert by_name[name].parent_span_id == by_name["deploy"].span_id
        assert _attributes(by_name[name])["lockgate.task_manager"] == "tm-1"

    crash(leader)
    leader.stop()
    leading(standby)
    new_task_manager("tm-2").connect(standby.address)
    spans = receiver.until("failover", lambda found: _attributes(found[0])["lockgate.token"] == 2)
    assert {"take leadership", "recover the job", "deploy", "first checkpoint"} <= {span.name for span in spans}
    assert spans[0].status.code != ERROR


def test_a_receiver_that_is_away_holds_nothing_up_and_is_logged_once(
    new_coordinator: NewCoordinator,
    new_task_manager: NewTaskManager,
    caller: NewCaller,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(trace_export, "_EXPORT_S", 0.2)
    leader = leading(new_coordinator(otlp=f"http://127.0.0.1:{ports.choose('127.0.0.1', 1)[0]}"))
    new_task_manager().connect(leader.address)
    api = caller(leader)
    api("Submit", m.SubmitRequest("job", graph()))
    assert leader.traces is not None
    outcomes = leader.traces.outcomes
    api.until("job", lambda _: dict(outcomes.items()).get("failed", 0) >= 3)
    assert api.status("job").checkpoints_completed >= 3
    lines = [record.getMessage() for record in caplog.records if "coordinator.otlp" in record.getMessage()]
    assert len(lines) == 1
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry")]
    assert "lockgate_traces_total" in leader.metrics_page.render()[1].decode()


def test_spans_beyond_the_queue_are_dropped_at_once() -> None:
    export = TraceExport("http://127.0.0.1:9", "c", "default")
    for _ in range(WAITING + 5):
        export.offer(lambda: (Span("checkpoint", 0, 1),))
    assert export.outcomes.items() == [("dropped", 5)]


def test_without_opentelemetry_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_export, "_is_installed", lambda: False)
    with pytest.raises(SettingsError, match=r"^otlp: .*pip install 'lockgate\[otel\]'$"):
        TraceExport("http://127.0.0.1:9", "c", "default")


@pytest.mark.parametrize(
    "endpoint", ["collector:4317", "http://collector", "ftp://c:1", "http://user:word@c:1", "http://"]
)
def test_an_address_that_is_no_receiver_is_refused(new_coordinator: NewCoordinator, endpoint: str) -> None:
    with pytest.raises(SettingsError, match=r"^otlp: .* is no receiver; give http://host:port or https://host:port$"):
        new_coordinator(otlp=endpoint)
