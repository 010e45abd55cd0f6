"""SubtaskTask: the loop thread of one subtask. It carries out the effects of SubtaskMachine and BarrierHandler.

All events reach the subtask through its mailbox; only `cancel` acts at once, from any thread.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent import futures
from dataclasses import replace
from typing import Any, assert_never

from lockgate_common.clock import monotonic_ms, unix_ms, unix_us
from lockgate_common.logs import about
from lockgate_proto.broadcasts import broadcast_senders
from lockgate_proto.messages import (
    AssignSplits,
    Barrier,
    CheckpointMode,
    DrainSources,
    EndOfInput,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    SplitState,
    SubtaskPhase,
    SubtaskReport,
    TriggerCheckpoint,
    Watermark,
)
from lockgate_proto.operators import is_sink

from lockgate_taskmanager.barrier.events import BarrierOvertakes, CheckpointAborted
from lockgate_taskmanager.barrier.modes import mode_of
from lockgate_taskmanager.exchange.elements import ChannelId
from lockgate_taskmanager.exchange.errors import ChannelBroken, ChannelClosed
from lockgate_taskmanager.exchange.gate import InputGate
from lockgate_taskmanager.runtime import faults
from lockgate_taskmanager.runtime.effort import COUNTERS_EVERY_MS, EffortMeter
from lockgate_taskmanager.runtime.emitter import ACCEPT_CHECK_S, Emitter
from lockgate_taskmanager.runtime.failures import cause_of, place_of, text_of
from lockgate_taskmanager.runtime.load_meter import LoadMeter
from lockgate_taskmanager.runtime.loop_part import loop_part_of
from lockgate_taskmanager.runtime.messages import Message, PeerLost, report_of
from lockgate_taskmanager.runtime.output_set import OutputSet
from lockgate_taskmanager.runtime.rejoining import Rejoining
from lockgate_taskmanager.runtime.snapshot_figures import SnapshotFigures
from lockgate_taskmanager.runtime.stories import SubtaskStory
from lockgate_taskmanager.runtime.subtask_input import Records, Step, SubtaskInput
from lockgate_taskmanager.runtime.subtask_snapshots import UPLOAD_CLOSE_S, SubtaskSnapshots
from lockgate_taskmanager.runtime.time_shares import Share, TimeShares
from lockgate_taskmanager.task import effects as do
from lockgate_taskmanager.task import events as on
from lockgate_taskmanager.task.machine import SubtaskMachine
from lockgate_taskmanager.task.program import (
    Batch,
    Canceled,
    Exhausted,
    Idle,
    ProgramContext,
    ProgramFactory,
    SubtaskProgram,
)
from lockgate_taskmanager.task.watermarks import held_back

log = logging.getLogger(__name__)

PEER_LOST_GRACE_S = 0.2  # the cause, reported by the peer itself, or the cancellation should arrive first
LONGEST_WAIT_S = 60.0  # for a wall clock time: the clock may be set meanwhile
_ENDS = (SubtaskPhase.SUBTASK_FAILED, SubtaskPhase.SUBTASK_CANCELED)


class SubtaskTask:
    """One subtask of one attempt, with its input gate. Call connect() and start() once each.

    channels: upstream subtasks, none for a source. report: sends a control message body to the leader, never blocks.
    on_ended: called on the subtask's thread as its last act. story: takes note of its events. spill_folder: for what
    circles in a loop, see InputGate. token: of the present leader, for log lines. pause: instead of a source's poll.
    """

    def __init__(
        self,
        context: ProgramContext,
        channels: Sequence[ChannelId],
        factory: ProgramFactory,
        uploads: futures.Executor,
        report: Callable[[Any], None],
        on_ended: Callable[[SubtaskTask], None],
        story: SubtaskStory,
        spill_folder: str | None = None,
        token: Callable[[], int] | None = None,
        pause: Callable[[], Idle | None] = lambda: None,
    ) -> None:
        assert context.subtask.attempt is not None
        self.id = context.subtask
        loop = loop_part_of(context.graph, self.id, channels)
        self.rejoining = Rejoining(context, self.peer_lost, token or (lambda: 0))
        self.gate = InputGate(
            channels,
            self.peer_lost,
            on_absent=self.rejoining.on_absent(lambda: self.gate),
            on_barrier=lambda barrier: self.post(BarrierOvertakes(barrier)),
            feedback=loop.feedback if loop is not None else frozenset(),
            spill_folder=spill_folder,
        )
        self.effort = EffortMeter()
        self.shares = TimeShares()
        self.load = LoadMeter(self.shares)
        self.newest_snapshot: SnapshotFigures | None = None
        self.context, self._factory = context, factory
        self._report, self._on_ended = report, on_ended
        self._story, self._token, self._pause = story, token, pause
        self._canceled_by = ""  # the event that has done it
        self._is_source = not channels
        self._machine_lock = threading.Lock()
        mode = mode_of(context.graph)
        self._is_elastic = mode is CheckpointMode.UNALIGNED
        self._emitter = Emitter(self.gate, self.shares, self.load, self._is_elastic)
        pauses_source = mode is CheckpointMode.STOP_THE_WORLD
        self._machine = SubtaskMachine(context.subtask.attempt, self._is_source, pauses_source)
        silent = broadcast_senders(context.graph, self.id.vertex_id)
        self._input = SubtaskInput(self.gate, mode, loop, silent, self._take_step)
        self._snapshots = SubtaskSnapshots(context, self.gate, self._is_elastic, uploads, self._handle)
        self._outputs = OutputSet({}, {})
        self._program: SubtaskProgram | None = None
        self._mailbox: deque[Message] = deque()
        self._canceled = threading.Event()
        self._is_input_done = False
        self._opening_id: str | None = None  # the event of its start, until it is open
        self._has_processed = False
        self._assigned: set[str] = set()
        vertex = next((vertex for vertex in context.graph.vertices if vertex.id == self.id.vertex_id), None)
        self._has_sink = vertex is not None and any(map(is_sink, vertex.operators))
        self._name = f"{self.id.vertex_id}[{self.id.subtask}]@{context.subtask.attempt.attempt}"
        self._thread = threading.Thread(target=self._run, name=f"subtask-{self._name}", daemon=True)

    # from any thread

    def connect(self, outputs: OutputSet) -> None:
        """Gives the subtask its output channels; before start()."""
        self._outputs = outputs

    @property
    def on_writable(self) -> Callable[[], object] | None:
        """Callback for elastic outputs; None when a send may block, because no barrier overtakes."""
        return self.gate.wake if self._is_elastic else None

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

    @property
    def outputs(self) -> OutputSet:
        """Its output channels, for display."""
        return self._outputs

    @property
    def last_event_id(self) -> str:
        """Of what happened to it last."""
        return self._story.last_id

    def cancel(self, cause_id: str) -> None:
        """Ends the subtask: interrupts Spark, a wait for input and a blocked send. Returns at once. Idempotent.

        cause_id: of the event that ends it, see StoryLine.
        """
        if self._canceled.is_set():
            return
        self._canceled_by = cause_id
        self._canceled.set()
        self.rejoining.close()
        self.gate.close()
        self._outputs.cancel()
        self.interrupt()

    @property
    def program(self) -> SubtaskProgram | None:
        """What it runs, once that is built."""
        return self._program

    def join(self, timeout_s: float) -> bool:
        """Waits for the thread. False on timeout."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def interrupt(self) -> None:
        """Interrupts the program's running call."""
        try:
            if self._program is not None:
                self._program.cancel()
            elif self._thread.is_alive() and self._thread.ident is not None:  # it runs the author's code
                self._factory.interrupt_user_code(self._thread.ident)
        except Exception:
            log.exception("%s: cancel failed", self._name)

    # the subtask's own thread

    def _run(self) -> None:
        attempt, subtask = self.id.attempt, f"{self.id.vertex_id}[{self.id.subtask}]"
        assert attempt is not None
        with about(job=attempt.job_key, attempt=attempt.attempt, subtask=subtask, token=self._token):
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
        """Runs one step; an exception that ends the subtask becomes an event."""
        try:
            if not self._canceled.is_set():
                action()
        except BaseException as error:  # a user's function may call sys.exit()
            self._failed(error)
        if self._canceled.is_set():
            self._handle(on.CancelRequested(), self._canceled_by)

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, ChannelBroken):
            self._canceled.wait(PEER_LOST_GRACE_S)
        if self._canceled.is_set():
            return
        if not isinstance(error, Canceled | ChannelClosed):
            log.info("%s failed", self._name, exc_info=error)
        if self._program is not None:
            with contextlib.suppress(Exception):  # of a program that has failed
                self._count(is_forced=True)
        place = place_of(error, self._snapshots.place(error, self._program))
        self._handle(on.Failed(cause_of(error), text_of(error), place))

    def _open(self) -> None:
        self._opening_id = self._handle(on.Started(), self._story.last_id)
        self._outputs.start(monotonic_ms())
        if self.context.is_beside:  # where it continues depends on its receivers
            self._emitter.wait_until_accepted(self._outputs, self._is_running)
        self._build()

    def _build(self) -> None:
        self._program = self._factory.build(replace(self.context, received=self._outputs.received()))
        self._snapshots.restore(self._outputs)
        if self._canceled.is_set():  # cancel() may have been called before there was a program to interrupt
            return
        self._emit(self._program.open())
        self._join()
        self._count(is_forced=True)

    def _join(self) -> None:
        """It is open. One that starts beside others takes part in checkpoints only from here on."""
        if self._opening_id is not None and self.rejoining.is_ready(self.gate, self._require_program):
            opening_id, self._opening_id = self._opening_id, None
            self._handle(on.Opened(), opening_id)
            if self._has_processed:
                self._handle(on.ElementProcessed())

    def _step(self) -> None:
        self._join()
        self._read_mailbox()
        self._snapshots.require_accepted()
        if not self._is_running():
            return
        if self._is_elastic and not self._outputs.has_room():
            self._emitter.wait_a_while(self._outputs)
        elif self._is_source and not self._is_input_done and not self._machine.is_halted:
            self._poll_source()
        else:
            self._poll_gate()

    def _read_mailbox(self) -> None:
        while self._mailbox and not self._canceled.is_set():
            self._receive(self._mailbox.popleft())

    def _receive(self, message: Message) -> None:
        match message:
            case TriggerCheckpoint(attempt, checkpoint_id, kind, terminal, unix_ms, completed_id, unaligned, cause_id):
                barrier = Barrier(checkpoint_id, kind, terminal, unix_ms, completed_id, unaligned, cause_id)
                if self._is_source:
                    self._handle(on.TriggerReceived(attempt, barrier))
                elif unaligned and attempt == self.id.attempt:
                    self._input.barrier(BarrierOvertakes(barrier), monotonic_ms())
            case BarrierOvertakes():
                self._input.barrier(message, monotonic_ms())
            case NotifyCheckpointComplete(attempt, checkpoint_id, cause_id):
                self._outputs.completed(checkpoint_id)
                self._handle(on.CompleteReceived(attempt, checkpoint_id), cause_id)
            case NotifyCheckpointAborted(attempt, checkpoint_id, _, and_earlier, cause_id):
                self._handle(on.AbortReceived(attempt, checkpoint_id, and_earlier), cause_id)
            case AssignSplits(subtask, splits, complete):
                if subtask == self.id and self._machine.is_live:
                    self._assign(splits, complete)
            case DrainSources(cause_id=cause_id):
                self._drain(cause_id)
            case PeerLost(reason):
                raise ChannelBroken(reason)
            case _:
                assert_never(message)

    def _assign(self, splits: Sequence[SplitState], complete: bool) -> None:
        """The leader resends the assignment after a reconnect; the program gets each split once."""
        fresh = tuple(split for split in splits if split.split not in self._assigned)
        self._assigned.update(split.split for split in fresh)
        self._require_program.assign(fresh, complete)

    def _drain(self, cause_id: str) -> None:
        """The leader wants no more of the source: what is read flows out as at the end of its input."""
        if self._is_source and not self._is_input_done and self._machine.is_live:
            self._is_input_done = self._input.is_drained = True
            self._handle(on.InputExhausted(), cause_id)

    def _poll_source(self) -> None:
        polled = self._pause() or self.effort.poll(self._require_program)
        self._join()
        self.load.polled(self._require_program.backlog)
        match polled:
            case Batch():
                self._emit(polled)
                self._count()
            case Idle(wait_ms):
                self._count(is_forced=True)
                with self.shares.waits(Share.BACKPRESSURED if polled.is_held else Share.IDLE):
                    self.gate.poll(wait_ms / 1000)
            case Exhausted():
                self._is_input_done = True
                self._handle(on.InputExhausted())
            case _:
                assert_never(polled)
        self._outputs.check_accepted(monotonic_ms())

    def _poll_gate(self) -> None:
        limit_s = self._wait_s(None if self._outputs.check_accepted(monotonic_ms()) else ACCEPT_CHECK_S)
        if self.effort.is_behind:
            limit_s = min(COUNTERS_EVERY_MS / 1000, limit_s or LONGEST_WAIT_S)
        with self.shares.waits(Share.IDLE):
            elements = self._input.poll(limit_s)
        self._join()
        self._tick(may_pause=not elements)
        if self.effort.is_behind and not elements:
            self._count()
        self._input.take(elements, self._outputs, monotonic_ms)

    def _take_step(self, step: Step) -> None:
        match step:
            case Records():
                self._process(step)
            case Watermark():
                self._advance(step)
            case on.InputExhausted():
                self._is_input_done = True
                self._handle(step)
            case _:
                self._handle(step)

    def _wait_s(self, longest_s: float | None) -> float | None:
        """How long to wait for input: at most until the program's next wake-up. None: forever."""
        wakes_at = None if self._is_input_done else self._require_program.wakes_at()
        if wakes_at is None:
            return longest_s
        rest_s = min(max(0.0, (wakes_at - unix_ms()) / 1000), LONGEST_WAIT_S)
        return rest_s if longest_s is None else min(rest_s, longest_s)

    def _tick(self, *, may_pause: bool) -> None:
        """Passes the time to the program, which fires what is due. may_pause: see `_emit_all`."""
        if not self._is_input_done and not self._canceled.is_set():
            batch = self._require_program.tick(unix_ms())
            if batch.emissions or batch.reached_sink or batch.has_more:
                self._emit_all(batch, may_pause=may_pause)
                self._count()

    def _process(self, records: Records) -> None:
        started_ns = time.monotonic_ns()
        for vertex, table in self._input.merged(records):
            if self._canceled.is_set():
                return
            self._emit_all(self.effort.process(self._require_program, vertex, table), may_pause=False)
        self._input.processed(records, (time.monotonic_ns() - started_ns) / 1e6)
        self._has_processed = True
        self._handle(on.ElementProcessed())
        self._count()

    def _advance(self, watermark: Watermark) -> None:
        """Event time or a channel's idleness has changed: the program fires, then the watermark is passed on."""
        self._emit_all(batch := self._require_program.advance(watermark.event_time_ms), may_pause=True)
        self._outputs.broadcast(held_back(watermark, batch.held_back_ms))
        self.load.passed(watermark)

    def _handle(self, event: on.Event, cause_id: str = "") -> str:
        """On the subtask's thread, but for the end of an upload: all that it asks for is a message to the leader.

        So an acknowledgement does not wait for the batch that the subtask is at. Returns the event's id; cause_id: see
        SubtaskStory.
        """
        with self._machine_lock:
            before = self._machine.state
            effects = self._machine.handle(event, monotonic_ms())
            event_id = self._story.handled(event, cause_id, effects, before, self._machine.state)
        for effect in effects:
            self._apply(effect, event_id)
        return event_id

    def _apply(self, effect: do.Effect, event_id: str) -> None:
        """event_id: of the event that has made the effect."""
        match effect:
            case do.TakeSnapshot():
                self._handle(self._snapshots.take(effect, self._require_program), event_id)
            case do.RecordChannels():
                self._snapshots.record(effect)
            case do.ForwardBarrier(barrier):
                self._snapshots.forward(replace(barrier, cause_id=event_id), self._outputs)
            case do.StartUpload(checkpoint_id):
                self._snapshots.store(checkpoint_id)
            case do.DropSnapshot(checkpoint_id):
                self._snapshots.drop(checkpoint_id)
            case do.StopAlignment(checkpoint_id, and_earlier):
                self._input.barrier(CheckpointAborted(checkpoint_id, and_earlier), monotonic_ms())
            case do.Commit(checkpoint_id):
                self._commit(checkpoint_id, event_id)
            case do.Flush():
                self._emit_all(self._require_program.finish(), may_pause=False)
                self._handle(on.Flushed(), event_id)
            case do.ForwardEnd():
                self._outputs.broadcast(EndOfInput(self._input.is_drained))
                self._count(is_forced=True)
            case do.Close():
                self._close()
                self._handle(on.Closed(), event_id)
            case _:
                self._report_effect(effect, event_id)

    def _report_effect(self, effect: do.ForLeader, event_id: str) -> None:
        if isinstance(effect, do.Acknowledge):
            faults.point("before-ack")
            self.newest_snapshot = self._snapshots.acknowledged(effect)
        report = replace(report_of(effect, self.id, self._name), cause_id=event_id)
        if isinstance(report, SubtaskReport) and report.phase in _ENDS:
            report = replace(report, counters=self.effort.counters)
        self._report(report)

    def _commit(self, checkpoint_id: int, event_id: str) -> None:
        if self._has_sink:
            faults.point("before-commit")
        has_output = self._require_program.commit(checkpoint_id)
        if self._has_sink:
            faults.point("after-commit")
        self._handle(on.CommitDone(checkpoint_id, has_output), event_id)

    def _emit(self, batch: Batch) -> None:
        if batch.reached_sink > 0 and not self._machine.has_reached_sink:
            self._handle(on.SinkReached(unix_us()))
        self._emitter.emit(batch, self._outputs)

    def _emit_all(self, batch: Batch, *, may_pause: bool) -> None:
        """A batch and its further portions. may_pause: nothing that was taken from the gate waits behind these."""
        self._emit(batch)
        while batch.has_more:
            read_mailbox = self._read_mailbox if may_pause and batch.is_settled else None
            self._emitter.wait_for_room(self._outputs, self._is_running, read_mailbox)
            self._emit(batch := self._require_program.go_on())
            self._count()

    def _is_running(self) -> bool:
        return self._machine.is_live and not self._canceled.is_set()

    def _count(self, is_forced: bool = False) -> None:
        self.effort.count(self._require_program, monotonic_ms(), is_forced)

    def _close(self) -> None:
        self.gate.close()
        self._outputs.cancel()
        if not self._snapshots.close():
            log.warning("%s: an upload is still in progress after %g s", self._name, UPLOAD_CLOSE_S)
        if self._program is not None:
            with contextlib.suppress(Exception):  # of a program that has failed
                self._count(is_forced=True)
            try:
                self._program.close()
            except BaseException:  # the author's code may call sys.exit()
                log.exception("%s: closing the program failed", self._name)

    @property
    def _require_program(self) -> SubtaskProgram:
        assert self._program is not None
        return self._program
