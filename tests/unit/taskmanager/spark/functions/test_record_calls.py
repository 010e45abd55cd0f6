"""Functions over records without Spark: how records look, what may be returned, which record is named."""

from __future__ import annotations

import datetime as dt
from collections import deque, namedtuple
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lockgate_taskmanager.spark.functions import calls
from lockgate_taskmanager.spark.functions import rows as function_rows
from lockgate_taskmanager.spark.functions.calls import Call, Called, Failed, Filter, FlatMap, Map, RecordCalls
from lockgate_taskmanager.spark.functions.rows import WrongResult, array_of, records_of
from lockgate_taskmanager.spark.raised import traceback_of
from pyspark.sql import Row

TWO = pa.schema([("word", pa.string()), ("n", pa.int32())])
WORD = pa.schema([("word", pa.string())])
Named = namedtuple("Named", "n word")


def called(call: Call, function: Callable[[Any], Any], table: pa.Table, *, may_spare: bool = False) -> Called:
    return RecordCalls(function, call, tuple(table.schema.names)).run(table, lambda _: may_spare, lambda: None)


def rows(found: Called) -> list[dict[str, Any]]:
    return [row for batch in found.batches for row in batch.to_pylist()]


def batched(schema: pa.Schema, results: Sequence[Any]) -> pa.Table:
    """What a map puts out, if it returns these. Raises WrongResult."""
    returned = iter(results)
    try:
        found = called(Map(schema), lambda _: next(returned), numbers(*range(len(results))))
    except Failed as error:
        raise WrongResult(str(error), error.number) from None
    return pa.Table.from_batches(found.batches, schema)


def numbers(*values: int | None) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def as_objects(values: Sequence[Any]) -> Any:
    made = np.empty(len(values), object)
    made[:] = values
    return made


def test_records_are_dicts_of_plain_values_nested_ones_too() -> None:
    moment = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
    kinds = {
        'it\'s a "name"': pa.array(["a", None]),
        "list": pa.array([[1, None], None], pa.list_(pa.int64())),
        "struct": pa.array([{"x": 1}, None], pa.struct([("x", pa.int64())])),
        "price": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
        "at": pa.array([moment, None], pa.timestamp("us", "UTC")),
    }
    batch = pa.RecordBatch.from_pydict(kinds)
    first, second = records_of(tuple(kinds))(batch)
    assert first == {
        'it\'s a "name"': "a",
        "list": [1, None],
        "struct": {"x": 1},
        "price": Decimal("1.50"),
        "at": moment,
    }
    assert second == dict.fromkeys(kinds)


@pytest.mark.parametrize(
    "result",
    [
        {"word": "a", "n": 1},
        {"n": 1, "word": "a"},
        ("a", 1),
        Named(1, "a"),
        Row(n=1, word="a"),
    ],
)
def test_a_record_may_be_returned_by_name_or_in_order(result: Any) -> None:
    assert batched(TWO, [result, result]).to_pylist() == [{"word": "a", "n": 1}] * 2
    assert batched(TWO, [result, {"word": None}]).to_pylist()[1] == {"word": None, "n": None}


