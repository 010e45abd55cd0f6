"""How values of an Arrow type lie in numpy: 64-bit integers, doubles, 16-byte decimals or Python objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lockgate_taskmanager.task.program import DataError, UserError

Array = Any  # numpy.ndarray
_DECIMAL = np.dtype("V16")


@dataclass(frozen=True, slots=True)
class Physical:
    """One Arrow type's numpy form.

    dtype: of the column; read: Arrow array without nulls to numpy; write: numpy and null mask to an Arrow array.
    """

    type: pa.DataType
    dtype: Any
    zero: Any
    read: Callable[[pa.Array], Array]
    write: Callable[[Array, Array | None], pa.Array]


def physical(kind: pa.DataType) -> Physical:
    """The numpy form of an Arrow type. Raises UserError for types that state cannot hold."""
    if pa.types.is_floating(kind):
        return Physical(kind, np.float64, 0.0, _read_float, lambda v, m: _write_plain(v, m, kind))
    if pa.types.is_decimal128(kind):
        return Physical(
            kind, _DECIMAL, np.zeros(1, _DECIMAL)[0], _read_decimal, lambda v, m: _write_decimal(v, m, kind)
        )
    if is_text(kind):
        return Physical(
            kind, np.object_, None, lambda v: _read_objects(v, kind), lambda v, m: _write_objects(v, m, kind)
        )
    if _is_integral(kind):
        return Physical(kind, np.int64, 0, _read_integral, lambda v, m: _write_plain(v, m, kind))
    raise UserError(
        f"values of type {kind} cannot be aggregated; cast them to a number, a string, a date or a timestamp"
    )


def is_text(kind: pa.DataType) -> bool:
    """Whether values are of any length: text or bytes."""
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


def _is_integral(kind: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_date, pa.types.is_timestamp, pa.types.is_duration, pa.types.is_boolean)
    return any(test(kind) for test in tests)


def _bridge(kind: pa.DataType) -> pa.DataType:
    """The integer type an integral type is cast through on its way to and from int64."""
    if pa.types.is_date32(kind):
        return pa.int32()
    return pa.int8() if pa.types.is_boolean(kind) else pa.int64()


def _read_float(values: pa.Array) -> Array:
    return values.cast(pa.float64()).to_numpy(zero_copy_only=False)


def _read_integral(values: pa.Array) -> Array:
    return values.cast(_bridge(values.type)).cast(pa.int64()).to_numpy(zero_copy_only=False)


def _write_plain(values: Array, missing: Array | None, kind: pa.DataType) -> pa.Array:
    array = pa.array(values, mask=missing)
    if array.type == kind:
        return array
    if pa.types.is_floating(kind):
        return array.cast(kind)
    return array.cast(_bridge(kind)).cast(kind)


def _read_decimal(values: pa.Array) -> Array:
    return np.frombuffer(values.buffers()[1], _DECIMAL)[values.offset : values.offset + len(values)]


def _write_decimal(values: Array, missing: Array | None, kind: pa.DataType) -> pa.Array:
    validity = None if missing is None else pa.array(~missing).buffers()[1]
    return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(np.ascontiguousarray(values))])


def _read_objects(values: pa.Array, kind: pa.DataType) -> Array:
    found = np.empty(len(values), np.object_)
    found[:] = values.cast(kind).to_pylist()  # a damaged file may have another type
    return found


def _write_objects(values: Array, missing: Array | None, kind: pa.DataType) -> pa.Array:
    found = pa.array(values, type=kind, mask=missing)
    if isinstance(found, pa.ChunkedArray):
        raise pa.ArrowInvalid(f"{len(values)} values are more text than one array can hold")
    return found


def add_decimals(left: Array, right: Array, kind: pa.DataType) -> Array:
    """Adds two decimal columns. Raises DataError when a sum does not fit the type."""
    wide = pa.decimal256(kind.precision, kind.scale)
    total = pc.add(_write_decimal(left, None, kind).cast(wide), _write_decimal(right, None, kind).cast(wide))
    try:
        return _read_decimal(total.cast(kind))
    except pa.ArrowInvalid as error:
        raise DataError(f"a sum does not fit {kind}: {error}") from error


def pick_by_arrow(left: Array, right: Array, form: Physical, largest: bool) -> Array:
    """Element-wise minimum or maximum of values that numpy cannot compare."""
    kernel = pc.max_element_wise if largest else pc.min_element_wise
    if form.dtype is np.object_:
        return form.read(kernel(form.write(left, None), form.write(right, None)))
    return form.read(kernel(form.write(left, None), form.write(right, None)).cast(form.type))
