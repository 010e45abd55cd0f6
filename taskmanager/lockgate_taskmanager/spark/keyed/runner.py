"""Calls a process function for the keys of a micro-batch. Runs in Spark's Python workers, see `handles`.

in: the records' columns, and INPUT; the rows of a key are adjacent, its payload is in the first of them
out: the columns of the result, and OUTPUT; output rows have no KEY, the other rows are the state of a key

The payload of a key is made of plain values, see `key_payload`. A key without state and timers has none. Where a store
keeps elements apart, changed ones have rows of output as well, behind that of their key: ELEMENT is the name of such an
element, and PAYLOAD its content, NULL when it is removed.
"""

from __future__ import annotations

import pickle
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from operator import itemgetter
from typing import Any

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
    TimerHandle,
    ValueHandle,
    converter,
    optional,
)
from lockgate_taskmanager.state.format.key_payload import MARK, Apart, PlainUnpickler, read, written

KEY, PAYLOAD, EVENT, WALL, EXPIRY = "__key", "__payload", "__event", "__wall", "__expiry"
ELEMENT = "__element"
IS_RECORD, WATERMARK, NOW = "__is_record", "__watermark", "__now"
INPUT = pa.schema(
    [(KEY, pa.int32()), (PAYLOAD, pa.binary()), (IS_RECORD, pa.bool_()), (WATERMARK, pa.int64()), (NOW, pa.int64())]
)
OUTPUT = pa.schema(
    [
        (KEY, pa.int32()),
        (PAYLOAD, pa.binary()),
        (EVENT, pa.int64()),
        (WALL, pa.int64()),
        (EXPIRY, pa.int64()),
        (ELEMENT, pa.binary()),
    ]
)
NEVER = (1 << 63) - 1
UNKNOWN = -(1 << 63)
VALUE, LIST, MAP = "value", "list", "map"
_MARK = MARK[0]
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
        self._values = frozenset(state.name for state in states if state.shape == VALUE)
        self._keys, self._records, self._result = keys, records, result
        self._cells, self._timers = Cells(), TimerHandle(none=without_timers)
        self._context = KeyContext(self._timers)
        self._number: int | None = None  # of the current key
        self._by_element = by_element
        self._apart: dict[str, Apart] = {}  # of the current key
        self._watermark = UNKNOWN
        self._records_of = records_of(records)
        self._names: tuple[str, ...] = tuple(result.names)
        self._columns = frozenset(self._names)
        self._may_change = may_change(result)  # the function may emit an object, and change it afterwards
        self._out: list[list[Any]] = [[] for _ in result]
        self._append = _appender(self._names, self._out, may_change=self._may_change)
        self._starts: list[int] = []  # of each call that emitted rows, the first of them
        self._keys_of_calls: list[Any] = []
        self._causes: list[Cause] = []
        self._kept: list[tuple[int, bytes | None, int | None, int | None, int | None, bytes | None]] = []
        for state in states:
            setattr(function, state.name, self._handle(state))

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The function for Spark."""
        for batch in batches:
            given = batch.select(list(self._records))
            try:
                records = self._records_of(given)
            except UNREADABLE:
                records = iter(careful_records(given))
            about = (batch.column(name).to_pylist() for name in INPUT.names)
            for row, number, payload, is_record, watermark, now_ms in zip(records, *about, strict=True):
                if number != self._number:
                    self._leave()
                    self._enter(number, row, payload, watermark, now_ms)
                if is_record:
                    if isinstance(row, UnreadableRecord):
                        self._refuse(row)
                    else:
                        try:
                            self._emit(self._function.process(self._context, row), row)
                        except _EXITS as error:
                            raise _placed(error, self._context.key, row) from None
            yield from self._flush()
        self._leave()
        yield from self._flush()

    def _refuse(self, record: UnreadableRecord) -> None:
        """The function cannot be called with it."""
        raise record.error()

    def _handle(self, declared: Declared) -> Any:
        state_name = f"state '{declared.name}'"
        if declared.shape == VALUE:
            return ValueHandle(self._cells, declared.name, converter(declared.kind, state_name), declared.ttl_ms)
        if declared.shape == LIST:
            return ListHandle(
                self._cells, declared.name, optional(converter(declared.kind, state_name)), declared.ttl_ms
            )
        keys: Convert = converter(declared.key_kind, f"the key of {state_name}")
        return MapHandle(
            self._cells, declared.name, optional(converter(declared.kind, state_name)), declared.ttl_ms, keys
        )

    def _enter(self, number: int, row: dict[str, Any], payload: bytes | None, watermark: int, now_ms: int) -> None:
        names = self._keys
        self._number, self._watermark = number, watermark
        context = self._context
        context.key = row[names[0]] if len(names) == 1 else tuple(row[name] for name in names)
        context.watermark = None if watermark == UNKNOWN else watermark
        context.now_ms = now_ms
        if payload is None or payload[0] == _MARK:
            content, event, wall, self._apart = read(payload)
        else:  # as most: without a call around it
            content, event, wall = PlainUnpickler(BytesIO(payload)).load()
            self._apart = {}
        self._cells.content, self._cells.now_ms = content, now_ms
        self._cells.is_changed = False
        self._timers.enter(event, wall)
        for name, found in content.items():
            if name not in self._values or found[1]:  # else it stays, as most does
                self._drop_what_is_over(now_ms)
                break

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

    def _leave(self) -> None:
        """Fires the timers of the current key that are due, and records its state if it has changed."""
        if self._number is None:
            return
        timers = self._timers
        if self._watermark == NEVER:  # the end of the input: timers set by these calls would never end
            for time_ms in list(timers.event):
                if time_ms in timers.event:
                    timers.delete_event_time(time_ms)
                    self._on_timer(TimerEvent(time_ms, True))
        else:
            if timers.event:
                self._fire(timers.event, self._watermark, True)
        if timers.wall:
            self._fire(timers.wall, self._context.now_ms, False)
        if self._cells.is_changed or timers.is_changed:
            self._keep(self._number)
        self._number = None

    def _fire(self, times: list[int], now_ms: int, is_event_time: bool) -> None:
        """In order of time; a timer set meanwhile for a time that is not later has to wait, or this might never end."""
        last: int | None = None
        while (time_ms := self._timers.take_due(times, now_ms, last)) is not None:
            last = time_ms
            self._on_timer(TimerEvent(time_ms, is_event_time))

    def _on_timer(self, timer: TimerEvent) -> None:
        try:
            self._emit(self._function.on_timer(self._context, timer), timer)
        except _EXITS as error:
            raise _placed(error, self._context.key, timer) from None

    def _keep(self, number: int) -> None:
        """Records payload, earliest timers and expiry time of the current key, and its elements that have changed."""
        content, timers = self._cells.content, self._timers
        if not content and not timers.event and not timers.wall:
            self._kept.append((number, None, NEVER, NEVER, NEVER, None))
            return
        event, wall = timers.event[0] if timers.event else NEVER, timers.wall[0] if timers.wall else NEVER
        expiry = self._expiry() if event == wall == NEVER else NEVER
        payload, elements = written(content, timers.event, timers.wall, self._apart, self._by_element)
        self._kept.append((number, payload, event, wall, expiry, None))
        if elements:
            self._kept += ((number, value, None, None, None, name) for name, value in elements)

    def _expiry(self) -> int:
        last = 0
        for name, found in self._cells.content.items():
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
        place, columns, append = len(self._out[0]), self._columns, self._append
        for row in (emitted,) if type(emitted) is dict or isinstance(emitted, Mapping) else emitted:
            if type(row) is dict and row.keys() == columns:  # as most
                append(row)
            else:
                append(self._as_dict(row, cause))
        if len(self._out[0]) > place:
            self._starts.append(place)  # no tuples: the garbage collector would go through them
            self._keys_of_calls.append(self._context.key)
            self._causes.append(cause)

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
        raise TypeError(f"{text}{_place(self._context.key, cause)}")

    def _flush(self) -> Iterator[pa.RecordBatch]:
        count = len(self._out[0])
        if count:
            columns = self._columns_of_output()
            rest = [pa.nulls(count, field.type) for field in OUTPUT]
            table = pa.Table.from_arrays([*columns, *rest], names=[*self._result.names, *OUTPUT.names])
            yield from table.to_batches()  # several if a column is longer than 2 GiB
            for collected in (*self._out, self._starts, self._keys_of_calls, self._causes):
                collected.clear()
        if self._kept:
            rest = [pa.nulls(len(self._kept), field.type) for field in self._result]
            parts = zip(zip(*self._kept, strict=True), OUTPUT, strict=True)
            columns = [pa.array(values, field.type) for values, field in parts]
            yield pa.RecordBatch.from_arrays([*rest, *columns], names=[*self._result.names, *OUTPUT.names])
            self._kept.clear()

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
            call = bisect_right(self._starts, index) - 1
            raise TypeError(f"{reason}{_place(self._keys_of_calls[call], self._causes[call])}")
        return made


def _appender(
    names: tuple[str, ...], columns: list[list[Any]], *, may_change: bool
) -> Callable[[Mapping[str, Any]], object]:
    """Appends the values of a row to the columns. Compiled, as `records_of` is: a loop takes twice as long.

    may_change: values are copied, since the function may change them afterwards.
    """
    value = "copied(row[{name!r}])" if may_change else "row[{name!r}]"
    calls = "".join(f"_{index}({value.format(name=name)}), " for index, name in enumerate(names))
    places = {f"_{index}": column.append for index, column in enumerate(columns)}
    made: Callable[[Mapping[str, Any]], object] = eval(f"lambda row: ({calls})", {"copied": copied, **places})
    return made


def _place(key: Any, cause: Cause) -> str:
    """Which call emitted it, for messages."""
    if isinstance(cause, TimerEvent):
        kind = "event" if cause.is_event_time else "processing"
        return f"; the key: {shown(key)}; the timer: {cause.time_ms} ms of {kind} time"
    return f"; the key: {shown(key)}; the record: {shown(cause)}"


def _placed(error: BaseException, key: Any, cause: Cause) -> BaseException:
    """The same with the call, in one line, because only the last one of a traceback is the error's."""
    text = " ".join(f"{error}{_place(key, cause)}".split()).removeprefix("; ")
    kind = next((exit_ for exit_ in _EXITS if isinstance(error, exit_)), type(error))  # an author's own may take more
    return kind(text).with_traceback(error.__traceback__)


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