def test_a_single_column_takes_the_value_itself() -> None:
    assert batched(WORD, ["a", None]).to_pylist() == [{"word": "a"}, {"word": None}]
    assert batched(WORD, ["a", ("b",), {"word": "c"}]).to_pylist() == [{"word": word} for word in "abc"]
    lists = pa.schema([("words", pa.list_(pa.string()))])
    assert batched(lists, [["a"], []]).to_pylist() == [{"words": ["a"]}, {"words": []}]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (7, "returned 7 of type int; for 2 columns (word, n) it has to return a dict by column name, or a tuple"),
        (None, "returned None; for 2 columns"),
        ("ab", "returned 'ab' of type str; for 2 columns"),
        (["a", 1], "returned ['a', 1] of type list; for 2 columns"),
        (("a",), "returned ('a',), a tuple of 1; its schema has 2 columns (word, n)"),
        ({"word": "a", "m": 1}, "returned a column 'm', which its schema does not have"),
        ({"word": "a", "n": 1, "m": 1}, "returned a column 'm', which its schema does not have"),
        ({"word": "a", "n": "1"}, "returned '1' of type str for column 'n', which is int32"),
        ({"word": "a", "n": 1.5}, "returned 1.5 of type float for column 'n', which is int32"),
        ({"word": "a", "n": True}, "returned True of type bool for column 'n', which is int32"),
        (("a", 2**31), "returned 2147483648 of type int for column 'n', which is int32"),
        ((b"a", 1), "returned b'a' of type bytes for column 'word', which is string"),
        ((1, 1), "returned 1 of type int for column 'word', which is string"),
        (("\ud800", 1), "for column 'word', which is string"),
    ],
)
def test_the_first_result_that_does_not_fit_is_named(result: Any, text: str) -> None:
    with pytest.raises(WrongResult) as caught:
        batched(TWO, [("a", 1), {"n": 2}, result, result])
    assert text in str(caught.value)
    assert caught.value.index == 2


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), np.float32(1.5)),
        (pa.list_(pa.int32()), [1, 1.5]),
        (pa.struct([("a", pa.string()), ("b", pa.int64())]), {"b": 1.5}),
        (pa.map_(pa.string(), pa.int64()), {"a": 1.5}),
        (pa.map_(pa.int64(), pa.list_(pa.int64())), [(1, [2, 0.5])]),
    ],
)
def test_a_fraction_is_never_dropped_at_any_depth(kind: pa.DataType, value: Any) -> None:
    whole = pa.array([None], kind).to_pylist()
    with pytest.raises(WrongResult, match="for column 'n'") as caught:
        batched(pa.schema([("n", kind)]), [*({"n": given} for given in whole), {"n": value}])
    assert caught.value.index == 1


MOMENT = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
PAIR = pa.struct([("a", pa.int32()), ("b", pa.string())])
NESTED: tuple[tuple[Callable[[pa.DataType], pa.DataType], Callable[[Any], Any]], ...] = (
    (lambda kind: kind, lambda value: value),
    (pa.list_, lambda value: [None, value]),
    (lambda kind: pa.struct([("x", pa.string()), ("y", kind)]), lambda value: {"y": value}),
    (lambda kind: pa.struct([("x", pa.string()), ("y", kind)]), lambda value: ("", value)),
    (lambda kind: pa.map_(pa.string(), kind), lambda value: {"k": value}),
    (lambda kind: pa.map_(pa.string(), kind), lambda value: [("k", value)]),
)


@pytest.mark.parametrize(("wrap", "around"), NESTED)
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), Decimal("1.5")),
        (pa.int64(), Fraction(3, 2)),
        (pa.int64(), np.bool_(True)),
        (pa.float64(), True),
        (pa.float32(), 1e300),
        (pa.float32(), np.float64(-1e300)),
        (pa.string(), b"a"),
        (pa.string(), memoryview(b"a")),
        (pa.binary(), "a"),
        (pa.date32(), MOMENT),
        (pa.date32(), pd.NaT),
        (pa.date32(), 1),
        (pa.date32(), np.int64(1)),
        (pa.timestamp("us", "UTC"), 1),
        (pa.timestamp("us", "UTC"), 1.5),
        (pa.timestamp("us"), pd.Timestamp(1500)),
        (pa.duration("us"), 1),
        (pa.list_(pa.string()), "ab"),
        (pa.list_(pa.int64()), b"ab"),
        (pa.list_(pa.int64()), np.array([1.5])),
        (PAIR, {"c": 1}),
        (PAIR, {"a": 1, b"b": "x"}),
        (PAIR, [("a", 1.5)]),
        (PAIR, namedtuple("Turned", "b a")(1, "x")),
        (pa.map_(pa.string(), pa.int64()), {b"a": 1}),
        (pa.map_(pa.string(), pa.int64()), [{"key": "a", "value": 1.5}]),
    ],
)
def test_a_value_of_another_type_is_refused_and_not_changed(
    kind: pa.DataType, value: Any, wrap: Callable[[pa.DataType], pa.DataType], around: Callable[[Any], Any]
) -> None:
    schema = pa.schema([("n", wrap(kind)), ("m", pa.int32())])
    with pytest.raises(WrongResult, match="for column 'n', which is") as caught:
        batched(schema, [(None, 0), (around(None), 0), (around(value), 0)])
    assert caught.value.index == 2


