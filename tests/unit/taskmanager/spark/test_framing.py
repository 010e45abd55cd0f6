"""Counting the records of a piece."""

from __future__ import annotations

import pytest
from lockgate_taskmanager.spark.framing import Lines

MIB = 1 << 20


@pytest.mark.parametrize("size", [0, 1, MIB - 1, MIB, MIB + 1, 3 * MIB + 7])
@pytest.mark.parametrize("line", [b"\n", b"a line\n", b"\r\n", b"x"])
def test_lines_of_any_length_are_counted_in_pieces_of_any_size(size: int, line: bytes) -> None:
    piece = (line * (size // len(line) + 1))[:size]
    assert Lines().count(piece) == piece.count(b"\n")
