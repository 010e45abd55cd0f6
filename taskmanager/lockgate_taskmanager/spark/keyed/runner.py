"""Calls a process function for the keys of a micro-batch. Runs in Spark's Python workers, see `handles`.

in: a batch of VISITS, a row for each key with its columns in front; behind it the records of these keys, key after
    key; then the next such batch
out: batches of the function's result, of ROWS: the state of keys, and of ELEMENTS

The payload of a key is made of plain values, see `key_payload`. A key without state and timers has none. Where a store
keeps elements apart, changed ones have rows of their own: ELEMENT is the name of such an element, and PAYLOAD its
content, NULL when it is removed. They come behind the rows of their keys.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from lockgate_taskmanager.spark.functions.rows import (
    UNREADABLE,
    Record,
    UnreadableRecord,
    WrongResult,
    careful_records,
    copied,
    may_change,
    records_of,
    shown,
)
from lockgate_taskmanager.spark.functions.rows import array_of as fitted
from lockgate_taskmanager.spark.keyed.handles import (
    Cells,
    Convert,
    ListHandle,
    MapHandle,
    NumberHandle,
    TimerHandle,
    ValueHandle,
    converter,
    optional,
)
from lockgate_taskmanager.spark.keyed.ipc_batches import ROWS_AT_ONCE, batches_of
from lockgate_taskmanager.spark.raised import mark
from lockgate_taskmanager.state.format.key_payload import Apart, read, written
from lockgate_taskmanager.state.format.packed_payloads import NEVER, Packing

KEY, PAYLOAD, EVENT, WALL, EXPIRY = "__key", "__payload", "__event", "__wall", "__expiry"
ELEMENT = "__element"
COUNT, WATERMARK, NOW = "__lockgate_count", "__watermark", "__now"
VISITS = pa.schema([(PAYLOAD, pa.binary()), (COUNT, pa.int64()), (WATERMARK, pa.int64()), (NOW, pa.int64())])
"""COUNT: of its records, none where only timers are due."""
ROWS = pa.schema(
    [(KEY, pa.int32()), (PAYLOAD, pa.binary()), (EVENT, pa.int64()), (WALL, pa.int64()), (EXPIRY, pa.int64())]
)
"""KEY: the number of its visit."""
ELEMENTS = pa.schema([(KEY, pa.int32()), (ELEMENT, pa.binary()), (PAYLOAD, pa.binary())])
UNKNOWN = -(1 << 63)
VALUE, LIST, MAP = "value", "list", "map"
_CODES = {
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32(), pa.int64()), "q"),
    **dict.fromkeys((pa.float32(), pa.float64()), "d"),
    pa.bool_(): "?",
}
"""Of `struct`, for the values of states."""
_EXITS = (SystemExit, KeyboardInterrupt)


@dataclass(frozen=True)
class Declared:
    """A state of a function. shape: VALUE, LIST or MAP; key_kind: of the keys of a map."""

    name: str
    shape: str
    kind: pa.DataType
    key_kind: pa.DataType | None
    ttl_ms: int


@dataclass(frozen=True)
class TimerEvent:
    """A timer that fires, as the function sees it."""

    time_ms: int
    is_event_time: bool


Cause = Record | TimerEvent
"""What the function was called for."""


class KeyContext:
    """What a call of the function can access: its key, state, timers and times."""

    def __init__(self, timers: TimerHandle) -> None:
        self.key: Any = None
        self.watermark: int | None = None
        self.now_ms = 0
        self.timers = timers


class Runner:
    """One function over the batches of one task."""

    def __init__(
        self,
        function: Any,
        states: tuple[Declared, ...],
        keys: tuple[str, ...],
        records: tuple[str, ...],
        result: pa.Schema,
        without_timers: bool = False,
        by_element: bool = False,
    ) -> None:
        """records: the columns of the records; result: the columns that the function emits; by_element: whether the
        store keeps elements of maps and lists apart.
        """
        self._function, self._states = function, {state.name: state for state in states}
        self._packing = _packing(states)
        self._has_no_ttl = not any(state.ttl_ms for state in states)
        self._values = frozenset(state.name for state in states if state.shape == VALUE)
        self._keys, self._records, self._result = keys, records, result
        self._cells, self._timers = Cells(), TimerHandle(none=without_timers)
        self._context = KeyContext(self._timers)
        self._by_element = by_element
        self._visited = 0  # keys of earlier batches
        self._apart: dict[str, Apart] = {}  # of the current key
        self._watermark = UNKNOWN
        self._records_of = records_of(records)
        self._names: tuple[str, ...] = tuple(result.names)
        self._columns = frozenset(self._names)
        self._may_change = may_change(result)  # the function may emit an object, and change it afterwards
        self._out: list[list[Any]] = [[] for _ in result]
        self._causes: list[Cause] = []  # of each row; no tuples: the garbage collector would go through them
        self._keys_of_rows: list[Any] = []
        columns = (*self._out, self._causes, self._keys_of_rows)
        self._append = _appender(self._names, columns, may_change=self._may_change)
        self._kept: list[tuple[int, bytes | None, int, int, int]] = []
        self._numbers: dict[str, NumberHandle] = {}  # all states, if they can be packed
        self._to_pack: list[int] = []  # places of keys that have perhaps all of them
        self._keys_at_once = max(1, ROWS_AT_ONCE // max(1, len(states)))
        self._elements: list[tuple[int, bytes, bytes | None]] = []
        for state in states:
            setattr(function, state.name, self._handle(state))

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The function for Spark."""
        for visits in batches:
            yield from self._visit_keys(visits, chain.from_iterable(map(self._records_in, batches)))
            yield from self._flush()
            self._visited += visits.num_rows

    def _visit_keys(self, visits: pa.RecordBatch, records: Iterator[Record]) -> Iterator[pa.RecordBatch]:
        """One loop, without calls for what is usual: many keys have a single record, and states that are numbers."""
        counts, watermarks, times = (visits.column(name).to_pylist() for name in (COUNT, WATERMARK, NOW))
        context, timers, cells, process = self._context, self._timers, self._cells, self._function.process
        width, append, rows, places = len(self._names), self._append, self._causes, self._to_pack
        payloads, lasts = self._read(visits.column(PAYLOAD))
        for place, (key, payload, count, watermark, now_ms) in enumerate(
            zip(self._keys_in(visits), payloads, counts, watermarks, times, strict=True)
        ):
            context.key = key
            cells.row = place
            if watermark != self._watermark or now_ms != cells.now_ms:
                self._set_times(watermark, now_ms)
            if lasts and payload is None and not (timers.event or timers.wall or timers.is_changed):
                cells.is_changed = False
            else:
                self._enter(payload)
            for record in islice(records, count):
                if type(record) is UnreadableRecord:
                    self._refuse(record)
                    continue
                try:
                    emitted = process(context, record)
                    if type(emitted) is dict and len(emitted) == width:  # as most
                        try:
                            append(emitted, record, key)
                        except KeyError:
                            self._emit(emitted, record)
                    elif emitted is not None:
                        self._emit(emitted, record)
                except BaseException as error:
                    _noted(error, key, record)
                    raise
            if cells.is_changed or timers.is_changed or timers.event or timers.wall:
                self._leave(place)
            if len(rows) >= ROWS_AT_ONCE or len(places) >= self._keys_at_once:
                yield from self._flush()

    def _records_in(self, batch: pa.RecordBatch) -> Iterator[Record]:
        """Those that Python cannot hold are UnreadableRecords."""
        try:
            return self._records_of(batch)
        except UNREADABLE:
            return iter(careful_records(batch))

    def _keys_in(self, visits: pa.RecordBatch) -> Iterable[Any]:
        """A value, or a tuple of them if there are several columns; text in place of what Python cannot hold."""
        columns = visits.select(list(self._keys))
        try:
            values = [column.to_pylist() for column in columns.columns]
        except UNREADABLE:
            rows = careful_records(columns)
            values = [[row[name] for row in rows] for name in self._keys]
        return values[0] if len(values) == 1 else zip(*values, strict=True)

    def _refuse(self, record: UnreadableRecord) -> None:
        """The function cannot be called with it."""
        raise record.error()

    def _handle(self, declared: Declared) -> Any:
        cells, name, ttl_ms = self._cells, declared.name, declared.ttl_ms
        state_name = f"state '{name}'"
        convert = converter(declared.kind, state_name)
        if self._packing is not None:
            self._numbers[name] = NumberHandle(cells, convert, ttl_ms)
            return self._numbers[name]
        if declared.shape == VALUE:
            return ValueHandle(cells, name, convert, ttl_ms)
        if declared.shape == LIST:
            return ListHandle(cells, name, optional(convert), ttl_ms)
        keys: Convert = converter(declared.key_kind, f"the key of {state_name}")
        return MapHandle(cells, name, optional(convert), ttl_ms, keys)

    def _read(self, payloads: pa.Array) -> tuple[list[bytes | None], bool]:
        """What has to be read key by key, and whether nothing of the rest expires: that is in the columns."""
        if self._packing is None:
            return payloads.to_pylist(), False
        found = self._packing.read(payloads)
        for number, values, expiries in zip(self._numbers.values(), found.values, found.expiries, strict=True):
            number.column, number.expiries = values, expiries
        return found.others, found.lasts and self._has_no_ttl

    def _set_times(self, watermark: int, now_ms: int) -> None:
        self._watermark = watermark
        self._context.watermark = None if watermark == UNKNOWN else watermark
        self._context.now_ms = self._cells.now_ms = now_ms

    def _enter(self, payload: bytes | None) -> None:
        """The current key. payload: None if there is none, or its state is in the columns."""
        cells = self._cells
        content, event, wall, self._apart = read(payload)
        self._timers.enter(event, wall)
        cells.content, cells.is_changed = content, False
        for name, found in content.items():
            if name not in self._values or found[1]:  # else it stays, as most does
                self._drop_what_is_over(cells.now_ms)
                break
        if self._packing is not None:
            self._enter_numbers(content)

    def _enter_numbers(self, content: dict[str, Any]) -> None:
        """content: empty if it is in the columns."""
        row, now_ms = self._cells.row, self._cells.now_ms
        for name, (value, expiry) in content.items():
            number = self._numbers[name]
            number.column[row], number.expiries[row] = value, expiry
        for number in () if content else self._numbers.values():
            if 0 < number.expiries[row] <= now_ms:
                number.clear()

    def _drop_what_is_over(self, now_ms: int) -> None:
        for name, found in list(self._cells.content.items()):
            declared = self._states.get(name)
            if declared is None:  # left by an earlier function
                self._cells.set(name, None)
            elif declared.shape == VALUE:
                if 0 < found[1] <= now_ms:
                    self._cells.set(name, None)
            elif declared.shape == LIST:
                kept: Any = [entry for entry in found if not 0 < entry[1] <= now_ms]
                if len(kept) < len(found):
                    self._cells.set(name, kept)
            else:
                kept = {key: entry for key, entry in found.items() if not 0 < entry[1] <= now_ms}
                if len(kept) < len(found):
                    self._cells.set(name, kept)

    def _fire_due(self) -> None:
        """The timers of the current key that are due."""
        timers = self._timers
        if self._watermark == NEVER:  # the end of the input: timers set by these calls would never end
            for time_ms in list(timers.event):
                if time_ms in timers.event:
                    timers.delete_event_time(time_ms)
                    self._on_timer(TimerEvent(time_ms, True))
        elif timers.event:
            self._fire(timers.event, self._watermark, True)
        if timers.wall:
            self._fire(timers.wall, self._context.now_ms, False)

    def _fire(self, times: list[int], now_ms: int, is_event_time: bool) -> None:
        """In order of time; a timer set meanwhile for a time that is not later has to wait, or this might never end."""
        last: int | None = None
        while (time_ms := self._timers.take_due(times, now_ms, last)) is not None:
            last = time_ms
            self._on_timer(TimerEvent(time_ms, is_event_time))

    def _on_timer(self, timer: TimerEvent) -> None:
        try:
            self._emit(self._function.on_timer(self._context, timer), timer)
        except BaseException as error:
            _noted(error, self._context.key, timer)
            raise

    def _leave(self, place: int) -> None:
        """Fires what is due of the current key, and keeps its state if that has changed."""
        timers = self._timers
        if timers.event or timers.wall:
            self._fire_due()
            if not (self._cells.is_changed or timers.is_changed):
                return
        if self._packing is None or timers.event or timers.wall:
            self._keep(place, timers.event, timers.wall)
        else:
            self._to_pack.append(place)

    def _keep(self, place: int, event: list[int], wall: list[int]) -> None:
        """Pickles the state of a key, with its timers."""
        content, apart, number = self._cells.content, self._apart, self._visited + place
        if self._packing is not None:
            apart = {}  # of states that are declared no longer
            content = {
                name: (value, state.expiries[place])
                for name, state in self._numbers.items()
                if (value := state.column[place]) is not None
            }
        if not content and not event and not wall:
            self._kept.append((number, None, NEVER, NEVER, NEVER))
            return
        payload, elements = written(content, event, wall, apart, self._by_element)
        expiry = NEVER if event or wall else self._expiry(content)
        self._kept.append((number, payload, event[0] if event else NEVER, wall[0] if wall else NEVER, expiry))
        if elements:
            self._elements += ((number, name, value) for name, value in elements)

    def _pack(self, packing: Packing) -> Iterator[pa.RecordBatch]:
        """The states of keys that have all of them; those of the others are pickled."""
        states = self._numbers.values()
        lacking = {place for state in states for place in self._to_pack if state.column[place] is None}
        for place in sorted(lacking):
            self._keep(place, [], [])
        places = [place for place in self._to_pack if place not in lacking] if lacking else self._to_pack
        packed = packing.written([state.column for state in states], [state.expiries for state in states], places)
        numbers, never = np.array(places, np.int64) + self._visited, np.full(len(places), NEVER)
        yield from _columns((numbers, packed.payloads, never, never, packed.expiries), ROWS)
        self._to_pack.clear()

    def _expiry(self, content: dict[str, Any]) -> int:
        """When the last entry of a key expires."""
        last = 0
        for name, found in content.items():
            shape = self._states[name].shape
            entries = (found,) if shape == VALUE else found if shape == LIST else found.values()
            for _, expiry in entries:
                if not expiry:
                    return NEVER
                last = max(last, expiry)
        return last

    def _emit(self, emitted: Any, cause: Cause) -> None:
        if emitted is None:
            return
        columns, append, key = self._columns, self._append, self._context.key
        for row in (emitted,) if type(emitted) is dict or isinstance(emitted, Mapping) else emitted:
            is_whole = type(row) is dict and row.keys() == columns  # as most
            append(row if is_whole else self._as_dict(row, cause), cause, key)

    def _as_dict(self, row: Any, cause: Cause) -> dict[str, Any]:
        """A row of another shape, with every column. Raises TypeError for what is none."""
        names = self._names
        if isinstance(row, tuple | list) and len(row) == len(names):
            return dict(zip(names, row, strict=True))
        if isinstance(row, Mapping):
            if row.keys() <= self._columns:
                return {name: row.get(name) for name in names}
            other = next(name for name in row if name not in self._columns)
            text = f"the function emitted a column '{other}' that its schema does not have"
        else:
            text = f"the function emitted {shown(row)}, but its schema has {len(names)} columns"
        raise TypeError(f"{text}{_place(self._context.key, cause)}") from None  # not from the KeyError of `append`

    def _flush(self) -> Iterator[pa.RecordBatch]:
        if self._causes:
            yield from batches_of(pa.Table.from_arrays(self._columns_of_output(), names=self._result.names))
            for collected in (*self._out, self._causes, self._keys_of_rows):
                collected.clear()
        if self._to_pack and self._packing is not None:
            yield from self._pack(self._packing)
        yield from flushed(self._kept, ROWS)
        yield from flushed(self._elements, ELEMENTS)

    def _columns_of_output(self) -> list[pa.Array | pa.ChunkedArray]:
        """Raises TypeError for the first row that does not fit: its key, and what it was emitted for."""
        made, wrong = [], list[tuple[int, TypeError]]()
        for values, field in zip(self._out, self._result, strict=True):
            try:
                made.append(fitted(values, field))
            except WrongResult as error:
                wrong.append((error.index, _misfit(error, field)))
        if wrong:
            index, reason = min(wrong, key=itemgetter(0))
            raise TypeError(f"{reason}{_place(self._keys_of_rows[index], self._causes[index])}")
        return made


