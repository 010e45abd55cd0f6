"""The hash table against a dict, also when hashes crowd into the same slots."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_taskmanager.state.columns.hashing import HashTable

crowded = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(0, 3000), st.integers(-1000, -1))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(crowded, max_size=400, unique=True), max_size=8), st.lists(crowded, max_size=50))
def test_finds_the_same_as_a_dict(batches: list[list[int]], others: list[int]) -> None:
    table, expected = HashTable(), dict[int, int]()
    for batch in batches:
        fresh = [item for item in batch if item not in expected]
        rows = table.append(np.array(fresh, np.int64))
        expected.update(zip(fresh, rows.tolist(), strict=True))
        assert rows.tolist() == list(range(len(expected) - len(fresh), len(expected)))
    wanted = np.array([*expected, *others], np.int64)
    assert table.find(wanted).tolist() == [expected.get(item, -1) for item in wanted.tolist()]
    assert table.hashes.tolist() == list(expected)


def test_rows_that_shall_not_be_found_are_not_also_after_growing() -> None:
    table = HashTable()
    table.append(np.array([7, 8], np.int64))
    assert table.append(np.array([7], np.int64), findable=np.array([False])).tolist() == [2]
    table.append(np.arange(10**9, 10**9 + 5000))
    assert table.find(np.array([7, 8], np.int64)).tolist() == [0, 1]
