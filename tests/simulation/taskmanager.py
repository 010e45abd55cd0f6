"""A simulated task manager process: deployments, the control stream and the data exchange, as the runtime has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lockgate_proto.messages import (
    AcknowledgeCheckpoint,
    AssignSplits,
    AttemptGone,
    AttemptId,
    CancelAttempt,
    CheckpointCommitted,
    CoordinatorMessage,
    Deploy,
    DiscoverSplits,
    DrainSources,
    Heartbeat,
    LeaderRecord,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    Placement,
    PrepareJob,
    Register,
    Registered,
    SplitsDiscovered,
    SubtaskCounters,
    SubtaskEffort,
    SubtaskId,
    SubtaskReport,
    TaskManagerMessage,
    TriggerCheckpoint,
)

from taskmanager.exchange.fencing import TokenFence
from tests.simulation.network import ControlStream
from tests.simulation.storage import Outputs, Storage
from tests.simulation.subtask import Channel, SimulatedSubtask
from tests.simulation.world import Crash, Process, World, short

if TYPE_CHECKING:
    from tests.simulation.job import SimulatedJob

HEARTBEAT_MS = 500
MEASURED_MS = 100
"""Between two heartbeats where one of the task managers is slow: the jobs do not last long."""
SILENCE_MS = 3_000
SLOTS = 2
REPEAT_MS = 10_000
"""What was said so shortly before a stream broke is said again over the next one."""
REPEATABLE = (SubtaskReport, AcknowledgeCheckpoint, CheckpointCommitted, SplitsDiscovered)
"""Messages of a task manager that may arrive twice."""


@dataclass
class TaskPlan:
    """How often things go wrong inside task managers, until `quiet_after_ms`; which one is slow, empty for none."""

    snapshot_failure: float = 0.0
    upload_failure: float = 0.0
    death: float = 0.0
    repetition: float = 0.0
    quiet_after_ms: float = 0.0
    slow: str = ""

    def _strikes(self, world: World, probability: float) -> bool:
        return world.now < self.quiet_after_ms and world.chance(probability)

    def snapshot_fails(self, world: World) -> bool:
        """Whether the state cannot be frozen this time."""
        return self._strikes(world, self.snapshot_failure)

    def upload_fails(self, world: World) -> bool:
        """Whether the state cannot be stored this time."""
        return self._strikes(world, self.upload_failure)

    def dies(self, world: World) -> bool:
        """Whether the task manager dies at this point."""
        return self._strikes(world, self.death)

    def repeats(self, world: World) -> bool:
        """Whether a message is delivered twice."""
        return self._strikes(world, self.repetition)


class Exchange:
    """Every channel between subtasks, wherever they are."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._receivers: dict[SubtaskId, SimulatedSubtask] = {}
        self._waiting: dict[SubtaskId, list[tuple[Channel, Any]]] = {}
        self._gone: set[SubtaskId] = set()
        self._processes: dict[SubtaskId, SimulatedTaskManager] = {}

    def register(self, subtask: SimulatedSubtask) -> None:
        """The receiving side is there."""
        self._receivers[subtask.id] = subtask
        self._processes[subtask.id] = subtask.attempt.process
        for channel, element in self._waiting.pop(subtask.id, []):
            self.deliver(channel, element)

    def deliver(self, channel: Channel, element: Any) -> None:
        """One element has crossed the network."""
        target = channel.target
        if target in self._gone:
            self._refuse(channel)
            return
        receiver = self._receivers.get(target)
        if receiver is None:
            self._waiting.setdefault(target, []).append((channel, element))
            return
        process = receiver.attempt.process
        if not process.is_alive or receiver.is_closed or channel.token < process.fence:
            self._refuse(channel)
        elif channel.is_open:
            sender = channel.sender.id
            receiver.put(receiver.channels.index((sender.vertex_id, sender.subtask)), element)

    def _refuse(self, channel: Channel) -> None:
        sender = channel.sender
        channel.is_open = False
        sender.process.later(self._world.delay(1, 10), sender.peer_lost)

    def sender_gone(self, channel: Channel) -> None:
        """The receiver hears that the stream has ended."""
        receiver = self._receivers.get(channel.target)
        if receiver is not None and not receiver.is_closed:
            receiver.process.later(self._world.delay(1, 10), receiver.peer_lost)

    def receiver_gone(self, subtask: SimulatedSubtask) -> None:
        """The subtask takes nothing more."""
        self._gone.add(subtask.id)
        self._receivers.pop(subtask.id, None)

    def process_died(self, process: SimulatedTaskManager) -> None:
        """Every stream of a dead process ends."""
        for attempt in process.attempts.values():
            for one in attempt.tasks.values():
                self.receiver_gone(one)
                for channel in one.outputs.values():
                    channel.break_off()
                one.is_closed = True

    def cut(self, subtask: SimulatedSubtask) -> None:
        """Breaks one channel of a live subtask."""
        channels = [one for one in subtask.outputs.values() if one.is_open]
        if channels:
            channel = channels[self._world.random.randrange(len(channels))]
            channel.break_off()
            self._refuse(channel)


