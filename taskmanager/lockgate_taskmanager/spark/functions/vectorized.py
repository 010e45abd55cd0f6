"""Calls a function with whole tables of records, as pyarrow.Table or pandas.DataFrame.

Its input is not copied, and neither are input columns that it returns. All other columns are: they may lie in a buffer
of its own, such as a numpy array that it fills again at the next call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from lockgate_proto.messages import RecordCall, RecordForm

from lockgate_taskmanager.spark.functions.casts import fitted, has_map
from lockgate_taskmanager.spark.functions.rows import WrongResult, array_of, described

_COLUMN = (pa.Array, pa.ChunkedArray, pd.Series, np.ndarray)
_EXACT = 1 << 53  # integers up to here are floats without loss


class Vectorized:
    """A function over tables."""

    def __init__(self, function: Callable[[Any], Any], call: RecordCall, form: RecordForm, schema: pa.Schema) -> None:
        """schema: of the output."""
        self._function, self._call, self._schema = function, call, schema
        self._is_pandas = form is RecordForm.PANDAS

    def run(self, table: pa.Table) -> pa.Table:
        """The output. Raises what the function raises, and WrongResult."""
        result = self._function(_frame(table) if self._is_pandas else table)
        if self._call is RecordCall.FILTER:
            return table.filter(_mask(result, table.num_rows))
        return _owned(self._table(result, table.num_rows), table)

    def _table(self, result: Any, count: int) -> pa.Table:
        """count: of the records."""
        names = self._schema.names
        given: list[tuple[str, Any]]
        if isinstance(result, pd.DataFrame):
            given = [(str(name), column) for name, column in result.items()]
        elif isinstance(result, pa.Table | pa.RecordBatch):
            given = list(zip(result.schema.names, result.columns, strict=True))
        elif _is_column(result) and len(names) == 1:
            given = [(names[0], result)]
        else:
            wanted = "pandas.DataFrame" if self._is_pandas else "pyarrow.Table"
            raise WrongResult(f"returned {_named(result)}; it has to return a {wanted}")
        if sorted(name for name, _ in given) != sorted(names):
            returned = ", ".join(name for name, _ in given)
            raise WrongResult(f"returned the columns {returned}; its schema has {', '.join(names)}")
        columns = dict(given)
        rows = len(given[0][1]) if given else 0
        if self._call is RecordCall.MAP and rows != count:
            text = f"returned {rows} rows for {count}; map returns one for each, flat_map any number"
            raise WrongResult(text, _first_without_row(result, count))
        arrays = [_column(columns[field.name], field, self._is_pandas) for field in self._schema]
        return pa.Table.from_arrays(arrays, schema=self._schema)


def _frame(table: pa.Table) -> pd.DataFrame:
    """With integers as Python objects in columns where floats, which pandas takes for NULL, would change them."""
    frame: pd.DataFrame = table.to_pandas()
    for index, column in enumerate(table.columns):
        if _needs_objects(column):
            frame.isetitem(index, column.to_pandas(integer_object_nulls=True))
    return frame


def _needs_objects(column: pa.ChunkedArray) -> bool:
    """Whether it has both NULL and an integer that no float is equal to, at any depth."""
    integers = [array for chunk in column.chunks for array in _integers_in(chunk)]
    if not any(array.null_count for array in integers):
        return False
    bounds = (pc.min_max(array).as_py() for array in integers if array.null_count < len(array))
    return any(bound["min"] < -_EXACT or bound["max"] > _EXACT for bound in bounds)


def _integers_in(array: pa.Array) -> Iterator[pa.Array]:
    kind = array.type
    if pa.types.is_int64(kind):
        yield array
    elif pa.types.is_nested(kind):
        for part in _parts(array):
            yield from _integers_in(part)


def _parts(array: pa.Array) -> Sequence[pa.Array]:
    """What a nested array consists of, without what a slice leaves out."""
    if pa.types.is_struct(array.type):
        return array.flatten()  # type: ignore[no-any-return]
    if not pa.types.is_map(array.type):
        return (array.flatten(),)
    first, end = (array.offsets[index].as_py() for index in (0, -1))
    return array.keys[first:end], array.items[first:end]


def _mask(result: Any, count: int) -> pa.ChunkedArray:
    """What a filter returns for so many records."""
    if not _is_column(result):
        raise WrongResult(f"returned {_named(result)}; a filter returns an array of booleans")
    if len(result) != count:
        raise WrongResult(f"returned {len(result)} values for {count} rows; a filter returns a boolean for each")
    mask = _chunked(result)
    if mask is not None and pa.types.is_null(mask.type):
        mask = mask.cast(pa.bool_())
    if mask is not None and pa.types.is_boolean(mask.type):
        return mask
    values = _values(result) if mask is None else mask.to_pylist()
    is_wrong = (value is not None and not isinstance(value, bool | np.bool_) for value in values)
    index = next((number for number, wrong in enumerate(is_wrong) if wrong), 0)
    kind = "" if mask is None else f", in an array of {mask.type}"
    raise WrongResult(f"returned {described(values[index])}{kind}; a filter returns an array of booleans", index)


def _first_without_row(result: Any, count: int) -> int:
    """The first record that a function of a DataFrame returned no row for, by its labels; -1: not known."""
    if not isinstance(result, pd.DataFrame | pd.Series):
        return -1
    left = set(result.index)
    if len(left) < len(result) or left == set(range(len(result))) or not left < set(range(count)):
        return -1  # labels that it has made itself
    return next(number for number in range(count) if number not in left)


def _is_column(result: Any) -> bool:
    return isinstance(result, _COLUMN) and not (isinstance(result, np.ndarray) and result.ndim == 0)


def _column(column: Any, field: pa.Field, is_pandas: bool) -> pa.ChunkedArray:
    """is_pandas: of a pandas function, whose NaN are NULL. So are those of series, and of columns that have no NaN."""
    is_float = isinstance(column, np.ndarray) and column.dtype.kind == "f" and pa.types.is_floating(field.type)
    is_inferred = isinstance(column, pd.Series | np.ndarray) and column.dtype == object and column.ndim == 1
    made = (
        None if is_inferred and has_map(field.type) else _chunked(column, keeps_nan=is_float and not is_pandas)
    )  # no map
    if made is None:  # by its type, as for single records: the first value that does not fit is known then
        return _in_chunks(array_of(_values(column), field))
    return fitted(made, field)


def _chunked(column: Any, *, keeps_nan: bool = False) -> pa.ChunkedArray | None:
    """None: Arrow knows no type for it."""
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return _in_chunks(column)
    try:
        return _in_chunks(pa.array(column, from_pandas=not keeps_nan))
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return None


def _values(column: pd.Series | np.ndarray) -> list[Any]:
    if column.ndim > 1:
        return list(column)
    return [None if is_null else value for value, is_null in zip(column, pd.isna(column), strict=True)]


def _owned(made: pa.Table, given: pa.Table) -> pa.Table:
    """The table with copies of the columns that are not in the memory of those given, which never changes."""
    known = [(buffer.address, buffer.address + buffer.size) for buffer in _buffers(given.columns)]
    starts, ends = np.array(known, np.uint64).reshape(-1, 2).T
    columns = made.columns
    for number, column in enumerate(columns):
        places = [(buffer.address, buffer.address + buffer.size) for buffer in _buffers([column]) if buffer.size]
        if any(not bool(np.any((starts <= first) & (end <= ends))) for first, end in places):
            columns[number] = _copied(column)
    return pa.Table.from_arrays(columns, schema=made.schema)


def _buffers(columns: list[pa.ChunkedArray]) -> list[pa.Buffer]:
    chunks = (chunk for column in columns for chunk in column.chunks)
    return [buffer for chunk in chunks for buffer in chunk.buffers() if buffer is not None]


def _copied(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """In Arrow's own memory, whatever its type: the way through IPC copies dictionaries and views as well."""
    table = pa.table([column], ["column"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all().column(0)


def _in_chunks(array: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])


def _named(result: Any) -> str:
    kind = type(result)
    return "None" if result is None else f"a {kind.__module__.partition('.')[0]}.{kind.__name__}"
