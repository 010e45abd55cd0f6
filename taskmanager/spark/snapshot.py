"""The frozen copy of one subtask, and how it becomes durable in the background."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from lockgate_proto.codec import encode
from lockgate_proto.messages import (
    OperatorCounters,
    OperatorState,
    SinkState,
    SourceState,
    SplitState,
    StateKind,
    SubtaskState,
)

from taskmanager.spark.sinks.transaction import Pending
from taskmanager.state.backend import Backend, inline_handle
from taskmanager.state.keyed import FrozenState


@dataclass(frozen=True, slots=True)
class ChainSnapshot:
    """See `taskmanager.task.program.Snapshot`. Each part is a pair of operator id and frozen state, or None."""

    checkpoint_id: int
    vertex_id: str
    subtask: int
    backend: Backend
    counters: tuple[OperatorCounters, ...]
    source: tuple[str, tuple[SplitState, ...], bool] | None
    keyed: tuple[str, FrozenState] | None
    sinks: tuple[tuple[str, tuple[Pending, ...]], ...]

    def persist(self) -> SubtaskState:
        """Stores every part. Raises SnapshotTooLarge, OSError."""
        writer = self.backend.writer(self.checkpoint_id)
        states: list[OperatorState] = []
        try:
            if self.source is not None:
                name, splits, complete = self.source
                state = SourceState(splits=splits, complete=complete)
                states.append(OperatorState(name, StateKind.SOURCE_STATE, inline_handle(encode(state))))
            if self.keyed is not None:
                name, frozen = self.keyed
                data: pa.Buffer = frozen.to_buffer()
                frozen.release()
                states.append(OperatorState(name, StateKind.KEYED_STATE, writer.store(name, data)))
            for name, pending in self.sinks:
                sink = SinkState(pending=tuple(one.persist(writer) for one in pending))
                states.append(OperatorState(name, StateKind.SINK_STATE, inline_handle(encode(sink))))
        except BaseException:
            writer.undo()
            raise
        finally:
            if self.keyed is not None:
                self.keyed[1].release()
        return SubtaskState(self.vertex_id, self.subtask, tuple(states), self.counters)
