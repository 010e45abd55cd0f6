"""What a keyed process function is written with: the class to derive from, its state, its timers.

The classes travel with the function, so nothing of this module needs Lockgate where it runs. What state and timers do
is in `taskmanager.spark.keyed.handles`: there each declaration is replaced by what holds the state of the present key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Protocol

Row = Mapping[str, Any]
Rows = Iterable[Row | tuple[Any, ...]] | Row | None
"""What `process` and `on_timer` give: rows as dicts by column name or tuples in the order of the schema; or nothing."""


def _outside(*_given: Any) -> RuntimeError:
    return RuntimeError("state can be used inside process() and on_timer() only")


class State:
    """Base of the declarations. `ttl`: text such as "1 hour", or milliseconds; None: it stays until it is cleared."""

    def __init__(self, type: str, *, ttl: str | int | None = None) -> None:
        self.type = type
        self.ttl = ttl

    def clear(self) -> None:
        """Forgets it for the present key."""
        raise _outside()


class ValueState(State):
    """One value for each key: `last = ValueState("DOUBLE")`. The type is Spark DDL."""

    def get(self, default: Any = None) -> Any:
        """The value, or `default` where there is none."""
        raise _outside(default)

    def set(self, value: Any) -> None:
        """Replaces the value; None clears it."""
        raise _outside(value)

    def exists(self) -> bool:
        """Whether there is a value."""
        raise _outside()


class ListState(State):
    """Values in order for each key: `seen = ListState("STRING")`. The type is that of one value."""

    def get(self) -> list[Any]:
        """All values, in a list of its own."""
        raise _outside()

    def set(self, values: Iterable[Any]) -> None:
        """Replaces all values."""
        raise _outside(values)

    def append(self, value: Any) -> None:
        """Adds a value at the end."""
        raise _outside(value)

    def extend(self, values: Iterable[Any]) -> None:
        """Adds values at the end."""
        raise _outside(values)

    def __iter__(self) -> Iterator[Any]:
        raise _outside()

    def __len__(self) -> int:
        raise _outside()


class MapState(State):
    """Values by a key of their own for each key: `pages = MapState("STRING", "BIGINT")`. Used as a dict is."""

    def __init__(self, key_type: str, type: str, *, ttl: str | int | None = None) -> None:
        super().__init__(type, ttl=ttl)
        self.key_type = key_type

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, or `default` where there is none."""
        raise _outside(key, default)

    def keys(self) -> list[Any]:
        """The keys, in the order in which they came."""
        raise _outside()

    def values(self) -> list[Any]:
        """The values, in the same order."""
        raise _outside()

    def items(self) -> list[tuple[Any, Any]]:
        """Keys with their values."""
        raise _outside()

    def __getitem__(self, key: Any) -> Any:
        raise _outside(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise _outside(key, value)

    def __delitem__(self, key: Any) -> None:
        raise _outside(key)

    def __contains__(self, key: Any) -> bool:
        raise _outside(key)

    def __iter__(self) -> Iterator[Any]:
        raise _outside()

    def __len__(self) -> int:
        raise _outside()


class Timer(Protocol):
    """A timer that has come. time_ms: for when it was set, milliseconds since 1970."""

    @property
    def time_ms(self) -> int:
        """For when it was set."""
        ...

    @property
    def is_event_time(self) -> bool:
        """True for event time, False for the wall clock."""
        ...


class Timers(Protocol):
    """The timers of the present key. A time is whole milliseconds since 1970, or a datetime with a time zone.

    A key has one timer for each time: setting it again changes nothing.
    """

    def register_event_time(self, when: int | datetime) -> None:
        """Calls `on_timer` once the watermark has come to `when`."""
        ...

    def register_processing_time(self, when: int | datetime) -> None:
        """Calls `on_timer` once the wall clock of the task manager has come to `when`."""
        ...

    def delete_event_time(self, when: int | datetime) -> None:
        """Takes it back; one that is not set is fine."""
        ...

    def delete_processing_time(self, when: int | datetime) -> None:
        """Takes it back; one that is not set is fine."""
        ...


class Context(Protocol):
    """What `process` and `on_timer` are told."""

    @property
    def key(self) -> Any:
        """The value of the key column; of several key columns a tuple."""
        ...

    @property
    def watermark(self) -> int | None:
        """How far event time has come, milliseconds since 1970; None while it is not known, 2**63 - 1 at the end."""
        ...

    @property
    def now_ms(self) -> int:
        """The wall clock, milliseconds since 1970: the same for every record of a micro-batch."""
        ...

    @property
    def timers(self) -> Timers:
        """The timers of this key."""
        ...


class ProcessFunction:
    """Derive from it, declare state as attributes of the class, and write `process`; `on_timer` where timers are set.

    >>> class EmitIfGreater(ProcessFunction):
    ...     last = ValueState("DOUBLE")
    ...
    ...     def process(self, context, row):
    ...         if not self.last.exists() or row["value"] > self.last.get():
    ...             self.last.set(row["value"])
    ...             yield row

    Only declared state outlives a micro-batch: the object is made anew for each from what was handed to `process()`.
    """

    def process(self, context: Context, row: dict[str, Any]) -> Rows:
        """A record of the present key, in the order in which the key's records have come. Gives rows to put out."""
        raise NotImplementedError("a ProcessFunction needs a method process(self, context, row)")

    def on_timer(self, context: Context, timer: Timer) -> Rows:
        """A timer of the present key has come. Gives rows to put out."""
        raise NotImplementedError("a ProcessFunction that sets timers needs a method on_timer(self, context, timer)")
