"""A task manager that speaks the real protocol and runs nothing: it answers as a script would."""

from __future__ import annotations

import itertools
import queue
import socket
import threading
from collections.abc import Callable, Iterator

import grpc
from lockgate_proto import messages as m
from lockgate_proto.rpc import call
from lockgate_proto.security import Credentials

WAIT_S = 60.0


class FakeFleet:
    """Task managers that pass barriers on: a trigger that reaches one is acknowledged by all of the attempt."""

    def __init__(self) -> None:
        self.members: list[FakeTaskManager] = []
        self.acknowledging = True

    def trigger(self, trigger: m.TriggerCheckpoint) -> None:
        if self.acknowledging:
            for one in list(self.members):
                one.acknowledge(trigger)


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
        self.running: list[m.AttemptId] = []
        self.heard: list[m.CoordinatorMessage] = []
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
        """Opens a stream and registers; returns when the leader has answered or refused."""
        self._hang_up()
        self.slots = slots or self.slots
        self.status, self.ended_well = None, False
        self._outbox = queue.Queue()
        self._closed = threading.Event()
        if self not in self._fleet.members:
            self._fleet.members.append(self)
        before = len(self.heard)
        self._channel = self._credentials.channel(address)
        self.send(m.Register(self.exchange, self.slots, self.pid, tuple(self.running)))
        answers = call(self._channel, "ControlService", "Connect")(
            self._requests(self._outbox), metadata=self._credentials.metadata()
        )
        for target, arguments in ((self._read, (answers,)), (self._beat, (self._outbox, self._closed))):
            thread = threading.Thread(target=target, args=arguments, name=f"fake-{self.name}")
            self._threads.append(thread)
            thread.start()
        self.wait(lambda: len(self.heard) > before or self.status is not None)
        return self

    def die(self) -> None:
        """As SIGKILL: the port refuses, the stream breaks."""
        self._listener.close()
        if self in self._fleet.members:
            self._fleet.members.remove(self)
        self._hang_up()

    def leave(self) -> None:
        """Says good-bye, and more than it should afterwards; returns when the leader has ended the stream."""
        self.send(m.Goodbye())
        self.report(m.SubtaskPhase.SUBTASK_CANCELED)
        self.send(m.Goodbye())
        self.wait(lambda: self.ended_well or self.status is not None)

    def stop_listening(self) -> None:
        """The port refuses; the stream stands, as after a SIGKILL that the network has not told yet."""
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
        self._outbox.put(m.TaskManagerMessage(self.token if token is None else token, self.name, body))  # type: ignore[arg-type]

    def wait(self, condition: Callable[[], object]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, WAIT_S), f"{self.name} only heard {self.heard} ({self.status})"

    def bodies(self, kind: type) -> list[object]:
        with self._changed:
            return [message.body for message in self.heard if isinstance(message.body, kind)]

    def expect(self, kind: type, nth: int = 1) -> object:
        """The nth message of this kind."""
        self.wait(lambda: len(self.bodies_now(kind)) >= nth)
        return self.bodies_now(kind)[nth - 1]

    def bodies_now(self, kind: type) -> list[object]:
        return [message.body for message in self.heard if isinstance(message.body, kind)]

    def subtasks(self, deploy: m.Deploy) -> list[m.SubtaskId]:
        return [
            m.SubtaskId(deploy.attempt, one.vertex_id, one.subtask)
            for one in deploy.placements
            if one.task_manager_id == self.name
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
        deploys = [one for one in self.bodies(m.Deploy) if isinstance(one, m.Deploy)]
        return next((one for one in reversed(deploys) if attempt in (None, one.attempt)), None)

    def acknowledge(self, trigger: m.TriggerCheckpoint) -> None:
        """As if the barrier had come by."""
        for subtask in self._mine(trigger.attempt):
            self.send(m.AcknowledgeCheckpoint(subtask, trigger.checkpoint_id, self.state(subtask, trigger)))

    def state(self, subtask: m.SubtaskId, trigger: m.TriggerCheckpoint) -> m.SubtaskState:
        """One inline handle an operator, naming the checkpoint, so that a test recognises it."""
        text = f"{subtask.vertex_id}-{subtask.subtask}@{trigger.checkpoint_id}".encode()
        deploy = self._deploy(subtask.attempt)
        assert deploy is not None
        assert deploy.graph is not None
        vertex = next(one for one in deploy.graph.vertices if one.id == subtask.vertex_id)
        first = vertex.operators[0]
        source = isinstance(first.kind, m.GeneratorSource | m.FileSource)
        kind = m.StateKind.SOURCE_STATE if source else m.StateKind.KEYED_STATE
        return m.SubtaskState(
            subtask.vertex_id,
            subtask.subtask,
            (m.OperatorState(first.id, kind, m.StateHandle(inline=b"" if source else text, size_bytes=len(text))),),
            tuple(m.OperatorCounters(one.id, 10 * trigger.checkpoint_id, 10) for one in vertex.operators),
        )

    # -- threads ------------------------------------------------------------------------------------------------------

    def _requests(self, outbox: queue.Queue[m.TaskManagerMessage | None]) -> Iterator[m.TaskManagerMessage]:
        while (message := outbox.get()) is not None:
            yield message

    def _beat(self, outbox: queue.Queue[m.TaskManagerMessage | None], closed: threading.Event) -> None:
        while not closed.wait(self._heartbeat_s):
            if self.beating:
                outbox.put(m.TaskManagerMessage(self.token, self.name, m.Heartbeat(next(self._numbers))))

    def _read(self, answers: Iterator[m.CoordinatorMessage]) -> None:
        try:
            for message in answers:
                if message.token < self.token:
                    continue  # a zombie
                self.token = message.token
                if not isinstance(message.body, m.Heartbeat):
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
            self.heard.append(message)
            self._changed.notify_all()
        match message.body:
            case m.Deploy() as deploy:
                assert deploy.attempt is not None
                self.running = [one for one in self.running if one.job_key != deploy.attempt.job_key]
                self.running.append(deploy.attempt)
                self.report(m.SubtaskPhase.SUBTASK_RUNNING)
                if self.exhausted:
                    self.report(m.SubtaskPhase.SUBTASK_EXHAUSTED)
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
