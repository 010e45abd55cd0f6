"""A simulated task manager process: deployments, the control stream and the data exchange, as the runtime has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from lockgate_common.session import Session
from lockgate_proto.messages import (
    AcknowledgeCheckpoint,
    AssignSplits,
    CancelAttempt,
    CheckpointCommitted,
    CoordinatorMessage,
    Deploy,
    DrainSources,
    Heartbeat,
    KeepCopies,
    LeaderRecord,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    PrepareJob,
    Register,
    Registered,
    RejoinPart,
    ReportBatch,
    SplitsDiscovered,
    StateHandle,
    SubtaskEffort,
    SubtaskId,
    SubtaskReport,
    TaskManagerMessage,
    TriggerCheckpoint,
)
from lockgate_proto.release import own_release
from lockgate_taskmanager.exchange.fencing import TokenFence
from lockgate_taskmanager.exchange.gate import CHANNEL_BYTES
from lockgate_taskmanager.exchange.peers import PeerChannels
from lockgate_taskmanager.exchange.registry import GateRegistry
from lockgate_taskmanager.exchange.replay_log import ReplayLog
from lockgate_taskmanager.runtime import (
    absent_peers,
    copy_keeper,
    deployments,
    effort,
    faults,
    in_flight,
    output_set,
    subtask_snapshots,
    subtask_task,
    uploads,
    wiring,
)
from lockgate_taskmanager.runtime.deployments import DeployedAttempt, Deployments
from lockgate_taskmanager.runtime.leader_grace import LeaderGrace
from lockgate_taskmanager.runtime.report_batches import ALONE, REPORTS, Company, ReportBatches
from lockgate_taskmanager.runtime.source_rest import SourceRest
from lockgate_taskmanager.runtime.stories import Stories
from lockgate_taskmanager.task.program import StorageUnavailable

from tests.simulation.copies import Disks, Keeper
from tests.simulation.exchange import Exchange, SimulatedGate, SimulatedOutput
from tests.simulation.network import ControlStream
from tests.simulation.programs import SimulatedPrograms
from tests.simulation.storage import Outputs, SimulatedBackend, Storage
from tests.simulation.subtask import SimulatedExecutor, SimulatedSubtask, SimulatedTimer, clock
from tests.simulation.takeover import LONGEST_MS, TakeoverOracle
from tests.simulation.world import Crash, Process, World, short

HEARTBEAT_MS = 500
MEASURED_MS = 100
"""Between two heartbeats where one of the task managers is slow: the jobs do not last long."""
SILENCE_MS = 3_000
SLOTS = 2
REPEATABLE = (SubtaskReport, AcknowledgeCheckpoint, CheckpointCommitted, SplitsDiscovered, ReportBatch)
"""Messages of a task manager that may arrive twice."""
SAID_AGAIN = (
    Deploy,
    CancelAttempt,
    AssignSplits,
    TriggerCheckpoint,
    NotifyCheckpointComplete,
    NotifyCheckpointAborted,
    DrainSources,
    RejoinPart,
)
"""Messages of a leader that may arrive twice, the second time much later."""
LATE_MS = 1_500.0


@dataclass
class TaskPlan:
    """How often things go wrong inside task managers, until `quiet_after_ms`; which one is slow, empty for none.

    refusing: key of a job whose ledgers refuse every record. leader_grace_ms: see LeaderGrace. batch_ms: how long
    reports wait for each other, as those of a large job do; 0: they do not. late_ms: how much later than the one before
    it each task manager hears of any leader but the first. log_bytes, gate_bytes: see ReplayLog and InputGate; 0: as
    usual, which is enough for everything here. slots: of each.
    """

    snapshot_failure: float = 0.0
    upload_failure: float = 0.0
    death: float = 0.0
    repetition: float = 0.0
    quiet_after_ms: float = 0.0
    slow: str = ""
    refusing: str = ""
    leader_grace_ms: int = 600_000
    batch_ms: int = 0
    late_ms: float = 0.0
    log_bytes: int = 0
    gate_bytes: int = 0
    slots: int = SLOTS

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


class SimulatedDeployments(Deployments):
    """The real ones. What cannot be wired is a fault of the code."""

    world: World

    def _refuse(self, deployed: DeployedAttempt, subtasks: tuple[SubtaskId, ...], reason: str, _: str) -> None:
        self.world.violate(f"attempt {deployed.attempt} cannot be deployed, {subtasks}: {reason}")


class SimulatedTaskManager(Process):
    """One process. connect: opens a control stream, None when nothing listens at the leader's address."""

    def __init__(
        self,
        world: World,
        name: str,
        pid: int,
        storage: Storage,
        disks: Disks,
        outputs: Outputs,
        exchange: Exchange,
        plan: TaskPlan,
        connect: Callable[[SimulatedTaskManager, LeaderRecord], ControlStream | None],
        on_crash: Callable[[SimulatedTaskManager], None],
        reached: Callable[[SimulatedTaskManager, str], None],
    ) -> None:
        super().__init__(world, f"{name}/{pid}")
        self.id, self.pid = name, pid
        self.address = f"{name}:{pid}"
        self.storage, self.outputs, self.exchange, self.plan = storage, outputs, exchange, plan
        self._disks, self.disk = disks, disks.disk()
        self.keeper = Keeper(self, self.disk, self.report)
        self.tokens, self.registry = TokenFence(), GateRegistry()
        self._source_rest = SourceRest(lambda: world.now / 1_000)
        self.deployments = SimulatedDeployments(
            name,
            SimulatedPrograms(self),
            self.registry,
            cast("PeerChannels", exchange),
            self.tokens,
            self.report,
            Stories(name, f"{pid:04}"),
            log_bytes=1 << 26,
            rest=self._source_rest,
        )
        self.deployments.world = world
        exchange.processes[self.address] = self
        self.takeover = TakeoverOracle(world, self.name)
        self._connect, self._on_crash, self._reached = connect, on_crash, reached
        self._leader: LeaderRecord | None = None
        self.stream: ControlStream | None = None
        self._pause_ms = 10.0
        self._is_connecting = False
        self._session: Session[Any] = Session()
        self._batches = ReportBatches()
        self._takes_batches = False
        self._beats = 0
        self._heard = world.now
        self._is_registered = False  # with a leader, over the present stream
        self._leader_grace = LeaderGrace(plan.leader_grace_ms)
        self._beat_ms = MEASURED_MS if plan.slow else HEARTBEAT_MS
        self._worked: dict[SubtaskId, int] = {}  # beats in which it was at work
        self.later(self._beat_ms, self._send_heartbeats)

    @property
    def fence(self) -> int:
        """The highest token seen."""
        return self.tokens.highest

    def stored(self, run_id: str, checkpoint_id: int, handle: StateHandle, content: Any) -> None:
        """A state file was written to the storage: a copy stays here."""
        self._disks.store_beside(self.disk, run_id, checkpoint_id, handle, content)

    def read(self, handle: StateHandle) -> Any:
        """The content of a state file, as state/backend.py. Raises StateUnreadable, StorageUnavailable."""
        try:
            return self._disks.read(self.disk, handle)
        except OSError as error:
            raise StorageUnavailable(str(error)) from error

    def download(self, handle: StateHandle, file: Path) -> None:
        """To a new file. Raises StateUnreadable, OSError."""
        self._disks.download(handle, file)

    # -- the leader ---------------------------------------------------------------------------------------------------

    def on_leader(self, record: LeaderRecord | None) -> None:
        """What ZooKeeper says."""
        if record is not None and record.token > 1 and self.plan.late_ms:
            self.later(self.plan.late_ms * int(self.id.rpartition("-")[2]), lambda: self._heard_of(record))
        elif record is not None:
            self._heard_of(record)

    def _heard_of(self, record: LeaderRecord) -> None:
        if record == self._leader or record.token < self.fence:
            return
        self._leader = record
        if self.stream is not None and self.stream.leader != record:
            self.stream.leave("a newer leader is announced")
        self._pause_ms = 10.0
        self._dial(self.world.delay(0.5, 5))

    def _dial(self, delay_ms: float) -> None:
        if not self._is_connecting:
            self._is_connecting = True
            self.later(delay_ms, self._try)

    def _try(self) -> None:
        self._is_connecting = False
        leader = self._leader
        if self.stream is not None or leader is None or not self._accepts_token(leader.token):
            return
        self.stream = self._connect(self, leader)
        if self.stream is None:
            self._dial(self._pause_ms)
            self._pause_ms = min(self._pause_ms * 2, 500)
            return
        self._heard, self._takes_batches = self.world.now, False
        running, progress = self.deployments.running(), self.deployments.progress()
        self._send(Register(self.address, self.plan.slots, self.pid, running, self.address, progress, own_release()))
        for sequence, body in self._session.unacknowledged():
            self._send(body, sequence)

    def stream_ended(self, stream: ControlStream) -> None:
        """The stream is over, from either side."""
        if self.stream is stream:
            if self._is_registered:
                self._source_rest.begin(stream.leader.token)
            self.stream, self._is_registered = None, False
            self._dial(self._pause_ms)
            self._pause_ms = min(self._pause_ms * 2, 500)

    def _accepts_token(self, token: int) -> bool:
        if not self.tokens.observe(token):
            return False
        if self._session.enter(token):
            self._batches = ReportBatches()
        return True

    def report(self, body: Any, company: Company = ALONE) -> None:
        """To the leader, now or over the next stream to the same one. As ControlClient.send."""
        company = Company(company.here, self.plan.batch_ms)
        if not (company.wait_ms and self._takes_batches and isinstance(body, REPORTS)):
            self._send_batch()
            self._send(body, self._session.send(body))
        elif self._batches.add(body, 100, company, self.world.now_ms):
            self._send_batch()
        else:
            self.later(company.wait_ms, self._send_due)
        if self.world.current is self:
            self.point(f"said {type(body).__name__}")

    def _send_due(self) -> None:
        due_ms = self._batches.next_due_ms()
        if due_ms is not None and due_ms <= self.world.now_ms:
            self._send_batch()

    def _send_batch(self) -> None:
        if self._batches:
            body = self._batches.take()
            self._send(body, self._session.send(body))

    def _send(self, body: Any, sequence: int = 0) -> None:
        self.world.note(self.name, f"says {short(body)}" if self.stream else f"cannot say {short(body)}")
        if self.stream is not None:
            self.stream.to_coordinator(self._message(body, sequence))
            if isinstance(body, REPEATABLE) and self.plan.repeats(self.world):
                self.stream.to_coordinator(
                    self._message(body)
                )  # without its number: the leader's machines hear it twice

    def _message(self, body: Any, sequence: int = 0) -> TaskManagerMessage:
        return TaskManagerMessage(self.fence, self.id, body, sequence, self._session.handled)

    def _send_heartbeats(self) -> None:
        self._beats += 1
        if self._leader_grace.is_over(self._is_registered, self.world.now_ms):
            self.world.note(self.name, "has been without a leader for too long")
            self.deployments.cancel_all("no leader")
        if self.world.now > LONGEST_MS:
            self.takeover.run(self.deployments.running())
        if self.stream is not None:
            counters = tuple(
                replace(counter, effort=self._effort(counter.subtask))
                for counter in self.deployments.counters()
                if counter.subtask is not None
            )
            self.stream.to_coordinator(self._message(Heartbeat(self._beats, counters)))
            if self.world.now - self._heard > SILENCE_MS:
                self.stream.leave("the leader is silent")
        self.later(self._beat_ms, self._send_heartbeats)

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
        if not self._accepts_token(message.token):
            self.world.note(self.name, f"refuses {short(message.body)} under token {message.token}")
            stream.leave("a leader that has been replaced")
            return
        if message.token > stream.leader.token:  # as ControlClient: it has been granted leadership again
            self._leader = replace(stream.leader, token=message.token)
            stream.leave("it leads again")
            return
        self._heard = self.world.now
        self._pause_ms = 10.0
        if isinstance(message.body, Registered):
            self._is_registered, self._takes_batches = True, message.body.takes_batches
            self._source_rest.registered(self.fence)
        is_new = self._session.receive(message.sequence, message.acknowledged)
        if is_new and not isinstance(message.body, Registered | Heartbeat):
            self.world.note(self.name, f"hears {short(message.body)} under token {message.token}")
            self.takeover.heard(message.body, message.token)
            self._do(message.body)
            if isinstance(message.body, SAID_AGAIN) and self.plan.repeats(self.world):
                self.later(
                    self.world.delay(0, self.world.random.choice((0.0, 50.0, LATE_MS))), lambda: self._again(message)
                )

    def _again(self, message: CoordinatorMessage) -> None:
        """The same once more, as from a leader that numbers nothing."""
        if self.tokens.observe(message.token):
            self.world.note(self.name, f"hears again {short(message.body)} under token {message.token}")
            self._do(message.body)

    def _do(self, body: Any) -> None:
        if isinstance(body, PrepareJob):  # advice: nothing may depend on it
            if body.attempt is None or body.graph is None or not 0 < body.slots <= self.plan.slots:
                self.world.violate(f"{self.name} is to prepare {body.slots} slots for {body.attempt}")
            return
        if isinstance(body, KeepCopies):
            self.keeper.keep(body)
        else:
            self.deployments.handle(body)
        self.point(f"handled {type(body).__name__}")

    def subtasks(self) -> Iterator[SimulatedSubtask]:
        """Those of every attempt here."""
        for attempt in self.deployments.running():
            for task in self.deployments.tasks(attempt).values():
                assert isinstance(task, SimulatedSubtask)
                yield task

    # -- faults -------------------------------------------------------------------------------------------------------

    def point(self, label: str) -> None:
        """Something was done, or is about to be: here the process may die."""
        self._reached(self, label)

    def maybe_die(self, point: str) -> None:
        """A point at which the process may be killed."""
        self.point(point)
        if self.plan.dies(self.world):
            self.world.note(self.name, f"dies {point}")
            raise Crash

    def crash(self) -> None:
        """See Process: the peers and the leader see their streams break."""
        super().crash()
        self.world.note(self.name, "is killed")
        self.world.is_hindered = True
        self.exchange.process_died(self)
        if self.stream is not None:
            self.stream.break_off("its process died")
        self._on_crash(self)


