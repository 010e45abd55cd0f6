"""State and timers of the current key, as a process function sees them.

Runs in Spark's Python workers, which need no installation of Lockgate: the module travels with the function and imports
only the standard library, pyarrow, and names of modules that travel with it.
"""

from __future__ import annotations

import operator
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from functools import partial
from struct import pack, unpack
from typing import Any

import pyarrow as pa

from lockgate_taskmanager.spark.functions.kept import are_kept
from lockgate_taskmanager.spark.functions.rows import shown

Entry = tuple[Any, int]  # a value, and when it expires (milliseconds since 1970; 0: it does not)
Convert = Callable[[Any], Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FARTHEST_MS = 1 << 62
_DOUBLE_BITS = 64
_CONTAINERS = frozenset({dict, list, tuple})
_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], type[Any]], ...] = (
    (pa.types.is_integer, int),
    (pa.types.is_float64, float),
    (pa.types.is_boolean, bool),
    (pa.types.is_string, str),
    (pa.types.is_binary, bytes),
    (pa.types.is_date, date),
    (pa.types.is_timestamp, datetime),
)
"""Types of values that Arrow keeps in columns of such types."""


class Cells:
    """All state of one key by name: an entry, a list of entries, or a dict of entries. Never empty ones.

    row: the place of the key in the columns of NumberHandles, whose states are not in `content`.
    """

    def __init__(self) -> None:
        self.content: dict[str, Any] = {}
        self.is_changed = False
        self.now_ms = 0
        self.row = 0

    def set(self, name: str, content: Any) -> None:
        """Replaces the content of a state; None, an empty list or an empty dict removes it."""
        self.is_changed = True
        if content:
            self.content[name] = content
        else:
            self.content.pop(name, None)


class _Handle:
    def __init__(self, cells: Cells, name: str, convert: Convert, ttl_ms: int) -> None:
        self._cells, self._name, self._convert, self._ttl_ms = cells, name, convert, ttl_ms

    def clear(self) -> None:
        if self._name in self._cells.content:
            self._cells.set(self._name, None)

    def _entry(self, value: Any) -> Entry:
        return self._convert(value), self._cells.now_ms + self._ttl_ms if self._ttl_ms else 0


class ValueHandle(_Handle):
    """One value of the current key, or none."""

    def get(self, default: Any = None) -> Any:
        entry = self._cells.content.get(self._name)
        if entry is None:
            return default
        value = entry[0]
        return _copied(value) if type(value) in _CONTAINERS else value

    def set(self, value: Any) -> None:
        if value is None:
            self.clear()
        else:
            cells, ttl_ms = self._cells, self._ttl_ms  # each call counts here: most functions do this for each record
            cells.content[self._name] = self._convert(value), cells.now_ms + ttl_ms if ttl_ms else 0
            cells.is_changed = True

    def exists(self) -> bool:
        return self._name in self._cells.content


class NumberHandle:
    """One number of the current key, or none: as ValueHandle, with the values of all keys of a batch in columns, so
    that no object is made for each key.

    column, expiries: with None and 0 where a key has no value.
    """

    def __init__(self, cells: Cells, convert: Convert, ttl_ms: int) -> None:
        self._cells, self._convert, self._ttl_ms = cells, convert, ttl_ms
        self.column: list[Any] = []
        self.expiries: list[int] = []

    def get(self, default: Any = None) -> Any:
        value = self.column[self._cells.row]
        return default if value is None else value

    def set(self, value: Any) -> None:
        if value is None:
            self.clear()
        else:
            cells, ttl_ms = self._cells, self._ttl_ms
            row = cells.row
            self.column[row] = self._convert(value)
            self.expiries[row] = cells.now_ms + ttl_ms if ttl_ms else 0
            cells.is_changed = True

    def clear(self) -> None:
        cells = self._cells
        if self.column[cells.row] is not None:
            self.column[cells.row], self.expiries[cells.row], cells.is_changed = None, 0, True

    def exists(self) -> bool:
        return self.column[self._cells.row] is not None


