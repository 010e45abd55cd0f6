"""CatchingUp: up to where the receivers are, a source reads in parts that end there; then as always."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_proto.messages import FileFormat, FileSource, GeneratorSource, Operator, SplitRange, SplitState
from lockgate_taskmanager.spark.sources.catching_up import CatchingUp
from lockgate_taskmanager.spark.sources.generator import RangeSource, unpaced
from lockgate_taskmanager.spark.sources.lines import LineSource
from lockgate_taskmanager.spark.sources.reading import Reading, Source
from lockgate_taskmanager.task.program import Exhausted, Unavailable

ROW_BYTES = 16


def generator() -> RangeSource:
    return RangeSource(GeneratorSource(partitions=2, rows_per_partition=100))


def ranges(source: Source, budget_bytes: int = 1 << 20, most: int = 1_000) -> list[SplitRange]:
    """Of all batches until the source is at its end; of no more than so many batches."""
    found: list[SplitRange] = []
    for _ in range(most):
        reading = source.read(budget_bytes, 0)
        if isinstance(reading, Exhausted):
            return found
        assert isinstance(reading, Reading)
        found += reading.ranges
    raise AssertionError("it does not end")


def test_a_batch_ends_where_a_receiver_is() -> None:
    source = CatchingUp(generator(), generator, [{"0": 30}, {"0": 50}])
    source.assign((SplitState("0", 10, 100),), True)
    assert source.is_behind
    assert ranges(source) == [SplitRange("0", 10, 30), SplitRange("0", 30, 50), SplitRange("0", 50, 100)]
    assert not source.is_behind
    assert source.complete


def test_the_end_of_a_split_is_passed_on_once() -> None:
    source = CatchingUp(generator(), generator, [{"0": 60}, {"0": 100}])
    source.assign((SplitState("0", 0, 100), SplitState("1", 0, 100)), True)
    readings = [source.read(1 << 20, 0) for _ in range(3)]
    ended = [(reading.split, reading.ended) for reading in readings[:2] if isinstance(reading, Reading)]
    assert ended == [("0", ()), ("", ("0",))]
    assert isinstance(readings[2], Reading)
    assert readings[2].ranges == (SplitRange("1", 0, 100),)


def test_a_receiver_that_has_had_a_split_that_is_not_in_the_checkpoint_cannot_be_followed() -> None:
    source = CatchingUp(generator(), generator, [{"0": 30, "1": 5}])
    source.assign((SplitState("0", 10, 100),), True)
    assert source.is_behind
    with pytest.raises(Unavailable, match="records have been passed on are not found again: 1"):
        ranges(source)


def test_what_was_made_before_is_made_again_without_a_pace() -> None:
    paced = Operator("rows", kind=GeneratorSource(partitions=1, rows_per_second=1.0))
    assert unpaced(paced).kind == GeneratorSource(partitions=1)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), max_size=4),
    st.tuples(st.integers(0, 99), st.integers(0, 99)),
    st.integers(1, 40),
)
def test_every_receiver_gets_each_record_once(
    received: list[tuple[int, int]], restored: tuple[int, int], rows: int
) -> None:
    """And no batch is in part new to one of them."""
    positions = [{"0": max(first, restored[0]), "1": max(second, restored[1])} for first, second in received]
    source = CatchingUp(generator(), generator, positions)
    source.assign([SplitState(str(number), offset, 100) for number, offset in enumerate(restored)], True)
    batches = ranges(source, rows * ROW_BYTES)
    for split, offset in enumerate(restored):
        of_split = [found for found in batches if found.split == str(split)]
        assert [row for found in of_split for row in range(found.start, found.end)] == list(range(offset, 100))
        for known in positions:
            assert all(found.end <= known[str(split)] or found.start >= known[str(split)] for found in of_split)


def test_lines_are_read_again_up_to_any_former_end_of_a_batch(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(b"".join(b"line %d\n" % number for number in range(1_000)) + b"the last")
    size = path.stat().st_size

    def lines() -> LineSource:
        return LineSource(FileSource(path=str(tmp_path), format=FileFormat.TEXT), ("value",))

    def opened(source: Source, *splits: SplitState) -> Source:
        source.spec()
        source.assign(splits, True)
        return source

    once = ranges(opened(lines(), SplitState("words.txt", 0, size)), 500)
    for number in (1, 7, len(once)):
        end = once[number - 1].end
        again = opened(CatchingUp(lines(), lines, [{"words.txt": end}]), SplitState("words.txt", once[0].end, size))
        contents: list[bytes] = []
        while not isinstance(reading := again.read(333, 0), Exhausted):
            assert isinstance(reading, Reading)
            assert all(known.end <= end or known.start >= end for known in reading.ranges)
            contents += reading.content
        assert b"".join(contents) == path.read_bytes()[once[0].end :] + b"\n"
