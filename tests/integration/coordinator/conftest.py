"""Coordinators in this process, over the embedded twin of ZooKeeper, and what talks to them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from lockgate_common.security import Credentials
from lockgate_coordinator.runtime import task_managers
from lockgate_coordinator.runtime.process import Coordinator
from lockgate_coordinator.runtime.settings import CoordinatorSettings
from lockgate_coordinator.runtime.web import WebInterfaceFactory
from lockgate_ha.embedded import EmbeddedZooKeeper
from lockgate_ha.records import JobRecords
from lockgate_ha.session import Connector
from lockgate_ha.session_store import SessionStore
from lockgate_proto import messages as m
from lockgate_proto.rpc import call

from tests.integration.coordinator.fake_task_manager import WAIT_S, FakeFleet, FakeTaskManager

SECRET = Credentials(secret="a secret of this test")
PATIENT_MS = 240_000

NewCoordinator = Callable[..., Coordinator]
NewTaskManager = Callable[..., FakeTaskManager]
NewCaller = Callable[..., "Caller"]


class Caller:
    """Calls one coordinator's services."""

    def __init__(self, address: str, credentials: Credentials = SECRET) -> None:
        self.address = address
        self._credentials = credentials
        self._channel = credentials.channel(address)
        grpc.channel_ready_future(self._channel).result(WAIT_S)  # a call that finds no connection fails after 20 s

    def __call__(self, method: str, request: Any, service: str = "JobService") -> Any:
        """One call. A new leader that still reads the job's records is asked again, as docs/grpc-api.md demands."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                return self._once(method, request, service)
            except grpc.RpcError as error:
                if "being read; try again" not in (error.details() or "") or time.monotonic() > deadline:
                    raise

    def _once(self, method: str, request: Any, service: str) -> Any:
        return call(self._channel, service, method)(request, timeout=WAIT_S, metadata=self._credentials.metadata())

    def fails(self, method: str, request: Any, service: str = "JobService") -> grpc.RpcError:
        def try_it() -> None:
            answer = self._once(method, request, service)
            if not hasattr(answer, "__dataclass_fields__"):
                list(answer)

        with pytest.raises(grpc.RpcError) as caught:
            try_it()
        return caught.value

    def status(self, key: str) -> m.JobStatus:
        return self("Get", m.GetRequest(key))

    def until(self, key: str, wanted: Callable[[m.JobStatus], bool]) -> m.JobStatus:
        """Follows the job's watch until a status fits; the last one when the watch ends."""
        stream = self("Watch", m.WatchRequest(key))
        last = None
        for update in stream:
            if isinstance(update.update, m.JobStatus):
                last = update.update
                if wanted(last):
                    stream.cancel()
                    return last
        assert last is not None
        assert wanted(last), last
        return last

    def state(self, key: str, *states: m.JobState) -> m.JobStatus:
        return self.until(key, lambda status: status.state in states)

    def close(self) -> None:
        self._channel.close()


def graph(
    parallelism: int = 1, *, name: str = "numbers", rows: int = 0, interval_ms: int = 100, **options: Any
) -> m.JobGraph:
    """A generator whose rows are counted by key."""
    return m.JobGraph(
        name=name,
        vertices=(
            m.Vertex(
                "source",
                parallelism=parallelism,
                operators=(m.Operator("numbers", kind=m.GeneratorSource(rows_per_partition=rows)),),
            ),
            m.Vertex(
                "count",
                parallelism=parallelism,
                operators=(
                    m.Operator(
                        "total",
                        kind=m.KeyedAggregate(("partition",), (m.Aggregate("n", m.AggregateFunction.COUNT),)),
                    ),
                    m.Operator("out", kind=m.ConsoleSink()),
                ),
            ),
        ),
        edges=(m.Edge("source", "count", m.Partitioning.HASH, ("partition",)),),
        checkpoints=m.CheckpointOptions(interval_ms=interval_ms, **options),
    )


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + WAIT_S
    for thread in set(threading.enumerate()) - before:
        if not thread.name.startswith(("leader-probe", "Dummy")):
            while thread.is_alive() or thread.ident is None:  # one that is just being started cannot be joined
                assert time.monotonic() < deadline, thread.name
                time.sleep(0.01)


@pytest.fixture
def server() -> EmbeddedZooKeeper:
    return EmbeddedZooKeeper()


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    return tmp_path / "storage"


@pytest.fixture
def new_coordinator(server: EmbeddedZooKeeper, storage: Path) -> Iterator[Callable[..., Coordinator]]:
    """Makes coordinators that give no task manager up because a busy machine has paused: only evidence counts."""
    made: list[Coordinator] = []

    def make(
        name: str = "",
        connector: Connector | None = None,
        web: WebInterfaceFactory | None = None,
        **changes: Any,
    ) -> Coordinator:
        values: dict[str, Any] = {
            "zookeeper": "embedded",
            "storage": str(storage),
            "bind": "127.0.0.1:0",
            "credentials": SECRET,
            "heartbeat_ms": 50,
            "heartbeat_timeout_ms": PATIENT_MS,
            "coordinator_id": name or f"c{len(made) + 1}",
        }
        coordinator = Coordinator(CoordinatorSettings(**(values | changes)), connector or server.connector(), web)
        made.append(coordinator)
        coordinator.start()
        return coordinator

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_managers, "GRACE_MS", PATIENT_MS)
        yield make
        for coordinator in reversed(made):
            coordinator.stop()