class ListHandle(_Handle):
    """A list of values of the current key."""

    def get(self) -> list[Any]:
        return [_copied(value) for value, _ in self._cells.content.get(self._name, ())]

    def set(self, values: Iterable[Any]) -> None:
        self._cells.set(self._name, [self._entry(value) for value in values])

    def append(self, value: Any) -> None:
        self.extend((value,))

    def extend(self, values: Iterable[Any]) -> None:
        added = [self._entry(value) for value in values]
        if added:
            entries = self._cells.content.get(self._name, [])
            entries += added
            self._cells.set(self._name, entries)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def __len__(self) -> int:
        return len(self._cells.content.get(self._name, ()))


class MapHandle(_Handle):
    """A map of values of the current key."""

    def __init__(self, cells: Cells, name: str, convert: Convert, ttl_ms: int, convert_key: Convert) -> None:
        super().__init__(cells, name, convert, ttl_ms)
        self._convert_key = convert_key

    def get(self, key: Any, default: Any = None) -> Any:
        entry = self._entries().get(self._convert_key(key))
        return default if entry is None else _copied(entry[0])

    def keys(self) -> list[Any]:
        return list(self._entries())

    def values(self) -> list[Any]:
        return [_copied(value) for value, _ in self._entries().values()]

    def items(self) -> list[tuple[Any, Any]]:
        return [(key, _copied(value)) for key, (value, _) in self._entries().items()]

    def __getitem__(self, key: Any) -> Any:
        return _copied(self._entries()[self._convert_key(key)][0])

    def __setitem__(self, key: Any, value: Any) -> None:
        entries = self._entries()
        entries[self._convert_key(key)] = self._entry(value)
        self._cells.set(self._name, entries)

    def __delitem__(self, key: Any) -> None:
        entries = self._entries()
        del entries[self._convert_key(key)]
        self._cells.set(self._name, entries)

    def __contains__(self, key: Any) -> bool:
        return self._convert_key(key) in self._entries()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self._entries())

    def _entries(self) -> dict[Any, Entry]:
        found: dict[Any, Entry] = self._cells.content.get(self._name, {})
        return found


class TimerHandle:
    """The timers of the current key. Each list is sorted and has no duplicates."""

    def __init__(self, *, none: bool = False) -> None:
        """none: no timer may be set."""
        self.event: list[int] = []
        self.wall: list[int] = []
        self.is_changed = False
        self._none = none

    def enter(self, event: list[int], wall: list[int]) -> None:
        """The timers of another key. Those of a function that used to set some are dropped if none may be set now."""
        self.is_changed = self._none and bool(event or wall)
        self.event, self.wall = ([], []) if self._none else (event, wall)

    def register_event_time(self, when: Any) -> None:
        self._register(self.event, when)

    def register_processing_time(self, when: Any) -> None:
        self._register(self.wall, when)

    def delete_event_time(self, when: Any) -> None:
        self._delete(self.event, when)

    def delete_processing_time(self, when: Any) -> None:
        self._delete(self.wall, when)

    def take_due(self, times: list[int], now_ms: int, after_ms: int | None) -> int | None:
        """Removes and returns the next time that is not after `now_ms`, and after `after_ms`; None when there is
        none.
        """
        place = 0 if after_ms is None else bisect_right(times, after_ms)
        if place == len(times) or times[place] > now_ms:
            return None
        self.is_changed = True
        return times.pop(place)

    def _register(self, times: list[int], when: Any) -> None:
        time_ms = _millis(when)
        if self._none:
            raise RuntimeError(
                "a process function inside a loop cannot set timers: the loop may have been found empty when one fires;"
                " put the function behind the loop"
            )
        place = bisect_left(times, time_ms)
        if place == len(times) or times[place] != time_ms:
            self.is_changed = True
            insort(times, time_ms)

    def _delete(self, times: list[int], when: Any) -> None:
        time_ms = _millis(when)
        if time_ms in times:
            self.is_changed = True
            times.remove(time_ms)


