"""Traces of checkpoints and failovers, over real OTLP to a receiver that reads OpenTelemetry's own messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import grpc
import pytest
from lockgate_common import ports
from lockgate_common.settings import SettingsError
from lockgate_coordinator.job.trace import Span
from lockgate_coordinator.runtime import trace_export
from lockgate_coordinator.runtime.trace_export import WAITING, TraceExport
from lockgate_proto import messages as m

from tests.integration.coordinator.conftest import (
    WAIT_S,
    NewCaller,
    NewCoordinator,
    NewTaskManager,
    graph,
    leading,
    poll,
)
from tests.integration.coordinator.test_coordinator_failover import crash

if TYPE_CHECKING:
    from benchmarks.otlp_receiver import Receiver
pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc")
otlp_receiver = pytest.importorskip("benchmarks.otlp_receiver")
_attributes = otlp_receiver.attributes
pytestmark = pytest.mark.integration

ERROR = 2  # Status.STATUS_CODE_ERROR


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = otlp_receiver.Receiver()
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
    root, *parts = receiver.until("checkpoint", lambda spans: len(spans) == 4, WAIT_S)
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
    spans = receiver.until(
        "failover", lambda found: _attributes(found[0])["lockgate.cause"] == "task_manager_lost", WAIT_S
    )
    by_name = {span.name: span for span in spans}
    assert by_name.keys() >= {"end the attempt", "deploy", "start source", "start count", "first checkpoint"}
    for name in ("start source", "start count"):
        assert by_name[name].parent_span_id == by_name["deploy"].span_id
        assert _attributes(by_name[name])["lockgate.task_manager"] == "tm-1"

    crash(leader)
    leader.stop()
    leading(standby)
    new_task_manager("tm-2").connect(standby.address)
    spans = receiver.until("failover", lambda found: _attributes(found[0])["lockgate.token"] == 2, WAIT_S)
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


@pytest.fixture
def new_export() -> Iterator[Callable[[str], TraceExport]]:
    """Started; of the endpoint."""
    made = list[TraceExport]()

    def new(endpoint: str) -> TraceExport:
        made.append(TraceExport(endpoint, "c", "default"))
        made[-1].start()
        return made[-1]

    yield new
    for export in made:
        export.stop()


def _remarks(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "coordinator.otlp" in record.getMessage()]


def test_a_full_queue_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    export = TraceExport("http://127.0.0.1:9", "c", "default")
    for _ in range(WAITING + 5):
        export.offer(lambda: ())
    assert _remarks(caplog) == [
        f"a trace is dropped: {WAITING} others wait to be sent to http://127.0.0.1:9 (coordinator.otlp)"
    ]


@pytest.mark.parametrize(
    ("variable", "value", "remark"),
    [
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "OTEL_EXPORTER_OTLP_COMPRESSION"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/absent/ca.pem", "/absent/ca.pem"),
    ],
)
def test_a_wrong_variable_fails_each_trace_and_is_named(
    receiver: Receiver,
    new_export: Callable[[str], TraceExport],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: str,
    remark: str,
) -> None:
    monkeypatch.setenv(variable, value)
    export = new_export("https://127.0.0.1:9")
    for _ in range(3):
        export.offer(lambda: (Span("checkpoint", 0, 1),))
    poll(lambda: export.outcomes.items() == [("failed", 3)])
    (line,) = _remarks(caplog)
    assert remark in line
    monkeypatch.delenv(variable)
    export._endpoint = receiver.endpoint
    export.offer(lambda: (Span("checkpoint", 0, 1),))
    receiver.until("checkpoint", len, 30)


def test_the_status_of_a_receiver_that_refuses_is_logged(
    request: pytest.FixtureRequest,
    new_export: Callable[[str], TraceExport],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_receiver: Receiver, _request: object, context: grpc.ServicerContext) -> None:
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "no such token")

    monkeypatch.setattr(otlp_receiver.Receiver, "Export", refuse)
    request.addfinalizer((refusing := otlp_receiver.Receiver()).close)
    export = new_export(refusing.endpoint)
    export.offer(lambda: (Span("checkpoint", 0, 1),))
    poll(lambda: export.outcomes.items() == [("failed", 1)])
    (line,) = _remarks(caplog)
    assert "UNAUTHENTICATED" in line
    assert "no such token" in line


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
