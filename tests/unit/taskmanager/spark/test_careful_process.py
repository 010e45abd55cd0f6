"""A process function that fails on some records: without Spark, by what its runner puts out."""

from __future__ import annotations

import inspect
import pickle
import sys
from collections import Counter
from itertools import chain
from typing import Any

import pyarrow as pa
import pytest
from lockgate_taskmanager.spark.functions.rows import UnreadableRecordError
from lockgate_taskmanager.spark.keyed.careful import ERROR, NUMBER, CarefulRunner
from lockgate_taskmanager.spark.keyed.runner import (
    ELEMENT,
    EVENT,
    KEY,
    LIST,
    MAP,
    NEVER,
    PAYLOAD,
    UNKNOWN,
    VALUE,
    Declared,
    Runner,
)
from lockgate_taskmanager.spark.raised import raised
from lockgate_taskmanager.state.format import key_payload

from tests.process_runner import made, visits

KEYS, RECORDS = ("k",), ("k", "v")
RESULT = pa.schema([("k", pa.string()), ("n", pa.int64())])
STATES = (
    Declared("total", VALUE, pa.int64(), None, 0),
    Declared("seen", LIST, pa.int64(), None, 0),
    Declared("by", MAP, pa.int64(), pa.string(), 0),
)


class OperationalError(Exception):
    """As drivers of databases name it."""


class ReadTimeout(OperationalError):
    pass


class DerivedError(ReadTimeout):
    """Its name says nothing, that of its base does."""


OUTAGES = {-7: ConnectionError, -8: OperationalError, -9: DerivedError}


class Everything:
    """Changes all its state and its timers, and then fails where it is asked to."""

    total: Any
    seen: Any
    by: Any

    def process(self, context: Any, row: dict[str, Any]) -> Any:
        yield row["k"], -1
        value = row["v"]
        self.total.set(self.total.get(0) + abs(value))
        self.seen.append(value)
        self.by[str(value)] = value
        context.timers.register_event_time(abs(value))
        if value == -2:
            self.seen.clear()
            context.timers.delete_event_time(1)
        if value in OUTAGES:
            raise OUTAGES[value]("away")
        if value < 0:
            raise ValueError(f"no {value}")
        yield row["k"], "no number" if value == 99 else self.total.get()

    def on_timer(self, context: Any, timer: Any) -> Any:  # noqa: ARG002
        raise KeyError("timer")


Batches = tuple[pa.RecordBatch, pa.RecordBatch]


def batch(*records: tuple[int, str, int], payload: bytes | None = None, watermark: int = UNKNOWN) -> Batches:
    """Visits of the keys, and their records. records: number of the key, key, value; payload: of the first key."""
    counts = Counter(number for number, _, _ in records)
    keys = pa.record_batch({"k": list(dict(record[:2] for record in records).values())})
    payloads = [payload, *[None] * (len(counts) - 1)]
    given = pa.record_batch({"k": [key for _, key, _ in records], "v": [value for _, _, value in records]})
    return visits(keys, list(counts.values()), payloads, watermark), given


def outcome(kind: type[Runner], *batches: Batches, by_element: bool = False) -> list[dict[str, Any]]:
    return made(kind(Everything(), STATES, KEYS, RECORDS, RESULT, False, by_element), *chain.from_iterable(batches))


def states(rows: list[dict[str, Any]]) -> dict[int, Any]:
    """Content and timers by key."""
    return {row[KEY]: pickle.loads(row[PAYLOAD]) for row in rows if EVENT in row}


def put_out(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(row["k"], row["n"]) for row in rows if "k" in row]


def failures(rows: list[dict[str, Any]]) -> list[tuple[int, str]]:
    return [(row[NUMBER], row[ERROR]) for row in rows if NUMBER in row]


class Exits:
    """Ends its worker at a record, or when a timer fires."""

    def process(self, context: Any, row: dict[str, Any]) -> Any:
        context.timers.register_event_time(1)
        if row["v"] < 0:
            sys.exit(row["v"])

    def on_timer(self, context: Any, timer: Any) -> Any:  # noqa: ARG002
        sys.exit("two\nlines")
        yield


