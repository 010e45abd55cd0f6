"""Creates stores in memory or in RocksDB, as the job graph chooses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, overload

import pyarrow as pa
from lockgate_proto.messages import OperatorState, RocksdbBackend, StateBackend, StateKind

from lockgate_taskmanager.state.aggregates.aggregate_database import AggregateDatabase
from lockgate_taskmanager.state.aggregates.keyed_state import KeyedState
from lockgate_taskmanager.state.contents.contents_database import ContentsDatabase
from lockgate_taskmanager.state.contents.contents_heap import ContentsHeap
from lockgate_taskmanager.state.contents.contents_spec import ContentsSpec
from lockgate_taskmanager.state.contents.held_records import HeldRecords
from lockgate_taskmanager.state.heap.heap_store import restored
from lockgate_taskmanager.state.join.interval_join import JoinStore
from lockgate_taskmanager.state.join.join_database import JoinDatabase
from lockgate_taskmanager.state.join.join_heap import JoinHeap
from lockgate_taskmanager.state.join.join_spec import JoinSpec, SideSpec
from lockgate_taskmanager.state.join.waiting import WaitingRows
from lockgate_taskmanager.state.late_clock import LateClock
from lockgate_taskmanager.state.rocksdb import engine
from lockgate_taskmanager.state.rocksdb.restore import Restore
from lockgate_taskmanager.state.rows.deduplicate import DeduplicateStore
from lockgate_taskmanager.state.rows.row_database import RowDatabase
from lockgate_taskmanager.state.rows.row_heap import RowHeap
from lockgate_taskmanager.state.rows.row_store import RowSpec, RowStore
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.state.spec import StateSpec, StoreSpec
from lockgate_taskmanager.state.store import KeyedStore
from lockgate_taskmanager.state.windows.early_windows import EarlyWindows
from lockgate_taskmanager.state.windows.pane_database import PaneDatabase
from lockgate_taskmanager.state.windows.pane_state import PaneState
from lockgate_taskmanager.state.windows.processing_windows import ProcessingWindows, timed_schema, times_of
from lockgate_taskmanager.state.windows.session_database import SessionDatabase
from lockgate_taskmanager.state.windows.session_state import SessionState
from lockgate_taskmanager.state.windows.triggered_database import TriggeredDatabase
from lockgate_taskmanager.state.windows.triggered_state import TriggeredState
from lockgate_taskmanager.task.program import StateUnreadable

KEYED_KINDS = frozenset({StateKind.KEYED_STATE, StateKind.ROCKSDB_STATE})


class StoreFactory:
    """Makes the stores of one program."""

    def __init__(self, choice: StateBackend | None, scratch: ScratchFolder) -> None:
        """scratch: folder for databases. Raises UserError when the chosen backend cannot work in this process."""
        self._choice = choice or StateBackend()
        self._scratch = scratch
        self._memory_bytes: int | None = None  # of a database; None: not in databases
        if isinstance(self._choice.backend, RocksdbBackend):
            engine.require()
            self._memory_bytes = engine.memory_bytes(self._choice.backend)

    def without_diffs(self) -> StoreFactory:
        """The same factory without binary differences, for rows with empty payloads."""
        return StoreFactory(replace(self._choice, binary_diff=False), self._scratch)

    @overload
    def fresh(self, spec: StoreSpec, schema: pa.Schema) -> KeyedStore: ...
    @overload
    def fresh(self, spec: RowSpec, schema: pa.Schema) -> RowStore: ...
    @overload
    def fresh(self, spec: SideSpec, schema: pa.Schema) -> WaitingRows: ...
    @overload
    def fresh(self, spec: ContentsSpec, schema: pa.Schema) -> HeldRecords: ...
    def fresh(self, spec: StateSpec, schema: pa.Schema) -> Any:
        """An empty store. schema: of the partial tables, or of records. Raises UserError when it does not fit."""
        if self._memory_bytes is None:
            return self._in_memory(spec, schema)
        return self._in_database(spec, schema, self._scratch.new_path())

    @overload
    def restored(self, spec: StoreSpec, states: Sequence[OperatorState], checkpoint_id: int) -> KeyedStore: ...
    @overload
    def restored(self, spec: RowSpec, states: Sequence[OperatorState], checkpoint_id: int) -> RowStore: ...
    @overload
    def restored(self, spec: SideSpec, states: Sequence[OperatorState], checkpoint_id: int) -> WaitingRows: ...
    @overload
    def restored(self, spec: ContentsSpec, states: Sequence[OperatorState], checkpoint_id: int) -> HeldRecords: ...
    def restored(self, spec: StateSpec, states: Sequence[OperatorState], checkpoint_id: int) -> Any:
        """A store restored from the state of any backend. Raises StateUnreadable, OSError, UserError."""
        with _fitting(spec):
            if self._memory_bytes is None:
                engine.refuse(spec.operator_id, states)
                return restored(spec, partial(self._in_memory, spec), states, checkpoint_id)
            restore = Restore(spec, partial(self._in_database, spec), self._memory_bytes // spec.databases)
            return restore.run(states, checkpoint_id, self._scratch.new_path())

    def join(self, spec: JoinSpec) -> JoinStore:
        """The empty store of an interval join, which can be restored before its first rows."""
        return JoinStore(spec, self)

    def _in_memory(self, spec: StateSpec, schema: pa.Schema) -> Any:
        return _classes(spec)[0](spec, schema, self._choice)

    def _in_database(self, spec: StateSpec, schema: pa.Schema, folder: Path) -> Any:
        assert self._memory_bytes is not None
        return _classes(spec)[1](spec, schema, folder, self._memory_bytes // spec.databases)


@contextmanager
def _fitting(spec: StateSpec) -> Iterator[None]:
    """Files that can be read each may still have other columns or types than the state that they are to become."""
    try:
        yield
    except (pa.ArrowException, LookupError, TypeError, ValueError) as error:
        text = f"the stored state of operator {spec.operator_id} does not fit it: {str(error)[:500]}"
        raise StateUnreadable(text) from error


def _classes(spec: StateSpec) -> tuple[Any, Any]:
    """The classes of a kind of state: in memory, and in a database."""
    if isinstance(spec, SideSpec):
        return JoinHeap, JoinDatabase
    if isinstance(spec, ContentsSpec):
        return ContentsHeap, ContentsDatabase
    if isinstance(spec, RowSpec):
        return RowHeap, RowDatabase
    assert isinstance(spec, StoreSpec)
    if spec.aggregation.window is None:
        return KeyedState, AggregateDatabase
    if spec.trigger is not None:
        return TriggeredState, TriggeredDatabase
    return (SessionState, SessionDatabase) if spec.is_session else (PaneState, PaneDatabase)


@dataclass(frozen=True, slots=True)
class AggregateStores:
    """The OperatorStores of an aggregate, windowed or not."""

    factory: StoreFactory
    spec: StoreSpec

    def fresh(self, schema: pa.Schema) -> KeyedStore:
        if self._is_by_clock:
            schema = timed_schema(self.spec.aggregation, schema)
        return self._by_time(self.factory.fresh(self.spec, schema))

    def restored(self, states: Sequence[OperatorState], checkpoint_id: int) -> KeyedStore:
        return self._by_time(self.factory.restored(self.spec, states, checkpoint_id))

    @property
    def _is_by_clock(self) -> bool:
        window = self.spec.aggregation.window
        return window is not None and window.processing_time

    def _by_time(self, windows: Any) -> KeyedStore:
        """Ending by the clock, and firing early by it, if they are to."""
        store = self._by_clock(windows) if self._is_by_clock else windows
        every_ms = self.spec.trigger.every_ms if self.spec.trigger is not None else 0
        return EarlyWindows(every_ms, store, windows) if every_ms else store

    def _by_clock(self, windows: Any) -> ProcessingWindows:
        aggregation = self.spec.aggregation
        assert aggregation.window is not None
        return ProcessingWindows(aggregation.window, times_of(aggregation), windows, LateClock(self.spec.operator_id))


@dataclass(frozen=True, slots=True)
class DeduplicateStores:
    """The OperatorStores of a deduplication. ttl_ms: how long a key is remembered, 0 for no limit."""

    factory: StoreFactory
    spec: RowSpec
    ttl_ms: int

    def fresh(self, schema: pa.Schema) -> DeduplicateStore:
        spec = self.spec.within(schema)
        return DeduplicateStore(spec, self.factory.fresh(spec, schema), self.ttl_ms)

    def restored(self, states: Sequence[OperatorState], checkpoint_id: int) -> DeduplicateStore:
        rows = self.factory.restored(self.spec, states, checkpoint_id)
        return DeduplicateStore(self.spec.within(rows.record_schema), rows, self.ttl_ms)
