"""What a process function may emit, and how its rows become columns."""

from __future__ import annotations

from collections import OrderedDict, UserDict
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from lockgate_taskmanager.spark.keyed.careful import ERROR, CarefulRunner
from lockgate_taskmanager.spark.keyed.runner import Runner
from lockgate_taskmanager.spark.raised import BY_INPUT

from tests.process_runner import made, visits

RESULT = pa.schema([("n", pa.int64()), ("it's {n}", pa.string()), ("parts", pa.list_(pa.int64()))])
PLAIN = pa.schema([("n", pa.int64()), ("it's {n}", pa.string())])

Emits = Callable[[int], Any]


class Function:
    def __init__(self, emits: Emits) -> None:
        self._emits = emits

    def process(self, context: Any, row: dict[str, Any]) -> Any:  # noqa: ARG002
        return self._emits(row["v"])


def emitted(emits: Emits, schema: pa.Schema = RESULT, kind: type[Runner] = Runner) -> list[dict[str, Any]]:
    """The rows for two records, 1 and 2, of one key."""
    batch = pa.record_batch({"k": ["a", "a"], "v": [1, 2]})
    return made(kind(Function(emits), (), ("k",), ("k", "v"), schema), visits(batch.select(["k"]).slice(1), [2]), batch)


SHAPES: dict[str, Emits] = {
    "dict": lambda v: {"n": v, "it's {n}": "x", "parts": [v]},
    "dict in another order": lambda v: {"parts": [v], "it's {n}": "x", "n": v},
    "dict of a subclass": lambda v: OrderedDict({"n": v, "it's {n}": "x", "parts": [v]}),
    "mapping": lambda v: UserDict({"n": v, "it's {n}": "x", "parts": [v]}),
    "list of dicts": lambda v: [{"n": v, "it's {n}": "x", "parts": [v]}],
    "list of tuples": lambda v: [(v, "x", [v])],
    "generator": lambda v: (row for row in [[v, "x", [v]]]),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_may_have_any_of_these_shapes(shape: str) -> None:
    assert emitted(SHAPES[shape]) == [{"n": v, "it's {n}": "x", "parts": [v]} for v in (1, 2)]


@pytest.mark.parametrize("emits", [lambda v: {"n": v}, lambda v: UserDict({"n": v}), lambda v: [{"n": v}]])
def test_a_column_that_is_left_out_is_null(emits: Emits) -> None:
    assert emitted(emits) == [{"n": v, "it's {n}": None, "parts": None} for v in (1, 2)]


@pytest.mark.parametrize("emits", [lambda _: None, lambda _: [], lambda _: iter(())])
def test_nothing_is_emitted(emits: Emits) -> None:
    assert emitted(emits) == []


def test_rows_before_a_dict_and_behind_it_keep_their_order() -> None:
    rows = emitted(lambda v: [(v, "a"), {"it's {n}": "b", "n": v + 10}, {"n": v + 20}], PLAIN)
    assert [row["n"] for row in rows] == [1, 11, 21, 2, 12, 22]


@pytest.mark.parametrize("form", [lambda row: row, lambda row: [row], lambda row: UserDict(row)])
def test_what_a_function_changes_afterwards_was_emitted_as_it_was(form: Callable[[dict[str, Any]], Any]) -> None:
    own: dict[str, Any] = {"n": 0, "it's {n}": "x", "parts": []}

    def emits(value: int) -> Any:
        own["n"] = value
        own["parts"].append(value)
        return form(own)

    assert [row["parts"] for row in emitted(emits)] == [[1], [1, 2]]


@pytest.mark.parametrize(
    ("emits", "message"),
    [
        (lambda v: {"n": v, "other": 1}, "emitted a column 'other' that its schema does not have; the key: 'a'"),
        (lambda v: {"n": v, "it's {n}": "x", "other": 1}, "emitted a column 'other'"),
        (lambda _: [(1,)], r"emitted \(1,\), but its schema has 2 columns"),
        (lambda _: [3], "emitted 3, but its schema has 2 columns; the key: 'a'; the record: {'k': 'a', 'v': 1}"),
        (lambda v: {"n": "no", "it's {n}": "x"} if v == 2 else None, "'no'.*; the record: {'k': 'a', 'v': 2}"),
    ],
)
def test_what_is_no_row_is_named_with_its_record(emits: Emits, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        emitted(emits, PLAIN)


def test_a_careful_runner_drops_all_rows_of_a_failed_call() -> None:
    rows = emitted(
        lambda v: [(v, "x"), {"n": v, "other": 1} if v == 1 else {"n": v, "it's {n}": "y"}], PLAIN, CarefulRunner
    )
    assert [row["n"] for row in rows[:-1]] == [2, 2]
    assert "emitted a column 'other'" in rows[-1][ERROR]


class Half(ValueError):
    """An author's own."""


class Away(Exception):
    """A library's, perhaps."""


class ServiceUnavailable(ValueError):
    """An outage, whatever it is derived from."""


@pytest.mark.parametrize(("kind", "notes"), [(Half, [BY_INPUT]), (Away, []), (ServiceUnavailable, [])])
def test_an_error_says_whether_its_input_is_the_cause(kind: type[Exception], notes: list[str]) -> None:
    error = kind("no")

    def called(_v: int) -> Any:
        raise error

    def yielding(v: int) -> Any:
        yield (v, "x")
        raise error

    for emits in (called, yielding):
        with pytest.raises(kind):
            emitted(emits, PLAIN)
        assert getattr(error, "__notes__", []) == notes  # once, although it is raised again
