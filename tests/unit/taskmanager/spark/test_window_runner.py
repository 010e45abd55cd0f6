"""Calls of a function of windows: which records each gets, what it may return, and which record is blamed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from lockgate_taskmanager.spark.functions.rows import UnreadableRecordError
from lockgate_taskmanager.spark.keyed import window_runner
from lockgate_taskmanager.spark.keyed.window_runner import WindowRunner
from lockgate_taskmanager.spark.raised import BY_INPUT

RESULT = pa.schema([("k", pa.string()), ("n", pa.int64())])
Given = tuple[str, int, int, int]  # key, value, number of the call, start of a window of 1 s


def outcome(function: Callable[..., Any], given: list[list[Given]], keys: tuple[str, ...] = ("k",)) -> list[Any]:
    """given: the records of each batch."""
    names = ["k", "v", *window_runner.INPUT.names]
    batches = [
        pa.RecordBatch.from_arrays(
            [pa.array([row[at] for row in rows]) for at in range(4)] + [pa.array([row[3] + 1000 for row in rows])],
            names,
        )
        for rows in given
    ]
    found = WindowRunner(function, keys, ("k", "v"), RESULT).run(iter(batches))
    return [tuple(row.values()) for batch in found for row in batch.to_pylist()]


def test_a_call_gets_the_records_of_one_key_and_window_also_across_batches() -> None:
    calls: list[Any] = []

    def seen(key: Any, window: Any, records: Any) -> None:
        calls.append((key, window.start_ms, window.end_ms, [record["v"] for record in records]))

    batches = [[("a", 1, 7, 0), ("a", 2, 7, 0)], [("a", 3, 7, 0), ("b", 4, 8, 0)], [("b", 5, 9, 1000)]]
    assert outcome(seen, batches) == []
    assert calls == [("a", 0, 1000, [1, 2, 3]), ("b", 0, 1000, [4]), ("b", 1000, 2000, [5])]


def test_several_key_columns_are_a_tuple_and_times_are_in_utc() -> None:
    def told(key: Any, window: Any, _records: Any) -> Any:
        assert key == ("a", 1)
        assert (window.start, window.end) == (
            datetime(1970, 1, 1, tzinfo=UTC),
            datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        )
        return {"k": "fine"}

    assert outcome(told, [[("a", 1, 0, 0)]], ("k", "v")) == [("fine", None)]


@pytest.mark.parametrize(
    "function",
    [
        lambda key, _window, records: {"n": len(records), "k": key},
        lambda key, _window, records: (key, len(records)),
        lambda key, _window, records: [{"k": key, "n": len(records)}],
        lambda key, _window, records: (row for row in [(key, len(records))]),
    ],
)
def test_what_a_function_may_return(function: Callable[..., Any]) -> None:
    assert outcome(function, [[("a", 1, 0, 0), ("a", 2, 0, 0)]]) == [("a", 2)]


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (7, "returned 7 of type int; it has to return a dict, a tuple, or a list of them, or yield"),
        ("text", "returned 'text' of type str; it has to return"),
        ([("b", 1), ("b", "one")], "returned 'one' of type str for column 'n', which is int64"),
        ([{"k": "b", "m": 1}], "returned a column 'm', which its schema does not have"),
        ([("b", 1, 2)], "a tuple of 3; its schema has 2 columns (k, n)"),
    ],
)
def test_the_first_record_that_shows_a_mistake_is_named(returned: Any, expected: str) -> None:
    """Behind calls that are right, and before others that are wrong."""

    def function(key: str, _window: Any, _records: Any) -> Any:
        return returned if key == "b" else None if key == "a" else 8

    with pytest.raises(TypeError) as raised:
        outcome(function, [[("a", 1, 0, 0)], [("b", 2, 1, 5000), ("c", 3, 2, 5000)]])
    assert expected in str(raised.value)
    assert "key 'b', window 1970-01-01 00:00:05.000000 to 1970-01-01 00:00:06.000000 UTC" in str(raised.value)
    if isinstance(returned, list):
        assert f"record {len(returned)} of its output" in str(raised.value)


def test_a_date_that_python_does_not_have_is_the_fault_of_its_record() -> None:
    columns = [["a"], pa.array([1 << 30], pa.int32()).cast(pa.date32()), [0], [0], [1000]]
    given = pa.RecordBatch.from_arrays(list(map(pa.array, columns)), ["k", "v", *window_runner.INPUT.names])
    with pytest.raises(UnreadableRecordError, match=r"column 'v'.*; the record: {'k': 'a', "):
        list(WindowRunner(lambda *_: None, ("k",), ("k", "v"), RESULT).run(iter([given])))


class Half(ValueError):
    """An author's own."""


class Away(Exception):
    """A library's, perhaps."""


@pytest.mark.parametrize(("kind", "notes"), [(Half, [BY_INPUT]), (Away, [])])
def test_an_error_says_whether_its_input_is_the_cause(kind: type[Exception], notes: list[str]) -> None:
    error = kind("no")

    def called(*_: Any) -> Any:
        raise error

    def yielding(*_: Any) -> Any:
        yield {"k": "fine"}
        raise error

    for function in (called, yielding):
        with pytest.raises(kind):
            outcome(function, [[("a", 1, 0, 0)]])
        assert getattr(error, "__notes__", []) == notes  # once, although it is raised again
