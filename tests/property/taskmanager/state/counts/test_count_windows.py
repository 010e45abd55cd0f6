"""Count windows against lists in Python: any cuts into batches, restores, rescales and moves between state backends."""

from __future__ import annotations

import math
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_proto.messages import Aggregate, AggregateFunction, CountWindow, OperatorState
from lockgate_taskmanager.state import firing
from lockgate_taskmanager.state.backend import InlineBackend, load, make_backend
from lockgate_taskmanager.state.contents.window_contents import Calls
from lockgate_taskmanager.state.counts import count_state
from lockgate_taskmanager.state.counts.count_spec import CountSpec, with_element, without_element
from lockgate_taskmanager.state.counts.count_state import CountState
from lockgate_taskmanager.state.counts.elements import Folded, Held
from lockgate_taskmanager.state.factory import StoreFactory
from lockgate_taskmanager.state.rows import row_heap
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.task.program import SnapshotOrder

from tests.contents_homes import HOMES
from tests.property.taskmanager.state.windows.window_homes import hash_of

GROUPS = 16
AGGREGATES = tuple(
    Aggregate(output, getattr(AggregateFunction, output.upper()), "" if output == "count" else "n")
    for output in ("count", "sum", "min", "max", "avg")
)
PARTS = ("__p1", "__p2", "__p3", "__p4", "__p5")  # sum, min, max, and sum and count of the mean
FOLDED = pa.schema(
    [("K", pa.string()), ("__hash", pa.int64()), ("__rows", pa.int64())]
    + [(name, pa.float64() if name == "__p4" else pa.int64()) for name in PARTS]
)
HELD = pa.schema([("K", pa.string()), ("n", pa.int64()), ("tags", pa.list_(pa.string())), ("__hash", pa.int64())])
CALLED = pa.schema([("K", pa.string()), ("start", pa.int64()), ("end", pa.int64()), ("n", pa.list_(pa.int64()))])
Record = tuple[str | None, int | None]
Window = tuple[str | None, int, int, Any]  # key, bounds, and the aggregates or the values