def converter(kind: pa.DataType, subject: str) -> Convert:
    """Converts values to a type's plain Python form; raises TypeError with `subject` in front for other values."""
    types = pa.types
    if types.is_integer(kind):
        return _integers(kind, subject)
    if types.is_floating(kind):
        return partial(_float, kind, subject)
    plain = _plain_type(kind)
    if plain in (bool, str, bytes):
        return partial(_plain, plain, kind, subject)

    is_plain = _plain_test(kind)

    def convert(value: Any) -> Any:
        try:
            made = pa.scalar(value, kind)
            if is_plain(value) or are_kept([value], kind):
                return _in_utc(made.as_py())
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            pass
        return _refuse(value, kind, subject)

    return convert


def _plain_test(kind: pa.DataType) -> Callable[[Any], bool]:
    """Whether a value is one that Arrow keeps, as most are: found out much faster than by `are_kept`."""
    plain = _plain_type(kind)
    if not pa.types.is_list(kind):
        return lambda value: type(value) is plain
    elements = frozenset({type(None), _plain_type(kind.value_type)})
    return lambda value: type(value) is list and elements.issuperset(map(type, value))


def _plain_type(kind: pa.DataType) -> type[Any] | None:
    return next((plain for test, plain in _PLAIN if test(kind)), None)


def optional(convert: Convert) -> Convert:
    """The same, with None unchanged."""
    return lambda value: None if value is None else convert(value)


def _copied(value: Any) -> Any:
    """Copies containers, so that a function cannot modify stored values through its arguments."""
    if isinstance(value, dict):
        return {name: _copied(element) for name, element in value.items()}
    return type(value)(map(_copied, value)) if isinstance(value, list | tuple) else value


def _plain(plain: type[Any], kind: pa.DataType, subject: str, value: Any) -> Any:
    return plain(value) if isinstance(value, plain) else _refuse(value, kind, subject)


def _float(kind: pa.DataType, subject: str, value: Any) -> float:
    """Of a whole number, too, if a column of the type has the same value. A FLOAT keeps all digits of a value that it
    has room for.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError):
            number = float(value)
            (kept,) = unpack("<f", pack("<f", number)) if kind.bit_width < _DOUBLE_BITS else (number,)
            if isinstance(value, float) or kept == value:
                return number
    return _refuse(value, kind, subject)  # type: ignore[no-any-return]


def _integers(kind: pa.DataType, subject: str) -> Convert:
    limit = 1 << kind.bit_width - 1

    def convert(value: Any) -> Any:
        if type(value) is int and -limit <= value < limit:
            return value
        try:
            number = operator.index(value)
        except TypeError:
            return _refuse(value, kind, subject)
        is_fine = -limit <= number < limit and not isinstance(value, bool)
        return number if is_fine else _refuse(value, kind, subject)

    return convert


def _in_utc(value: Any) -> Any:
    """Times with UTC in place of a library's time zone objects, at any depth."""
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo else value
    if isinstance(value, dict):
        return {name: _in_utc(element) for name, element in value.items()}
    return type(value)(map(_in_utc, value)) if isinstance(value, list | tuple) else value


def _refuse(value: Any, kind: pa.DataType, subject: str) -> Any:
    raise TypeError(f"{subject} is {kind} and cannot hold {shown(value)}")


def _millis(when: Any) -> int:
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise TypeError(f"the time of a timer needs a time zone: {when!r}")
        return (when - EPOCH) // timedelta(milliseconds=1)
    if isinstance(when, bool) or not isinstance(when, int) or not -FARTHEST_MS <= when <= FARTHEST_MS:
        raise TypeError(f"the time of a timer must be whole milliseconds since 1970, or a datetime, not {when!r}")
    return when