class SimulatedAttempt:
    """The subtasks of one attempt on one task manager."""

    def __init__(self, process: SimulatedTaskManager, deploy: Deploy) -> None:
        assert deploy.attempt is not None
        assert deploy.graph is not None
        self.process, self.deploy = process, deploy
        self.id, self.graph = deploy.attempt, deploy.graph
        self.exchange = process.exchange
        mine = [one for one in deploy.placements if one.task_manager_id == process.id]
        self.tasks = {self._subtask(one): SimulatedSubtask(self, self._subtask(one)) for one in mine}
        self.live = set(self.tasks)
        here = process.id
        for task in self.tasks.values():
            for edge in task.edges:
                for one in deploy.placements:
                    if one.vertex_id == edge.target:
                        channel = Channel(task, self._subtask(one), one.task_manager_id == here, process.fence)
                        task.outputs[one.vertex_id, one.subtask] = channel

    def start(self) -> None:
        """Opens the receiving sides, then starts the loops."""
        for task in self.tasks.values():
            self.exchange.register(task)
        for task in self.tasks.values():
            task.start()

    def parallelism(self, vertex: str) -> int:
        """Number of subtasks of a vertex."""
        return sum(1 for one in self.deploy.placements if one.vertex_id == vertex)

    def cancel(self) -> None:
        """Ends every subtask."""
        for task in list(self.tasks.values()):
            task.cancel()

    def ended(self, task: SimulatedSubtask) -> None:
        """One subtask is over."""
        if task.id in self.live:
            self.live.discard(task.id)
            if not self.live:
                self.process.attempts.pop(self.id, None)
                self.process.report(AttemptGone(self.id))

    def _subtask(self, one: Placement) -> SubtaskId:
        return SubtaskId(self.id, one.vertex_id, one.subtask)