@pytest.fixture
def caller() -> Iterator[Callable[..., Caller]]:
    made: list[Caller] = []

    def make(coordinator: Coordinator, credentials: Credentials = SECRET) -> Caller:
        made.append(Caller(coordinator.address, credentials))
        return made[-1]

    yield make
    for caller in made:
        caller.close()


@pytest.fixture
def leader(new_coordinator: NewCoordinator) -> Coordinator:
    """One that leads."""
    return leading(new_coordinator())


@pytest.fixture
def api(leader: Coordinator, caller: NewCaller) -> Caller:
    """Calls it."""
    return caller(leader)


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet()


@pytest.fixture
def new_task_manager(fleet: FakeFleet) -> Iterator[Callable[..., FakeTaskManager]]:
    made: list[FakeTaskManager] = []

    def make(name: str = "", **options: Any) -> FakeTaskManager:
        made.append(FakeTaskManager(fleet, options.pop("credentials", SECRET), name or f"tm{len(made) + 1}", **options))
        return made[-1]

    yield make
    for fake_task_manager in made:
        fake_task_manager.die()


class Running(NamedTuple):
    """A leader, a caller of it, its only task manager, and the run of the job "job" there."""

    leader: Coordinator
    api: Caller
    fake_task_manager: FakeTaskManager
    run_id: str


@pytest.fixture
def running(
    new_coordinator: Callable[..., Coordinator],
    caller: Callable[..., Caller],
    new_task_manager: Callable[..., FakeTaskManager],
) -> Callable[..., Running]:
    """Starts all of it. checkpoints: wait for so many, too; the rest is for the task manager."""

    def start(name: str = "", *, checkpoints: int = 0, **options: Any) -> Running:
        leader = leading(new_coordinator())
        api = caller(leader)
        task_manager = new_task_manager(name, **options).connect(leader.address)
        run_id = api("Submit", m.SubmitRequest("job", graph())).run_id
        api.until(
            "job", lambda status: status.state is m.JobState.RUNNING and status.checkpoints_completed >= checkpoints
        )
        return Running(leader, api, task_manager, run_id)

    return start


def poll(condition: Callable[[], object]) -> None:
    """Polls until the condition holds: for what has no notification."""
    pause, deadline = threading.Event(), time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        pause.wait(0.02)


def abort_one(fleet: FakeFleet, task_manager: FakeTaskManager, api: Caller, reason: str, key: str = "job") -> int:
    """A checkpoint of the job that a subtask of this task manager declines; the next ones succeed. Returns its id."""

    def aborted() -> list[int]:
        history = api("ListCheckpoints", m.ListCheckpointsRequest(key, history=True)).history
        return [outcome.checkpoint.checkpoint_id for outcome in history if outcome.aborted]

    before = set(aborted())

    def is_done() -> bool:
        triggers = task_manager.bodies(m.TriggerCheckpoint)
        if triggers and isinstance(triggers[-1], m.TriggerCheckpoint):
            task_manager.decline(triggers[-1], reason)  # one that is completed already ignores it
        return set(aborted()) > before

    fleet.acknowledging = False
    poll(is_done)
    fleet.acknowledging = True
    waiting = task_manager.bodies(m.TriggerCheckpoint)[-1]
    assert isinstance(waiting, m.TriggerCheckpoint)
    task_manager.acknowledge(waiting)  # it was triggered meanwhile
    return max(set(aborted()) - before)


def metadata_files(folder: Path) -> list[Path]:
    """Every `_metadata` file below a folder. Others may be deleting there, which `Path.rglob` takes for an error."""
    return sorted(Path(at, "_metadata") for at, _, files in os.walk(folder) if "_metadata" in files)


def recorded(server: EmbeddedZooKeeper, key: str = "job") -> list[Path]:
    """The `_metadata` files of a job's checkpoints, as ZooKeeper names them.

    There may be others: of one that its leader did not come to record, or whose record it has just removed.
    """
    checkpoints = JobRecords(SessionStore("default", server.open()), "default").checkpoints(key)
    return sorted(Path(checkpoint.pointer.removeprefix("file://")) for checkpoint in checkpoints)


def leading(coordinator: Coordinator) -> Coordinator:
    """Waits until it leads and has read the jobs."""
    dispatcher = coordinator.dispatcher
    term = dispatcher.wait_leading(WAIT_S)
    term.results_known.result(WAIT_S)
    return coordinator
