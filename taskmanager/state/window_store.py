"""Windowed state as a store: in memory, with snapshots that are always whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from lockgate_proto.messages import OperatorState, SessionWindow, StateKind

from taskmanager.state import stored
from taskmanager.state.backend import SnapshotWriter, load
from taskmanager.state.frozen_windows import FrozenWindows
from taskmanager.state.sessions import SessionState
from taskmanager.state.store import Merged, StoreSpec
from taskmanager.state.windowed import WindowedState
from taskmanager.task.program import SnapshotOrder, StateUnreadable


class WindowStore:
    """See KeyedStore. Also `advance`: event time goes on, and windows fire."""

    def __init__(self, spec: StoreSpec, schema: pa.Schema) -> None:
        """schema: of the partial tables. Raises UserError when a column or type does not fit."""
        window = spec.aggregation.window
        kind = SessionState if window is not None and isinstance(window.kind, SessionWindow) else WindowedState
        self._operator_id = spec.operator_id
        self._state: WindowedState | SessionState = kind(
            spec.aggregation, schema, spec.max_parallelism, spec.key_groups
        )
        self.schema = self._state.schema
        self.partial_schema = self._state.partial_schema

    @classmethod
    def restored(cls, spec: StoreSpec, states: Sequence[OperatorState]) -> WindowStore:
        """From what one or several subtasks have stored. Raises StateUnreadable, OSError, UserError."""
        found = [_read(spec, state) for state in states]
        if any(one.schema != found[0].schema for one in found):
            raise StateUnreadable(
                f"the state of operator {spec.operator_id} has other columns in one subtask than another"
            )
        store = cls(spec, found[0].partial_schema)
        store._state.restore(found)
        return store

    def merge(self, partial: pa.Table) -> Merged:
        """See KeyedStore."""
        return self._state.merge(partial)

    def advance(self, watermark_ms: int) -> pa.Table:
        """Results of the windows that are due now that event time has come so far. Raises UserError."""
        return self._state.advance(watermark_ms)

    def snapshot(self, order: SnapshotOrder) -> FrozenWindowStore:  # noqa: ARG002
        """See KeyedStore. Microseconds."""
        return FrozenWindowStore(self._operator_id, self._state.freeze())

    def close(self) -> None:
        """See KeyedStore. There is nothing but memory."""


@dataclass(frozen=True, slots=True)
class FrozenWindowStore:
    """See FrozenStore."""

    operator_id: str
    frozen: FrozenWindows

    def persist(self, checkpoint_id: int, writer: SnapshotWriter) -> OperatorState:  # noqa: ARG002
        """See FrozenStore."""
        data = self.frozen.to_buffer()
        self.release()
        return OperatorState(self.operator_id, StateKind.KEYED_STATE, writer.store(self.operator_id, data))

    def release(self) -> None:
        """See FrozenStore."""
        self.frozen.release()


def _read(spec: StoreSpec, state: OperatorState) -> stored.Stored:
    handle = state.handle
    if handle is None:
        raise StateUnreadable(f"the state of operator {spec.operator_id} is missing in the checkpoint")
    return stored.read(
        load(handle),
        handle.path or f"of operator {spec.operator_id} inside the checkpoint",
        signature=stored.signature(spec.aggregation),
        max_parallelism=spec.max_parallelism,
        wanted=spec.key_groups,
    )
