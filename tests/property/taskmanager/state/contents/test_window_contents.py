"""The contents of windows against lists in Python: out of order, late, restored and rescaled, also within a firing.

In memory, with increments, in RocksDB, and from one to the other through a savepoint.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_proto.messages import CumulatingWindow, SlidingWindow, TumblingWindow, Window
from lockgate_taskmanager.state import firing
from lockgate_taskmanager.state.contents import contents_database, contents_heap
from lockgate_taskmanager.state.contents.window_contents import WindowContents
from lockgate_taskmanager.state.join import join_database, join_table
from lockgate_taskmanager.state.rocksdb import engine
from lockgate_taskmanager.state.windows.shape import shape_of
from lockgate_taskmanager.task.program import SnapshotOrder
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK, MIN_WATERMARK

from tests.contents_homes import HOMES, ContentsFolder, contents_folder, held
from tests.property.taskmanager.state.windows.window_homes import hash_of

GROUPS = 16
SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("__hash", pa.int64()), ("__event_time", pa.int64())])
Record = tuple[str | None, int, int | None]  # key, a number that tells it apart, event time
Called = dict[tuple[str | None, int, int], list[int]]  # key and window to the records' numbers


def table(records: list[Record]) -> pa.Table:
    rows = [(key, number, hash_of(key), time) for key, number, time in records]
    columns = list(zip(*rows, strict=True)) or [()] * 4
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


class Naive:
    """Every accepted record, in every window."""

    def __init__(self, window: Window) -> None:
        self.shape = shape_of(window)
        self.windows: dict[tuple[str | None, int, int], list[tuple[int, int]]] = defaultdict(list)
        self.watermark = MIN_WATERMARK
        self.late = 0

    def ends(self, time: int) -> list[int]:
        """Of the windows that hold a time, one by one."""
        size, slide, offset = self.shape.size_ms, self.shape.slide_ms, self.shape.offset_ms
        if self.shape.is_cumulating:
            start = time - (time - offset) % size
            return [start + step for step in range(slide, size + 1, slide) if time < start + step]
        return [end for end in range(time + 1, time + size + 1) if (end - size - offset) % slide == 0]

    def add(self, record: Record) -> None:
        key, number, time = record
        ends = [] if time is None else [end for end in self.ends(time) if end > self.watermark + 1]
        self.late += not ends
        for end in ends:
            start = self.shape.start(end)
            self.windows[key, start, end].append((time or 0, number))

    def called(self) -> Called:
        """The windows that are over, with their records in order of time and arrival."""
        over = {name: records for name, records in self.windows.items() if name[2] <= self.watermark + 1}
        return {name: [number for _, number in sorted(records)] for name, records in over.items()}

    def waiting(self) -> int:
        """Records that a window will still want."""
        return len(
            {number for name, some in self.windows.items() if name[2] > self.watermark + 1 for _, number in some}
        )


class Subtasks:
    """The subtasks of an operator, each with its key groups. home: one of HOMES."""

    def __init__(self, parallelism: int, home: str, folder: ContentsFolder, states: list[Any], number: int) -> None:
        self.home, self.folder = home, folder
        self.ranges = [range(i * GROUPS // parallelism, (i + 1) * GROUPS // parallelism) for i in range(parallelism)]
        self.all = [
            folder.restored(home, groups, states, number) if states else folder.fresh(home, groups)
            for groups in self.ranges
        ]
        self.called: list[Any] = []

    def merge(self, records: list[Record]) -> int:
        late = 0
        for contents, groups in zip(self.all, self.ranges, strict=True):
            mine = [record for record in records if hash_of(record[0]) % GROUPS in groups]
            accepted = contents.merge(table(mine))
            assert accepted.records == len(mine)
            late += accepted.late.num_rows
        return late

    def advance(self, watermark: int, portions: int) -> bool:
        """To a watermark, or only until so many settled portions are out. Whether it has come there."""
        is_there = True
        for contents in self.all:
            settled = 0
            for portion in contents.due(watermark):
                self.called += [call for calls in portion.calls for call in rows_of(calls)]
                settled += portion.is_settled
                if settled >= portions and portion.is_settled and not portion.is_last:
                    is_there = False
                    break
        return is_there

    def restored(self, parallelism: int, home: str, is_savepoint: bool, number: int) -> Subtasks:
        """Others that go on where these are. A change of home needs a savepoint."""
        order = SnapshotOrder(is_savepoint=is_savepoint or home != self.home)
        states = [self.folder.stored(self.home, contents, number, order) for contents in self.all]
        for contents in self.all:
            contents.close()
        fresh = Subtasks(parallelism, home, self.folder, states, number)
        fresh.called = self.called
        return fresh

    def held(self) -> int:
        return sum(map(held, self.all))


def rows_of(calls: Any) -> Iterator[tuple[int, str | None, int, int, int]]:
    rows = calls.rows.to_pylist()
    for row, number, start, end in zip(rows, calls.numbers.tolist(), calls.starts, calls.ends, strict=True):
        yield number, row["k"], int(start), int(end), row["n"]


def together(called: list[Any]) -> Called:
    """What was called; each key and window once, in one piece."""
    found: Called = {}
    last: Any = None
    for number, key, start, end, record in called:
        name = (key, start, end)
        if (number, *name) != last:
            assert name not in found, "a window is over once, and all of its records are together"
            found[name] = []
        last = (number, *name)
        found[name].append(record)
    return found


keys = st.sampled_from(["a", "b", None, "c", "dd", "eee", "ffff", "gg", "h"])
records = st.lists(st.tuples(keys, st.one_of(st.none(), st.integers(0, 120))), min_size=6, max_size=30)
windows = st.one_of(
    st.tuples(st.integers(1, 40), st.integers(0, 39)).map(lambda t: TumblingWindow(t[0], t[1] % t[0])),
    st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(0, 39)).map(
        lambda t: SlidingWindow(max(t[:2]), min(t[:2]), t[2] % min(t[:2]))
    ),
    st.tuples(st.integers(1, 10), st.integers(1, 5), st.integers(0, 49)).map(
        lambda t: CumulatingWindow(t[0] * t[1], t[0], t[2] % (t[0] * t[1]))
    ),
)
times = st.tuples(st.just("to"), st.integers(0, 170), st.sampled_from([1, 2, 99]))
restores = st.tuples(st.just("restore"), st.integers(1, 3), st.sampled_from([*HOMES, ""]), st.booleans())
rounds = st.tuples(records, times, st.one_of(restores, restores, times, st.just("end")))
steps = st.lists(rounds, min_size=1, max_size=5).map(lambda found: [step for some in found for step in some])


@contextmanager
def eager(is_eager: bool) -> Iterator[None]:
    """Rows move together, portions and blocks end, and ranges are removed wherever that can be."""
    with pytest.MonkeyPatch.context() as patch:
        if is_eager:
            for module, name, value in (
                (contents_heap, "_FEW_ROWS", 0),
                (contents_database, "_ENTRIES_AT_ONCE", 2),
                (firing, "ROWS_AT_ONCE", 3),
                (join_database, "_ROWS_A_CLEARING", 2),
                (join_table, "_TAIL_BYTES", 60),
                (join_table, "_BLOCK_BYTES", 100),
                (engine, "BYTES_AT_ONCE", 150),
            ):
                patch.setattr(module, name, value)
        yield


def agrees(kind: Any, todo: list[Any], is_eager: bool, home: str) -> None:
    """A plan with lists."""
    window = Window(kind, "at")
    number = checkpoint = late = 0
    with contents_folder(window, SCHEMA, GROUPS) as folder, eager(is_eager):
        naive, subtasks = Naive(window), Subtasks(2, home, folder, [], 0)
        for step in todo:
            checkpoint += 1
            if step == "end":
                subtasks.advance(MAX_WATERMARK, 99)
                naive.watermark = MAX_WATERMARK
                break
            if step[0] == "to":
                naive.watermark = max(naive.watermark, step[1])
                while not subtasks.advance(naive.watermark, step[2]):
                    checkpoint += 1
                    together(subtasks.called)  # what is out does not come again
                    subtasks = subtasks.restored(1 + checkpoint % 3, subtasks.home, checkpoint % 2 == 0, checkpoint)
            elif step[0] == "restore":
                subtasks = subtasks.restored(step[1], step[2] or subtasks.home, step[3], checkpoint)
                assert subtasks.held() == naive.waiting(), "nothing is kept that no window needs"
            else:
                batch = [(key, number + i, time) for i, (key, time) in enumerate(step)]
                number += len(batch)
                late += subtasks.merge(batch)
                for record in batch:
                    naive.add(record)
            assert late == naive.late
            assert together(subtasks.called) == naive.called()
        assert together(subtasks.called) == naive.called()
        assert subtasks.held() == naive.waiting()


@settings(max_examples=100, deadline=None)
@given(windows, steps, st.booleans(), st.sampled_from(["memory", "increments"]))
def test_windows_get_their_records(kind: Any, todo: list[Any], is_eager: bool, home: str) -> None:
    agrees(kind, [step for step in todo if "rocksdb" not in (step if isinstance(step, tuple) else ())], is_eager, home)


@settings(max_examples=40, deadline=None)
@given(windows, steps, st.booleans())
def test_in_rocksdb_and_from_one_home_to_the_other(kind: Any, todo: list[Any], is_eager: bool) -> None:
    agrees(kind, todo, is_eager, "rocksdb")


def test_a_drained_job_goes_on_without_the_windows_that_have_fired() -> None:
    """The end of the input fires all windows; the clock of a savepoint does not keep it."""
    for home in HOMES:
        with contents_folder(Window(TumblingWindow(10), "at"), SCHEMA, GROUPS) as folder:
            subtasks = Subtasks(1, home, folder, [], 0)
            subtasks.merge([("a", 1, 25)])
            subtasks.advance(12, 99)
            subtasks.advance(MAX_WATERMARK, 99)
            again = subtasks.restored(1, home, False, 1)
            assert again.held() == 0
            assert again.merge([("a", 2, 27), ("a", 3, 1)]) == 1, "event time is what it was before the end"
            again.advance(30, 99)
            assert together(again.called[1:]) == {("a", 20, 30): [2]}


def test_contents_are_closed_twice() -> None:
    for home in HOMES:
        with contents_folder(Window(TumblingWindow(10), "at"), SCHEMA, GROUPS) as folder:
            contents: WindowContents = folder.fresh(home, range(GROUPS))
            contents.close()
            contents.close()