def replacements(world: World) -> list[tuple[Any, str, Any]]:
    """(module, name, what stands for it in `world`): the clock, threads, storage and network of a task manager."""

    def process() -> SimulatedTaskManager:
        assert isinstance(world.current, SimulatedTaskManager)
        return world.current

    def reached(label: str) -> None:
        process().maybe_die(label)

    def executor(*arguments: Any, **options: Any) -> SimulatedExecutor:
        return SimulatedExecutor(*arguments, process=process(), **options)

    def log(max_bytes: int, base: int) -> ReplayLog:
        return ReplayLog(process().plan.log_bytes or max_bytes, base)

    def gate(*arguments: Any, **options: Any) -> SimulatedGate:
        return SimulatedGate(*arguments, max_bytes=process().plan.gate_bytes or CHANNEL_BYTES, **options)

    def timer(seconds: float, call: Callable[[], None]) -> SimulatedTimer:
        return SimulatedTimer(seconds, call, process=process())

    def backend(_: Any, directory: str, prefix: str, copied_run: str) -> SimulatedBackend:
        def stored(checkpoint_id: int, handle: StateHandle, content: Any) -> None:
            if copied_run:
                process().stored(copied_run, checkpoint_id, handle, content)

        return SimulatedBackend(process().storage, directory, prefix, stored)

    def load(handle: StateHandle) -> pa.Buffer:
        return pa.py_buffer(process().read(handle))

    def download(handle: StateHandle, file: Path) -> None:
        process().download(handle, file)

    found: list[tuple[Any, str, Any]] = [
        (deployments, "SubtaskTask", SimulatedSubtask),
        (deployments, "BackgroundThreads", executor),
        (subtask_task, "InputGate", gate),
        (subtask_task, "PEER_LOST_GRACE_S", 0),  # see SimulatedSubtask
        (wiring, "RemoteOutput", SimulatedOutput),
        (wiring, "ReplayLog", log),
        (output_set, "RemoteOutput", SimulatedOutput),
        (absent_peers, "Timer", timer),
        (in_flight, "make_backend", backend),
        (in_flight, "load", load),
        (faults, "point", reached),
        (copy_keeper, "download", download),
    ]
    return found + [(module, "time", clock(world)) for module in (effort, subtask_snapshots, subtask_task, uploads)]
