"""The newest rows of a full snapshot and its increments, against a dict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_taskmanager.state.about import About
from lockgate_taskmanager.state.columns.keys import KeyIndex
from lockgate_taskmanager.state.format.increments import latest
from lockgate_taskmanager.state.format.state_file import DELETED, Stored
from lockgate_taskmanager.state.layout import HASH, PANE
from lockgate_taskmanager.task.watermarks import MIN_WATERMARK

PLAIN = pa.schema([("key", pa.string()), (HASH, pa.int64()), ("n", pa.int64())])
WINDOWS = pa.schema([("key", pa.string()), (PANE, pa.int64()), (HASH, pa.int64()), ("n", pa.int64())])
BATCH_ROWS = 3

piece = st.dictionaries(
    st.tuples(st.sampled_from([None, "a", "b", "c", "d"]), st.integers(0, 3)),
    st.one_of(st.none(), st.integers(0, 9)),  # None: deleted
    max_size=8,
)
pieces = st.lists(st.tuples(piece, st.integers(-1, 3)), min_size=1, max_size=5)  # with the purge time


def hash_of(key: str | None) -> int:
    """Of "a" and "b" the same, as happens once in a long while."""
    return {None: 5, "a": -7, "b": -7, "c": 1 << 40}.get(key, 3)


def stored(rows: dict[Any, int | None], until: int, number: int, windows: bool) -> Stored:
    """A piece; the first one is full and has no deletions."""
    kept = [(key, pane, n) for (key, pane), n in rows.items() if number or n is not None]
    keys, panes, values = zip(*kept, strict=True) if kept else ((), (), ())
    columns = [pa.array(keys, pa.string()), pa.array(map(hash_of, keys), pa.int64()), pa.array(values, pa.int64())]
    schema = PLAIN
    if windows:
        columns.insert(1, pa.array(panes, pa.int64()))
        schema = WINDOWS
    if number:
        columns.append(pa.array([value is None for value in values], pa.bool_()))
        schema = schema.append(pa.field(DELETED, pa.bool_()))
    table = pa.Table.from_arrays(columns, schema=schema)
    about = About(schema, "", 16, range(16), MIN_WATERMARK, until)
    return Stored(schema, tuple(table.to_batches(BATCH_ROWS)), about, number > 0, f"piece {number}")


@settings(max_examples=200, deadline=None)
@given(pieces)
def test_the_newest_rows_of_windows_are_those_of_a_dict(given_: list[tuple[dict[Any, int | None], int]]) -> None:
    chain, expected = [], dict[Any, int]()
    for number, (rows, until) in enumerate(given_):
        chain.append(stored(rows, until, number, windows=True))
        for key in list(expected):
            if number and key[1] <= until:
                del expected[key]
        for key, n in rows.items():
            expected.pop(key, None)
            if n is not None:
                expected[key] = n
    found = latest(chain, 2, PANE)
    table = pa.Table.from_batches(found.batches, found.schema)
    names = ("key", PANE, HASH, "n")
    rows_found = list(zip(*(table.column(name).to_pylist() for name in names), strict=True))
    assert sorted(rows_found, key=repr) == sorted(((*key, hash_of(key[0]), n) for key, n in expected.items()), key=repr)
    assert found.schema == WINDOWS
    assert not found.is_increment
    assert found.about == chain[-1].about


@settings(max_examples=200, deadline=None)
@given(pieces)
def test_the_newest_rows_by_key_are_those_of_a_dict(given_: list[tuple[dict[Any, int | None], int]]) -> None:
    chain, expected = [], dict[Any, int]()
    for number, (rows, _) in enumerate(given_):
        mine = {(key, 0): n for (key, _), n in rows.items()}
        chain.append(stored(mine, MIN_WATERMARK, number, windows=False))
        for (key, _), n in mine.items():
            expected.pop(key, None)
            if n is not None:
                expected[key] = n
    found = latest(chain, 1)
    table = pa.Table.from_batches(found.batches, found.schema)
    rows_found = list(zip(table.column("key").to_pylist(), table.column("n").to_pylist(), strict=True))
    assert len(rows_found) == len(expected)
    assert dict(rows_found) == expected


@pytest.mark.parametrize("windows", [False, True])
def test_only_keys_of_increments_are_entered_and_windows_of_a_key_have_hashes_of_their_own(
    windows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, rows_of = [], KeyIndex.rows_of

    def counted(self: KeyIndex, keys: pa.RecordBatch, hashes: Any) -> Any:
        entered.append(keys.num_rows)
        assert len(np.unique(hashes)) == keys.num_rows, "keys of one hash are looked up by themselves, in Python"
        return rows_of(self, keys, hashes)

    monkeypatch.setattr(KeyIndex, "rows_of", counted)
    panes = range(3) if windows else range(1)
    full: dict[Any, int | None] = {(key, pane): 1 for key in "acd" for pane in panes}
    change: dict[Any, int | None] = {("a", pane): 2 for pane in panes}
    chain = [stored(full, -1, 0, windows), stored(change, -1, 1, windows)]
    found = latest(chain, 2, PANE) if windows else latest(chain, 1)
    assert sum(entered) == len(change)
    assert sum(batch.num_rows for batch in found.batches) == len(full)