class SimulatedTaskManager(Process):
    """One process. connect: opens a control stream, None when nobody listens at the leader's address."""

    def __init__(
        self,
        world: World,
        name: str,
        pid: int,
        storage: Storage,
        outputs: Outputs,
        exchange: Exchange,
        plan: TaskPlan,
        jobs: dict[str, SimulatedJob],
        connect: Callable[[SimulatedTaskManager, LeaderRecord], ControlStream | None],
        on_crash: Callable[[SimulatedTaskManager], None],
    ) -> None:
        super().__init__(world, f"{name}/{pid}")
        self.id, self.pid = name, pid
        self.address = f"{name}:{pid}"
        self.storage, self.outputs, self.exchange, self.plan, self.jobs = storage, outputs, exchange, plan, jobs
        self._tokens = TokenFence()
        self.attempts: dict[AttemptId, SimulatedAttempt] = {}
        self._newest: dict[tuple[str, str], int] = {}
        self._connect, self._on_crash = connect, on_crash
        self._leader: LeaderRecord | None = None
        self.stream: ControlStream | None = None
        self._pause_ms = 10.0
        self._is_connecting = False
        self._recent: list[tuple[float, int, Any]] = []  # when, under which token, what
        self._beats = 0
        self._heard = world.now
        self._beat_ms = MEASURED_MS if plan.slow else HEARTBEAT_MS
        self._worked: dict[SubtaskId, int] = {}  # beats in which it was at work
        self.later(self._beat_ms, self._beat)

    @property
    def fence(self) -> int:
        """The highest token seen."""
        return self._tokens.highest

    # -- the leader ---------------------------------------------------------------------------------------------------

    def on_leader(self, record: LeaderRecord | None) -> None:
        """What ZooKeeper says."""
        if record is None or record == self._leader or record.token < self.fence:
            return
        self._leader = record
        if self.stream is not None and self.stream.leader != record:
            self.stream.break_off("a newer leader is announced")
        self._pause_ms = 10.0
        self._dial(self.world.delay(0.5, 5))

    def _dial(self, delay_ms: float) -> None:
        if not self._is_connecting:
            self._is_connecting = True
            self.later(delay_ms, self._try)

    def _try(self) -> None:
        self._is_connecting = False
        leader = self._leader
        if self.stream is not None or leader is None or not self._tokens.observe(leader.token):
            return
        self.stream = self._connect(self, leader)
        if self.stream is None:
            self._dial(self._pause_ms)
            self._pause_ms = min(self._pause_ms * 2, 500)
            return
        self._heard = self.world.now
        recent = [one for at, token, one in self._recent if token == leader.token and at >= self.world.now - REPEAT_MS]
        for body in (Register(self.address, SLOTS, self.pid, tuple(self.attempts)), *recent):
            self._send(body)

    def stream_ended(self, stream: ControlStream) -> None:
        """The stream is over, from either side."""
        if self.stream is stream:
            self.stream = None
            self._dial(self._pause_ms)
            self._pause_ms = min(self._pause_ms * 2, 500)

    def report(self, body: Any) -> None:
        """To the leader, now or over the next stream to the same one."""
        if isinstance(body, AcknowledgeCheckpoint):
            self._recent = [one for one in self._recent if not _is_ack_of(one[2], body)]
        self._recent.append((self.world.now, self.fence, body))
        self._send(body)

    def _send(self, body: Any) -> None:
        self.world.note(self.name, f"says {short(body)}" if self.stream else f"cannot say {short(body)}")
        if self.stream is not None:
            self.stream.to_coordinator(TaskManagerMessage(self.fence, self.id, body))
            if isinstance(body, REPEATABLE) and self.plan.repeats(self.world):
                self.stream.to_coordinator(TaskManagerMessage(self.fence, self.id, body))

    def _beat(self) -> None:
        self._beats += 1
        if self.stream is not None:
            tasks = [task for attempt in self.attempts.values() for task in attempt.tasks.values()]
            counters = tuple(
                SubtaskCounters(task.id, task.counters, self._effort(task.id)) for task in tasks if task.counters
            )
            self.stream.to_coordinator(TaskManagerMessage(self.fence, self.id, Heartbeat(self._beats, counters)))
            if self.world.now - self._heard > SILENCE_MS:
                self.stream.break_off("the leader is silent")
        self.later(self._beat_ms, self._beat)

    def _effort(self, subtask: SubtaskId) -> SubtaskEffort | None:
        """Always at work; on the slow one with a fifth of the records."""
        if not self.plan.slow:
            return None
        count = self._worked[subtask] = self._worked.get(subtask, 0) + 1
        records = 10 if self.id == self.plan.slow else 50
        return SubtaskEffort(count * MEASURED_MS * 1_000, count * 5, count * records, 0, 100)

    def receive(self, stream: ControlStream, message: CoordinatorMessage) -> None:
        """One message of a leader."""
        if stream is not self.stream:
            return
        if not self._tokens.observe(message.token):
            self.world.note(self.name, f"refuses {short(message.body)} under token {message.token}")
            stream.break_off("a leader that has been replaced")
            return
        self._heard = self.world.now
        self._pause_ms = 10.0
        if not isinstance(message.body, Registered | Heartbeat):
            self.world.note(self.name, f"hears {short(message.body)} under token {message.token}")
            self._do(message.body)

    # -- deployments --------------------------------------------------------------------------------------------------

    def _do(self, body: Any) -> None:
        match body:
            case Deploy():
                self._deploy(body)
            case CancelAttempt(attempt) if attempt is not None:
                self._cancel(attempt)
            case DiscoverSplits():
                self.later(self.world.delay(1, 20), lambda: self._discover(body))
            case AssignSplits(subtask) if subtask is not None and subtask.attempt is not None:
                found = self.attempts.get(subtask.attempt)
                if found is not None and subtask in found.tasks:
                    found.tasks[subtask].post(body)
            case (
                TriggerCheckpoint(attempt)
                | NotifyCheckpointComplete(attempt)
                | NotifyCheckpointAborted(attempt)
                | DrainSources(attempt)
            ):
                found = self.attempts.get(attempt) if attempt is not None else None
                for task in list(found.tasks.values()) if found is not None else ():
                    task.post(body)
                    if self.plan.repeats(self.world):
                        task.post(body)
            case PrepareJob(attempt, graph, slots):  # advice: nothing may depend on it
                if attempt is None or graph is None or not 0 < slots <= SLOTS:
                    self.world.violate(f"{self.name} is to prepare {slots} slots for {attempt}")

    def _deploy(self, deploy: Deploy) -> None:
        attempt = deploy.attempt
        assert attempt is not None
        run = (attempt.job_key, attempt.run_id)
        if attempt.attempt <= self._newest.get(run, 0):
            if attempt not in self.attempts:
                self.report(AttemptGone(attempt))
            return
        self._newest[run] = attempt.attempt
        for older in [one for known, one in self.attempts.items() if known.job_key == attempt.job_key]:
            older.cancel()
        deployed = SimulatedAttempt(self, deploy)
        self.attempts[attempt] = deployed
        deployed.start()

    def _cancel(self, attempt: AttemptId) -> None:
        run = (attempt.job_key, attempt.run_id)
        self._newest[run] = max(self._newest.get(run, 0), attempt.attempt)
        if attempt in self.attempts:
            self.attempts[attempt].cancel()
        else:
            self.report(AttemptGone(attempt))

    def _discover(self, request: DiscoverSplits) -> None:
        attempt = request.attempt
        if attempt in self.attempts:
            splits = self.jobs[attempt.job_key].splits()
            new = tuple(one for one in splits if one.split not in request.known)
            self.report(SplitsDiscovered(attempt, request.vertex_id, new, True))

    # -- faults -------------------------------------------------------------------------------------------------------

    def maybe_die(self, point: str) -> None:
        """A point at which the process may be killed."""
        if self.plan.dies(self.world):
            self.world.note(self.name, f"dies {point}")
            raise Crash

    def crash(self) -> None:
        """See Process: the peers and the leader see their streams break."""
        super().crash()
        self.world.note(self.name, "is killed")
        self.exchange.process_died(self)
        if self.stream is not None:
            self.stream.break_off("its process died")
        self._on_crash(self)


def _is_ack_of(body: Any, other: AcknowledgeCheckpoint) -> bool:
    return isinstance(body, AcknowledgeCheckpoint) and body.subtask == other.subtask
