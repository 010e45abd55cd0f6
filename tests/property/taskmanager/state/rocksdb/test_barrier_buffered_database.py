"""BarrierBufferedDatabase against a dict: reads the same, whatever is held back; a copy is as of its barrier."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_taskmanager.state.rocksdb import barrier_buffered_database
from lockgate_taskmanager.state.rocksdb.barrier_buffered_database import BarrierBufferedDatabase
from lockgate_taskmanager.state.rocksdb.database_copy import DatabaseCopy
from lockgate_taskmanager.state.rocksdb.engine import Database

_MEMORY = 8 << 20
_NAMES = [b"%02d" % number for number in range(30)]
_CHANGES = st.dictionaries(st.sampled_from(_NAMES), st.none() | st.binary(max_size=3), max_size=8)
_STEPS = st.lists(
    st.one_of(_CHANGES, st.just("barrier"), st.just("make"), st.just("drop"), st.just("forget")), max_size=25
)


@contextmanager
def _database(held_rows: int, rows_a_write: int) -> Iterator[BarrierBufferedDatabase]:
    with (
        tempfile.TemporaryDirectory() as name,
        patch.object(barrier_buffered_database, "_HELD_ROWS", held_rows),
        patch.object(barrier_buffered_database, "_ROWS_A_WRITE", rows_a_write),
    ):
        made = BarrierBufferedDatabase(Path(name) / "held", Database(Path(name) / "held" / "db", _MEMORY))
        yield made
        made.close()


def _content(copy: DatabaseCopy) -> dict[bytes, bytes]:
    found = Database(copy.path, _MEMORY)
    try:
        return dict(found.rows(b"", b"\xff"))
    finally:
        found.close()


def _check(database: BarrierBufferedDatabase, model: dict[bytes, bytes], gone: bytes) -> None:
    """gone: rows before it may not be read."""
    names = [name for name in _NAMES if name >= gone]
    assert database.get(names) == [model.get(name) for name in names]
    start = max(gone, b"05")
    expected = sorted(row for row in model.items() if start <= row[0] < b"25")[:7]
    assert database.rows(start, b"25", 7) == expected
    assert database.names(start, b"25", 7) == [name for name, _ in expected]


@settings(max_examples=60, deadline=None)
@given(_STEPS, st.integers(0, 12), st.integers(1, 4))
def test_buffered_writes_are_read_and_a_copy_shows_its_barrier(
    steps: list[object], held_rows: int, rows_a_write: int
) -> None:
    model: dict[bytes, bytes] = {}
    copies: list[tuple[DatabaseCopy, dict[bytes, bytes]]] = []
    gone = b""
    with _database(held_rows, rows_a_write) as database:
        for step in steps:
            if isinstance(step, dict):
                changes = {name: value for name, value in step.items() if name >= gone}
                database.write(changes)
                model.update(changes)
                model = {name: value for name, value in model.items() if value is not None}
            elif step == "forget":
                start, gone = gone, b"%02d" % (int(gone or b"0") + 3)
                database.forget([(start, gone)])
                model = {name: value for name, value in model.items() if name >= gone}
            elif step == "barrier":
                copies.append((database.copy(), dict(model)))
            elif copies and step == "make":
                copies[-1][0].make()
            elif copies:
                copies.pop()[0].drop()
            _check(database, model, gone)
        for copy, wanted in copies:
            copy.make()
            assert _content(copy) == wanted


def test_held_rows_are_written_with_the_following_batches_and_not_at_once() -> None:
    with _database(held_rows=1_000, rows_a_write=3) as database:
        copy = database.copy()
        database.write({b"%03d" % number: b"x" for number in range(100)})
        copy.make()
        written = []
        for number in range(40):
            database.write({b"a%02d" % number: b"y"})
            written.append(len(dict(database.itself.rows(b"", b"\xff"))))
        assert [later - before for before, later in pairwise(written)][:20] == [4] * 20
        assert written[-1] == 140
