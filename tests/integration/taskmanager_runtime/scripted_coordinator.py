"""A leader whose every message is written by the test, speaking the real ControlService over gRPC."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import grpc
from lockgate_common.proof import Peer
from lockgate_common.security import Credentials
from lockgate_proto import rpc
from lockgate_proto.messages import (
    AcknowledgeCheckpoint,
    AssignSplits,
    AttemptId,
    CheckpointCommitted,
    CoordinatorMessage,
    Deploy,
    Goodbye,
    Heartbeat,
    JobGraph,
    LeaderRecord,
    NotifyCheckpointComplete,
    Participant,
    Register,
    Registered,
    ReportBatch,
    SplitState,
    SubtaskId,
    SubtaskPhase,
    SubtaskReport,
    SubtaskState,
    TaskManagerMessage,
    TriggerCheckpoint,
)

from tests.layouts import layout

T = TypeVar("T")
WAIT_S = 240.0
LOOK_EVERY_S = 0.05


def until(condition: Callable[[], object], what: str) -> None:
    """Waits for what no message tells. what: the end of "not in time: "."""
    pause, deadline = threading.Event(), time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        pause.wait(0.01)


@dataclass(frozen=True)
class Received:
    """One message of a task manager."""

    task_manager_id: str
    token: int
    body: Any
    at: float  # time.monotonic()
    sequence: int
    acknowledged: int


class ScriptedCoordinator:
    """One leader with one token."""

    def __init__(self, credentials: Credentials, token: int = 1, heartbeat_ms: int = 0) -> None:
        self.token = token
        self._credentials = credentials
        self._heartbeat_ms = heartbeat_ms
        self._received: list[Received] = []
        self._changed = threading.Condition()
        self._outboxes: dict[str, queue.SimpleQueue[CoordinatorMessage | None]] = {}
        self._ended: set[str] = set()
        self.refusal: tuple[grpc.StatusCode, str] | None = None  # instead of Registered
        self.refused_count = 0
        self.takes_batches = False
        self.batches: list[int] = []  # reports in each
        self.on_goodbye: Callable[[str], object] = lambda _task_manager_id: None  # before it is answered
        self._server = grpc.server(futures.ThreadPoolExecutor(16), options=rpc.SERVER_OPTIONS)
        self._server.add_generic_rpc_handlers((rpc.handler("ControlService", self),))
        self.address = f"127.0.0.1:{credentials.bind(self._server, '127.0.0.1:0')}"
        self._server.start()

    @property
    def record(self) -> LeaderRecord:
        """What ZooKeeper would say."""
        return LeaderRecord(self.token, self.address, "ab", 1, f"c-{self.token}", 0)

    def Connect(
        self, requests: Iterator[TaskManagerMessage], context: grpc.ServicerContext
    ) -> Iterator[CoordinatorMessage]:
        """The service."""
        method = rpc.path("ControlService", "Connect")
        answer = self._credentials.answer(Peer(self.address, ""), method, tuple(context.invocation_metadata()))
        assert answer
        context.send_initial_metadata(answer)
        outbox: queue.SimpleQueue[CoordinatorMessage | None] = queue.SimpleQueue()
        first = next(requests)
        assert isinstance(first.body, Register)
        if self.refusal is not None:
            with self._changed:
                self.refused_count += 1
                self._changed.notify_all()
            context.abort(*self.refusal)
        self._outboxes[first.task_manager_id] = outbox
        outbox.put(CoordinatorMessage(self.token, Registered(self._heartbeat_ms, self.takes_batches)))
        self._note(first)
        threading.Thread(target=self._listen, args=(requests, outbox, first.task_manager_id), daemon=True).start()
        while (message := outbox.get()) is not None:
            yield message

    def send(
        self, task_manager_id: str, body: Any, token: int | None = None, sequence: int = 0, acknowledged: int = 0
    ) -> None:
        """To one task manager, with this leader's token unless another is given."""
        token = self.token if token is None else token
        self._outboxes[task_manager_id].put(CoordinatorMessage(token, body, sequence, acknowledged))

    def received(self, kind: type[T]) -> list[T]:
        """Bodies of one kind so far."""
        with self._changed:
            return [received.body for received in self._received if isinstance(received.body, kind)]

    def messages(self) -> list[Received]:
        """Everything so far."""
        with self._changed:
            return list(self._received)

    def wait(self, condition: Callable[[], T], timeout_s: float = WAIT_S) -> T:
        """Until the condition is true; looked at after every message."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not (result := condition()):
                left = deadline - time.monotonic()
                if left <= 0:
                    bodies = [received.body for received in self._received if not isinstance(received.body, Heartbeat)]
                    raise AssertionError(f"not in {timeout_s} s; received at last: {bodies[-12:]}")
                self._changed.wait(min(left, LOOK_EVERY_S))  # not every condition is about messages
            return result

    def wait_for(self, kind: type[T], count: int = 1, where: Callable[[T], bool] = lambda _: True) -> list[T]:
        """Until so many bodies of one kind have come."""

        def found() -> list[T]:
            bodies = [
                received.body for received in self._received if isinstance(received.body, kind) and where(received.body)
            ]
            return bodies if len(bodies) >= count else []

        return self.wait(found)

    def break_streams(self) -> None:
        """Ends every present stream; the port stays open."""
        for outbox in list(self._outboxes.values()):
            outbox.put(None)

    def wait_ended(self, task_manager_id: str) -> bool:
        """Until the task manager has ended its stream."""
        return self.wait(lambda: task_manager_id in self._ended)

    def die(self) -> None:
        """As on kill -9: every stream breaks and the port is closed."""
        for outbox in self._outboxes.values():
            outbox.put(None)
        self._server.stop(grace=0).wait(WAIT_S)

    def _listen(self, requests: Iterator[TaskManagerMessage], outbox: queue.SimpleQueue[Any], name: str) -> None:
        try:
            for message in requests:
                self._note(message)
                if isinstance(message.body, Goodbye):
                    self.on_goodbye(name)
                    outbox.put(None)
        except Exception:
            pass
        outbox.put(None)
        with self._changed:
            self._ended.add(name)
            self._changed.notify_all()

    def _note(self, message: TaskManagerMessage) -> None:
        if isinstance(message.body, ReportBatch):
            assert self.takes_batches
            self.batches.append(len(message.body.reports))
            for each in message.body.reports:
                self._note(replace(message, body=each.body))
            return
        with self._changed:
            name, at = message.task_manager_id, time.monotonic()
            self._received.append(
                Received(name, message.token, message.body, at, message.sequence, message.acknowledged)
            )
            self._changed.notify_all()


class Leader:
    """One job under a scripted leader: the steps every test needs."""

    def __init__(
        self, coordinator: ScriptedCoordinator, graph: JobGraph, task_managers: tuple[str, ...], job: str = "job"
    ) -> None:
        self.coordinator, self.graph, self.task_managers = coordinator, graph, task_managers
        self.job = job
        self.directory = "memory:"
        self.attempt = AttemptId(job, "run", 0)

    def subtasks(self) -> list[SubtaskId]:
        """Of the present attempt."""
        return [SubtaskId(self.attempt, v.id, i) for v in self.graph.vertices for i in range(v.parallelism)]

    def layout(self) -> bytes:
        """Subtask i goes to task manager i."""
        registered = {
            message.task_manager_id: Participant(
                message.task_manager_id, message.body.exchange_address, message.body.incarnation
            )
            for message in self.coordinator.messages()
            if isinstance(message.body, Register)
        }
        count = max(vertex.parallelism for vertex in self.graph.vertices)
        return layout(self.graph, *(registered[self.home(index)] for index in range(count)))

    def deploy(
        self, attempt: int, restore: dict[tuple[str, int], SubtaskState] | None = None, checkpoint_id: int = 0
    ) -> None:
        """One message to each task manager."""
        self.attempt = AttemptId(self.job, "run", attempt)
        places = self.layout()
        for home in dict.fromkeys(self.task_managers):
            states = tuple(state for key, state in (restore or {}).items() if self.home(key[1]) == home)
            message = Deploy(self.attempt, states, checkpoint_id, self.directory, places)
            self.coordinator.send(home, message)

    def home(self, subtask: int) -> str:
        """The task manager of subtask i of every vertex."""
        return self.task_managers[subtask % len(self.task_managers)]

    def assign(self, rows: int, complete: bool = True) -> None:
        """Split i to source subtask i."""
        for subtask in self.subtasks():
            if subtask.vertex_id == "words":
                splits = (SplitState(str(subtask.subtask), 0, rows),)
                self.coordinator.send(self.home(subtask.subtask), AssignSplits(subtask, splits, complete))

    def wait_phase(self, phase: SubtaskPhase, subtasks: Sequence[SubtaskId] = ()) -> None:
        """Until every subtask of the present attempt, or some of them, have reported the phase."""
        wanted = set(subtasks or self.subtasks())

        def is_there() -> bool:
            found = {
                subtask_report.subtask
                for subtask_report in self.coordinator.received(SubtaskReport)
                if subtask_report.phase is phase
            }
            return wanted <= found

        self.coordinator.wait(is_there)

    def trigger(self, checkpoint_id: int, terminal: bool = False, unaligned: bool = False) -> None:
        """To every task manager with a source."""
        message = TriggerCheckpoint(self.attempt, checkpoint_id, terminal=terminal, unaligned=unaligned)
        for home in dict.fromkeys(self.task_managers):
            self.coordinator.send(home, message)

    def wait_acks(self, checkpoint_id: int) -> dict[tuple[str, int], SubtaskState]:
        """Until every subtask has acknowledged; the states by vertex and subtask."""
        wanted = set(self.subtasks())

        def acks() -> dict[SubtaskId, SubtaskState]:
            found = {
                acknowledge_checkpoint.subtask: acknowledge_checkpoint.state
                for acknowledge_checkpoint in self.coordinator.received(AcknowledgeCheckpoint)
                if acknowledge_checkpoint.checkpoint_id == checkpoint_id
                and acknowledge_checkpoint.subtask is not None
                and acknowledge_checkpoint.state is not None
            }
            return found if wanted <= set(found) else {}

        states = self.coordinator.wait(acks)
        return {(key.vertex_id, key.subtask): state for key, state in states.items()}

    def complete(self, checkpoint_id: int) -> None:
        """Notifies and waits for every commit."""
        for home in dict.fromkeys(self.task_managers):
            self.coordinator.send(home, NotifyCheckpointComplete(self.attempt, checkpoint_id))
        wanted = set(self.subtasks())

        def is_there() -> bool:
            found = {
                checkpoint_committed.subtask
                for checkpoint_committed in self.coordinator.received(CheckpointCommitted)
                if checkpoint_committed.checkpoint_id == checkpoint_id
            }
            return wanted <= found

        self.coordinator.wait(is_there)

    def checkpoint(self, checkpoint_id: int, terminal: bool = False) -> dict[tuple[str, int], SubtaskState]:
        """A whole checkpoint."""
        self.trigger(checkpoint_id, terminal)
        states = self.wait_acks(checkpoint_id)
        self.complete(checkpoint_id)
        return states