@pytest.mark.parametrize("kind", [Runner, CarefulRunner])
@pytest.mark.parametrize(
    ("given", "text", "method"),
    [
        (batch((0, "a", 1), (0, "a", -2)), "-2; the key: 'a'; the record: {'k': 'a', 'v': -2}", "process"),
        (batch((0, "a", 1), watermark=5), "two lines; the key: 'a'; the timer: 1 ms of event time", "on_timer"),
        (batch((0, "a", 1), watermark=NEVER), "two lines; the key: 'a'; the timer: 1 ms of event time", "on_timer"),
    ],
)
def test_a_function_that_exits_says_where(kind: type[Runner], given: Batches, text: str, method: str) -> None:
    with pytest.raises(SystemExit) as exited:
        made(kind(Exits(), (), KEYS, RECORDS, RESULT), *given)
    assert str(exited.value) == text
    assert raised(exited.value).partition(" (line")[2].partition(", in ")[2].startswith(f"{method})")


GOOD = batch((0, "a", 1), (0, "a", 3), (1, "b", 4))
POISONED = batch((0, "a", 1), (0, "a", -2), (0, "a", 99), (0, "a", 3), (1, "b", -5), (1, "b", 4), (2, "c", -6))


def test_without_failures_it_has_the_same_result() -> None:
    assert outcome(CarefulRunner, GOOD) == outcome(Runner, GOOD)


def test_a_failed_record_has_no_effect() -> None:
    careful, clean = outcome(CarefulRunner, POISONED), outcome(Runner, GOOD)
    assert states(careful) == states(clean)
    assert set(states(clean)) == {0, 1}
    assert put_out(careful) == put_out(clean)


def test_a_failed_record_writes_no_element(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_payload, "LARGEST_WHOLE", 0)
    careful, clean = outcome(CarefulRunner, POISONED, by_element=True), outcome(Runner, GOOD, by_element=True)
    elements = [row for row in clean if ELEMENT in row]
    assert len(elements) == 2 + 3 * 2, "of each key, that all before are removed; of each record, one of each state"
    assert [row for row in careful if ELEMENT in row] == elements


def test_state_from_before_is_kept_where_every_record_fails() -> None:
    (before,) = [row[PAYLOAD] for row in outcome(Runner, batch((0, "a", 1))) if KEY in row]
    assert states(outcome(CarefulRunner, batch((0, "a", -2), (0, "a", -3), payload=before))) == {}  # nothing changed


def test_failures_are_reported_by_number_with_their_messages() -> None:
    found = failures(outcome(CarefulRunner, POISONED))
    assert [number for number, _ in found] == [1, 2, 4, 6]
    line = inspect.getsourcelines(Everything.process)[1] + inspect.getsource(Everything.process).split("\n").index(
        '            raise ValueError(f"no {value}")'
    )
    place = f"line {line} of test_careful_process.py, in process"
    assert found[0][1] == f"the Python function raised ValueError: no -2 ({place})"
    assert "emitted a value for column 'n' that is not of type int64" in found[1][1]


def test_numbers_continue_over_batches() -> None:
    rows = outcome(CarefulRunner, batch((0, "a", 1), (0, "a", 2)), batch((0, "b", -3), (0, "b", 4)))
    assert [number for number, _ in failures(rows)] == [2]
    assert list(states(rows)) == [0, 1], "the keys of both batches"


def test_outages_and_timers_are_no_records() -> None:
    for value, kind in OUTAGES.items():
        with pytest.raises(kind, match="away"):
            outcome(CarefulRunner, batch((0, "a", value)))
    with pytest.raises(KeyError, match="timer"):
        outcome(CarefulRunner, batch((0, "a", 1), watermark=NEVER - 1))


class Refilled:
    """Emits the same objects for each record, with other contents."""

    def __init__(self, as_dict: bool) -> None:
        self._seen: list[int] = []
        self._buffer = bytearray(1)
        self._as_dict = as_dict

    def process(self, context: Any, row: dict[str, Any]) -> Any:  # noqa: ARG002
        self._seen.append(row["v"])
        self._buffer[0] = row["v"]
        yield {"seen": self._seen, "buffer": self._buffer} if self._as_dict else (self._seen, self._buffer)
        self._buffer[0] = 0


