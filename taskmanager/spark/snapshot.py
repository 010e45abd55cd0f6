"""The frozen copy of one subtask, and how it becomes durable in the background."""

from __future__ import annotations

from dataclasses import dataclass

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
from taskmanager.state.store import FrozenStore


@dataclass(frozen=True, slots=True)
class ChainSnapshot:
    """See `taskmanager.task.program.Snapshot`. source, sinks: with the operator's id."""

    checkpoint_id: int
    vertex_id: str
    subtask: int
    backend: Backend
    counters: tuple[OperatorCounters, ...]
    source: tuple[str, tuple[SplitState, ...], bool] | None
    keyed: tuple[FrozenStore, ...]
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
            states += [one.persist(self.checkpoint_id, writer) for one in self.keyed]
            for name, pending in self.sinks:
                sink = SinkState(pending=tuple(one.persist(writer) for one in pending))
                states.append(OperatorState(name, StateKind.SINK_STATE, inline_handle(encode(sink))))
        except BaseException:
            writer.undo()
            raise
        finally:
            self.release()
        return SubtaskState(self.vertex_id, self.subtask, tuple(states), self.counters)

    def release(self) -> None:
        """See Snapshot."""
        for one in self.keyed:
            one.release()
