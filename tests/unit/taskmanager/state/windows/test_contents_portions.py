"""How much of a window function's input is in memory at once, whatever is due."""

from __future__ import annotations

import pyarrow as pa
import pytest
from lockgate_proto.messages import SlidingWindow, TumblingWindow, Window
from lockgate_taskmanager.state import firing
from lockgate_taskmanager.state.contents import window_contents
from lockgate_taskmanager.state.contents.window_contents import DuePortion
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK

from tests.contents_homes import contents_folder

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("__hash", pa.int64()), ("__event_time", pa.int64())])


def due(window: Window, keys: list[str], times: list[int]) -> list[DuePortion]:
    """All portions at the end of the input, of records in one key group."""
    with contents_folder(window, SCHEMA, 1) as folder:
        contents = folder.fresh("memory", range(1))
        count = len(keys)
        columns = {"k": keys, "n": list(range(count)), "__hash": [0] * count, "__event_time": times}
        contents.merge(pa.table(columns, schema=SCHEMA))
        return list(contents.due(MAX_WATERMARK))


def pairs(portions: list[DuePortion]) -> list[tuple[int, int]]:
    """Record and end of its window, in the order of the calls."""
    found: list[tuple[int, int]] = []
    for calls in (calls for portion in portions for calls in portion.calls):
        found += zip(calls.rows.column("n").to_pylist(), calls.ends.tolist(), strict=True)
    return found


def test_records_in_many_windows_are_not_all_placed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firing, "ROWS_AT_ONCE", 1_000)
    size, slide = 60_000, 1_000
    times = [7 * number % 3_000 for number in range(100)]
    portions = due(Window(SlidingWindow(size, slide), "t"), ["a"] * 100, times)
    assert max(len(calls.numbers) for portion in portions for calls in portion.calls) <= 1_000
    assert len(portions) >= 6
    first = [time // slide * slide + slide for time in times]
    expected = {(number, end + step * slide) for number, end in enumerate(first) for step in range(size // slide)}
    found = pairs(portions)
    assert len(found) == len(expected)
    assert set(found) == expected
    assert [end for _, end in found] == sorted(end for _, end in found)


def test_a_gap_of_a_year_between_records_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firing, "ROWS_AT_ONCE", 2)
    year = 365 * 86_400_000
    found = pairs(due(Window(SlidingWindow(2_000, 1_000), "t"), ["a", "b", "a"], [0, year, 2 * year]))
    assert sorted(found) == [(n, n * year + end) for n in range(3) for end in (1_000, 2_000)]


def test_a_portion_is_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_contents, "BYTES_AT_ONCE", 10_000)
    keys = [f"{number:0100d}" for number in range(1_000)]
    portions = due(Window(TumblingWindow(1_000), "t"), keys, [5] * 1_000)
    sizes = [sum(calls.rows.nbytes for calls in portion.calls) for portion in portions]
    assert len(sizes) >= 5
    assert max(sizes) < 2 * 10_000
    assert len(pairs(portions)) == 1_000
