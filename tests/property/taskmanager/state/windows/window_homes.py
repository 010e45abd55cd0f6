"""Where windows live, as the models of windows see it: in memory by themselves, or in RocksDB as a job has them."""

from __future__ import annotations

import shutil
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lockgate_proto.messages import (
    KeyedAggregate,
    OperatorState,
    RocksdbBackend,
    SessionWindow,
    StateBackend,
    StateHandle,
    StateKind,
)
from lockgate_taskmanager.state import firing
from lockgate_taskmanager.state.backend import load, make_backend
from lockgate_taskmanager.state.factory import StoreFactory
from lockgate_taskmanager.state.format import state_file
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.state.windows import pane_database, pane_scan, session_database
from lockgate_taskmanager.state.windows.pane_state import PaneState
from lockgate_taskmanager.state.windows.session_state import SessionState
from lockgate_taskmanager.task.program import SnapshotOrder

GROUPS = 16


def hash_of(key: str | None) -> int:
    """Two keys and NULL share a hash."""
    number = 1 if key in {"a", "b", None} else zlib.crc32(str(key).encode())
    return (number * 0x9E3779B97F4A7C15) % 2**64 - 2**63


class MemoryHome:
    """The state alone."""

    def __init__(self, operator: KeyedAggregate, schema: pa.Schema) -> None:
        assert operator.window is not None
        self._kind = SessionState if isinstance(operator.window.kind, SessionWindow) else PaneState
        self.operator, self._schema = operator, schema

    def fresh(self, owned: range = range(GROUPS)) -> Any:
        """An empty one."""
        return self._kind(StoreSpec("windows", self.operator, GROUPS, owned), self._schema)

    def stored(self, state: Any) -> Any:
        """A snapshot."""
        return state.freeze().to_buffer()

    def restored(self, snapshots: Sequence[Any], owned: range = range(GROUPS)) -> Any:
        """Out of snapshots of several."""
        mark = state_file.signature(self.operator)
        pieces = [
            state_file.read(snapshot, "f", signature=mark, max_parallelism=GROUPS, wanted=owned)
            for snapshot in snapshots
        ]
        state = self._kind(StoreSpec("windows", self.operator, GROUPS, owned), pieces[0].about.partial_schema)
        state.restore(pieces)
        return state

    def held(self, state: Any) -> int:
        """How many rows there are."""
        return len(state)

    def close(self) -> None:
        """There is nothing but memory."""


class RocksHome:
    """A store as a job has it; every other snapshot is a savepoint."""

    def __init__(self, operator: KeyedAggregate, schema: pa.Schema) -> None:
        self.operator, self._schema = operator, schema
        self._folder = Path(tempfile.mkdtemp(prefix="lockgate-windows-"))
        self._choice = StateBackend(RocksdbBackend(memory_bytes=8 << 20))
        self._maker = StoreFactory(self._choice, ScratchFolder(self._folder / "work", "state-"))
        self._made: list[Any] = []
        self._number = 0

    def fresh(self, owned: range = range(GROUPS)) -> Any:
        """An empty one."""
        self._made.append(self._maker.fresh(self._spec(owned), self._schema))
        return self._made[-1]

    def stored(self, store: Any) -> OperatorState:
        """A snapshot. The store is at its end."""
        state = self._stored(store, is_savepoint=self._number % 2 == 1)
        store.close()
        return state

    def restored(self, snapshots: Sequence[Any], owned: range = range(GROUPS)) -> Any:
        """Out of snapshots of several."""
        self._made.append(self._maker.restored(self._spec(owned), snapshots, 1))
        return self._made[-1]

    def held(self, store: Any) -> int:
        """How many rows there are, by a savepoint, and that nothing else is in the database."""
        count = rows_of_savepoint(self._stored(store, is_savepoint=True))
        names = [name for name, _ in store.database.rows(b"", b"\xff" * 32, 1 << 30)]
        assert count or not names, "nothing is left of what is gone, in the index of times either"
        return count

    def close(self) -> None:
        """Removes everything."""
        for store in self._made:
            store.close()
        shutil.rmtree(self._folder)

    def _spec(self, owned: range) -> StoreSpec:
        return StoreSpec("windows", self.operator, GROUPS, owned)

    def _stored(self, store: Any, *, is_savepoint: bool) -> OperatorState:
        self._number += 1
        writer = make_backend(self._choice, str(self._folder), f"a{self._number}-windows-0").writer(self._number)
        frozen = store.snapshot(SnapshotOrder(is_savepoint=is_savepoint))
        state: OperatorState = frozen.persist(self._number, writer)
        frozen.release()
        assert (state.kind is StateKind.KEYED_STATE) == is_savepoint
        return state


Home = MemoryHome | RocksHome
HOMES: dict[str, type[Home]] = {"memory": MemoryHome, "rocksdb": RocksHome}


@contextmanager
def opened(name: str, operator: KeyedAggregate, schema: pa.Schema) -> Iterator[Home]:
    """A home for as long as a plan is played."""
    home = HOMES[name](operator, schema)
    try:
        yield home
    finally:
        home.close()


def fired(store: Any, watermark: int) -> pa.Table:
    """Everything that is due at a watermark, portion by portion."""
    portions = [store.advance(watermark)]
    while store.has_more:
        portions.append(store.go_on())
    return pa.concat_tables(portions)


def keep_longer(home: Home, lateness: int) -> None:
    """The job that goes on has this lateness, longer or shorter than before."""
    assert home.operator.window is not None
    home.operator = replace(home.operator, window=replace(home.operator.window, allowed_lateness_ms=lateness))


@contextmanager
def split_up(is_split: bool) -> Iterator[None]:
    """What a database is read for, and what fires, comes in the smallest portions."""
    with pytest.MonkeyPatch.context() as patch:
        if is_split:
            patch.setattr(pane_scan, "_LEAST_ROWS", 1)
            patch.setattr(firing, "ROWS_AT_ONCE", 1)
            patch.setattr(pane_database, "ROWS_AT_ONCE", 2)
            patch.setattr(pane_database, "_PANES_AT_ONCE", 1)
            patch.setattr(session_database, "_KEYS_AT_ONCE", 2)
        yield


def again(home: Home, state: Any, parts: int) -> Any:
    """Out of a snapshot; with several parts each goes on as a subtask of its own first."""
    before = state.clock.before_end
    snapshot = home.stored(state)
    ranges = [range(GROUPS * part // parts, GROUPS * (part + 1) // parts) for part in range(parts)]
    snapshots = [home.stored(home.restored([snapshot], range_)) for range_ in ranges] if parts > 1 else [snapshot]
    fresh = home.restored(snapshots)
    assert fresh.clock.now == before
    return fresh


def rows_of_savepoint(state: OperatorState) -> int:
    """How many rows a savepoint holds."""
    return int(pa.ipc.open_file(load(state.handle or StateHandle())).read_all().num_rows)
