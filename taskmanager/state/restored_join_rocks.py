"""Databases of an interval join's rows filled from snapshots: taken over as they were, or put together from several."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from lockgate_proto.messages import JoinSide, OperatorState, StateKind

from taskmanager.state import filling, stored
from taskmanager.state.arrays import numpy_of
from taskmanager.state.backend import download, load
from taskmanager.state.chains import Chain
from taskmanager.state.event_clock import Restored
from taskmanager.state.frozen_rocks import mark, restore_files
from taskmanager.state.heap import handles_of
from taskmanager.state.increments import only_added
from taskmanager.state.interval_join import SIDES, signature
from taskmanager.state.join_home import JoinSpec
from taskmanager.state.join_rocks import RocksRows
from taskmanager.state.join_table import slices
from taskmanager.state.layout import EVENT_TIME, HASH
from taskmanager.state.rocksdb import Database
from taskmanager.state.waiting import columns_of
from taskmanager.task.program import StateUnreadable
from taskmanager.task.watermarks import MIN_WATERMARK


@dataclass(frozen=True, slots=True)
class RestoredRocks:
    """See RestoredSide."""

    schema: pa.Schema
    rows: RocksRows
    told: Sequence[Restored]
    purged_until: int = MIN_WATERMARK


@dataclass(frozen=True, slots=True)
class JoinRestore:
    """What is to come back, and where. new_path: of a folder that is not there; memory_bytes: for each side."""

    spec: JoinSpec
    checkpoint_id: int
    new_path: Callable[[], Path]
    memory_bytes: int

    def by_side(self, states: Sequence[OperatorState]) -> dict[JoinSide, list[OperatorState]]:
        """Raises StateUnreadable where one is of no side of this join, OSError."""
        found: dict[JoinSide, list[OperatorState]] = {}
        for state in states:
            found.setdefault(self._side_of(state), []).append(state)
        return found

    def side(self, side: JoinSide, states: Sequence[OperatorState]) -> RestoredRocks:
        """A side that is whole again. Raises StateUnreadable, OSError, UserError."""
        folder = self.new_path()
        with filling.new_folder(folder):
            if len(states) == 1 and states[0].kind is StateKind.ROCKSDB_STATE:
                return self._taken_over(side, states[0], folder)
            return self._put_together(side, states, folder)

    def _side_of(self, state: OperatorState) -> JoinSide:
        if state.handle is None:
            raise StateUnreadable(f"the state of operator {self.spec.operator_id} is missing in the checkpoint")
        where = self.spec.where(state.handle)
        if state.kind is StateKind.ROCKSDB_STATE:
            return self.spec.side_of(mark(state), where)
        for side in SIDES:  # without reading a file that may be larger than memory
            if state.handle.name == side.name.lower():
                return side
        return self.spec.side_of(stored.mark(load(state.handle), where), where)

    def _taken_over(self, side: JoinSide, state: OperatorState, folder: Path) -> RestoredRocks:
        """The stored database itself; of another subtask's, the key groups that are ours now."""
        about = restore_files(state, folder / "db", signature(self.spec.operator, side), self.spec.max_parallelism)
        rows = self._rows(about.partial_schema, folder)
        if about.owned == self.spec.key_groups:
            rows.chains.stored(self.checkpoint_id, Chain(0, state.files))
        else:
            rows.keep_own_groups()
        return RestoredRocks(about.partial_schema, rows, [about], _purged_until(about))

    def _put_together(self, side: JoinSide, states: Sequence[OperatorState], folder: Path) -> RestoredRocks:
        """What was over for one subtask is left behind, however far the others had come."""
        made: RestoredRocks | None = None
        told: list[Restored] = []
        for number, state in enumerate(states):
            part = folder / f"part-{number}"
            if state.kind is StateKind.ROCKSDB_STATE:
                mine = signature(self.spec.operator, side)
                about = restore_files(state, part, mine, self.spec.max_parallelism)
                made = self._like(made, about.partial_schema, folder)
                told.append(about)
                with closing(Database(part, self.memory_bytes, is_read_only=True)) as other:
                    made.rows.copy_from(other, _purged_until(about))
            else:
                part.mkdir()
                chain = self._read(side, state, part)
                made = self._like(made, chain[0].partial_schema, folder)
                told.append(chain[-1])
                _load(made.rows, chain)
            shutil.rmtree(part, ignore_errors=True)
        assert made is not None, "there is at least one state"
        return RestoredRocks(made.schema, made.rows, told)

    def _like(self, made: RestoredRocks | None, schema: pa.Schema, folder: Path) -> RestoredRocks:
        if made is None:
            return RestoredRocks(schema, self._rows(schema, folder), [])
        if made.schema != schema:
            raise self.spec.other_columns()
        return made

    def _rows(self, schema: pa.Schema, folder: Path) -> RocksRows:
        return RocksRows(self.spec, columns_of(schema), folder, self.memory_bytes)

    def _read(self, side: JoinSide, state: OperatorState, part: Path) -> list[stored.Stored]:
        """Snapshot files, read from copies on this disk a page at a time: they may be larger than memory."""
        found = []
        for number, handle in enumerate(handles_of(state)):
            target = part / f"{number}.arrow"
            download(handle, target)
            data, where = pa.memory_map(str(target)), self.spec.where(handle)
            if self.spec.side_of(stored.mark(data, where), where) is not side:
                raise StateUnreadable(f"the state file {where} is of the other side of the join; restore another one")
            found.append(self.spec.read(data, side, where))
        return found


def _load(rows: RocksRows, chain: Sequence[stored.Stored]) -> None:
    for whole in only_added(chain, EVENT_TIME):
        for batch in slices(whole):
            hashes, times = (numpy_of(batch, name) for name in (HASH, EVENT_TIME))
            rows.add(batch.select(rows.table.schema.names), hashes, times)


def _purged_until(about: stored.About) -> int:
    return MIN_WATERMARK if about.purged_until is None else about.purged_until
