"""Readers of snapshots and of what travels between task managers."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from lockgate_common import arrow_input
from lockgate_proto import messages as m
from lockgate_proto.codec import MalformedMessage, decode, encode
from lockgate_taskmanager.exchange.elements import from_message, to_message
from lockgate_taskmanager.runtime.in_flight import decode_elements, encode_element
from lockgate_taskmanager.spark.functions.object_restore import Owner, restored_value
from lockgate_taskmanager.state.backend import InlineBackend, inline_handle
from lockgate_taskmanager.state.factory import StoreFactory
from lockgate_taskmanager.state.format.split_files import splits_in
from lockgate_taskmanager.state.layout import PANE
from lockgate_taskmanager.state.parts.stored_part import digest, read_index
from lockgate_taskmanager.state.rows.row_store import Rows, RowSpec, distinct
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.state.spec import StateSpec, StoreSpec
from lockgate_taskmanager.task.program import SnapshotOrder, StateUnreadable, UserError

from tests.fuzz.target import Target

_GROUPS = 8
_TABLE = pa.table(
    {
        "word": pa.array(["a", "bc", None, "ä", ""] * 4),
        "n": np.arange(20),
        "some": pa.array([[1, 2], [], None, [3], [4, 5]] * 4),
        "kind": pa.array(["x", "y"] * 10).dictionary_encode(),
    }
)
_COUNTED = m.KeyedAggregate(
    ("k",),
    (
        m.Aggregate("n", m.AggregateFunction.COUNT, ""),
        m.Aggregate("s", m.AggregateFunction.SUM, "v"),
        m.Aggregate("lo", m.AggregateFunction.MIN, "t"),
    ),
)
_PARTIALS = pa.schema(
    [("k", pa.string()), ("__hash", pa.int64()), ("__rows", pa.int64()), ("__p1", pa.int64()), ("__p2", pa.string())]
)
_SIZE_MS = 10
_TRIGGERED = replace(_COUNTED, window=m.Window(m.TriggeredWindow(_SIZE_MS, 0, 3, 1000), "at"))
_OVERLAPPING = replace(_COUNTED, window=m.Window(m.EarlyFiringWindow(2 * _SIZE_MS, _SIZE_MS, 0, False, 3, 1000), "at"))
_WHOLE = SnapshotOrder(is_savepoint=True)


def targets(folder: Path) -> list[Target]:
    """folder: an empty one, for databases."""
    stream, elements = bytes(to_message(_TABLE).arrow_ipc), encode_element(_TABLE)
    splits = encode(m.SourceState(splits=(m.SplitState("part-1", offset=7, end=100), m.SplitState("part-2"))))
    return [
        Target("arrow stream", lambda data: _used(arrow_input.read_stream(data)), [stream], (pa.ArrowInvalid,)),
        Target("arrow file", _arrow_file, [_file(_TABLE)], (pa.ArrowInvalid,)),
        Target("exchange element", _element, _elements(), (pa.ArrowInvalid, MalformedMessage)),
        Target("channel state", _channel, [elements, elements + encode_element(m.Watermark(7))], (StateUnreadable,)),
        Target("splits", lambda data: splits_in([m.StateHandle(inline=data)]), [splits], (StateUnreadable,)),
        Target("object index", _index, [_object_index()], (StateUnreadable,)),
        *_stores(folder),
    ]


_PART = pickle.dumps([1, "a"])


def _object_index() -> bytes:
    parts = (m.StatePart("0", 0, 0, len(_PART), digest(_PART), 2), m.StatePart("1", 0, 0, len(_PART), digest(_PART), 2))
    return encode(m.ObjectIndex(m.ObjectForm.OBJECT_ITEMS, "a.B", 0, 1, parts))


def _index(data: bytes) -> None:
    """No byte is unpickled that is not as it was stored; a share of it may be taken by any subtask."""
    state = m.OperatorState("op", m.StateKind.OBJECT_STATE, inline_handle(data), files=(inline_handle(_PART),))
    for owner in (Owner("op", "operator 'op'", 0, 1), Owner("op", "operator 'op'", 1, 3)):
        restored_value([read_index(state)], m.ObjectState.OBJECT_STATE_SPLIT, owner)


def _used(table: pa.Table) -> None:
    """Every value is looked at: what was let in must not break its reader later."""
    pa.concat_tables([table, table]).combine_chunks()


def _file(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    return bytes(sink.getvalue())


def _arrow_file(data: bytes) -> None:
    file = arrow_input.open_file(data)
    batches = [arrow_input.batch(file, number) for number in range(file.num_record_batches)]
    _used(pa.Table.from_batches(batches, file.schema))


def _elements() -> list[bytes]:
    some = (to_message(_TABLE), m.Barrier(3), m.Watermark(7), m.EndOfInput(), m.LoopProbe())
    return [encode(m.StreamElement(element)) for element in some]


def _element(data: bytes) -> None:
    element = decode(m.StreamElement, data).element
    if isinstance(element, m.RecordBatch):
        _used(from_message(element))


def _channel(data: bytes) -> None:
    for element in decode_elements(pa.py_buffer(data)):
        if isinstance(element, pa.Table):
            _used(element)


def _partials(first: int) -> pa.Table:
    keys = [None, "", *(f"key {number}" for number in range(first, first + 30))]
    hashes = [(number * 0x9E3779B97F4A7C15) % 2**64 - 2**63 for number in range(len(keys))]
    parts: list[Any] = [keys, hashes, [1] * len(keys), list(range(len(keys))), [f"t{number}" for number in hashes]]
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(parts, _PARTIALS, strict=True)], schema=_PARTIALS)


def _stores(folder: Path) -> list[Target]:
    """Keyed state, in memory and in a database, of aggregates, of windows that fire early and of rows by key."""
    counted = StoreSpec("op", _COUNTED, _GROUPS, range(_GROUPS))
    triggered = StoreSpec("op", _TRIGGERED, _GROUPS, range(_GROUPS))
    overlapping = StoreSpec("op", _OVERLAPPING, _GROUPS, range(_GROUPS))
    rows = RowSpec("op", "a test", ("k",), _GROUPS, range(_GROUPS))
    in_memory, in_database = (
        m.StateBackend(m.FilesystemBackend()),
        m.StateBackend(m.RocksdbBackend(memory_bytes=1 << 24)),
    )
    increments = m.StateBackend(m.FilesystemBackend(), full_every=3)
    homes = (
        ("counts in memory", counted, in_memory, _count),
        ("counts by increments", counted, increments, _count),
        ("counts in a database", counted, in_database, _count),
        ("triggered windows in memory", triggered, in_memory, _count_in_windows),
        ("triggered windows by increments", triggered, increments, _count_in_windows),
        ("triggered windows in a database", triggered, in_database, _count_in_windows),
        ("overlapping windows in memory", overlapping, in_memory, _count_in_windows),
        ("overlapping windows in a database", overlapping, in_database, _count_in_windows),
        ("rows in memory", rows, in_memory, _put),
        ("rows in a database", rows, in_database, _put),
    )
    return [
        target
        for number, (name, spec, choice, fill) in enumerate(homes)
        for target in _of_store(name, spec, StoreFactory(choice, ScratchFolder(folder, f"fuzz-{number}-")), fill)
    ]


def _count(store: Any) -> None:
    store.merge(_partials(0))


def _in_windows(partials: pa.Table) -> pa.Table:
    """The same records in two windows, and the hidden count of those that are new."""
    panes = pa.array([_SIZE_MS * (number % 2) for number in range(partials.num_rows)], pa.int64())
    return partials.add_column(2, PANE, panes).append_column("__p3", partials.column("__rows"))


def _count_in_windows(store: Any) -> None:
    store.merge(_in_windows(_partials(0)))


def _fire(store: Any) -> None:
    """Everything that was let in: early by the clock, and at its end."""
    fired = [store.fire_new()]
    while store.has_more:
        fired.append(store.go_on())
    fired.append(store.advance(1 << 40))
    while store.has_more:
        fired.append(store.go_on())
    assert {table.schema for table in fired} == {store.schema}


def _put(store: Any) -> None:
    keys, _ = distinct(_partials(0).select(["k", "__hash"]), ("k",))
    count = len(keys.hashes)
    payloads = pa.array([f"payload {number}".encode() for number in range(count)], pa.binary())
    times = np.arange(count)
    store.put(keys, Rows(payloads, times, times, times + 1_000_000))


def _of_store(name: str, spec: StateSpec, factory: StoreFactory, fill: Callable[[Any], None]) -> list[Target]:
    has_trigger = isinstance(spec, StoreSpec) and spec.trigger is not None
    schema = _in_windows(_PARTIALS.empty_table()).schema if has_trigger else _PARTIALS
    store: Any = factory.fresh(spec, schema)  # type: ignore[call-overload]
    fill(store)
    made = []
    for number, order in ((1, _WHOLE), (2, SnapshotOrder())):
        frozen = store.snapshot(order)
        made.append(frozen.persist(number, InlineBackend(1 << 30).writer(number)))
        frozen.release()
    store.close()

    def target(what: str, state: m.OperatorState) -> Target:
        def feed(data: bytes) -> None:
            damaged = m.OperatorState("op", state.kind, inline_handle(data), files=state.files)
            restored: Any = factory.restored(spec, [damaged], 3)  # type: ignore[call-overload]
            try:
                restored.snapshot(_WHOLE).persist(4, InlineBackend(1 << 30).writer(4))
                if has_trigger:
                    _fire(restored)
            finally:
                restored.close()

        assert state.handle is not None
        return Target(f"{name}, {what}", feed, [state.handle.inline], (StateUnreadable, UserError))

    return [target("a savepoint", made[0]), target("a checkpoint", made[1])]