@pytest.mark.parametrize(("wrap", "around"), NESTED)
@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        (pa.int64(), Decimal(2), 2),
        (pa.int64(), pa.scalar(2), 2),
        (pa.float64(), 3, 3.0),
        (pa.float32(), float("inf"), float("inf")),
        (pa.float32(), 0.5, 0.5),
        (pa.string(), np.str_("a"), "a"),
        (pa.binary(), memoryview(b"a"), b"a"),
        (pa.date32(), MOMENT.date(), MOMENT.date()),
        (pa.timestamp("us", "UTC"), MOMENT, MOMENT),
        (pa.timestamp("us", "UTC"), pd.Timestamp(MOMENT), MOMENT),
        (pa.duration("us"), dt.timedelta(1), dt.timedelta(1)),
        (pa.list_(pa.int64()), np.array([1.0, 2.0]), [1, 2]),
        (pa.list_(pa.int64()), {1}, [1]),
        (pa.list_(pa.int64()), frozenset([1]), [1]),
        (pa.list_(pa.int64()), deque([1]), [1]),
        (PAIR, {"b": "x"}, {"a": None, "b": "x"}),
        (PAIR, [("a", 1), ("b", "x")], {"a": 1, "b": "x"}),
        (PAIR, (1, "x"), {"a": 1, "b": "x"}),
        (PAIR, Row(b="x", a=1), {"a": 1, "b": "x"}),
        (PAIR, namedtuple("Ordered", "a b")(1, "x"), {"a": 1, "b": "x"}),
        (pa.map_(pa.string(), pa.int64()), {"a": 2.0}, [("a", 2)]),
    ],
)
def test_a_value_that_fits_stays_as_it_is(
    kind: pa.DataType, value: Any, wanted: Any, wrap: Callable[[pa.DataType], pa.DataType], around: Callable[[Any], Any]
) -> None:
    schema = pa.schema([("n", wrap(kind)), ("m", pa.int32())])
    made = batched(schema, [(around(value), 0)])["n"]
    assert made.equals(pa.chunked_array([pa.array([around(wanted)], wrap(kind))]))


def test_numbers_that_are_whole_become_integers() -> None:
    assert batched(TWO, [("a", 2.0), ("b", np.int64(3)), ("c", np.float64(4))])["n"].to_pylist() == [2, 3, 4]


def test_a_wrong_value_shows_no_traceback_of_arrows() -> None:
    for values in ([("a", "x")], [("a", 1.5)], [7]):
        with pytest.raises(Failed) as caught:
            called(Map(TWO), lambda _, values=values: values[0], numbers(1))
        assert "pyarrow" not in traceback_of(caught.value)


def test_of_several_columns_the_earlier_record_is_named() -> None:
    with pytest.raises(WrongResult, match="column 'n'") as caught:
        batched(TWO, [("a", 1), ("a", "x"), (1, 1)])
    assert caught.value.index == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda record: [record["n"]] * (record["n"] or 0),
        lambda record: (record["n"] for _ in range(record["n"] or 0)),
        lambda record: tuple([record["n"]] * record["n"]) if record["n"] else None,
    ],
)
def test_flat_map_takes_any_iterable_or_none(function: Any) -> None:
    found = called(FlatMap(pa.schema([("m", pa.int64())])), function, numbers(2, None, 0, 1))
    assert rows(found) == [{"m": 2}, {"m": 2}, {"m": 1}]


@pytest.mark.parametrize("wrong", ["ab", b"ab", 7, 1.0])
def test_flat_map_refuses_what_is_no_list_of_records(wrong: Any) -> None:
    with pytest.raises(Failed, match="flat_map takes a list of records, a generator, or None") as caught:
        called(FlatMap(WORD), lambda record: wrong if record["n"] == 3 else [], numbers(1, 3, 3))
    assert caught.value.number == 1


def test_flat_map_names_the_record_whose_output_does_not_fit() -> None:
    with pytest.raises(Failed, match="column 'word'") as caught:
        called(FlatMap(WORD), lambda record: [] if record["n"] < 3 else ["a", record["n"]], numbers(1, 2, 3, 4))
    assert caught.value.number == 2


def test_a_filter_keeps_records_for_which_the_function_is_true() -> None:
    found = called(
        Filter(), lambda record: record["n"] if record["n"] is None else record["n"] > 1, numbers(1, None, 2)
    )
    assert rows(found) == [{"n": 2}]
    with pytest.raises(Failed, match=r"returned 'yes' of type str; a filter returns True or False") as caught:
        called(Filter(), lambda record: record["n"] == 1 or "yes", numbers(1, 2))
    assert caught.value.number == 1


