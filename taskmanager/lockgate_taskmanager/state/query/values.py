"""What the rows of a key mean, as JSON objects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from lockgate_proto.messages import KeyedAggregate, SessionWindow

from lockgate_taskmanager.state.about import About
from lockgate_taskmanager.state.columns.aggregate_columns import AggregateColumns
from lockgate_taskmanager.state.format import key_payload
from lockgate_taskmanager.state.format.state_file import PAYLOAD
from lockgate_taskmanager.state.layout import (
    FIRST_TIME,
    HASH,
    LAST_TIME,
    PANE,
    WINDOW_END,
    WINDOW_START,
)
from lockgate_taskmanager.state.query.identity import QuerySpec
from lockgate_taskmanager.state.query.key_text import plain, row_json
from lockgate_taskmanager.state.rows import deduplicate
from lockgate_taskmanager.state.rows.row_store import EXPIRY, RowSpec
from lockgate_taskmanager.state.windows.shape import rows_shape_of
from lockgate_taskmanager.task.program import StateUnreadable

Json = dict[str, Any]


def value_of(spec: QuerySpec, about: About, rows: pa.RecordBatch, now_ms: int) -> Json | None:
    """The value of one key; None when nothing of it is left. Raises StateUnreadable.

    rows: its rows; now_ms: wall clock. An aggregate has `values`, its outputs; `windows` are those of each one that is
    still open; a deduplication has `{"known": true}`; a process function has `states` by name.
    """
    if isinstance(spec, RowSpec):
        if rows.column(EXPIRY)[0].as_py() <= now_ms:
            return None
        if spec.owner == deduplicate.OWNER:
            return {"known": True}
        states = _states(spec.operator_id, rows.column(PAYLOAD)[0].as_py(), now_ms)
        return {"states": states} if states else None
    window = spec.aggregation.window
    if window is None:
        columns = _columns(spec.aggregation, about, rows)
        return {"values": row_json([field.name for field in columns.fields], columns.results(np.arange(1)))}
    group = rows.column(HASH)[0].as_py() % spec.max_parallelism
    watermark = next((time for first, behind, time in about.ahead if first <= group < behind), about.watermark)
    kind = window.kind
    found = _sessions(spec, kind, about, rows) if isinstance(kind, SessionWindow) else _panes(spec, about, rows)
    windows = [item for item in found if item[WINDOW_END] > watermark + 1]
    return {"windows": windows} if windows else None


def _columns(operator: KeyedAggregate, about: About, rows: pa.RecordBatch) -> AggregateColumns:
    columns = AggregateColumns(operator, about.partial_schema)
    columns.reserve(rows.num_rows)
    first = rows.schema.get_field_index(HASH) + 1
    columns.restore([rows.select(range(first, rows.num_columns))])
    return columns


def _sessions(spec: QuerySpec, kind: SessionWindow, about: About, rows: pa.RecordBatch) -> list[Json]:
    assert not isinstance(spec, RowSpec)
    columns = _columns(spec.stored, about, rows)
    names = [field.name for field in columns.fields]
    results = columns.results(np.arange(rows.num_rows))
    found = []
    for row in range(rows.num_rows):
        outputs = row_json(names, results, row)
        first, last = outputs.pop(FIRST_TIME), outputs.pop(LAST_TIME)
        found.append({WINDOW_START: first, WINDOW_END: last + kind.gap_ms, **outputs})
    return sorted(found, key=lambda window: window[WINDOW_START])


def _panes(spec: QuerySpec, about: About, rows: pa.RecordBatch) -> list[Json]:
    assert not isinstance(spec, RowSpec)
    assert spec.aggregation.window is not None
    shape = rows_shape_of(spec.aggregation.window)
    columns = _columns(spec.stored, about, rows)
    ends_of = [list(shape.ends(pane)) for pane in rows.column(PANE).to_pylist()]
    ends = sorted({end for some in ends_of for end in some})
    places = {end: place for place, end in enumerate(ends)}
    pieces = [
        (np.array([places[end] for end in some], np.int64), np.full(len(some), row, np.int64))
        for row, some in enumerate(ends_of)
    ]
    total = columns.added_up(pieces, len(ends))
    results = total.results(np.arange(len(ends)))[: len(spec.aggregation.aggregates)]
    names = [aggregate.output for aggregate in spec.aggregation.aggregates]
    return [
        {WINDOW_START: shape.opening(end), WINDOW_END: end, **row_json(names, results, place)}
        for end, place in places.items()
    ]


def _states(operator_id: str, payload: bytes, now_ms: int) -> Json:
    """The states of a key. A payload has plain values only, and is read as such: no code of a job runs here."""
    try:
        content = key_payload.read(payload).states
        return {name: value for name, kept in content.items() if (value := _state(kept, now_ms)) is not None}
    except Exception as error:  # whatever bytes make of the reader
        raise StateUnreadable(f"the state of operator {operator_id} cannot be read: {str(error)[:200]}") from error


def _state(kept: Any, now_ms: int) -> Any:
    """A value, a list of values, or a list of pairs of a map; None when all of it has expired."""
    if isinstance(kept, tuple):
        return plain(kept[0]) if _lives(kept, now_ms) else None
    if isinstance(kept, list):
        return [plain(entry[0]) for entry in kept if _lives(entry, now_ms)] or None
    pairs = [[plain(key), plain(entry[0])] for key, entry in kept.items() if _lives(entry, now_ms)]
    return pairs or None


def _lives(entry: tuple[Any, int], now_ms: int) -> bool:
    return not entry[1] or entry[1] > now_ms
