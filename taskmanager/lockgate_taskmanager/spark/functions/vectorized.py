"""Calls a function with whole tables of records, as pyarrow.Table or pandas.DataFrame.

Its input is not copied, and neither are input columns that it returns. All other columns are: they may lie in a buffer
of its own, such as a numpy array that it fills again at the next call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from lockgate_proto.messages import RecordCall, RecordForm

from lockgate_taskmanager.spark.functions.casts import fitted, has_map
from lockgate_taskmanager.spark.functions.rows import WrongResult, array_of

_COLUMN = (pa.Array, pa.ChunkedArray, pd.Series, np.ndarray)


class Vectorized:
    """A function over tables."""

    def __init__(self, function: Callable[[Any], Any], call: RecordCall, form: RecordForm, schema: pa.Schema) -> None:
        """schema: of the output."""
        self._function, self._call, self._schema = function, call, schema
        self._is_pandas = form is RecordForm.PANDAS

    def run(self, table: pa.Table) -> pa.Table:
        """The output. Raises what the function raises, and WrongResult."""
        result = self._function(table.to_pandas() if self._is_pandas else table)
        if self._call is RecordCall.FILTER:
            return table.filter(self._mask(result, table.num_rows))
        made = _owned(self._table(result), table)
        if self._call is RecordCall.MAP and made.num_rows != table.num_rows:
            raise WrongResult(
                f"returned {made.num_rows} rows for {table.num_rows}; map returns one for each, flat_map any number"
            )
        return made

    def _mask(self, result: Any, count: int) -> pa.ChunkedArray:
        if not isinstance(result, _COLUMN):
            raise WrongResult(f"returned {_named(result)}; a filter returns an array of booleans")
        mask = _chunked(result)
        if pa.types.is_null(mask.type):
            mask = mask.cast(pa.bool_())
        if not pa.types.is_boolean(mask.type):
            raise WrongResult(f"returned an array of {mask.type}; a filter returns one of booleans")
        if len(mask) != count:
            raise WrongResult(f"returned {len(mask)} booleans for {count} rows")
        return mask

    def _table(self, result: Any) -> pa.Table:
        names = self._schema.names
        given: list[tuple[str, Any]]
        if isinstance(result, pd.DataFrame):
            given = [(str(name), column) for name, column in result.items()]
        elif isinstance(result, pa.Table | pa.RecordBatch):
            given = list(zip(result.schema.names, result.columns, strict=True))
        elif isinstance(result, _COLUMN) and len(names) == 1:
            given = [(names[0], result)]
        else:
            wanted = "pandas.DataFrame" if self._is_pandas else "pyarrow.Table"
            raise WrongResult(f"returned {_named(result)}; it has to return a {wanted}")
        if sorted(name for name, _ in given) != sorted(names):
            returned = ", ".join(name for name, _ in given)
            raise WrongResult(f"returned the columns {returned}; its schema has {', '.join(names)}")
        columns = dict(given)
        arrays = [_column(columns[field.name], field) for field in self._schema]
        return pa.Table.from_arrays(arrays, schema=self._schema)


def _column(column: Any, field: pa.Field) -> pa.ChunkedArray:
    is_inferred = isinstance(column, pd.Series | np.ndarray) and column.dtype == object and column.ndim == 1
    if is_inferred and has_map(field.type):  # Arrow infers no map
        values = [None if is_null else value for value, is_null in zip(column, pd.isna(column), strict=True)]
        return _in_chunks(array_of(values, field))
    return fitted(_chunked(column), field)


def _chunked(column: Any) -> pa.ChunkedArray:
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return _in_chunks(column)
    array, problem = None, ""
    try:
        array = pa.array(column, from_pandas=True)
    except OverflowError as error:
        problem = f"a number that is too large for its type: {error}"
    except (pa.ArrowException, TypeError, ValueError) as error:
        problem = "values of more than one type: " + str(error).partition("\n")[0]
    if array is None:  # not in the except block: Arrow's error would be shown as the author's
        raise WrongResult(f"returned a column with {problem}")
    return _in_chunks(array)


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
