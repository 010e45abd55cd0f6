"""A database filled from snapshots: taken over as it was, or put together from what several subtasks have stored."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from lockgate_proto.messages import OperatorState, StateHandle, StateKind

from taskmanager.state import filling, stored
from taskmanager.state.backend import download
from taskmanager.state.chains import Chain
from taskmanager.state.frozen_rocks import restore_files
from taskmanager.state.heap import handles_of
from taskmanager.state.increments import latest
from taskmanager.state.rocks import RocksStore, RowForm
from taskmanager.state.rocksdb import Database
from taskmanager.state.store import StoreSpec


def restored_rocks(
    spec: StoreSpec, states: Sequence[OperatorState], checkpoint_id: int, folder: Path, memory_bytes: int
) -> RocksStore:
    """See StoreMaker.restored. folder: of the new store."""
    with filling.new_folder(folder):
        if len(states) == 1 and states[0].kind is StateKind.ROCKSDB_STATE:
            return _taken_over(spec, states[0], checkpoint_id, folder, memory_bytes)
        return _put_together(spec, states, folder, memory_bytes)


def _taken_over(
    spec: StoreSpec, state: OperatorState, checkpoint_id: int, folder: Path, memory_bytes: int
) -> RocksStore:
    """The stored database itself; of another subtask's, the key groups that are ours now."""
    about = restore_files(state, folder / "db", stored.signature(spec.aggregation), spec.max_parallelism)
    form = RowForm(spec.aggregation, about.partial_schema, spec.max_parallelism)
    store = RocksStore(spec, form, folder, Database(folder / "db", memory_bytes))
    if about.owned == spec.key_groups:
        store.chains.stored(checkpoint_id, Chain(0, state.files))
    else:
        store.keep_own_groups()
    return store


def _put_together(spec: StoreSpec, states: Sequence[OperatorState], folder: Path, memory_bytes: int) -> RocksStore:
    store: RocksStore | None = None
    for number, state in enumerate(states):
        part = folder / f"part-{number}"
        if state.kind is StateKind.ROCKSDB_STATE:
            about = restore_files(state, part, stored.signature(spec.aggregation), spec.max_parallelism)
            store = store or RocksStore.fresh(spec, about.partial_schema, folder, memory_bytes)
            filling.copy(store, part, memory_bytes)
        else:
            part.mkdir()
            whole = latest([_read(spec, handle, part) for handle in handles_of(state)], len(spec.aggregation.keys))
            store = store or RocksStore.fresh(spec, whole.partial_schema, folder, memory_bytes)
            store.load(whole.batches)
        shutil.rmtree(part, ignore_errors=True)
    assert store is not None, "there is at least one state"
    return store


def _read(spec: StoreSpec, handle: StateHandle, part: Path) -> stored.Stored:
    """A snapshot file, read from a copy on this disk a page at a time: it may be larger than memory."""
    target = part / f"{len(list(part.iterdir()))}.arrow"
    download(handle, target)
    return stored.read(
        pa.memory_map(str(target)),
        handle.path or f"of operator {spec.operator_id} inside the checkpoint",
        signature=stored.signature(spec.aggregation),
        max_parallelism=spec.max_parallelism,
        wanted=spec.key_groups,
    )
