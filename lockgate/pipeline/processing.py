"""The classes for keyed process functions: the base class, its state, its timers.

The classes are pickled with the function, so this module does not need Lockgate where it runs. State and timers are
implemented in `lockgate_taskmanager.spark.keyed.handles`: each declaration is replaced there by the state of the
current key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Protocol

Row = Mapping[str, Any]
Rows = Iterable[Row | tuple[Any, ...]] | Row | None
"""The result of `process` and `on_timer`: rows as dicts by column name or tuples in the order of the schema; or
None.
"""


def _outside(*_given: Any) -> RuntimeError:
    return RuntimeError("state can be used inside process() and on_timer() only")


class State:
    """Base of the declarations. `ttl`: text such as "1 hour", or milliseconds; None: it stays until it is cleared."""

    def __init__(self, type: str, *, ttl: str | int | None = None) -> None:
        self.type = type
        self.ttl = ttl

    def clear(self) -> None:
        """Clears it for the current key."""
        raise _outside()


class ValueState(State):
    """One value for each key: `last = ValueState("DOUBLE")`. The type is Spark DDL."""

    def get(self, default: Any = None) -> Any:
        """The value, or `default` when there is none."""
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
        """All values, in a new list."""
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
    """Values by a map key, for each key: `pages = MapState("STRING", "BIGINT")`. Used like a dict."""

    def __init__(self, key_type: str, type: str, *, ttl: str | int | None = None) -> None:
        super().__init__(type, ttl=ttl)
        self.key_type = key_type

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, or `default` when there is none."""
        raise _outside(key, default)

    def keys(self) -> list[Any]:
        """The keys, in insertion order."""
        raise _outside()

    def values(self) -> list[Any]:
        """The values, in the same order."""
        raise _outside()

    def items(self) -> list[tuple[Any, Any]]:
        """Pairs of key and value."""
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
    """A timer that fires. time_ms: the time that it was set for, milliseconds since 1970."""

    @property
    def time_ms(self) -> int:
        """The time that it was set for."""
        ...

    @property
    def is_event_time(self) -> bool:
        """True for event time, False for the wall clock."""
        ...


class Timers(Protocol):
    """The timers of the current key. A time is whole milliseconds since 1970, or a datetime with a time zone.

    A key has one timer for each time: setting it again changes nothing.
    """

    def register_event_time(self, when: int | datetime) -> None:
        """Calls `on_timer` once the watermark has reached `when`."""
        ...

    def register_processing_time(self, when: int | datetime) -> None:
        """Calls `on_timer` once the wall clock of the task manager has reached `when`."""
        ...

    def delete_event_time(self, when: int | datetime) -> None:
        """Removes the timer; one that is not set is ignored."""
        ...

    def delete_processing_time(self, when: int | datetime) -> None:
        """Removes the timer; one that is not set is ignored."""
        ...


class Context(Protocol):
    """The context of a call of `process` or `on_timer`."""

    @property
    def key(self) -> Any:
        """The value of the key column; of several key columns a tuple."""
        ...

    @property
    def watermark(self) -> int | None:
        """The current event time, milliseconds since 1970; None while it is not known, 2**63 - 1 at the end."""
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
    """Base class: declare state as class attributes, and implement `process`; also `on_timer` if timers are set.

    >>> class EmitIfGreater(ProcessFunction):
    ...     last = ValueState("DOUBLE")
    ...
    ...     def process(self, context, row):
    ...         if not self.last.exists() or row["value"] > self.last.get():
    ...             self.last.set(row["value"])
    ...             yield row

    Only declared state outlives a micro-batch: the object is unpickled again for each.
    """

    def process(self, context: Context, row: dict[str, Any]) -> Rows:
        """A record of the current key, in the order in which the key's records arrived. Returns rows to emit."""
        raise NotImplementedError("a ProcessFunction needs a method process(self, context, row)")

    def on_timer(self, context: Context, timer: Timer) -> Rows:
        """A timer of the current key fires. Returns rows to emit."""
        raise NotImplementedError("a ProcessFunction that sets timers needs a method on_timer(self, context, timer)")