@pytest.mark.parametrize("kind", [Runner, CarefulRunner])
@pytest.mark.parametrize("as_dict", [True, False])
def test_an_emitted_object_may_be_changed_and_emitted_again(kind: type[Runner], as_dict: bool) -> None:
    result = pa.schema([("seen", pa.list_(pa.int64())), ("buffer", pa.binary())])
    rows = made(kind(Refilled(as_dict), (), KEYS, RECORDS, result), *batch((0, "a", 1), (0, "a", 2)))
    assert [(row["seen"], row["buffer"]) for row in rows] == [([1], b"\x01"), ([1, 2], b"\x02")]


def far(*values: int) -> Batches:
    """Records of one key with a time in microseconds."""
    visited, given = batch(*((0, "a", value) for value in values))
    return visited, given.set_column(1, "v", given.column("v").cast(pa.timestamp("us")))


class Counted:
    """Counts its calls."""

    def process(self, context: Any, row: dict[str, Any]) -> Any:
        yield context.key, row["v"].year


YEAR_10000 = 253_402_300_800_000_000


def test_a_date_that_python_does_not_have_is_the_fault_of_its_record() -> None:
    with pytest.raises(UnreadableRecordError) as error:
        made(Runner(Counted(), (), KEYS, RECORDS, RESULT), *far(YEAR_10000, 0))
    assert raised(error.value) == (
        "the record has a value in column 'v', which is timestamp[us], that a Python function cannot be given: dates"
        " and times in Python are in the years 1 to 9999; the record: {'k': 'a', 'v': '10000-01-01 00:00:00.000000'}"
    )
    rows = made(CarefulRunner(Counted(), (), KEYS, RECORDS, RESULT), *far(YEAR_10000, 0, YEAR_10000))
    assert put_out(rows) == [("a", 1970)]
    failed = failures(rows)
    assert [number for number, _ in failed] == [0, 2]
    assert failed[0][1].startswith("the record has a value in column 'v'")


class Misfits:
    """Emits what it is asked for, at records and timers."""

    def process(self, context: Any, row: dict[str, Any]) -> Any:
        value = row["v"]
        if value == -1:
            context.timers.register_event_time(5)
        elif value == -2:
            yield {"k": "a", "m": 1}
        elif value == -3:
            yield "a", 1, 2
        else:
            yield 7 if value == 98 else "a", "no number" if value == 99 else value

    def on_timer(self, context: Any, timer: Any) -> Any:  # noqa: ARG002
        return [("a", "late")]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((1, 99, 98), "'no number' of type str; the key: 'a'; the record: {'k': 'a', 'v': 99}"),
        ((1, 98, 99), "is not of type string: 7 of type int; the key: 'a'; the record: {'k': 'a', 'v': 98}"),
        ((1, -1), "'late' of type str; the key: 'a'; the timer: 5 ms of event time"),
        ((1, -2), "a column 'm' that its schema does not have; the key: 'a'; the record: {'k': 'a', 'v': -2}"),
        ((1, -3), "('a', 1, 2), but its schema has 2 columns; the key: 'a'; the record: {'k': 'a', 'v': -3}"),
    ],
)
def test_a_wrong_value_names_the_key_and_the_first_record_or_timer(values: tuple[int, ...], expected: str) -> None:
    given = batch(*((0, "a", value) for value in values), watermark=10)
    with pytest.raises(TypeError) as error:
        made(Runner(Misfits(), (), KEYS, RECORDS, RESULT), *batch((3, "z", 4)), *given)
    assert str(error.value).endswith(expected)


def test_a_timer_is_named_behind_records_that_were_left_out() -> None:
    given = batch((0, "a", 99), (0, "a", -1), (0, "a", 98), (1, "b", 1), watermark=10)
    with pytest.raises(TypeError, match="the key: 'a'; the timer: 5 ms"):
        made(CarefulRunner(Misfits(), (), KEYS, RECORDS, RESULT), *given)