def table_of(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = zip(zip(*rows, strict=True), schema, strict=True)
    return pa.Table.from_arrays([pa.array(column, field.type) for column, field in columns], schema=schema)


def folded_table(records: Sequence[Record]) -> pa.Table:
    rows = [(key, hash_of(key), 1, n, n, n, n, int(n is not None)) for key, n in records]
    return table_of(rows, FOLDED)


def held_table(records: Sequence[Record]) -> pa.Table:
    rows = [(key, n, None if n is None else ["x"] * (n % 3), hash_of(key)) for key, n in records]
    return table_of(rows, HELD)


def called(given: Sequence[Calls]) -> pa.Table:
    """A function that returns what it gets."""
    found: list[tuple[Any, ...]] = []
    last = None
    for calls in given:
        assert np.all(np.diff(calls.numbers) >= 0), "the records of a call are adjacent"
        about = zip(calls.rows.to_pylist(), calls.numbers, calls.starts.tolist(), calls.ends.tolist(), strict=True)
        for row, number, start, end in about:
            assert row["tags"] == (None if row["n"] is None else ["x"] * (row["n"] % 3))
            if number != last:
                found.append((row["K"], start, end, []))
            last = number
            found[-1][3].append(row["n"])
    return table_of(found, CALLED)


class Naive:
    """Lists of all records."""

    def __init__(self, window: CountWindow) -> None:
        self.window = window
        self.records: dict[str | None, list[int | None]] = defaultdict(list)

    def add(self, records: Sequence[Record]) -> list[Window]:
        """One by one; returns the windows that are complete then."""
        found: list[Window] = []
        for key, n in records:
            seen = self.records[key]
            seen.append(n)
            if len(seen) % self.window.every == 0:
                start = max(0, len(seen) - self.window.size)
                found.append((key, start, len(seen), self._result(seen[start:])))
        return found

    def _result(self, values: list[int | None]) -> Any:
        if not self.window.aggregates:
            return values
        known = [value for value in values if value is not None]
        return (len(values), *((sum(known), min(known), max(known), sum(known) / len(known)) if known else (None,) * 4))

    def rows(self) -> int:
        """Stored: one for each key, and the elements that the next window wants."""
        size, every = self.window.size, self.window.every
        step = math.gcd(size, every) if self.window.aggregates else 1
        ends = [(len(seen), (len(seen) // every + 1) * every) for seen in self.records.values()]
        return sum(1 + -(-seen // step) - max(0, end - size) // step for seen, end in ends)


class Subtasks:
    """The subtasks of an operator, each with its key groups. home: one of HOMES."""

    def __init__(
        self, window: CountWindow, parallelism: int, home: str, folder: Path, states: list[OperatorState], number: int
    ) -> None:
        self._window, self.home, self._folder = window, home, folder
        self._ranges = [range(i * GROUPS // parallelism, (i + 1) * GROUPS // parallelism) for i in range(parallelism)]
        self._scratch = ScratchFolder(folder / "work", "state-")
        self._all = [self._made(groups, states, number) for groups in self._ranges]

    def _made(self, groups: range, states: list[OperatorState], number: int) -> CountState:
        factory = StoreFactory(HOMES[self.home], self._scratch).without_diffs()
        spec = CountSpec.of("counts", self._window, GROUPS, groups)
        schema = with_element(FOLDED if self._window.aggregates else HELD)
        rows = factory.restored(spec, states, number) if states else factory.fresh(spec, schema)
        spec, incoming = spec.within(rows.record_schema), without_element(rows.record_schema)
        folded = self._window.aggregates
        elements: Any = Folded(self._window, spec.key_names, incoming) if folded else None
        return CountState(spec, rows, elements or Held(self._window, incoming, called, CALLED))

    def merge(self, records: Sequence[Record]) -> list[Window]:
        found: list[Window] = []
        for state, groups in zip(self._all, self._ranges, strict=True):
            mine = [record for record in records if hash_of(record[0]) % GROUPS in groups]
            if not mine:
                continue
            merged = state.merge((folded_table if self._window.aggregates else held_table)(mine))
            assert merged.records == len(mine)
            rows = merged.changed.to_pylist()
            values = [tuple(row.values()) for row in rows]
            found += [(v[0], v[1], v[2], v[3:] if self._window.aggregates else v[3]) for v in values]
        return found

    def restored(self, parallelism: int, home: str, is_savepoint: bool, number: int) -> Subtasks:
        """Others that go on where these are. A change of home needs a savepoint."""
        states = []
        for state in self._all:
            frozen = state.snapshot(SnapshotOrder(is_savepoint=is_savepoint or home != self.home))
            backend = make_backend(HOMES[self.home], f"{self._folder}/storage", f"a{id(state)}-counts-0")
            states.append(frozen.persist(number, backend.writer(number)))
            frozen.release()
        self.close()
        return Subtasks(self._window, parallelism, home, self._folder, states, number)

    def rows(self) -> int:
        """Stored ones, as a savepoint has them."""
        found = 0
        for state in self._all:
            frozen = state.snapshot(SnapshotOrder(is_savepoint=True))
            stored = frozen.persist(1, InlineBackend(1 << 30).writer(1))
            frozen.release()
            assert stored.handle is not None
            found += int(pa.ipc.open_file(load(stored.handle)).read_all().num_rows)
        return found

    def close(self) -> None:
        for state in self._all:
            state.close()
        self._scratch.close()


def sorted_by_key(windows: list[Window]) -> list[Window]:
    """Windows of a key stay in their order."""
    return sorted(windows, key=lambda window: str(window[0]))


@contextmanager
def small_portions(are_small: bool) -> Iterator[None]:
    """Portions end, and rows move together, wherever that can be."""
    with pytest.MonkeyPatch.context() as patch:
        if are_small:
            patch.setattr(count_state, "ELEMENTS_AT_ONCE", 3)
            patch.setattr(firing, "ROWS_AT_ONCE", 3)
            patch.setattr(row_heap, "_FEW_ROWS", 0)
        yield


keys = st.sampled_from(["a", "a", "a", "b", None, "c", "dd", "eee"])
batches = st.lists(st.tuples(keys, st.one_of(st.none(), st.integers(-9, 99))), min_size=1, max_size=40)
restores = st.tuples(st.integers(1, 3), st.sampled_from([*HOMES, ""]), st.booleans())
steps = st.lists(st.one_of(batches, batches, restores), min_size=1, max_size=8)
windows = st.tuples(st.integers(1, 12), st.integers(1, 12), st.booleans()).map(
    lambda t: CountWindow(("k",), max(t[:2]), min(t[:2]), AGGREGATES if t[2] else ())
)


def agrees(window: CountWindow, todo: list[Any], are_small: bool, home: str) -> None:
    with tempfile.TemporaryDirectory(prefix="lockgate-counts-") as folder, small_portions(are_small):
        naive, subtasks = Naive(window), Subtasks(window, 2, home, Path(folder), [], 0)
        for number, step in enumerate(todo, start=1):
            if isinstance(step, tuple):
                subtasks = subtasks.restored(step[0], step[1] or subtasks.home, step[2], number)
            else:
                assert sorted_by_key(subtasks.merge(step)) == sorted_by_key(naive.add(step))
        assert subtasks.rows() == naive.rows(), "nothing is kept that no window needs"
        subtasks.close()


@settings(max_examples=150, deadline=None)
@given(windows, steps, st.booleans(), st.sampled_from(["memory", "increments"]))
def test_windows_hold_the_last_records(window: CountWindow, todo: list[Any], are_small: bool, home: str) -> None:
    in_memory = [step for step in todo if not (isinstance(step, tuple) and step[1] == "rocksdb")]
    agrees(window, in_memory, are_small, home)


@settings(max_examples=25, deadline=None)
@given(windows, steps, st.booleans(), st.sampled_from(list(HOMES)))
def test_windows_hold_the_last_records_on_every_home(
    window: CountWindow, todo: list[Any], are_small: bool, home: str
) -> None:
    agrees(window, todo, are_small, home)