def test_a_failing_record_is_counted_over_all_pieces_and_no_record_is_tried_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calls, "_AT_ONCE", 4)
    tried: list[int] = []

    def tenth(record: dict[str, Any]) -> int:
        tried.append(record["n"])
        return 1 // (record["n"] - 10)

    with pytest.raises(Failed, match="division") as caught:
        called(Map(pa.schema([("m", pa.int64())])), tenth, numbers(*range(20)))
    assert caught.value.number == 10
    assert isinstance(caught.value.reason, ZeroDivisionError)
    tried.clear()
    found = called(Map(pa.schema([("m", pa.int64())])), tenth, numbers(*range(20)), may_spare=True)
    assert list(found.failed) == [10]
    assert len(rows(found)) == 19
    assert tried == list(range(20))


BEHAVIOURS = {"good": 1, "raises": None, "wrong": "x"}


@given(st.lists(st.sampled_from(sorted(BEHAVIOURS)), max_size=30), st.integers(1, 7), st.sampled_from(["map", "flat"]))
def test_exactly_the_failing_records_are_left_out_and_the_rest_keeps_its_order(
    behaviours: list[str], piece: int, how: str
) -> None:
    schema = pa.schema([("m", pa.int64())])

    def function(record: dict[str, Any]) -> Any:
        kind = behaviours[record["n"]]
        if kind == "raises":
            raise ValueError(kind)
        value = record["n"] if kind == "good" else "x"
        return value if how == "map" else [value]

    call: Call = Map(schema) if how == "map" else FlatMap(schema)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(calls, "_AT_ONCE", piece)
        found = called(call, function, numbers(*range(len(behaviours))), may_spare=True)
    good = [number for number, kind in enumerate(behaviours) if kind == "good"]
    assert [row["m"] for row in rows(found)] == good
    assert list(found.failed) == [number for number in range(len(behaviours)) if number not in good]
    kinds = {number: type(error) for number, error in found.failed.items()}
    assert all(kind is (ValueError if behaviours[n] == "raises" else WrongResult) for n, kind in kinds.items())


