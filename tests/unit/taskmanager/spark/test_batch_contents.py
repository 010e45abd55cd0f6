"""The records of a batch's content: any of them as a batch of their own."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from lockgate_taskmanager.spark.contents import records_of, without
from lockgate_taskmanager.spark.leaf import Form, LeafSpec

TABLE = pa.table({"a": [1, 2, 3]})
QUOTED = LeafSpec(Form.CSV, ddl="a STRING", options=(("multiLine", "true"),))
CASES: list[tuple[Any, LeafSpec, list[Any]]] = [
    ([b"a\nb\n", b"c\n"], LeafSpec(Form.TEXT), [b"a\n", b"b\n", b"c\n"]),
    ([b"a\nb\n", b"c"], LeafSpec(Form.JSON), [b"a\n", b"b\n", b"c"]),
    ([b"a\n\nb\n"], LeafSpec(Form.TEXT), [b"a\n", b"\n", b"b\n"]),
    ([], LeafSpec(Form.TEXT), []),
    ([b'"a\nb"\n', b"c\n"], QUOTED, [b'"a\nb"\n', b"c\n"]),
    ([b"0,5,7\n1,9,9\n"], LeafSpec(Form.RANGES), [b"0,5,5\n", b"0,6,6\n", b"0,7,7\n", b"1,9,9\n"]),
    (TABLE, LeafSpec(Form.TABLE, table=TABLE.schema), [TABLE.slice(0, 1), TABLE.slice(1, 1), TABLE.slice(2, 1)]),
]


def plain(content: Any) -> list[Any]:
    """Rows, lines of text, or the single rows of ranges."""
    if isinstance(content, pa.Table):
        return content.to_pylist()
    lines = b"".join(content).splitlines(keepends=True)
    ranges = [line.split(b",") for line in lines if line.count(b",") == 2]
    return [(range_[0], row) for range_ in ranges for row in range(int(range_[1]), int(range_[2]) + 1)] or lines


@pytest.mark.parametrize(("content", "spec", "expected"), CASES)
def test_each_record_and_every_part(content: Any, spec: LeafSpec, expected: list[Any]) -> None:
    records = records_of(content, spec)
    assert records.count == len(expected)
    singles = [records.of([(number, number + 1)]) for number in range(records.count)]
    assert [plain(single) for single in singles] == [
        plain(table if isinstance(table, pa.Table) else [table]) for table in expected
    ]
    for left_out in range(records.count):
        kept = [plain(single) for number, single in enumerate(singles) if number != left_out]
        assert plain(records.of(without([left_out], 0, records.count))) == list(itertools.chain(*kept))


def test_a_long_range_is_cut_where_it_is_asked_for() -> None:
    records = records_of([b"0,0,999999\n2,5,14\n"], LeafSpec(Form.RANGES))
    assert records.count == 1_000_010
    assert records.of([(10, 20), (999_998, 1_000_003)]) == [b"0,10,19\n", b"0,999998,999999\n", b"2,5,7\n"]


def test_ranges_remain_around_excluded_records() -> None:
    assert without([], 0, 3) == [(0, 3)]
    assert without([0, 1, 4, 9], 0, 10) == [(2, 4), (5, 9)]
    assert without([5], 5, 6) == []
    assert without([6], 5, 8) == [(5, 6), (7, 8)]
