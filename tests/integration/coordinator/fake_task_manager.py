"""A task manager that speaks the real protocol and runs nothing: it answers as a script would."""

from __future__ import annotations

import itertools
import queue
import socket
import threading
from collections.abc import Callable, Iterator

import grpc
from lockgate_common.security import Credentials
from lockgate_proto import messages as m
from lockgate_proto.layout import layout_of
from lockgate_proto.release import own_release
from lockgate_proto.rpc import call

from tests.layouts import places

WAIT_S = 200.0  # a bound, not an expectation: other work may share the machine
_TRIES = 5


class FakeFleet:
    """Task managers that pass barriers on: a trigger that reaches one is acknowledged by all of the attempt."""

    def __init__(self) -> None:
        self.members: list[FakeTaskManager] = []
        self.acknowledging = True

    def trigger(self, trigger: m.TriggerCheckpoint) -> None:
        if self.acknowledging:
            for member in list(self.members):
                member.acknowledge(trigger)


class FakeTaskManager:
    """One process's worth: an exchange port, a control stream, and everything that the leader said to it."""

    def __init__(
        self,
        fleet: FakeFleet,
        credentials: Credentials,
        name: str,
        *,
        slots: int = 2,
        pid: int = 1,
        heartbeat_s: float = 0.05,
    ) -> None:
        self.name, self.slots, self.pid = name, slots, pid
        self.token = 0
        self.handled = 0  # highest number of the leader with this token
        self.incarnation = f"{name}-{id(self)}"
        self.running: list[m.AttemptId] = []
        self.received: list[m.CoordinatorMessage] = []
        self.status: grpc.StatusCode | None = None
        self.details = ""
        self.ended_well = False
        self.beating = True
        self.exhausted = False  # what is deployed has nothing to read
        self._fleet = fleet
        self._credentials = credentials
        self._heartbeat_s = heartbeat_s
        self._changed = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.exchange = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._outbox: queue.Queue[m.TaskManagerMessage | None] = queue.Queue()
        self._channel: grpc.Channel | None = None
        self._threads: list[threading.Thread] = []
        self._closed = threading.Event()
        self._seen: set[tuple[m.AttemptId, int]] = set()
        self._numbers = itertools.count(1)

    # -- life ---------------------------------------------------------------------------------------------------------

    def connect(self, address: str, *, slots: int | None = None) -> FakeTaskManager:
        """Opens a stream and registers; returns when the leader has answered or refused.

        As a real one it tries again where a busy machine has refused the connection.
        """
        self.slots = slots or self.slots
        for _ in range(_TRIES):
            self._open(address)
            if self.status is None or "failed to connect" not in self.details:
                break
        return self

    def _open(self, address: str) -> None:
        self._hang_up()
        self.status, self.ended_well = None, False
        self._outbox = queue.Queue()
        self._closed = threading.Event()
        if self not in self._fleet.members:
            self._fleet.members.append(self)
        before = len(self.received)
        self._channel = self._credentials.channel(address)
        self.send(
            m.Register(
                self.exchange, self.slots, self.pid, tuple(self.running), self.incarnation, release=own_release()
            )
        )
        answers = call(self._channel, "ControlService", "Connect")(
            self._requests(self._outbox), metadata=self._credentials.metadata()
        )
        for target, arguments in ((self._read, (answers,)), (self._beat, (self._outbox, self._closed))):
            thread = threading.Thread(target=target, args=arguments, name=f"fake-{self.name}")
            self._threads.append(thread)
            thread.start()
        self.wait(lambda: len(self.received) > before or self.status is not None)

    def die(self) -> None:
        """As SIGKILL: the port refuses, the stream breaks."""
        self._listener.close()
        if self in self._fleet.members:
            self._fleet.members.remove(self)
        self._hang_up()

    def leave(self) -> None:
        """Sends Goodbye, and more than it should afterwards; returns when the leader has ended the stream."""
        self.send(m.Goodbye())
        self.report(m.SubtaskPhase.SUBTASK_CANCELED)
        self.send(m.Goodbye())
        self.wait(lambda: self.ended_well or self.status is not None)

    def stop_listening(self) -> None:
        """The port refuses; the stream stands, as after a SIGKILL that the network has not reported yet."""
        self._listener.close()

    def break_stream(self) -> None:
        """The network forgets the connection; the process lives."""
        self._hang_up()

    def _hang_up(self) -> None:
        self._closed.set()
        self._outbox.put(None)
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        self._threads.clear()

    # -- talking ------------------------------------------------------------------------------------------------------

    def send(self, body: object, *, token: int | None = None) -> None:
        token = self.token if token is None else token
        self._outbox.put(m.TaskManagerMessage(token, self.name, body, acknowledged=self.handled))  # type: ignore[arg-type]

    def wait(self, condition: Callable[[], object]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, WAIT_S), f"{self.name} only heard {self.received} ({self.status})"

    def bodies(self, kind: type) -> list[object]:
        with self._changed:
            return [message.body for message in self.received if isinstance(message.body, kind)]

    def expect(self, kind: type, nth: int = 1) -> object:
        """The nth message of this kind."""
        self.wait(lambda: len(self.bodies_now(kind)) >= nth)
        return self.bodies_now(kind)[nth - 1]

    def bodies_now(self, kind: type) -> list[object]:
        return [message.body for message in self.received if isinstance(message.body, kind)]

    def subtasks(self, deploy: m.Deploy) -> list[m.SubtaskId]:
        return [
            m.SubtaskId(deploy.attempt, vertex, index)
            for (vertex, index), place in places(deploy).items()
            if place == self.name
        ]

    def report(self, phase: m.SubtaskPhase, cause: m.FailureCause = m.FailureCause.FAULT, error: str = "") -> None:
        """Every subtask of the newest attempt here changes to `phase`."""
        for subtask in self._mine():
            self.send(m.SubtaskReport(subtask, phase, cause, error))

    def _mine(self, attempt: m.AttemptId | None = None) -> list[m.SubtaskId]:
        """The subtasks here of that attempt, or of the newest one."""
        deploy = self._deploy(attempt)
        return [] if deploy is None else self.subtasks(deploy)

    def _deploy(self, attempt: m.AttemptId | None) -> m.Deploy | None:
        deploys = [body for body in self.bodies(m.Deploy) if isinstance(body, m.Deploy)]
        return next((deploy for deploy in reversed(deploys) if attempt in (None, deploy.attempt)), None)

    def acknowledge(self, trigger: m.TriggerCheckpoint) -> None:
        """As if the barrier had come by."""
        for subtask in self._mine(trigger.attempt):
            self.send(m.AcknowledgeCheckpoint(subtask, trigger.checkpoint_id, self.state(subtask, trigger)))

    def decline(self, trigger: m.TriggerCheckpoint, reason: str) -> None:
        """As if its first subtask here could not store its state, which is not held against the job."""
        subtask = self._mine(trigger.attempt)[0]
        self.send(m.DeclineCheckpoint(subtask, trigger.checkpoint_id, reason, m.DeclineCause.STORAGE_FAILED))

    def state(self, subtask: m.SubtaskId, trigger: m.TriggerCheckpoint) -> m.SubtaskState:
        """One inline handle an operator, naming the checkpoint, so that a test recognises it."""
        text = f"{subtask.vertex_id}-{subtask.subtask}@{trigger.checkpoint_id}".encode()
        deploy = self._deploy(subtask.attempt)
        assert deploy is not None
        graph = layout_of(deploy).graph
        assert graph is not None
        vertex = next(vertex for vertex in graph.vertices if vertex.id == subtask.vertex_id)
        first = vertex.operators[0]
        source = isinstance(first.kind, m.GeneratorSource | m.FileSource)
        kind = m.StateKind.SOURCE_STATE if source else m.StateKind.KEYED_STATE
        return m.SubtaskState(
            subtask.vertex_id,
            subtask.subtask,
            (m.OperatorState(first.id, kind, m.StateHandle(inline=b"" if source else text, size_bytes=len(text))),),
            tuple(m.OperatorCounters(operator.id, 10 * trigger.checkpoint_id, 10) for operator in vertex.operators),
        )

    # -- threads ------------------------------------------------------------------------------------------------------

    def _requests(self, outbox: queue.Queue[m.TaskManagerMessage | None]) -> Iterator[m.TaskManagerMessage]:
        while (message := outbox.get()) is not None:
            yield message

    def _beat(self, outbox: queue.Queue[m.TaskManagerMessage | None], closed: threading.Event) -> None:
        while not closed.wait(self._heartbeat_s):
            if self.beating:
                beat = m.Heartbeat(next(self._numbers))
                outbox.put(m.TaskManagerMessage(self.token, self.name, beat, acknowledged=self.handled))

    def _read(self, answers: Iterator[m.CoordinatorMessage]) -> None:
        try:
            for message in answers:
                if message.token < self.token:
                    continue  # a zombie
                if message.token > self.token:
                    self.token, self.handled = message.token, 0
                if not isinstance(message.body, m.Heartbeat) and not 0 < message.sequence <= self.handled:
                    self.handled = max(self.handled, message.sequence)
                    self._react(message)
            with self._changed:
                self.ended_well = True
                self._changed.notify_all()
        except grpc.RpcError as error:
            with self._changed:
                self.status, self.details = error.code(), error.details() or ""
                self._changed.notify_all()

    def _react(self, message: m.CoordinatorMessage) -> None:
        with self._changed:
            self.received.append(message)
            self._changed.notify_all()
        match message.body:
            case m.Deploy() as deploy:
                assert deploy.attempt is not None
                self.running = [
                    attempt_id for attempt_id in self.running if attempt_id.job_key != deploy.attempt.job_key
                ]
                self.running.append(deploy.attempt)
                self.report(m.SubtaskPhase.SUBTASK_RUNNING)
                if self.exhausted:
                    self.report(m.SubtaskPhase.SUBTASK_EXHAUSTED)
            case m.StateQuery(request=number, operators=operators):
                values = tuple(m.KeyedValue(each.operator_id, key) for each in operators for key in each.keys)
                self.send(m.StateAnswer(number, m.QueryOutcome.ANSWERED, values))
            case m.DrainSources():
                self.report(m.SubtaskPhase.SUBTASK_EXHAUSTED)  # and what was read has flown out
            case m.CancelAttempt(attempt=attempt) if attempt is not None:
                if attempt in self.running:
                    self.running.remove(attempt)
                self.send(m.AttemptGone(attempt))
            case m.TriggerCheckpoint() as trigger:
                assert trigger.attempt is not None
                with self._changed:
                    again = (trigger.attempt, trigger.checkpoint_id) in self._seen
                    self._seen.add((trigger.attempt, trigger.checkpoint_id))
                if not again:
                    self._fleet.trigger(trigger)
            case m.NotifyCheckpointComplete(attempt=attempt, checkpoint_id=number):
                for subtask in self._mine(attempt):
                    self.send(m.CheckpointCommitted(subtask, number))
