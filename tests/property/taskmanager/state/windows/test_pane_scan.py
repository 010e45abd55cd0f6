"""Ranges read side by side: every row once, equal rests of names together, and never much at a time."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_taskmanager.state.windows import pane_scan
from lockgate_taskmanager.state.windows.pane_scan import side_by_side

Contents = list[set[bytes]]
sides = st.lists(st.sets(st.binary(min_size=1, max_size=2), max_size=30), max_size=5)


@settings(max_examples=300, deadline=None)
@given(sides, st.integers(1, 20), st.integers(1, 4))
def test_rows_with_equal_rests_of_names_come_together(contents: Contents, at_once: int, least: int) -> None:
    rows = sorted((bytes([side]) + name, b"value") for side, names in enumerate(contents) for name in names)
    asked: list[int] = []

    def read(start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        asked.append(limit)
        return [row for row in rows if start <= row[0] < end][:limit]

    ranges = [(bytes([side]), bytes([side + 1])) for side in range(len(contents))]
    with patch.object(pane_scan, "_LEAST_ROWS", least):
        portions = list(side_by_side(read, ranges, at_once))
    assert sorted(row for portion in portions for row in portion) == rows
    rests = [{name[1:] for name, _ in portion} for portion in portions]
    assert sum(map(len, rests)) == len(set().union(*rests)), "what ends alike is in one portion"
    assert all(len(portion) <= max(at_once, least * len(contents)) for portion in portions)
    assert all(portions)
    rows_read = sum(map(len, contents))
    assert len(asked) <= len(contents) + rows_read // max(1, min(asked, default=1)), "nothing is read twice"
