"""Functions over tables without Spark: what they get, what they may return."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lockgate_proto.messages import RecordCall, RecordForm
from lockgate_taskmanager.spark.functions.rows import WrongResult
from lockgate_taskmanager.spark.functions.vectorized import Vectorized

TWO = pa.schema([("word", pa.string()), ("n", pa.int32())])
GIVEN = pa.table({"word": ["a", "b", None], "n": pa.array([1, None, 3], pa.int32())})
ARROW, PANDAS = RecordForm.ARROW, RecordForm.PANDAS
MAP, FLAT_MAP, FILTER = RecordCall.MAP, RecordCall.FLAT_MAP, RecordCall.FILTER


def run(function: Callable[[Any], Any], call: RecordCall = MAP, form: RecordForm = ARROW) -> list[dict[str, Any]]:
    table: pa.Table = Vectorized(function, call, form, TWO).run(GIVEN)
    assert table.schema.equals(GIVEN.schema if call is FILTER else TWO)
    return table.to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "function",
    [
        lambda table: table,
        lambda table: table.select(["n", "word"]),
        lambda table: table.combine_chunks().to_batches()[0],
        lambda table: table.set_column(1, "n", table["n"].cast(pa.int64())),
        lambda table: table.set_column(0, "word", table["word"].dictionary_encode()),
        lambda table: table.set_column(0, "word", table["word"].cast(pa.large_string())),
        lambda table: table.to_pandas(),
    ],
)
def test_a_table_comes_out_with_the_columns_and_types_of_the_schema(function: Any) -> None:
    assert run(function) == GIVEN.to_pylist()


def test_nothing_is_copied_where_the_types_are_right() -> None:
    table = Vectorized(lambda table: table, MAP, ARROW, TWO).run(GIVEN)
    assert table["n"].chunk(0).buffers()[1].address == GIVEN["n"].chunk(0).buffers()[1].address


@pytest.mark.parametrize(
    "function",
    [
        lambda frame: frame,
        lambda frame: frame.astype({"word": "category"}),
        lambda frame: frame.assign(n=pd.array([1, None, 3], "Int64")),
    ],
)
def test_pandas_gets_and_returns_frames_and_missing_values_are_null(function: Any) -> None:
    assert run(function, form=PANDAS) == GIVEN.to_pylist()


def test_one_column_may_be_an_array_or_a_series() -> None:
    schema = pa.schema([("n", pa.int64())])
    for result in (pa.array([1, 2, 3]), pa.chunked_array([[1], [2, 3]]), np.arange(1, 4), pd.Series([1, 2, 3])):
        for form in (ARROW, PANDAS):
            made = Vectorized(lambda _, result=result: result, MAP, form, schema).run(GIVEN)
            assert made.to_pydict() == {"n": [1, 2, 3]}


def test_flat_map_may_return_any_number_of_rows() -> None:
    assert run(lambda table: table.slice(0, 1), FLAT_MAP) == [{"word": "a", "n": 1}]
    assert run(lambda table: pa.concat_tables([table, table]), FLAT_MAP) == GIVEN.to_pylist() * 2
    assert run(lambda frame: frame.iloc[:0], FLAT_MAP, PANDAS) == []


@pytest.mark.parametrize("form", [ARROW, PANDAS])
@pytest.mark.parametrize(
    "result",
    [pa.array([True, None, False]), pd.Series([True, False, False]), np.array([True, False, False])],
)
def test_a_filter_keeps_the_rows_that_are_true(form: RecordForm, result: Any) -> None:
    assert run(lambda _: result, FILTER, form) == GIVEN.to_pylist()[:1]
    assert run(lambda given: given["n"] == 1 if form is PANDAS else pc.equal(given["n"], 1), FILTER, form) == [
        {"word": "a", "n": 1}
    ]


@pytest.mark.parametrize("result", [pa.nulls(3), pd.Series([None] * 3, dtype=object)])
def test_a_filter_of_nulls_keeps_nothing(result: Any) -> None:
    assert run(lambda _: result, FILTER) == []


@pytest.mark.parametrize(
    ("call", "result", "text", "index"),
    [
        (MAP, None, "returned None; it has to return a pyarrow.Table", -1),
        (MAP, [1, 2, 3], "returned a builtins.list; it has to return a pyarrow.Table", -1),
        (MAP, GIVEN.slice(1), "returned 2 rows for 3; map returns one for each, flat_map any number", -1),
        (MAP, GIVEN.select(["n"]), "returned the columns n; its schema has word, n", -1),
        (MAP, GIVEN.append_column("m", GIVEN["n"]), "returned the columns word, n, m; its schema has word, n", -1),
        (MAP, pa.table({"word": ["a"] * 3, "n": [1, 2**40, 2**41]}), f"returned {2**40} of type int for column 'n'", 1),
        (MAP, pa.table({"word": ["a"] * 3, "n": [1.0, 2.0, 2.5]}), "returned 2.5 of type float for column 'n'", 2),
        (MAP, pa.table({"word": ["a"] * 3, "n": [None, "2", "3"]}), "returned '2' of type str for column 'n'", 1),
        (MAP, pa.table({"word": [1, 2, 3], "n": [1, 2, 3]}), "returned 1 of type int for column 'word'", 0),
        (
            MAP,
            pd.DataFrame({"word": ["a", 1, 2], "n": [1, 2, 3]}),
            "returned 1 of type int for column 'word', which is string",
            1,
        ),
        (
            MAP,
            pd.DataFrame({"word": ["a"] * 3, "n": [2**70, 1, 2]}),
            f"returned {2**70} of type int for column 'n', which is int32",
            0,
        ),
        (MAP, pd.concat([GIVEN.to_pandas()] * 2, axis=1), "returned the columns word, n, word, n; its schema", -1),
        (
            MAP,
            pa.Table.from_arrays([GIVEN["n"], *GIVEN.columns], ["n", "word", "n"]),
            "returned the columns n, word, n; its schema",
            -1,
        ),
        (MAP, pd.DataFrame({"word": ["a"] * 3, "n": [1, 2.5, Decimal(3)]}), "returned 2.5 of type float for col", 1),
        (MAP, pd.DataFrame({"word": ["a", "b"], "n": ["x", 2]}), "returned 2 rows for 3; map returns one", -1),
        (MAP, GIVEN.to_pandas().iloc[[0, 2]], "returned 2 rows for 3; map returns one for each", 1),
        (MAP, GIVEN.to_pandas().iloc[:2], "returned 2 rows for 3; map returns one for each", -1),
        (MAP, GIVEN.to_pandas().iloc[[0, 0]], "returned 2 rows for 3; map returns one for each", -1),
        (MAP, GIVEN.to_pandas().set_index(pd.Index([7, 8, 9])).iloc[1:], "returned 2 rows for 3", -1),
        (FLAT_MAP, None, "returned None; it has to return a pyarrow.Table", -1),
        (FLAT_MAP, pa.table({"word": [1], "n": [1]}), "returned 1 of type int for column 'word', which is string", 0),
        (FILTER, True, "returned a builtins.bool; a filter returns an array of booleans", -1),
        (FILTER, np.array(True), "returned a numpy.ndarray; a filter returns an array of booleans", -1),
        (FILTER, GIVEN, "returned a pyarrow.Table; a filter returns an array of booleans", -1),
        (
            FILTER,
            pa.array([None, 0, 1]),
            "returned 0 of type int, in an array of int64; a filter returns an array of booleans",
            1,
        ),
        (
            FILTER,
            pd.Series([True, None, "no"], dtype=object),
            "returned 'no' of type str; a filter returns an array of booleans",
            2,
        ),
        (FILTER, np.zeros((3, 2), bool), "returned array([False, False]) of type ndarray; a filter returns", 0),
        (FILTER, pa.array([True]), "returned 1 values for 3 rows; a filter returns a boolean for each", -1),
    ],
)
def test_another_result_is_one_sentence(call: RecordCall, result: Any, text: str, index: int) -> None:
    with pytest.raises(WrongResult) as caught:
        run(lambda _: result, call)
    assert text in str(caught.value)
    assert caught.value.index == index


def made(result: Any, kind: pa.DataType, form: RecordForm = ARROW) -> list[Any]:
    """The values of a single column of that type."""
    table = Vectorized(lambda _: result, FLAT_MAP, form, pa.schema([("m", kind)])).run(GIVEN)
    return table["m"].to_pylist()  # type: ignore[no-any-return]


MOMENT = dt.datetime(2026, 3, 1, 12)


@pytest.mark.parametrize("depth", ["plain", "list", "struct", "map"])
@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (pa.array([1]), pa.bool_()),
        (pa.array([True]), pa.int64()),
        (pa.array([1]), pa.timestamp("us")),
        (pa.array([MOMENT]), pa.int64()),
        (pa.array([MOMENT]), pa.date32()),
        (pa.array([MOMENT.date()]), pa.timestamp("us")),
        (pa.array([1500], pa.timestamp("ns")), pa.timestamp("us")),
        (pa.array([1e300]), pa.float32()),
        (pa.array([1.555]), pa.decimal128(10, 2)),
        (pa.array([Decimal(2**60 + 1)]), pa.float64()),
        (pa.array([Decimal("1.5")]), pa.int64()),
        (pa.array([b"a"]), pa.string()),
        (pa.array(["a"]), pa.binary()),
        (pa.array([["1"]]), pa.list_(pa.int64())),
        (pa.array([{"z": 1}]), pa.struct([("a", pa.int64())])),
        (pa.array([{"a": 1.5}]), pa.struct([("a", pa.int64())])),
        (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), pa.list_(pa.int64())),
    ],
)
def test_only_casts_that_keep_the_value_are_made(given: pa.Array, kind: pa.DataType, depth: str) -> None:
    with pytest.raises(WrongResult, match="for column 'm', which is") as caught:
        made(*nested(pa.concat_arrays([pa.nulls(2, given.type), given]), kind, depth))
    assert caught.value.index == (2 if depth == "plain" else 0)


@pytest.mark.parametrize("depth", ["plain", "list", "struct", "map"])
@pytest.mark.parametrize(
    ("given", "kind", "wanted"),
    [
        (pa.array([2.0]), pa.int32(), 2),
        (pa.array([0.1]), pa.float32(), float(np.float32(0.1))),
        (pa.array([float("inf")]), pa.float32(), float("inf")),
        (pa.array([1.5]), pa.decimal128(10, 2), Decimal("1.50")),
        (pa.array([Decimal("0.1")]), pa.float64(), 0.1),
        (pa.array(["a"], pa.large_string()), pa.string(), "a"),
        (pa.array([b"a"], pa.binary(1)), pa.binary(), b"a"),
        (pa.array([MOMENT], pa.timestamp("ns")), pa.timestamp("us"), MOMENT),
        (pa.array([dt.timedelta(1)], pa.duration("ns")), pa.duration("us"), dt.timedelta(1)),
        (pa.array([{"b": 1}]), pa.struct([("a", pa.string()), ("b", pa.int32())]), {"a": None, "b": 1}),
    ],
)
def test_casts_that_keep_the_value(given: pa.Array, kind: pa.DataType, wanted: Any, depth: str) -> None:
    result, outer = nested(pa.concat_arrays([pa.nulls(1, given.type), given]), kind, depth)
    expected, _ = nested(pa.array([None, wanted], kind), kind, depth)
    assert made(result, outer) == expected.to_pylist()


def nested(values: pa.Array, kind: pa.DataType, depth: str) -> tuple[pa.Array, pa.DataType]:
    """The values in one list, struct or map, and the type that it is to have."""
    count = len(values)
    if depth == "list":
        return pa.ListArray.from_arrays([0, count], values), pa.list_(kind)
    if depth == "struct":
        return pa.StructArray.from_arrays([values[count - 1 :]], ["x"]), pa.struct([("x", kind)])
    if depth == "map":
        keys = pa.array([str(number) for number in range(count)])
        return pa.MapArray.from_arrays([0, count], keys, values), pa.map_(pa.string(), kind)
    return values, kind


@pytest.mark.parametrize("kind", [pa.string(), pa.date32(), pa.map_(pa.string(), pa.int64()), pa.list_(pa.int64())])
@pytest.mark.parametrize(
    "empty",
    [pa.array([1], pa.int64())[:0], pa.nulls(2, pa.int64()), pd.Series([], dtype="int64"), pd.Series([np.nan] * 2)],
)
def test_a_column_without_values_may_have_any_type(empty: Any, kind: pa.DataType) -> None:
    assert made(empty, kind) == [None] * len(empty)


def test_a_table_of_numpy_is_no_column() -> None:
    with pytest.raises(WrongResult, match=r"returned array\(\[0, 0\]\) of type ndarray for column 'm'"):
        made(np.zeros((3, 2), np.int64), pa.int64())
    with pytest.raises(WrongResult, match=r"returned a numpy.ndarray; it has to return a pyarrow.Table"):
        made(np.array(5), pa.int64())


def test_a_column_of_several_types_is_accepted_where_the_schema_keeps_each_value() -> None:
    assert made(pd.Series([1, 2.5, None, 3], dtype=object), pa.float64()) == [1.0, 2.5, None, 3.0]
    mixed = pd.Series([Decimal("1.5"), 2], dtype=object)
    assert made(mixed, pa.decimal128(5, 2)) == [Decimal("1.50"), Decimal("2.00")]


def test_pandas_returns_maps() -> None:
    kind = pa.map_(pa.string(), pa.int64())
    maps = pa.table({"m": pa.array([[("a", 1)], None, []], kind)})
    same = Vectorized(lambda frame: frame, MAP, PANDAS, maps.schema).run(maps)
    assert same.equals(maps)
    assert made(pd.Series([{"a": 1.0}, float("nan")]), kind, PANDAS) == [[("a", 1)], None]
    with pytest.raises(WrongResult, match=r"returned \{'a': 1.5\} of type dict for column 'm'") as caught:
        made(pd.Series([None, {"a": 1.5}]), kind, PANDAS)
    assert caught.value.index == 1


_LARGE = 2**53 + 1  # no float is equal to it


@pytest.mark.parametrize("depth", ["", "list", "struct", "map"])
@pytest.mark.parametrize("number", [_LARGE, -_LARGE])
def test_large_integers_pass_through_pandas_beside_null(depth: str, number: int) -> None:
    values = pa.array([number, None])
    column, kind = (values, values.type) if depth in ("", "struct") else nested(values, values.type, depth)
    if depth == "struct":
        column = pa.StructArray.from_arrays([values], ["x"])
        kind = column.type
    others = pa.nulls(len(column), pa.int64()), pa.array(range(len(column)))
    given = pa.table([column, *others], pa.schema([("m", kind), ("no", pa.int64()), ("n", pa.int64())]))
    dtypes: list[str] = []

    def same(frame: pd.DataFrame) -> pd.DataFrame:
        dtypes.extend(map(str, frame.dtypes))
        return frame

    assert Vectorized(same, MAP, PANDAS, given.schema).run(given).to_pylist() == given.to_pylist()
    assert dtypes == ["object", "float64", "int64"]


def test_a_pandas_filter_compares_large_integers_beside_null() -> None:
    given = pa.table({"n": pa.array([_LARGE - 1, _LARGE, None])})
    found = Vectorized(lambda frame: frame["n"] == _LARGE, FILTER, PANDAS, given.schema).run(given)
    assert found.to_pydict() == {"n": [_LARGE]}


def test_integers_that_floats_are_equal_to_are_floats_beside_null() -> None:
    given = pa.table({"n": pa.array([2**53, -(2**53), None]), "large": pa.array([_LARGE] * 3)})
    dtypes: list[str] = []

    def same(frame: pd.DataFrame) -> pd.DataFrame:
        dtypes.extend(map(str, frame.dtypes))
        return frame

    assert Vectorized(same, MAP, PANDAS, given.schema).run(given).equals(given)
    assert dtypes == ["float64", "int64"]


def test_nan_is_null_only_in_what_a_pandas_function_or_a_series_has() -> None:
    column = np.array([float("nan"), 2.0])
    for values, form in ((column, PANDAS), (pd.Series(column), PANDAS), (pd.Series(column), ARROW)):
        assert made(values, pa.float64(), form) == [None, 2.0]
    for values in (column, pa.array([float("nan"), 2.0])):
        first, second = made(values, pa.float64(), ARROW)
        assert math.isnan(first)
        assert second == 2.0


@pytest.mark.parametrize(
    ("values", "kind", "wanted"),
    [
        (np.array(["a", float("nan")], object), pa.string(), ["a", None]),
        (np.array([1, pd.NA], object), pa.int64(), [1, None]),
        (np.array([1.0, float("nan")]), pa.int64(), [1, None]),
        (np.array([float("nan"), 2.0], object), pa.float64(), [None, 2.0]),
    ],
)
def test_a_missing_value_of_numpy_is_null_where_the_column_has_no_nan(
    values: Any, kind: pa.DataType, wanted: list[Any]
) -> None:
    assert made(values, kind, ARROW) == wanted


def test_a_filter_drops_records_whose_mask_is_missing() -> None:
    given = pa.table({"n": [1, 2]})
    masked = Vectorized(lambda _: np.array([True, float("nan")], object), FILTER, ARROW, given.schema).run(given)
    assert masked.to_pydict() == {"n": [1]}


_NUMBER = pa.int64()
_NESTED = pa.list_(pa.struct([("n", _NUMBER)]))


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda buffer: buffer, _NUMBER),
        (lambda buffer: pd.Series(buffer, copy=False), _NUMBER),
        (lambda buffer: pd.DataFrame({"m": buffer}, copy=False), _NUMBER),
        (lambda buffer: pd.Series(pd.arrays.ArrowExtensionArray(pa.array(buffer))), _NUMBER),
        (lambda buffer: pa.array(buffer), _NUMBER),
        (lambda buffer: pa.chunked_array([pa.array(buffer[:1]), pa.array(buffer[1:])]), _NUMBER),
        (lambda buffer: pa.table({"m": pa.array(buffer)}), _NUMBER),
        (lambda buffer: pa.RecordBatch.from_arrays([pa.array(buffer)[0:3]], ["m"]), _NUMBER),
        (lambda buffer: pa.Array.from_buffers(_NUMBER, 3, [None, pa.py_buffer(buffer)]), _NUMBER),
        (lambda buffer: pa.ListArray.from_arrays([0, 1, 2, 3], pa.StructArray.from_arrays([buffer], ["n"])), _NESTED),
        (lambda buffer: pa.table({"m": pa.array(buffer).cast(pa.timestamp("us"))}), pa.timestamp("us")),
    ],
)
def test_a_buffer_may_be_filled_again(make: Callable[[Any], Any], kind: pa.DataType) -> None:
    buffer = np.zeros(3, np.int64)
    function = Vectorized(lambda _: make(buffer), MAP, ARROW, pa.schema([("m", kind)]))
    buffer[:] = 1
    first = function.run(GIVEN)
    expected = first.to_pylist()
    buffer[:] = 2
    second = function.run(GIVEN)
    assert first.to_pylist() == expected != second.to_pylist()


def test_only_columns_that_are_not_of_the_input_are_copied() -> None:
    buffer = np.zeros(3, np.int32)
    table = Vectorized(lambda given: given.set_column(1, "n", pa.array(buffer)), MAP, ARROW, TWO).run(GIVEN)
    assert table["word"].chunk(0).buffers()[1].address == GIVEN["word"].chunk(0).buffers()[1].address
    assert table["n"].chunk(0).buffers()[1].address != buffer.ctypes.data
