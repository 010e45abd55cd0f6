"""A database of rows by key filled from snapshots: taken over as it was, or put together from several."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from lockgate_proto.messages import OperatorState, StateKind

from taskmanager.state import filling, row_heap
from taskmanager.state.backend import download
from taskmanager.state.chains import Chain
from taskmanager.state.event_clock import Restored
from taskmanager.state.frozen_rocks import restore_files
from taskmanager.state.heap import handles_of
from taskmanager.state.increments import latest
from taskmanager.state.rocksdb import Database
from taskmanager.state.row_rocks import RowRocks
from taskmanager.state.row_store import RowSpec
from taskmanager.state.stored import Stored

_CHUNK_ROWS = 50_000


def restored_row_rocks(
    spec: RowSpec, states: Sequence[OperatorState], checkpoint_id: int, folder: Path, memory_bytes: int
) -> RowRocks:
    """See RowStores.restored. folder: of the new store."""
    with filling.new_folder(folder):
        if len(states) == 1 and states[0].kind is StateKind.ROCKSDB_STATE:
            return _taken_over(spec, states[0], checkpoint_id, folder, memory_bytes)
        return _put_together(spec, states, folder, memory_bytes)


def _taken_over(spec: RowSpec, state: OperatorState, checkpoint_id: int, folder: Path, memory_bytes: int) -> RowRocks:
    """The stored database itself; of another subtask's, the key groups that are ours now."""
    about = restore_files(state, folder / "db", spec.signature, spec.max_parallelism)
    store = RowRocks(spec, about.partial_schema, folder, Database(folder / "db", memory_bytes))
    store.clock.restore([about])
    if about.owned == spec.key_groups:
        store.chains.stored(checkpoint_id, Chain(0, state.files))
    else:
        store.keep_own_groups()
    return store


def _put_together(spec: RowSpec, states: Sequence[OperatorState], folder: Path, memory_bytes: int) -> RowRocks:
    store: RowRocks | None = None
    told: list[Restored] = []
    for number, state in enumerate(states):
        part = folder / f"part-{number}"
        if state.kind is StateKind.ROCKSDB_STATE:
            about = restore_files(state, part, spec.signature, spec.max_parallelism)
            store = store or RowRocks.fresh(spec, about.partial_schema, folder, memory_bytes)
            told.append(about)
            filling.copy(store, part, memory_bytes)
        else:
            part.mkdir()
            chain = [_read(spec, state, number, part) for number in range(len(handles_of(state)))]
            store = store or RowRocks.fresh(spec, chain[0].partial_schema, folder, memory_bytes)
            told.append(chain[-1])
            _load(store, spec, latest(chain, len(spec.keys)).batches)
        shutil.rmtree(part, ignore_errors=True)
    assert store is not None, "there is at least one state"
    store.clock.restore(told)
    return store


def _load(store: RowRocks, spec: RowSpec, batches: Sequence[pa.RecordBatch]) -> None:
    for batch in batches:
        for start in range(0, batch.num_rows, _CHUNK_ROWS):
            store.put(*row_heap.split(batch.slice(start, _CHUNK_ROWS), len(spec.keys)))


def _read(spec: RowSpec, state: OperatorState, number: int, part: Path) -> Stored:
    """A snapshot file, read from a copy on this disk a page at a time: it may be larger than memory."""
    handle = handles_of(state)[number]
    target = part / f"{number}.arrow"
    download(handle, target)
    return row_heap.read(spec, pa.memory_map(str(target)), spec.where(handle))
