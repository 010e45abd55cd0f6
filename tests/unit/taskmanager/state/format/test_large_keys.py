"""Keys of more text than one Arrow array can hold: none is lost, and none makes the state fail.

The text is zeros that no memory is taken for until it is copied, so the real limit is crossed with little memory.
"""

from __future__ import annotations

import mmap

import numpy as np
import pyarrow as pa
import pytest
from lockgate_proto.messages import Aggregate, AggregateFunction, KeyedAggregate, StateBackend
from lockgate_taskmanager.state.about import About
from lockgate_taskmanager.state.aggregates.keyed_state import KeyedState
from lockgate_taskmanager.state.columns import pieces
from lockgate_taskmanager.state.columns.arrays import one_batch
from lockgate_taskmanager.state.columns.keys import KeyIndex
from lockgate_taskmanager.state.columns.pieces import cut
from lockgate_taskmanager.state.format import increments, state_file
from lockgate_taskmanager.state.spec import StoreSpec

MIB = 1 << 20
ROWS, PARTS = 900, 3  # of a MiB each: two parts are more than text in one array may be
OPERATOR = KeyedAggregate(keys=("k",), aggregates=(Aggregate("n", AggregateFunction.COUNT, ""),))
PARTIAL = pa.schema([("k", pa.string()), ("__hash", pa.int64()), ("__rows", pa.int64())])
SPEC = StoreSpec("count", OPERATOR, 4, range(4))
STORED = pa.schema([("k", pa.string()), ("__hash", pa.int64()), ("n#count", pa.int64())])
TEXT = pa.py_buffer(mmap.mmap(-1, (ROWS + 10) * MIB, prot=mmap.PROT_READ))


def keys_from(first: int, count: int) -> pa.Array:
    """Keys `first`, `first + 1` ...: key i is MIB + i zeros."""
    sizes = MIB + np.arange(first, first + count)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), TEXT])


def hashes_from(first: int, count: int) -> np.ndarray:
    return (np.arange(first, first + count).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)


def stored_parts() -> list[state_file.Stored]:
    """As several subtasks have stored them that are one after a rescale."""
    found = []
    for first in range(0, PARTS * ROWS, ROWS):
        columns = [keys_from(first, ROWS), hashes_from(first, ROWS), np.arange(first, first + ROWS)]
        found.append(state_file.Stored(STORED, (pa.record_batch(columns, schema=STORED),), About(PARTIAL, "", 128)))
    return found


def partial(places: list[int]) -> pa.Table:
    keys = pa.concat_arrays([keys_from(place, 1) for place in places])
    return pa.table(
        [keys, np.concatenate([hashes_from(place, 1) for place in places]), [1] * len(places)], schema=PARTIAL
    )


def test_every_key_is_restored_and_continues_counting() -> None:
    state = KeyedState(StoreSpec("count", OPERATOR, 128, range(128)), PARTIAL)
    state.restore(stored_parts())
    assert len(state) == PARTS * ROWS
    places = [0, ROWS - 1, ROWS, 2 * ROWS + 5, PARTS * ROWS - 1, PARTS * ROWS]
    merged = state.merge(partial(places))
    assert merged.changed.column("n").to_pylist() == [*(place + 1 for place in places[:-1]), 1]
    assert len(state) == PARTS * ROWS + 1


def test_a_live_index_finds_old_and_new_keys_beyond_the_limit() -> None:
    index = KeyIndex(pa.schema([("k", pa.string())]))
    parts = stored_parts()
    index.restore([part.batches[0].select(["k"]) for part in parts], hashes_from(0, PARTS * ROWS))
    for place in (PARTS * ROWS, 0, PARTS * ROWS, PARTS * ROWS + 1, PARTS * ROWS - 1):
        found = index.rows_of(pa.record_batch([keys_from(place, 1)], names=["k"]), hashes_from(place, 1))
        assert found.tolist() == [place]
    asked = np.array([ROWS, 0, PARTS * ROWS + 1])
    assert pa.compute.binary_length(index.keys_at(asked).column(0)).to_pylist() == [MIB + item for item in asked]


def small_state(count: int) -> KeyedState:
    state = KeyedState(SPEC, PARTIAL)
    names = [f"key {number} " + "x" * (number % 50) for number in range(count)]
    state.merge(pa.table([names, hashes_from(0, count), [1] * count], schema=PARTIAL))
    return state


def read_back(data: pa.Buffer, wanted: range = range(4)) -> state_file.Stored:
    return state_file.read(data, "f", signature=state_file.signature(OPERATOR), max_parallelism=4, wanted=wanted)


def test_a_key_group_too_large_for_one_batch_is_stored_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    state = small_state(500)
    whole = read_back(state.freeze().to_buffer())
    monkeypatch.setattr(pieces, "LARGEST_BATCH_BYTES", 2000)
    data = state.freeze().to_buffer()
    found = read_back(data)
    assert len(whole.batches) == 4 < len(found.batches)
    assert all(batch.nbytes <= 2000 for batch in found.batches)
    assert pa.Table.from_batches(found.batches) == pa.Table.from_batches(whole.batches).combine_chunks()
    some = read_back(data, range(1, 3))
    assert {int(item) % 4 for batch in some.batches for item in batch.column("__hash").to_numpy()} == {1, 2}
    again = KeyedState(SPEC, PARTIAL)
    again.restore([found])
    assert len(again) == 500


def test_increments_too_large_for_one_batch_make_the_same_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "LARGEST_BATCH_BYTES", 2000)
    state = KeyedState(SPEC, PARTIAL, StateBackend(full_every=10))
    names = [f"key {number}" for number in range(400)]
    state.merge(pa.table([names, hashes_from(0, 400), [1] * 400], schema=PARTIAL))
    full = state.freeze()
    data = full.to_buffer()
    state.merge(pa.table([names[:150], hashes_from(0, 150), [1] * 150], schema=PARTIAL))
    increment = state.freeze().increment(full.version)
    assert increment is not None
    chain = [read_back(data), read_back(increment.data)]
    assert [stored.is_increment for stored in chain] == [False, True]
    together = increments.latest(chain, 1)
    counts = {row["k"]: row["n#count"] for batch in together.batches for row in batch.to_pylist()}
    assert counts == {name: 2 if number < 150 else 1 for number, name in enumerate(names)}


@pytest.mark.slow
def test_a_table_is_cut_so_that_each_slice_is_one_batch() -> None:
    table = pa.Table.from_batches([stored_part.batches[0] for stored_part in stored_parts()])
    with pytest.raises(ValueError, match="cut them before"):
        one_batch(table)
    slices = list(cut(table))
    assert sum(slice_.num_rows for slice_ in slices) == PARTS * ROWS
    assert all(slice_.nbytes < 1 << 30 for slice_ in slices)
