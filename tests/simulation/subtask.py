"""One simulated subtask: the loop of taskmanager.runtime around the real SubtaskMachine and BarrierHandler."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lockgate_proto.messages import (
    AcknowledgeCheckpoint,
    AssignSplits,
    Barrier,
    ChannelSide,
    ChannelState,
    CheckpointCommitted,
    CheckpointMode,
    DeclineCheckpoint,
    DrainSources,
    EndOfInput,
    FailureCause,
    FirstRecord,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    OperatorCounters,
    Partitioning,
    StateHandle,
    SubtaskId,
    SubtaskReport,
    TriggerCheckpoint,
)

from taskmanager.barrier import events as barrier_events
from taskmanager.barrier.modes import barriers_for, mode_of
from taskmanager.barrier.recording import ChannelRecording
from taskmanager.task import effects as do
from taskmanager.task import events as on
from taskmanager.task.machine import SubtaskMachine
from taskmanager.task.program import SnapshotOrder
from tests.simulation.programs import Frozen, Program, SourceProgram, StateMissing, build, key_of, owner_of
from tests.simulation.storage import Record, checksum_of
from tests.simulation.world import Fifo, short

if TYPE_CHECKING:
    from tests.simulation.taskmanager import SimulatedAttempt

CHANNEL_BOUND = 12
WINDOW = 1
"""Elements of an elastic channel on their way at a time; the others wait where a barrier may overtake them."""
PEER_LOST_GRACE_MS = 200
BATCH_MS = (20.0, 120.0)
PRESSING_MS = (1.0, 12.0)
"""Between two batches of a source where barriers overtake: faster than what is behind it, so that queues are full."""


class Channel:
    """The sending end of one channel: in order, delayed, broken when the other side is not there any more."""

    def __init__(self, sender: SimulatedSubtask, target: SubtaskId, is_local: bool, token: int) -> None:
        self.sender, self.target, self.token = sender, target, token
        self.in_flight = 0
        self.is_open = True
        self.window = WINDOW if sender.is_elastic and not is_local else None
        self.waiting: deque[Any] = deque()
        world = sender.world
        self._fifo = Fifo(world, 0.0, 0.5) if is_local else Fifo(world, 0.2, 40.0 if sender.is_elastic else 15.0)

    def send(self, element: Any) -> None:
        """Queues an element."""
        if self.is_open:
            self.waiting.append(element)
            self._pump()

    def overtake(self, barrier: Barrier) -> tuple[Any, ...]:
        """Queues a barrier before what waits, behind other barriers; returns what it has overtaken."""
        if not self.is_open:
            return ()
        last = max((place for place, one in enumerate(self.waiting) if isinstance(one, Barrier)), default=-1)
        behind = [one for place, one in enumerate(self.waiting) if place > last]
        self.waiting.insert(last + 1, barrier)
        self._pump()
        return tuple(one for one in behind if not isinstance(one, EndOfInput))

    def _pump(self) -> None:
        while self.waiting and (self.window is None or self.in_flight < self.window):
            self.in_flight += 1
            self._dispatch(self.waiting.popleft())

    def _dispatch(self, element: Any) -> None:
        self._fifo.put(lambda: self._arrive(element), None)

    def _arrive(self, element: Any) -> None:
        self.in_flight -= 1
        if self.is_open:
            self.sender.attempt.exchange.deliver(self, element)
            self._pump()

    def break_off(self) -> None:
        """The sender gives the channel up; the receiver notices."""
        if self.is_open:
            self.is_open = False
            self.sender.attempt.exchange.sender_gone(self)


class SimulatedSubtask:
    """One subtask of one attempt on one task manager."""

    def __init__(self, attempt: SimulatedAttempt, subtask: SubtaskId) -> None:
        self.attempt, self.id = attempt, subtask
        self.process = attempt.process
        self.world = attempt.process.world
        self.name = f"{subtask.vertex_id}[{subtask.subtask}]@{attempt.id.attempt}"
        edges = attempt.graph.edges
        inputs = [edge.source for edge in edges if edge.target == subtask.vertex_id]
        self.channels = [(vertex, index) for vertex in inputs for index in range(attempt.parallelism(vertex))]
        self.is_source = not self.channels
        self.machine = SubtaskMachine(attempt.id, self.is_source)
        self.mode = mode_of(attempt.graph)
        self.barriers = None if self.is_source else barriers_for(self.mode, len(self.channels))
        self.is_elastic = self.mode is CheckpointMode.UNALIGNED
        self.queues: list[deque[Any]] = [deque() for _ in self.channels]
        self.recordings: dict[int, ChannelRecording] = {}
        self.overtaken: dict[int, dict[tuple[str, int], tuple[Any, ...]]] = {}
        self.held: set[int] = set()
        self.mailbox: deque[Any] = deque()
        self.program: Program | None = None
        self.outputs: dict[tuple[str, int], Channel] = {}
        self.edges = [edge for edge in edges if edge.source == subtask.vertex_id]
        self.frozen: dict[int, Frozen] = {}
        self.is_input_done = False
        self.is_canceled = False
        self.is_closed = False
        self.counters: tuple[OperatorCounters, ...] = ()
        self._assigned: set[str] = set()
        self._round = 0
        self._is_scheduled = False
        self._peer_lost = False

    # -- from outside -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins to open the program."""
        self.process.later(self.world.delay(1, 30), lambda: self._guard(self._open))

    def post(self, message: Any) -> None:
        """Into the mailbox."""
        self.mailbox.append(message)
        self.wake()

    def put(self, channel: int, element: Any) -> None:
        """An element has arrived."""
        self.queues[channel].append(element)
        for one in self.recordings.values():
            if one.is_open(channel):
                one.arrived(channel, element, 1)
        if isinstance(element, Barrier) and element.unaligned:
            self.mailbox.append(barrier_events.BarrierOvertakes(element))
        self.wake()

    def peer_lost(self) -> None:
        """A channel broke: reported after a grace, unless the attempt is cancelled first."""
        if not self._peer_lost and not self.is_canceled:
            self._peer_lost = True
            self.process.later(PEER_LOST_GRACE_MS, lambda: self.fail(FailureCause.PEER_LOST, "a channel broke"))

    def fail(self, cause: FailureCause, error: str) -> None:
        """The subtask cannot go on."""
        if not self.is_canceled:
            self._handle(on.Failed(cause, error))
            self._end_if_over()

    def cancel(self) -> None:
        """The attempt is to end."""
        if not self.is_canceled:
            self.is_canceled = True
            self.process.later(self.world.delay(0, 10), self._cancel)

    def _cancel(self) -> None:
        self._handle(on.CancelRequested())
        self._end_if_over()

    # -- the loop -----------------------------------------------------------------------------------------------------

    def wake(self, delay_ms: float = 0.1) -> None:
        """Makes the loop take its next step soon."""
        if not self._is_scheduled and self.program is not None:
            self._is_scheduled = True
            self.process.later(delay_ms, self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        if not self.is_canceled and not self._peer_lost:
            self._guard(self._step)

    def _guard(self, action: Callable[[], None]) -> None:
        if self.is_canceled or not self.machine.is_live:
            return
        try:
            action()
        except StateMissing as error:
            self._handle(on.Failed(FailureCause.STATE_UNREADABLE, str(error)))
        self._end_if_over()

    def _open(self) -> None:
        self._handle(on.Started())
        attempt = self.attempt
        self.program = build(self.world, attempt.process.storage, attempt.process.outputs, attempt.deploy, self.id)
        self.program.open()
        self._restore_channels()
        self._emit([], is_prologue=True)
        self._handle(on.Opened())
        self.wake()

    def _step(self) -> None:
        while self.mailbox and self.machine.is_live and not self.is_canceled:
            self._receive(self.mailbox.popleft())
        if not self.machine.is_live or self.is_canceled:
            return
        if self.is_source and not self.is_input_done:
            self._poll_source()
        else:
            self._poll_gate()

    def _receive(self, message: Any) -> None:
        match message:
            case TriggerCheckpoint(attempt, checkpoint_id, kind, terminal, unix_ms, completed_id, unaligned):
                barrier = Barrier(checkpoint_id, kind, terminal, unix_ms, completed_id, unaligned)
                if self.barriers is None:
                    self._handle(on.TriggerReceived(attempt, barrier))
                elif unaligned:
                    self._to_barriers(barrier_events.BarrierOvertakes(barrier))
            case barrier_events.BarrierOvertakes():
                self._to_barriers(message)
            case NotifyCheckpointComplete(attempt, checkpoint_id):
                self._handle(on.CompleteReceived(attempt, checkpoint_id))
            case NotifyCheckpointAborted(attempt, checkpoint_id):
                self._handle(on.AbortReceived(attempt, checkpoint_id))
            case AssignSplits(subtask, splits, complete):
                assert subtask == self.id
                assert isinstance(self.program, SourceProgram)
                fresh = tuple(one for one in splits if one.split not in self._assigned)
                self._assigned.update(one.split for one in fresh)
                self.program.assign(fresh, complete)
            case DrainSources():
                self._drain()
            case _:
                self._handle(message)

    def _drain(self) -> None:
        if self.is_source and not self.is_input_done and self.machine.is_live:
            self.is_input_done = True
            self._handle(on.InputExhausted())

    def _poll_source(self) -> None:
        if any(one.in_flight + len(one.waiting) >= CHANNEL_BOUND for one in self.outputs.values()):
            self.wake(10)
            return
        assert isinstance(self.program, SourceProgram)
        records = self.program.poll()
        if records is None:
            self.is_input_done = True
            self._handle(on.InputExhausted())
            self.wake()
        elif records:
            self._emit(records)
            self.counters = self.program.counters()
            self.wake(self.world.delay(*(PRESSING_MS if self.is_elastic else BATCH_MS)))

    def _poll_gate(self) -> None:
        ready = [number for number, queue in enumerate(self.queues) if queue and number not in self.held]
        if not ready:
            return
        assert self.barriers is not None
        channel = ready[self.world.random.randrange(len(ready))]
        element = self.queues[channel].popleft()
        event: barrier_events.Event
        if isinstance(element, Barrier):
            event = barrier_events.BarrierArrived(channel, element)
        elif isinstance(element, EndOfInput):
            event = barrier_events.InputEnded(channel)
        else:
            event = barrier_events.ElementArrived(channel, element)
        for effect in self.barriers.handle(event, self.world.now_ms):
            self._apply_barrier_effect(effect)
        self.wake(self.world.delay(0.05, 40 if self.is_elastic else 2))

    def _apply_barrier_effect(self, effect: barrier_events.Effect) -> None:
        match effect:
            case barrier_events.Deliver(_, element):
                self._process(element)
            case barrier_events.Hold(channel):
                self.held.add(channel)
            case barrier_events.Release(channels):
                self.held -= set(channels)
                self.wake()
            case barrier_events.Aligned(barrier, started_ms):
                self._handle(on.BarrierAligned(barrier, started_ms))
            case barrier_events.Overtaken(barrier, started_ms, delivered):
                self._handle(on.BarrierOvertook(barrier, started_ms, delivered))
            case barrier_events.AlignmentAborted(checkpoint_id, reason):
                self._handle(on.AlignmentLost(checkpoint_id, reason))
            case barrier_events.AllInputsEnded():
                self.is_input_done = True
                self._handle(on.InputExhausted())

    def _process(self, records: list[Record]) -> None:
        assert self.program is not None
        onwards = self.program.process(records)
        if not records:
            self._emit([], is_prologue=True)
        elif self.edges:
            self._emit(onwards)
        else:
            self._handle(on.SinkReached(self.world.unix_us()))
        self._handle(on.ElementProcessed())
        self.counters = self.program.counters()

    def _emit(self, records: list[Record], *, is_prologue: bool = False) -> None:
        for edge in self.edges:
            count = self.attempt.parallelism(edge.target)
            shares: list[list[Record]] = [[] for _ in range(count)]
            if edge.partitioning is Partitioning.HASH:
                for record in records:
                    shares[owner_of(key_of(record), count)].append(record)
            else:
                self._round += 1
                shares[self._round % count] = list(records)
            for index, share in enumerate(shares):
                if share or is_prologue:
                    self.outputs[edge.target, index].send(share)

    # -- what the machine wants ---------------------------------------------------------------------------------------

    def _handle(self, event: on.Event) -> None:
        for effect in self.machine.handle(event, self.world.now_ms):
            self._apply(effect)

    def _apply(self, effect: do.Effect) -> None:
        match effect:
            case do.TakeSnapshot(checkpoint_id, base_id, is_savepoint):
                self._take_snapshot(checkpoint_id, SnapshotOrder(base_id, is_savepoint))
            case do.RecordChannels(checkpoint_id, delivered):
                self._record(checkpoint_id, delivered)
            case do.ForwardBarrier(barrier):
                self._forward(barrier)
            case do.StartUpload(checkpoint_id):
                self.process.later(self.world.delay(1, 60), lambda: self._upload(checkpoint_id))
            case do.DropSnapshot(checkpoint_id):
                self._drop(checkpoint_id)
            case do.StopAlignment(checkpoint_id):
                self._to_barriers(barrier_events.CheckpointAborted(checkpoint_id))
            case do.Commit(checkpoint_id):
                self._commit(checkpoint_id)
            case do.Flush():
                self._handle(on.Flushed())
            case do.ForwardEnd():
                self._broadcast(EndOfInput())
            case do.Close():
                self.close()
                self._handle(on.Closed())
            case _:
                self._tell(effect)

    def _tell(self, effect: do.Effect) -> None:
        report = self.attempt.process.report
        match effect:
            case do.Acknowledge(checkpoint_id, state, sync_us, async_ms, alignment_ms):
                report(AcknowledgeCheckpoint(self.id, checkpoint_id, state, sync_us, async_ms, alignment_ms))
            case do.Decline(checkpoint_id, reason):
                report(DeclineCheckpoint(self.id, checkpoint_id, reason))
            case do.ReportCommitted(checkpoint_id):
                report(CheckpointCommitted(self.id, checkpoint_id))
            case do.ReportFirstRecord(unix_us):
                report(FirstRecord(self.id, unix_us))
            case do.Report(phase, cause, error):
                report(SubtaskReport(self.id, phase, cause, error))

    def _take_snapshot(self, checkpoint_id: int, order: SnapshotOrder) -> None:
        if self.process.plan.snapshot_fails(self.world):
            self._handle(on.SnapshotFailed(checkpoint_id, "the state is too large"))
            return
        assert self.program is not None
        self.frozen[checkpoint_id] = self.program.snapshot(checkpoint_id, order)
        self._handle(on.SnapshotTaken(checkpoint_id, 100))

    def _upload(self, checkpoint_id: int) -> None:
        recording = self.recordings.get(checkpoint_id)
        if recording is not None and not recording.is_complete:
            self.process.later(5, lambda: self._upload(checkpoint_id))
            return
        snapshot = self.frozen.pop(checkpoint_id, None)
        if snapshot is None:
            return
        if self.process.plan.upload_fails(self.world):
            self.post(on.UploadFailed(checkpoint_id, "the disk is full"))
            return
        state = replace(snapshot.persist(), channels=self._persist_channels(checkpoint_id))
        self.process.later(self.world.delay(0, 20), lambda: self.post(on.UploadDone(checkpoint_id, state, 5)))

    def _commit(self, checkpoint_id: int) -> None:
        assert self.program is not None
        self.process.maybe_die("before-commit")
        self.program.commit(checkpoint_id)
        self.process.maybe_die("after-commit")
        self._handle(on.CommitDone(checkpoint_id))

    def _forward(self, barrier: Barrier) -> None:
        if barrier.unaligned:
            overtaken = {target: one.overtake(barrier) for target, one in self.outputs.items()}
            self.overtaken[barrier.checkpoint_id] = overtaken
        else:
            self._broadcast(barrier)

    def _drop(self, checkpoint_id: int) -> None:
        self.frozen.pop(checkpoint_id, None)
        self.recordings.pop(checkpoint_id, None)
        self.overtaken.pop(checkpoint_id, None)

    def _to_barriers(self, event: barrier_events.Event) -> None:
        if self.barriers is not None:
            for effect in self.barriers.handle(event, self.world.now_ms):
                self._apply_barrier_effect(effect)

    # -- what is in flight --------------------------------------------------------------------------------------------

    def _record(self, checkpoint_id: int, delivered: frozenset[int]) -> None:
        recording = ChannelRecording(checkpoint_id, len(self.queues), delivered)
        for channel, queue in enumerate(self.queues):
            for element in queue:
                recording.arrived(channel, element, 1)
        self.recordings[checkpoint_id] = recording

    def _persist_channels(self, checkpoint_id: int) -> tuple[ChannelState, ...]:
        recording = self.recordings.pop(checkpoint_id, None)
        if recording is None:
            return ()
        inputs = {self.channels[number]: found for number, found in recording.channels().items()}
        sides = (
            (ChannelSide.INPUT_CHANNEL, inputs),
            (ChannelSide.OUTPUT_CHANNEL, self.overtaken.pop(checkpoint_id, {})),
        )
        states = []
        for side, channels in sides:
            for (vertex, subtask), elements in channels.items():
                content = tuple(tuple(records) for records in elements if records)
                if content:
                    me = f"a{self.attempt.id.attempt}-{self.id.vertex_id}-{self.id.subtask}"
                    file = f"{me}-{side.name}-{vertex}-{subtask}"
                    path = f"{self.attempt.deploy.checkpoint_directory}/chk-{checkpoint_id}/{file}"
                    self.process.storage.write(path, content)
                    handle = StateHandle(path=path, size_bytes=1, checksum=checksum_of(content))
                    states.append(ChannelState(side, vertex, subtask, handle, len(content)))
        return tuple(states)

    def _restore_channels(self) -> None:
        key = (self.id.vertex_id, self.id.subtask)
        state = next((one for one in self.attempt.deploy.restore if (one.vertex_id, one.subtask) == key), None)
        for one in state.channels if state is not None else ():
            assert one.handle is not None
            content = self.process.storage.files.get(one.handle.path)
            if content is None or checksum_of(content) != one.handle.checksum:
                raise StateMissing(f"{one.handle.path} is missing or corrupt")
            elements = [list(records) for records in content]
            if one.side is ChannelSide.INPUT_CHANNEL:
                self.queues[self.channels.index((one.vertex_id, one.subtask))].extendleft(reversed(elements))
            else:
                for records in elements:
                    self.outputs[one.vertex_id, one.subtask].send(records)

    def _broadcast(self, element: Any) -> None:
        for channel in self.outputs.values():
            channel.send(element)

    def close(self) -> None:
        """Gives channels up."""
        if not self.is_closed:
            self.is_closed = True
            self.attempt.exchange.receiver_gone(self)
            for channel in self.outputs.values():
                channel.break_off()

    def _end_if_over(self) -> None:
        if not self.machine.is_live and self.is_closed:
            self.attempt.ended(self)

    def __repr__(self) -> str:
        return f"{self.name} {self.machine.state.value} {short(self.mailbox[0]) if self.mailbox else ''}"
