"""SubtaskSnapshots: one subtask's snapshots from the freeze to the acknowledgement, with in-flight elements."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent import futures

from lockgate_proto.messages import Barrier, FailurePlace

from lockgate_taskmanager.exchange.gate import InputGate
from lockgate_taskmanager.runtime.in_flight import InFlight, in_flight_of
from lockgate_taskmanager.runtime.output_set import OutputSet
from lockgate_taskmanager.runtime.snapshot_figures import SnapshotFigures, figures_of
from lockgate_taskmanager.runtime.state_growth import StateGrowth
from lockgate_taskmanager.runtime.uploads import SnapshotUploads, discarder
from lockgate_taskmanager.task import effects as do
from lockgate_taskmanager.task import events as on
from lockgate_taskmanager.task.program import (
    ProgramContext,
    SnapshotOrder,
    SnapshotTooLarge,
    SubtaskProgram,
)

log = logging.getLogger(__name__)

UPLOAD_CLOSE_S = 10.0


class SubtaskSnapshots:
    """Used by the subtask's thread; `done` is called from threads of `pool`.

    overtakes: the job's barriers may overtake records.
    """

    def __init__(
        self,
        context: ProgramContext,
        gate: InputGate,
        overtakes: bool,
        pool: futures.Executor,
        done: Callable[[on.UploadDone | on.UploadFailed], object],
    ) -> None:
        self._restored = context.restore
        self._uploads = SnapshotUploads(pool, done, discarder(context.checkpoint_directory), gate.wake)
        self._in_flight = in_flight_of(context, gate, overtakes)
        subtask, graph = context.subtask, context.graph
        operators = next((vertex.operators for vertex in graph.vertices if vertex.id == subtask.vertex_id), ())
        self._growth = StateGrowth(operators, graph.state_backend)
        self._name = f"{subtask.vertex_id}[{subtask.subtask}]"

    def restore(self, outputs: OutputSet) -> None:
        """Puts in-flight elements back. Raises StateUnreadable, OSError."""
        if self._in_flight is not None:
            self._in_flight.restore(self._restored, outputs)

    def take(self, order: do.TakeSnapshot, program: SubtaskProgram) -> on.SnapshotTaken | on.SnapshotFailed:
        """Freezes the program's state, and keeps it until its upload starts. Raises StateRefused, UserCodeFailed."""
        started = time.perf_counter_ns()
        try:
            snapshot = program.snapshot(order.checkpoint_id, SnapshotOrder(order.base_id, order.is_savepoint))
        except SnapshotTooLarge as error:
            return on.SnapshotFailed(order.checkpoint_id, str(error))
        self._uploads.keep(order.checkpoint_id, snapshot)
        return on.SnapshotTaken(order.checkpoint_id, (time.perf_counter_ns() - started) // 1000)

    def record(self, order: do.RecordChannels) -> None:
        """Starts recording the input until each channel's barrier."""
        self._in_flight_elements.record(order.checkpoint_id, order.delivered)

    def forward(self, barrier: Barrier, outputs: OutputSet) -> None:
        """Sends the barrier on; an unaligned one ahead of the elements in the output queues, which are recorded."""
        if barrier.unaligned:
            self._in_flight_elements.overtake(outputs, barrier)
        else:
            outputs.broadcast(barrier)

    def store(self, checkpoint_id: int) -> None:
        """Starts the upload; `done` reports its end."""
        channels = self._in_flight.take(checkpoint_id) if self._in_flight is not None else None
        self._uploads.start(checkpoint_id, channels)

    def require_accepted(self) -> None:
        """Raises UserError or DataError when state or output could not be stored for a reason that lasts."""
        if self._uploads.refused is not None:
            raise self._uploads.refused

    def place(self, error: BaseException, program: SubtaskProgram | None) -> FailurePlace | None:
        """Where the program was; None for an error of `require_accepted`: it has gone on to other records."""
        return program.place() if program is not None and error is not self._uploads.refused else None

    def acknowledged(self, done: do.Acknowledge) -> SnapshotFigures:
        """From now on only the leader may delete the stored files. A state that has become large is logged."""
        self._uploads.acknowledged(done.checkpoint_id)
        figures = figures_of(done)
        for sentence in self._growth.sentences(figures.state_bytes):
            log.warning("%s: %s", self._name, sentence, extra={"checkpoint": done.checkpoint_id})
        return figures

    def drop(self, checkpoint_id: int) -> None:
        """The checkpoint is completed or aborted: its frozen state and recording are not needed any more."""
        self._uploads.drop(checkpoint_id)
        if self._in_flight is not None:
            self._in_flight.drop(checkpoint_id)

    def close(self) -> bool:
        """Drops everything. False when an upload is still running after UPLOAD_CLOSE_S."""
        return self._uploads.close(UPLOAD_CLOSE_S)

    @property
    def _in_flight_elements(self) -> InFlight:
        assert self._in_flight is not None, "only barriers of the mode UNALIGNED overtake, and only loops have logs"
        return self._in_flight
