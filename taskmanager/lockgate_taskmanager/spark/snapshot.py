"""The frozen copy of one subtask: made durable in the background, and restored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from lockgate_proto.codec import MalformedMessage, decode, encode
from lockgate_proto.messages import (
    OperatorCounters,
    OperatorState,
    SinkState,
    SourceState,
    SplitState,
    StateHandle,
    StateKind,
    SubtaskState,
)

from lockgate_taskmanager.spark.layout import ChainLayout
from lockgate_taskmanager.spark.sinks.transaction import Pending
from lockgate_taskmanager.spark.split_log import FrozenSplits
from lockgate_taskmanager.state.backend import Backend, inline_handle, load
from lockgate_taskmanager.state.factory import KEYED_KINDS
from lockgate_taskmanager.state.format.split_files import splits_in
from lockgate_taskmanager.state.store import FrozenStore
from lockgate_taskmanager.task.program import StateUnreadable


@dataclass(frozen=True, slots=True)
class ChainSnapshot:
    """The Snapshot of a ChainProgram. stores: of objects and of keyed state; sinks: with the operator's id."""

    checkpoint_id: int
    vertex_id: str
    subtask: int
    backend: Backend
    counters: tuple[OperatorCounters, ...]
    source: FrozenSplits | None
    stores: tuple[FrozenStore, ...]
    sinks: tuple[tuple[str, tuple[Pending, ...]], ...]

    def persist(self) -> SubtaskState:
        """Stores every part. Raises SnapshotTooLarge, OSError."""
        writer = self.backend.writer(self.checkpoint_id)
        states: list[OperatorState] = []
        try:
            if self.source is not None:
                writer.begin(self.source.operator_id)
                states.append(self.source.persist(self.checkpoint_id, writer))
            for frozen_store in self.stores:
                writer.begin(frozen_store.operator_id)
                states.append(frozen_store.persist(self.checkpoint_id, writer))
            for name, pending in self.sinks:
                writer.begin(name)
                sink = SinkState(pending=tuple(transaction.persist(writer) for transaction in pending))
                states.append(OperatorState(name, StateKind.SINK_STATE, inline_handle(encode(sink))))
        except BaseException:
            writer.undo()
            raise
        finally:
            self.release()
        return SubtaskState(self.vertex_id, self.subtask, tuple(states), self.counters)

    def release(self) -> None:
        for frozen_store in self.stores:
            frozen_store.release()


def restore_plain(
    layout: ChainLayout, operator: OperatorState, take: Callable[[Sequence[SplitState], bool], None]
) -> None:
    """Restores one piece of state, of which a rescaled job may have several for an operator; not keyed state.

    take: assigns splits to the source. Raises StateUnreadable, OSError.
    """
    if operator.handle is None or operator.kind in KEYED_KINDS:
        return
    if operator.kind == StateKind.OBJECT_STATE:
        layout.function_stage(operator.operator_id).restored += (operator,)
        return
    data = load(operator.handle)
    where = operator.handle.path or f"of operator {operator.operator_id} inside the checkpoint"
    try:
        if operator.kind == StateKind.SOURCE_STATE and layout.source is not None:
            state = decode(SourceState, data.to_pybytes())
            splits = tuple(_with_files(state, operator.files))
            take(layout.reopened(splits) if state.reopened else splits, state.complete)
        elif operator.kind == StateKind.SINK_STATE:
            layout.sink_stage(operator.operator_id).restored += decode(SinkState, data.to_pybytes()).pending
        else:
            raise StateUnreadable(f"the state {where} belongs to an operator that the job does not have")
    except MalformedMessage as error:
        raise StateUnreadable(f"the state {where} cannot be read: {error}") from error


def _with_files(state: SourceState, files: Sequence[StateHandle]) -> Iterable[SplitState]:
    """The splits inside a snapshot and those in its files; the former take precedence."""
    found = splits_in(files)
    found |= {split.split: replace(split, rested=False) if split.rested else split for split in state.splits}
    return found.values()
