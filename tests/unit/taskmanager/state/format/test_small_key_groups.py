"""Rows of small key groups are taken together for a state file, and stored apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from lockgate_taskmanager.state.about import About
from lockgate_taskmanager.state.format import state_file
from lockgate_taskmanager.state.layout import HASH

GROUPS = 128
SCHEMA = pa.schema([("k", pa.string()), (HASH, pa.int64()), ("n#count", pa.int64())])
ABOUT = About(SCHEMA, "counts", GROUPS, range(GROUPS))


class Rows:
    """Counts how they are taken. text: characters of each key."""

    def __init__(self, count: int, text: int = 8) -> None:
        self.hashes = np.random.default_rng(count).integers(-(1 << 62), 1 << 62, count)
        self.keys = np.array([None if n % 7 == 0 else f"{n:0{text}}" for n in range(count)], object)
        self.taken: list[int] = []

    def take(self, places: Any) -> pa.RecordBatch:
        if len(places):
            self.taken.append(len(places))
        return pa.record_batch([pa.array(self.keys[places], pa.string()), self.hashes[places], places], schema=SCHEMA)

    def stored(self) -> state_file.Stored:
        data = state_file.write(self.hashes, self.take, ABOUT)
        return state_file.read(data, "here", signature="counts", max_parallelism=GROUPS, wanted=range(GROUPS))


@pytest.mark.parametrize(("count", "most_calls"), [(1, 1), (GROUPS, 2), (5_000, 2), (30_000, 7)])
def test_each_group_is_a_batch_of_its_rows_whatever_was_taken_together(count: int, most_calls: int) -> None:
    rows = Rows(count)
    stored = rows.stored()
    assert len(rows.taken) <= most_calls
    assert sum(rows.taken) == count
    groups = np.mod(rows.hashes, GROUPS)
    assert len(stored.batches) == len(np.unique(groups))
    for group, batch in zip(np.unique(groups), stored.batches, strict=True):
        places = np.flatnonzero(groups == group)
        assert batch.column("n#count").to_pylist() == places.tolist()
        assert batch.column("k").to_pylist() == rows.keys[places].tolist()
        batch.validate(full=True)


def test_large_rows_are_not_taken_together() -> None:
    rows = Rows(4 * GROUPS, text=100_000)
    assert rows.stored().batches
    assert max(rows.taken) * 100_000 <= 8 << 20
