"""SubtaskTask: the loop thread of one subtask. It executes what SubtaskMachine and BarrierHandler decide.

Everything that concerns the subtask reaches it through its mailbox; only `cancel` acts at once, from any thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any

import pyarrow as pa
from lockgate_proto.messages import (
    AssignSplits,
    Barrier,
    CheckpointMode,
    DrainSources,
    EndOfInput,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    OperatorCounters,
    SplitState,
    TriggerCheckpoint,
    Watermark,
)

from taskmanager.barrier import events as barrier_events
from taskmanager.barrier.modes import barriers_for, mode_of
from taskmanager.exchange.elements import ChannelId
from taskmanager.exchange.errors import ChannelBroken, ChannelClosed
from taskmanager.exchange.gate import POLL_BYTES, InputGate
from taskmanager.runtime import faults
from taskmanager.runtime.arrivals import barrier_event
from taskmanager.runtime.deliveries import Deliveries
from taskmanager.runtime.effort import EffortMeter
from taskmanager.runtime.failures import cause_of, text_of
from taskmanager.runtime.in_flight import InFlight, in_flight_of
from taskmanager.runtime.loop_part import loop_part_of
from taskmanager.runtime.messages import Message, PeerLost
from taskmanager.runtime.output_set import OutputSet
from taskmanager.runtime.pace import BatchPace
from taskmanager.runtime.reports import report_of
from taskmanager.runtime.uploads import SnapshotUploads, discarder
from taskmanager.runtime.wall_clock import unix_ms, wait_until
from taskmanager.task import effects as do
from taskmanager.task import events as on
from taskmanager.task.machine import SubtaskMachine
from taskmanager.task.program import (
    AtWork,
    Batch,
    Canceled,
    Exhausted,
    Idle,
    ProgramContext,
    ProgramFactory,
    SnapshotOrder,
    SnapshotTooLarge,
    SubtaskProgram,
)
from taskmanager.task.watermarks import ChannelWatermarks, held_back

log = logging.getLogger(__name__)

PEER_LOST_GRACE_S = 0.2  # the real cause, told by the peer itself, or the cancellation is to arrive first
UPLOAD_CLOSE_S = 10.0
ACCEPT_CHECK_S = 0.25
COUNTERS_EVERY_MS = 100
SINKS = ("FileSink", "SqlSink", "ConsoleSink", "ForeachBatchSink", "PythonSink", "KafkaSink", "DeltaSink")


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class SubtaskTask:
    """One subtask of one attempt, with its input gate. Call connect() and start() once each.

    channels: upstream subtasks, none for a source. report: sends a control message body to the leader, never blocks.
    on_ended: called on the subtask's thread as its last act. spill_folder: for what circles in a loop, see InputGate.
    """

    def __init__(
        self,
        context: ProgramContext,
        channels: Sequence[ChannelId],
        factory: ProgramFactory,
        uploads: futures.Executor,
        report: Callable[[Any], None],
        on_ended: Callable[[SubtaskTask], None],
        spill_folder: str | None = None,
    ) -> None:
        assert context.subtask.attempt is not None
        self.id = context.subtask
        self._loop = loop_part_of(context.graph, self.id, channels)
        feedback: frozenset[int] = self._loop.feedback if self._loop is not None else frozenset()
        self.gate = InputGate(
            channels,
            self.peer_lost,
            on_barrier=lambda barrier: self.post(barrier_events.BarrierOvertakes(barrier)),
            feedback=feedback,
            spill_folder=spill_folder,
        )
        self.counters: tuple[OperatorCounters, ...] = ()
        self.effort = EffortMeter()
        self._context, self._factory = context, factory
        self._report, self._on_ended = report, on_ended
        self._is_source = not channels
        self._machine_lock = threading.Lock()
        self._mode = mode_of(context.graph)
        stops_world = self._mode is CheckpointMode.STOP_THE_WORLD
        self._machine = SubtaskMachine(context.subtask.attempt, self._is_source, stops_world)
        self._watermarks = ChannelWatermarks(len(channels))
        self._barriers = None if self._is_source else barriers_for(self._mode, len(channels), feedback)
        self._uploads = SnapshotUploads(uploads, self._handle, discarder(context.checkpoint_directory))
        self._in_flight = in_flight_of(context, self.gate, self._is_elastic)
        self._pace = BatchPace(POLL_BYTES)
        self._deliveries = Deliveries()
        self._outputs = OutputSet({}, {})
        self._program: SubtaskProgram | None = None
        self._mailbox: deque[Message] = deque()
        self._canceled = threading.Event()
        self._is_input_done = self._is_drained = False
        self._assigned: set[str] = set()
        self._counted_ms = 0
        vertex = next((one for one in context.graph.vertices if one.id == self.id.vertex_id), None)
        kinds = {type(operator.kind).__name__ for operator in vertex.operators} if vertex is not None else set()
        self._has_sink = not kinds.isdisjoint(SINKS)
        self._name = f"{self.id.vertex_id}[{self.id.subtask}]@{context.subtask.attempt.attempt}"
        self._thread = threading.Thread(target=self._run, name=f"subtask-{self._name}", daemon=True)

    # from any thread

    def connect(self, outputs: OutputSet) -> None:
        """Gives the subtask its output channels; before start()."""
        self._outputs = outputs

    @property
    def on_room(self) -> Callable[[], object] | None:
        """What elastic outputs call; None where a send may block, because no barrier overtakes."""
        return self.gate.wake if self._is_elastic else None

    @property
    def _is_elastic(self) -> bool:
        return self._mode is CheckpointMode.UNALIGNED

    def start(self) -> None:
        """Starts the loop."""
        self._thread.start()

    def post(self, message: Message) -> None:
        """Puts a message into the mailbox and wakes the loop."""
        self._mailbox.append(message)
        self.gate.wake()

    def peer_lost(self, reason: str) -> None:
        """A channel broke."""
        self.post(PeerLost(reason))

    def cancel(self) -> None:
        """Ends the subtask: interrupts Spark, a wait for input and a blocked send. Returns at once. Idempotent."""
        if self._canceled.is_set():
            return
        self._canceled.set()
        self.gate.close()
        self._outputs.cancel()
        self.interrupt()

    def at_work(self) -> AtWork | None:
        """The call of the program that takes its time; None between two."""
        return self._program.at_work() if self._program is not None else None

    def join(self, timeout_s: float) -> bool:
        """Waits for the thread. False when it is still there."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def interrupt(self) -> None:
        """Stops what the program runs at this moment."""
        program = self._program
        if program is not None:
            try:
                program.cancel()
            except Exception:
                log.exception("%s: cancel failed", self._name)

    # the subtask's own thread

    def _run(self) -> None:
        try:
            self._guard(self._open)
            while self._machine.is_live:
                self._guard(self._step)
        except Exception:
            log.exception("%s: the loop itself failed", self._name)
        finally:
            self.gate.close()
            self._outputs.cancel()
            self._on_ended(self)

    def _guard(self, action: Callable[[], None]) -> None:
        """Runs one step; whatever ends the subtask becomes an event."""
        try:
            if not self._canceled.is_set():
                action()
        except BaseException as error:  # a user's function may well call sys.exit()
            self._failed(error)
        if self._canceled.is_set():
            self._handle(on.CancelRequested())

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, ChannelBroken):
            self._canceled.wait(PEER_LOST_GRACE_S)
        if self._canceled.is_set():
            return
        if not isinstance(error, Canceled | ChannelClosed):
            log.info("%s failed", self._name, exc_info=error)
        self._handle(on.Failed(cause_of(error), text_of(error), self._program.place() if self._program else None))

    def _open(self) -> None:
        self._handle(on.Started())
        self._outputs.start(_now_ms())
        self._program = self._factory.build(self._context)
        if self._in_flight is not None:
            self._in_flight.restore(self._context.restore, self._outputs)
        if self._canceled.is_set():  # cancel() may have come before there was a program to interrupt
            return
        self._emit(self._program.open())
        self._handle(on.Opened())
        self._count(is_forced=True)

    def _step(self) -> None:
        self._read_mailbox()
        if not self._machine.is_live or self._canceled.is_set():
            return
        if self._is_elastic and not self._outputs.has_room():
            self._outputs.check_accepted(_now_ms())
            self.gate.wait(ACCEPT_CHECK_S)
        elif self._is_source and not self._is_input_done and not self._machine.is_halted:
            self._poll_source()
        else:
            self._poll_gate()

    def _read_mailbox(self) -> None:
        while self._mailbox and not self._canceled.is_set():
            self._receive(self._mailbox.popleft())

    def _receive(self, message: Message) -> None:
        match message:
            case TriggerCheckpoint(attempt, checkpoint_id, kind, terminal, unix_ms, completed_id, unaligned):
                barrier = Barrier(checkpoint_id, kind, terminal, unix_ms, completed_id, unaligned)
                if self._barriers is None:
                    self._handle(on.TriggerReceived(attempt, barrier))
                elif unaligned and attempt == self.id.attempt:
                    self._to_barriers(barrier_events.BarrierOvertakes(barrier))
            case barrier_events.BarrierOvertakes():
                self._to_barriers(message)
            case NotifyCheckpointComplete(attempt, checkpoint_id):
                self._handle(on.CompleteReceived(attempt, checkpoint_id))
            case NotifyCheckpointAborted(attempt, checkpoint_id):
                self._handle(on.AbortReceived(attempt, checkpoint_id))
            case AssignSplits(subtask, splits, complete):
                if subtask == self.id and self._machine.is_live:
                    self._assign(splits, complete)
            case DrainSources():
                self._drain()
            case PeerLost(reason):
                raise ChannelBroken(reason)

    def _assign(self, splits: Sequence[SplitState], complete: bool) -> None:
        """The leader says it again when its stream broke; the program hears of every split once."""
        fresh = tuple(split for split in splits if split.split not in self._assigned)
        self._assigned.update(split.split for split in fresh)
        self._the_program.assign(fresh, complete)

    def _drain(self) -> None:
        """The leader wants no more of the source: what is read flows out as at the end of its input."""
        if self._is_source and not self._is_input_done and self._machine.is_live:
            self._is_input_done = self._is_drained = True
            self._handle(on.InputExhausted())

    def _poll_source(self) -> None:
        polled = self.effort.poll(self._the_program)
        if isinstance(polled, Batch):
            self._emit(polled)
            self._count()
        elif isinstance(polled, Idle):
            self._count(is_forced=True)
            self.gate.poll(polled.wait_ms / 1000)
        elif isinstance(polled, Exhausted):
            self._is_input_done = True
            self._handle(on.InputExhausted())
        self._outputs.check_accepted(_now_ms())

    def _poll_gate(self) -> None:
        is_accepted = self._outputs.check_accepted(_now_ms())
        records: list[tuple[str, pa.Table]] = []
        limit = self._pace.limit_bytes if self._is_elastic or self._loop is not None else POLL_BYTES
        elements = self.gate.poll(self._wait_s(None if is_accepted else ACCEPT_CHECK_S), limit)
        self._tick(may_pause=not elements)
        for channel, element in elements:
            assert self._barriers is not None
            self._is_drained |= isinstance(element, EndOfInput) and element.drained
            if self._loop is not None and self._loop.takes(channel, element, self._outputs, self._to_barriers):
                continue
            for effect in self._barriers.handle(barrier_event(channel, element), _now_ms()):
                self._apply_barrier_effect(effect, records)
            if isinstance(element, EndOfInput) and not self._is_input_done:
                self._advance(self._watermarks.ended(channel, element.drained))
        self._process(records)

    def _wait_s(self, longest_s: float | None) -> float | None:
        """How long to wait for input: no longer than until the program wakes. None: for ever."""
        return longest_s if self._is_input_done else wait_until(self._the_program.wakes_at(), longest_s)

    def _tick(self, *, may_pause: bool) -> None:
        """The program hears what time it is, and fires what is due. may_pause: see `_emit_all`."""
        if not self._is_input_done and not self._canceled.is_set():
            batch = self._the_program.tick(unix_ms())
            if batch.emissions or batch.reached_sink or batch.has_more:
                self._emit_all(batch, may_pause=may_pause)
                self._count()

    def _process(self, records: list[tuple[str, pa.Table]]) -> None:
        if not records:
            return
        started_ns = time.monotonic_ns()
        for vertex, table in self._deliveries.merge(records):
            if self._canceled.is_set():
                return
            self._emit_all(self.effort.process(self._the_program, vertex, table), may_pause=False)
        self._pace.processed(sum(table.nbytes for _, table in records), (time.monotonic_ns() - started_ns) / 1e6)
        self._handle(on.ElementProcessed())
        self._count()

    def _apply_barrier_effect(self, effect: barrier_events.Effect, records: list[tuple[str, pa.Table]]) -> None:
        match effect:
            case barrier_events.Deliver(channel, element):
                if isinstance(element, pa.Table):
                    records.append((self.gate.channels[channel].vertex_id, element))
                elif isinstance(element, Watermark):
                    self._process(records)
                    records.clear()
                    self._advance(self._watermarks.arrived(channel, element))
            case barrier_events.Hold(channel):
                self.gate.hold(channel)
            case barrier_events.Release(channels):
                self.gate.release(channels)
            case barrier_events.Aligned(barrier, started_ms):
                self._handle(on.BarrierAligned(barrier, started_ms))
            case barrier_events.Overtaken(barrier, started_ms, delivered):
                self._handle(on.BarrierOvertook(barrier, started_ms, delivered))
            case barrier_events.AlignmentAborted(checkpoint_id, reason):
                self._handle(on.AlignmentLost(checkpoint_id, reason))
            case barrier_events.AllInputsEnded():
                self._is_input_done = True
                self._handle(on.InputExhausted())

    def _advance(self, watermark: Watermark | None) -> None:
        """Event time has come on, or a channel's rest has: the program fires, then those behind it hear of it."""
        if watermark is not None:
            self._emit_all(batch := self._the_program.advance(watermark.event_time_ms), may_pause=True)
            self._outputs.broadcast(held_back(watermark, batch.held_back_ms))

    def _handle(self, event: on.Event) -> None:
        """On the subtask's thread, but for the end of an upload: all that it asks for is a message to the leader.

        So an acknowledgement does not wait for the batch that the subtask is at.
        """
        with self._machine_lock:
            effects = self._machine.handle(event, _now_ms())
        for effect in effects:
            self._apply(effect)

    def _apply(self, effect: do.Effect) -> None:
        match effect:
            case do.TakeSnapshot(checkpoint_id, base_id, is_savepoint):
                self._take_snapshot(checkpoint_id, SnapshotOrder(base_id, is_savepoint))
            case do.RecordChannels(checkpoint_id, delivered):
                self._flights.record(checkpoint_id, delivered)
            case do.ForwardBarrier(barrier):
                self._forward(barrier)
            case do.StartUpload(checkpoint_id):
                self._uploads.start(checkpoint_id, self._in_flight.take(checkpoint_id) if self._in_flight else None)
            case do.DropSnapshot(checkpoint_id):
                self._drop(checkpoint_id)
            case do.StopAlignment(checkpoint_id):
                self._to_barriers(barrier_events.CheckpointAborted(checkpoint_id))
            case do.Commit(checkpoint_id):
                self._commit(checkpoint_id)
            case do.Flush():
                self._emit_all(self._the_program.finish(), may_pause=False)
                self._handle(on.Flushed())
            case do.ForwardEnd():
                self._outputs.broadcast(EndOfInput(self._is_drained))
                self._count(is_forced=True)
            case do.Close():
                self._close()
                self._handle(on.Closed())
            case _:
                self._tell(effect)

    def _tell(self, effect: do.Effect) -> None:
        if isinstance(effect, do.Acknowledge):
            faults.point("before-ack")
            self._uploads.acknowledged(effect.checkpoint_id)
        if (report := report_of(effect, self.id, self._name)) is not None:
            self._report(report)

    def _take_snapshot(self, checkpoint_id: int, order: SnapshotOrder) -> None:
        started = time.perf_counter_ns()
        try:
            snapshot = self._the_program.snapshot(checkpoint_id, order)
        except SnapshotTooLarge as error:
            self._handle(on.SnapshotFailed(checkpoint_id, str(error)))
            return
        self._uploads.keep(checkpoint_id, snapshot)
        self._handle(on.SnapshotTaken(checkpoint_id, (time.perf_counter_ns() - started) // 1000))

    def _forward(self, barrier: Barrier) -> None:
        if barrier.unaligned:
            self._flights.overtake(self._outputs, barrier)
        else:
            self._outputs.broadcast(barrier)

    def _drop(self, checkpoint_id: int) -> None:
        self._uploads.drop(checkpoint_id)
        if self._in_flight is not None:
            self._in_flight.drop(checkpoint_id)

    def _to_barriers(self, event: barrier_events.Event) -> None:
        if self._barriers is not None:
            for effect in self._barriers.handle(event, _now_ms()):
                self._apply_barrier_effect(effect, [])

    def _commit(self, checkpoint_id: int) -> None:
        if self._has_sink:
            faults.point("before-commit")
        self._the_program.commit(checkpoint_id)
        if self._has_sink:
            faults.point("after-commit")
        self._handle(on.CommitDone(checkpoint_id))

    def _emit(self, batch: Batch) -> None:
        if batch.reached_sink > 0 and not self._machine.has_reached_sink:
            self._handle(on.SinkReached(time.time_ns() // 1000))
        for emission in batch.emissions:
            self._outputs.emit(emission.edge, emission.target, emission.table)
        if batch.watermark is not None:
            self._outputs.broadcast(batch.watermark)

    def _emit_all(self, batch: Batch, *, may_pause: bool) -> None:
        """A batch and the portions behind it. may_pause: nothing that was taken from the gate waits behind these."""
        self._emit(batch)
        while batch.has_more:
            self._wait_for_room(takes_messages=may_pause and batch.is_settled)
            self._emit(batch := self._the_program.go_on())
            self._count()

    def _wait_for_room(self, *, takes_messages: bool) -> None:
        """Where a send does not block by itself. takes_messages: barriers, among others."""
        while not self._canceled.is_set() and self._machine.is_live:
            if takes_messages:
                self._read_mailbox()
            self._outputs.check_accepted(_now_ms())
            if not self._is_elastic or self._outputs.has_room():
                return
            self.gate.wait(ACCEPT_CHECK_S)
        raise Canceled("the subtask ends")

    def _count(self, is_forced: bool = False) -> None:
        now_ms = _now_ms()
        if is_forced or now_ms - self._counted_ms >= COUNTERS_EVERY_MS:
            self._counted_ms = now_ms
            self.counters = self._the_program.counters()

    def _close(self) -> None:
        self.gate.close()
        self._outputs.cancel()
        if not self._uploads.close(UPLOAD_CLOSE_S):
            log.warning("%s: an upload is still going on after %g s", self._name, UPLOAD_CLOSE_S)
        if self._program is not None:
            try:
                self._program.close()
            except Exception:
                log.exception("%s: closing the program failed", self._name)

    @property
    def _flights(self) -> InFlight:
        assert self._in_flight is not None, "only barriers of the mode UNALIGNED overtake, and only loops have logs"
        return self._in_flight

    @property
    def _the_program(self) -> SubtaskProgram:
        assert self._program is not None
        return self._program