def test_an_object_may_be_changed_and_returned_again() -> None:
    row: dict[str, Any] = {}
    seen: list[int] = []
    schema = pa.schema([("n", pa.int64()), ("seen", pa.list_(pa.int64()))])

    def again(record: dict[str, Any]) -> dict[str, Any]:
        seen.append(record["n"])
        row.update(n=record["n"], seen=seen)
        return row

    def twice(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield again(record)
        row["n"] = -1
        yield row

    wanted = [{"n": 1, "seen": [1]}, {"n": 2, "seen": [1, 2]}]
    assert rows(called(Map(schema), again, numbers(1, 2))) == wanted
    seen.clear()
    found = rows(called(FlatMap(schema), twice, numbers(1, 2)))
    assert found == [each for record in wanted for each in (record, record | {"n": -1})]


@pytest.mark.parametrize(
    ("kind", "value", "change"),
    [
        (pa.list_(pa.int64()), {1}, lambda value: value.add(2)),
        (pa.list_(pa.int64()), deque([1]), lambda value: value.append(2)),
        (pa.list_(pa.list_(pa.int64())), as_objects([[1]]), lambda value: value[0].append(2)),
        (pa.binary(), memoryview(bytearray(b"a")), lambda value: value.obj.__setitem__(0, 98)),
    ],
)
def test_every_object_that_can_change_is_copied(kind: pa.DataType, value: Any, change: Callable[[Any], None]) -> None:
    wanted = pa.array([value], kind)[0].as_py()

    def again(record: dict[str, Any]) -> Any:
        if record["n"]:
            change(value)
        return {"n": value}

    found = rows(called(Map(pa.schema([("n", kind)])), again, numbers(0, 1)))
    assert found[0] == {"n": wanted}
    assert found[1] != found[0]


def test_a_dict_is_the_value_of_a_single_map_or_struct_unless_its_only_key_is_the_column() -> None:
    counts = pa.schema([("counts", pa.map_(pa.string(), pa.int64()))])
    given = [{}, {"a": 1}, {"counts": {"a": 1}}, {"counts": None}, {"counts": 1, "a": 2}, None]
    wanted = [[], [("a", 1)], [("a", 1)], None, [("counts", 1), ("a", 2)], None]
    assert batched(counts, given)["counts"].to_pylist() == wanted
    pair = pa.schema([("pair", PAIR)])
    made = batched(pair, [{"a": 1}, {"pair": {"a": 1}}, Row(a=1, b=None)])["pair"]
    assert made.to_pylist() == [{"a": 1, "b": None}] * 3


@pytest.mark.parametrize("one", [Named(1, "a"), Row(n=1, word="a")])
def test_a_single_row_or_named_tuple_is_one_record(one: Any) -> None:
    assert rows(called(FlatMap(TWO), lambda _: one, numbers(1))) == [{"word": "a", "n": 1}]


def test_a_column_in_several_chunks_makes_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_chunks(values: Sequence[Any], field: pa.Field) -> pa.ChunkedArray:  # as Arrow does beyond 2 GiB
        made = array_of(values, field)
        return pa.chunked_array([made[:1], made[1:]]) if field.name == "word" else made

    monkeypatch.setattr(function_rows, "array_of", in_chunks)
    found = called(Map(TWO), lambda record: ("a", record["n"]), numbers(1, 2, 3))
    assert [batch.num_rows for batch in found.batches] == [1, 2]
    assert [row["n"] for row in rows(found)] == [1, 2, 3]


def test_what_a_record_holds_may_be_returned_as_it_is() -> None:
    kinds = {
        "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
        "deep": pa.array([[{"x": [("a", b"1")]}], []], pa.list_(pa.struct([("x", pa.map_(pa.string(), pa.binary()))]))),
    }
    table = pa.table(kinds)
    found = called(Map(table.schema), lambda record: record, table)
    assert pa.Table.from_batches(found.batches).equals(table)
    mapped = {"map": {"a": 1}, "deep": [{"x": {"a": bytearray(b"1")}}]}
    assert rows(called(Map(table.schema), lambda _: mapped, table.slice(0, 1))) == table.slice(0, 1).to_pylist()


def test_an_earlier_result_that_does_not_fit_is_named_before_a_later_exception() -> None:
    def function(record: dict[str, Any]) -> Any:
        return ("a", "x") if record["n"] == 1 else ("a", 1 // (record["n"] - 2))

    with pytest.raises(Failed, match="returned 'x' of type str for column 'n'") as caught:
        called(Map(TWO), function, numbers(0, 1, 2))
    assert caught.value.number == 1


def test_an_outage_ends_the_calls_even_if_wrong_results_are_spared() -> None:
    def function(record: dict[str, Any]) -> Any:
        if record["n"] == 2:
            raise ConnectionError
        return "x"

    calls_of = RecordCalls(function, Map(pa.schema([("m", pa.int64())])), ("n",))
    with pytest.raises(Failed) as caught:
        calls_of.run(numbers(0, 1, 2), lambda error: not isinstance(error, ConnectionError), lambda: None)
    assert isinstance(caught.value.reason, ConnectionError)
    assert caught.value.number == 2


def test_a_value_whose_repr_fails_is_still_named() -> None:
    class Bad:
        def __repr__(self) -> str:
            raise RuntimeError

    with pytest.raises(WrongResult, match="a Bad whose repr"):
        batched(WORD, [Bad()])


_YEAR_10000 = 253_402_300_800_000_000
_TIME = pa.timestamp("us")


def far_times(*values: Any) -> pa.Array:
    return pa.array(values, pa.int64()).cast(_TIME)


@pytest.mark.parametrize(
    "column",
    [
        far_times(0, _YEAR_10000, None, _YEAR_10000),
        far_times(0, _YEAR_10000, None, _YEAR_10000).cast(pa.timestamp("us", "UTC")),
        pa.array([0, 1 << 30, None, -(1 << 30)], pa.int32()).cast(pa.date32()),
        pa.ListArray.from_arrays([0, 0, 1, 1, 2], far_times(_YEAR_10000, _YEAR_10000)),
    ],
)
def test_a_date_that_python_does_not_have_is_the_fault_of_its_record(column: pa.Array) -> None:
    table = pa.table({"n": range(4), "at": column})
    sentence = (
        f"the record has a value in column 'at', which is {column.type}, that a Python function cannot be given: dates"
        " and times in Python are in the years 1 to 9999"
    )

    def not_2(record: Any) -> bool:
        if record["n"] == 2:
            raise KeyError("no 2")
        return True

    with pytest.raises(Failed) as raised:
        called(Filter(), not_2, table)
    assert (raised.value.number, str(raised.value)) == (1, sentence)
    found = called(Filter(), not_2, table, may_spare=True)
    assert [row["n"] for batch in found.batches for row in batch.select(["n"]).to_pylist()] == [0]
    assert list(found.failed) == [1, 2, 3]
    assert (str(found.failed[1]), str(found.failed[2])) == (sentence, "'no 2'")
