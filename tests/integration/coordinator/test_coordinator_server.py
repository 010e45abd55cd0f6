"""The gRPC server: streams without a thread each, and what a caller can do to it that means no good."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from lockgate_common.serving import requests
from lockgate_common.serving.event_loop import LoopThread
from lockgate_coordinator.runtime.process import Coordinator
from lockgate_coordinator.runtime.watchdog import Watchdog
from lockgate_proto import messages as m
from lockgate_proto.rpc import SERVICES, call

from tests.integration.coordinator.conftest import (
    SECRET,
    Caller,
    NewCaller,
    NewCoordinator,
    NewTaskManager,
    Running,
    graph,
    leading,
    poll,
)
from tests.integration.coordinator.fake_task_manager import WAIT_S

pytestmark = pytest.mark.integration

STREAMS = 300  # more than any pool of threads that ever served them


def answers(api: Caller) -> bool:
    """Health, a read and a write that has to be refused."""
    stub = health_pb2_grpc.HealthStub(api._channel)
    status = stub.Check(health_pb2.HealthCheckRequest(), timeout=WAIT_S).status
    assert api("GetCluster", m.GetClusterRequest()).leader is not None
    assert api.fails("Cancel", m.CancelRequest("nobody")).code() is grpc.StatusCode.NOT_FOUND
    return bool(status == health_pb2.HealthCheckResponse.SERVING)


def open_stream(api: Caller, service: str, method: str, request: Any) -> Any:
    return call(api._channel, service, method)(request, metadata=SECRET.metadata())


def threads_of_the_server() -> int:
    return sum(thread.name.startswith("rpc-") for thread in threading.enumerate())


def test_more_streams_than_threads_are_all_answered(
    new_coordinator: NewCoordinator, caller: NewCaller, new_task_manager: NewTaskManager
) -> None:
    leader = leading(new_coordinator(heartbeat_ms=1_000, max_watchers=1_000))
    api = caller(leader)
    api("Submit", m.SubmitRequest("job", graph()))
    watches = [open_stream(api, "JobService", "Watch", m.WatchRequest("job")) for _ in range(STREAMS)]
    waiting = call(api._channel, "ControlService", "Connect")
    silent = threading.Event()
    controls = [waiting(_nothing(silent), metadata=SECRET.metadata()) for _ in range(STREAMS)]
    try:
        for watch in watches:
            assert next(watch).update.job_key == "job"
        assert answers(api)
        new_task_manager().connect(leader.address)
        assert api.state("job", m.JobState.RUNNING).job_key == "job"
        last = api("Cancel", m.CancelRequest("job")).state
        assert last is not m.JobState.RUNNING
        for watch in watches:
            assert [update.update for update in watch][-1] is not None  # every watcher gets the end
        assert threads_of_the_server() < 100
    finally:
        silent.set()
        for control in controls:
            control.cancel()


def _nothing(until: threading.Event) -> Iterator[m.TaskManagerMessage]:
    until.wait(WAIT_S)
    yield from ()


def test_calls_whose_request_never_arrives_hold_nothing(api: Caller) -> None:
    silent = threading.Event()
    open_call = api._channel.stream_unary(SERVICES["JobService"]["GetCluster"].path)
    calls = [open_call.future(_bytes(silent), metadata=SECRET.metadata()) for _ in range(STREAMS)]
    try:
        assert answers(api)
    finally:
        silent.set()
        for item in calls:
            item.cancel()


def _bytes(until: threading.Event) -> Iterator[bytes]:
    until.wait(WAIT_S)
    yield from ()


def test_a_call_without_its_request_is_refused_in_time(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_WAIT_S", 0.05)
    silent = threading.Event()
    late = api._channel.stream_unary(SERVICES["JobService"]["GetCluster"].path).future(
        _bytes(silent), metadata=SECRET.metadata()
    )
    with pytest.raises(grpc.RpcError) as caught:
        late.result(WAIT_S)
    silent.set()
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert "no request arrived" in caught.value.details()


def test_a_stream_that_ends_without_its_request_is_refused(api: Caller) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        api._channel.stream_unary(SERVICES["JobService"]["GetCluster"].path)(
            iter(()), metadata=SECRET.metadata(), timeout=WAIT_S
        )
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    "path", [b"/lockgate.v1.JobService/\xff\xfe", b"/\xc3\x28", b"/lockgate.v1.JobService/Nothing"]
)
def test_an_unknown_method_is_refused_harmlessly(api: Caller, path: bytes) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        api._channel.unary_unary(path)(b"", timeout=WAIT_S)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert answers(api)


def test_watchers_that_disconnect_in_the_middle_of_a_message_leave_no_trace(
    api: Caller, leader: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    api("Submit", m.SubmitRequest("job", graph()))
    dispatcher = leader.dispatcher
    hub = dispatcher.call(lambda term: term.jobs["job"].hub)
    loud = m.JobEvent(text="x" * 400_000)  # more than a connection takes before its reader reads
    streams = [open_stream(api, "JobService", "Watch", m.WatchRequest("job")) for _ in range(20)]
    for stream in streams:
        next(stream)
    dispatcher.call(lambda _term: [hub.event(loud) for _ in range(20)])
    for stream in streams:
        stream.cancel()
    poll(lambda: not dispatcher.call(lambda term: term.jobs["job"].hub.watched))
    assert answers(api)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info]


def test_a_watcher_that_does_not_read_delays_no_other(api: Caller, leader: Coordinator, caller: NewCaller) -> None:
    api("Submit", m.SubmitRequest("job", graph()))
    deaf = [open_stream(caller(leader), "JobService", "Watch", m.WatchRequest("job")) for _ in range(5)]
    for stream in deaf:
        next(stream)
    dispatcher = leader.dispatcher
    hub = dispatcher.call(lambda term: term.jobs["job"].hub)
    dispatcher.call(lambda _term: [hub.event(m.JobEvent(text="x" * 400_000)) for _ in range(20)])
    heard = open_stream(api, "JobService", "Watch", m.WatchRequest("job"))
    texts = 0
    while texts < 20:
        update = next(heard).update
        texts += isinstance(update, m.JobEvent) and len(update.text) == 400_000
    assert answers(api)
    for stream in (*deaf, heard):
        stream.cancel()


def test_connected_task_managers_are_bounded_and_the_setting_is_named(
    new_coordinator: NewCoordinator, new_task_manager: NewTaskManager
) -> None:
    leader = leading(new_coordinator(max_task_managers=1))
    first, second = new_task_manager().connect(leader.address), new_task_manager().connect(leader.address)
    assert first.status is None
    assert second.status is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "(max_task_managers)" in second.details
    first.die()
    poll(lambda: second.connect(leader.address).status is None)


def test_a_registration_at_the_end_of_the_term_is_answered(
    leader: Coordinator, new_task_manager: NewTaskManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatcher = leader.dispatcher
    go_on, queued = threading.Event(), threading.Event()
    tell = dispatcher.tell

    def noting(*arguments: Any) -> bool:
        is_queued = tell(*arguments)
        queued.set()
        return is_queued

    monkeypatch.setattr(dispatcher, "tell", noting)
    dispatcher.actor.tell(lambda: go_on.wait(WAIT_S) and None)
    task_manager = new_task_manager()
    connecting = threading.Thread(target=task_manager.connect, args=(leader.address,))
    connecting.start()
    assert queued.wait(WAIT_S)  # the registration waits behind what is under way
    dispatcher.revoked("lost, says this test")
    go_on.set()
    connecting.join(WAIT_S)
    assert task_manager.status is grpc.StatusCode.UNAVAILABLE
    assert "no longer leads" in task_manager.details


def test_an_answer_that_takes_its_time_holds_no_thread(running: Callable[..., Running]) -> None:
    """Savepoints of a job that cannot complete one, as many as there were threads."""
    _, api, task_manager, _ = running()
    task_manager._fleet.acknowledging = False
    save = call(api._channel, "JobService", "TriggerSavepoint")
    waiting = [save.future(m.TriggerSavepointRequest("job"), metadata=SECRET.metadata()) for _ in range(STREAMS)]
    assert answers(api)
    assert threads_of_the_server() < 100
    for item in waiting:
        item.cancel()


def test_the_deadline_of_the_caller_ends_its_wait(running: Callable[..., Running]) -> None:
    _, api, task_manager, _ = running()
    task_manager._fleet.acknowledging = False
    with pytest.raises(grpc.RpcError) as caught:
        call(api._channel, "JobService", "TriggerSavepoint")(
            m.TriggerSavepointRequest("job"), timeout=0.2, metadata=SECRET.metadata()
        )
    assert caught.value.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)


def test_a_health_watch_receives_every_change(leader: Coordinator, api: Caller) -> None:
    poll(lambda: leader._health._states["lockgate.leader"] == health_pb2.HealthCheckResponse.SERVING)
    stream = health_pb2_grpc.HealthStub(api._channel).Watch(health_pb2.HealthCheckRequest(service="lockgate.leader"))
    assert next(stream).status == health_pb2.HealthCheckResponse.SERVING
    leader._health.leading(False)
    assert next(stream).status == health_pb2.HealthCheckResponse.NOT_SERVING
    stream.cancel()
    unknown = health_pb2_grpc.HealthStub(api._channel).Watch(health_pb2.HealthCheckRequest(service="nothing"))
    assert next(unknown).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    unknown.cancel()
    with pytest.raises(grpc.RpcError) as caught:
        health_pb2_grpc.HealthStub(api._channel).Check(health_pb2.HealthCheckRequest(service="nothing"), timeout=WAIT_S)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_the_watchdog_notices_a_loop_that_does_not_turn() -> None:
    thread, go_on, reported = LoopThread("rpc-loop"), threading.Event(), threading.Event()
    dog = Watchdog(thread, "answers calls", reported.set, 0.2)
    thread.post(lambda: go_on.wait(WAIT_S) and None)
    dog.start()
    assert reported.wait(WAIT_S)
    go_on.set()
    dog.stop()
    thread.close()


def test_posted_calls_run_in_order_and_are_refused_after_the_end() -> None:
    thread, done = LoopThread("rpc-loop"), []
    for number in range(1_000):
        assert thread.post(lambda number=number: done.append(number))  # type: ignore[misc]
    thread.close()
    assert done == list(range(1_000))
    assert not thread.post(lambda: None)