def _packing(states: tuple[Declared, ...]) -> Packing | None:
    """If all of them are single numbers."""
    plain = (state for state in states if state.shape == VALUE and state.name.isidentifier())
    codes = {state.name: _CODES.get(state.kind) for state in plain}
    known = {name: code for name, code in codes.items() if code is not None}
    return Packing(known) if states and len(known) == len(states) else None


def flushed(rows: list[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows as batches, none of no rows; the list is empty afterwards."""
    if rows:
        yield from _columns(zip(*rows, strict=True), schema)
        rows.clear()


def _columns(columns: Iterable[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return batches_of(pa.Table.from_arrays(arrays, schema=schema))


def _appender(
    names: tuple[str, ...], columns: Sequence[list[Any]], *, may_change: bool
) -> Callable[[Mapping[str, Any], Cause, Any], object]:
    """Appends the values of a row, its cause and its key to the columns; nothing if it raises KeyError. Compiled, as
    `records_of` is: a loop takes twice as long.

    may_change: values are copied, since the function may change them afterwards.
    """
    value = "copied(row[{name!r}])" if may_change else "row[{name!r}]"
    taken = "".join(f"(_{index} := {value.format(name=name)}), " for index, name in enumerate(names))
    arguments = (*(f"_{index}" for index in range(len(names))), "cause", "key")
    added = ", ".join(f"to_{index}({argument})" for index, argument in enumerate(arguments))
    places = {f"to_{index}": column.append for index, column in enumerate(columns)}
    made: Callable[[Mapping[str, Any], Cause, Any], object] = eval(
        f"lambda row, cause, key: ({taken}{added})", {"copied": copied, **places}
    )
    return made


def _place(key: Any, cause: Cause) -> str:
    """Which call emitted it, for messages."""
    if isinstance(cause, TimerEvent):
        kind = "event" if cause.is_event_time else "processing"
        return f"; the key: {shown(key)}; the timer: {cause.time_ms} ms of {kind} time"
    return f"; the key: {shown(key)}; the record: {shown(cause)}"


def _noted(error: BaseException, key: Any, cause: Cause) -> None:
    """Marks an error of the author's code. Of one that ends a process, raises the same with the call, in one line,
    because only the last one of a traceback is the error's.
    """
    if not isinstance(error, _EXITS):
        return mark(error)
    text = " ".join(f"{error}{_place(key, cause)}".split()).removeprefix("; ")
    kind = next((exit_ for exit_ in _EXITS if isinstance(error, exit_)), type(error))  # an author's own may take more
    raise kind(text).with_traceback(error.__traceback__) from None


def calling(
    function: bytes,
    states: tuple[Declared, ...],
    keys: tuple[str, ...],
    records: tuple[str, ...],
    result: pa.Schema,
    without_timers: bool = False,
    by_element: bool = False,
    kind: type[Runner] = Runner,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for Spark. function: pickled; kind: Runner, or derived from it; others as for it."""

    def call(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return kind(pickle.loads(function), states, keys, records, result, without_timers, by_element).run(batches)

    return call


def array_of(values: list[Any], field: pa.Field) -> pa.Array | pa.ChunkedArray:
    """Emitted values as a column. Raises TypeError that names it."""
    try:
        return fitted(values, field)
    except WrongResult as error:
        raise _misfit(error, field) from None


def _misfit(error: WrongResult, field: pa.Field) -> TypeError:
    return TypeError(
        f"the function emitted a value for column '{field.name}' that is not of type {field.type}: {error.value}"
    )
