"""Records as Python values, and what functions return as columns.

Both ways go column by column: a call per cell would cost more than most functions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from lockgate_taskmanager.spark.functions.kept import are_kept
from lockgate_taskmanager.spark.raised import UNREADABLE_VALUE

Record = dict[str, Any]
RecordsOf = Callable[[pa.RecordBatch], Iterator[Record]]
_LONGEST_VALUE = 200
UNREADABLE = (OverflowError, ValueError)  # by `RecordsOf`: see `careful_records`
_REFUSED = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)


class WrongResult(Exception):
    """A function has returned something else than its schema says. index: of the first such result, -1: not known.

    value: the one that does not fit, with its type; "" where it is another mistake.
    """

    def __init__(self, text: str, index: int = -1, value: str = "") -> None:
        super().__init__(text)
        self.index, self.value = index, value


class UnreadableRecordError(ValueError):
    """A record has a value that Python cannot hold. Its text is the whole sentence."""


class UnreadableRecord(dict[str, Any]):
    """A record of which Python cannot hold some values: those are text. reason: for the author."""

    reason = ""

    def error(self) -> UnreadableRecordError:
        """With the record."""
        return UnreadableRecordError(f"{self.reason}; the record: {shown(dict(self))}")


def records_of(names: Sequence[str]) -> RecordsOf:
    """Makes the records of a batch with these columns, as dicts.

    A dict display is three times as fast as `dict(zip(...))`, and has to be compiled for the names. Calls raise
    UNREADABLE for a value that Python cannot hold, such as a TIMESTAMP of the year 10000.
    """
    variables = [f"_{index}" for index in range(len(names))]
    record = ", ".join(f"{name!r}: {variable}" for name, variable in zip(names, variables, strict=True))
    made: Callable[[list[list[Any]]], Iterator[Record]] = eval(
        f"lambda columns: ({{{record}}} for {', '.join(variables)}, in zip(*columns))"
    )
    return lambda batch: made([column.to_pylist() for column in batch.columns])


def careful_records(batch: pa.RecordBatch) -> list[Record]:
    """The records of a batch of which some are UnreadableRecords."""
    records: list[Record] = [{} for _ in range(batch.num_rows)]
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        for index, value in enumerate(column):
            try:
                records[index][name] = value.as_py()
            except UNREADABLE as error:
                if not isinstance(records[index], UnreadableRecord):
                    records[index] = UnreadableRecord(records[index])
                    records[index].reason = _unreadable(name, column.type, error)  # type: ignore[attr-defined]
                text = column.slice(index, 1).to_string(indent=0)
                records[index][name] = " ".join(text.split())[2:-2]  # without its brackets
    return records


def _unreadable(name: str, kind: pa.DataType, error: Exception) -> str:
    why = "dates and times in Python are in the years 1 to 9999" if isinstance(error, OverflowError) else str(error)
    return f"{UNREADABLE_VALUE} '{name}', which is {kind}, that a Python function cannot be given: {why}"


class Results:
    """Turns what a function returns into columns of its schema: dicts by column name, tuples, or, for a single column,
    plain values.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._names: tuple[str, ...] = tuple(schema.names)
        self._width = len(self._names)
        self._by_name = itemgetter(*self._names) if self._width > 1 else None
        kinds = schema.types
        self._takes_dicts = len(kinds) == 1 and (pa.types.is_map(kinds[0]) or pa.types.is_struct(kinds[0]))
        self._may_change = may_change(schema)

    def taken(self, result: Any) -> tuple[Any, ...]:
        """The values of a result: the function may change its object and return it again. Raises WrongResult."""
        kind = type(result)
        if kind is tuple and len(result) == self._width:
            values = result
        elif kind is dict and len(result) == self._width and self._by_name is not None:
            try:
                values = self._by_name(result)
            except KeyError:
                values = self._values(result)
        else:
            values = self._values(result)
        return tuple(map(copied, values)) if self._may_change else values

    def batches(self, rows: Sequence[tuple[Any, ...]]) -> list[pa.RecordBatch]:
        """One row for each that was taken; several batches if a column is longer than 2 GiB. Raises WrongResult."""
        try:
            return self._table(rows).to_batches()  # type: ignore[no-any-return]
        except WrongResult as error:  # perhaps not of the first wrong row: another column may have an earlier one
            index, text = next(iter(self.wrong(rows[: error.index + 1]).items()))
            raise WrongResult(text, index) from None

    def wrong(self, rows: Sequence[tuple[Any, ...]]) -> dict[int, str]:
        """The rows whose values do not fit, by index in order, with the reason. Slow: one by one."""
        found = {}
        for index, row in enumerate(rows):
            try:
                self._table([row])
            except WrongResult as error:
                found[index] = str(error)
        return found

    def _table(self, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
        columns = [[row[index] for row in rows] for index in range(self._width)]  # faster than zip(*rows)
        arrays = [array_of(values, field) for values, field in zip(columns, self.schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _values(self, result: Any) -> tuple[Any, ...]:
        names = self._names
        if isinstance(result, tuple) and is_named(result):
            result = (getattr(result, "asDict", None) or getattr(result, "_asdict"))()  # noqa: B009
        if isinstance(result, Mapping) and not (self._takes_dicts and result.keys() != {names[0]}):
            for name in result:
                if name not in names:
                    raise WrongResult(f"returned a column {name!r}, which its schema does not have")
            return tuple(result.get(name) for name in names)
        if isinstance(result, tuple):
            if len(result) != len(names):
                text = f"returned {shown(result)}, a tuple of {len(result)}; its schema has {_counted(names)}"
                raise WrongResult(text)
            return result
        if len(names) == 1:
            return (result,)
        raise WrongResult(
            f"returned {described(result)}; for {_counted(names)} it has to return a dict by column name, or a tuple"
        )


def is_named(result: tuple[Any, ...]) -> bool:
    """Whether it is a Row or a named tuple."""
    return hasattr(result, "asDict") or hasattr(result, "_asdict")


def may_change(schema: pa.Schema) -> bool:
    """Whether values of these columns may be objects that can change: those have to be `copied`."""
    return any(pa.types.is_nested(field.type) or pa.types.is_binary(field.type) for field in schema)


def copied(value: Any) -> Any:
    """Containers with everything in them; all other values of columns cannot change."""
    if isinstance(value, Mapping):
        return {name: copied(element) for name, element in value.items()}
    if isinstance(value, tuple) and hasattr(value, "__fields__"):  # a Row
        return copied(getattr(value, "asDict")())  # noqa: B009
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)._make(map(copied, value))  # type: ignore[attr-defined]
    if isinstance(value, list | tuple):  # a map may be a list of pairs, which have to be tuples
        return (list if isinstance(value, list) else tuple)(map(copied, value))
    if isinstance(value, set | frozenset | deque):
        return list(map(copied, value))
    if isinstance(value, np.ndarray):
        return list(map(copied, value)) if value.dtype == object and value.ndim else value.copy()
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def array_of(values: Sequence[Any], field: pa.Field) -> pa.Array | pa.ChunkedArray:
    """A column, in chunks if it is longer than 2 GiB. Raises WrongResult with the first value that it cannot hold."""
    try:
        made = pa.array(values, field.type)
    except _REFUSED:
        made = None
    if made is None or not are_kept(values, field.type):  # not in the except block: the author would see Arrow's error
        index = next((index for index, value in enumerate(values) if not _fits(value, field.type)), 0)
        raise _misfit(values[index], field, index)
    return made


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except _REFUSED:
        return False
    return are_kept([value], kind)


def _misfit(value: Any, field: pa.Field, index: int) -> WrongResult:
    shape = described(value)
    return WrongResult(f"returned {shape} for column '{field.name}', which is {field.type}", index, shape)


def shown(value: Any) -> str:
    """A value in messages."""
    try:
        text = repr(value)
    except Exception as error:  # the author's class
        return f"a {type(value).__name__} whose repr() raises {type(error).__name__}"
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def described(value: Any) -> str:
    """A value with its type."""
    return "None" if value is None else f"{shown(value)} of type {type(value).__name__}"


def _counted(names: Sequence[str]) -> str:
    return f"{len(names)} column{'' if len(names) == 1 else 's'} ({', '.join(names)})"
