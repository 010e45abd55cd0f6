"""Parquet by row position, the generator, and the size of batches."""

from __future__ import annotations

import datetime as dt
import errno
import math
import random
import statistics
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lockgate_common.backlog import Backlog
from lockgate_common.storage import Location
from lockgate_proto.messages import FailureCause, FileFormat, FileSource, GeneratorSource, SplitState
from lockgate_taskmanager.runtime.failures import cause_of
from lockgate_taskmanager.spark.sources.generator import RangeSource
from lockgate_taskmanager.spark.sources.listing import SourceUnavailable, discover
from lockgate_taskmanager.spark.sources.parquet import ParquetSource
from lockgate_taskmanager.spark.sources.reading import BatchSizer, Reading
from lockgate_taskmanager.task.program import DataError, Exhausted, Idle, UserError

_NULL = "__HIVE_DEFAULT_PARTITION__"


def parquet(path: Path, continuous: bool = False) -> FileSource:
    return FileSource(path=str(path), format=FileFormat.PARQUET, continuous=continuous)


def rows_of(source: ParquetSource, budget: int) -> list[int]:
    found: list[int] = []
    while isinstance(batch := source.read(budget, 0), Reading):
        assert batch.rows == batch.content.num_rows
        found += batch.content.column("x").to_pylist()
    return found


@pytest.mark.parametrize("budget", [1, 30, 100, 10_000])
def test_parquet_rows_once_across_row_groups_and_files(tmp_path: Path, budget: int) -> None:
    pq.write_table(pa.table({"x": list(range(10))}), tmp_path / "a.parquet", row_group_size=4)
    pq.write_table(pa.table({"x": list(range(10, 13))}), tmp_path / "b.parquet")
    source = ParquetSource(parquet(tmp_path), None)
    assert source.spec() is not None
    source.assign(*discover(parquet(tmp_path), ()))
    assert rows_of(source, budget) == list(range(13))
    assert isinstance(source.read(budget, 0), Exhausted)
    assert source.splits() == (SplitState("a.parquet", 10, 10), SplitState("b.parquet", 3, 3))


def test_the_backlog_of_parquet_is_rows_and_files(tmp_path: Path) -> None:
    for name, rows in (("a", 10), ("b", 3)):
        pq.write_table(pa.table({"x": list(range(rows))}), tmp_path / f"{name}.parquet", row_group_size=4)
    source = ParquetSource(parquet(tmp_path), None)
    source.spec()
    source.assign((SplitState("a.parquet", 6, 10), SplitState("b.parquet", 0, 3)), complete=True)
    source.assign((SplitState("b.parquet", 0, 3),), complete=True)  # said again
    assert source.unread(0) == Backlog(records=7, splits=2)
    source.read(8, 0)
    assert source.unread(0) == Backlog(records=6, splits=2)
    rows_of(source, 1_000)
    assert source.unread(0) == Backlog(records=0, splits=0)


def test_the_backlog_of_a_generator_is_what_is_due_or_left() -> None:
    bounded = RangeSource(GeneratorSource(rows_per_partition=100))
    bounded.assign((SplitState("0", 0, 100), SplitState("1", 60, 100)), complete=True)
    assert bounded.unread(0) == Backlog(records=140)
    endless = RangeSource(GeneratorSource())
    endless.assign((SplitState("0", 0, -1),), complete=True)
    assert endless.unread(0) == Backlog()
    timed = RangeSource(GeneratorSource(rows_per_second=100))
    timed.assign((SplitState("0", 0, -1),), complete=True)
    timed.read(1_000_000, 0)
    assert timed.unread(0) == Backlog(records=0)
    assert timed.unread(2_000) == Backlog(records=200)
    timed.read(1_000_000, 2_000)
    assert timed.unread(2_000) == Backlog(records=0)


def test_parquet_continues_in_the_middle_of_a_row_group(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": list(range(10))}), tmp_path / "a.parquet", row_group_size=4)
    source = ParquetSource(parquet(tmp_path), None)
    source.spec()
    source.assign((SplitState("a.parquet", 6, 10),), complete=True)
    assert rows_of(source, 8) == [6, 7, 8, 9]


def test_parquet_types_become_types_that_spark_has(tmp_path: Path) -> None:
    table = pa.table(
        {
            "x": pa.array([1], pa.uint32()),
            "t": pa.array([1_000], pa.timestamp("ns")),
            "d": pa.array(["a"]).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    source = ParquetSource(parquet(tmp_path), None)
    spec = source.spec()
    assert spec is not None
    assert spec.table == pa.schema([("x", pa.int64()), ("t", pa.timestamp("us")), ("d", pa.string())])
    source.assign(*discover(parquet(tmp_path), ()))
    batch = source.read(100, 0)
    assert isinstance(batch, Reading)
    assert batch.content.schema == spec.table


TYPES: list[tuple[pa.Array, pa.DataType]] = [
    (pa.array([[1, None], None], pa.list_(pa.uint32())), pa.list_(pa.int64())),
    (pa.array([[1, 2], None], pa.list_(pa.int32(), 2)), pa.list_(pa.int32())),
    (pa.array([["a"], None], pa.large_list(pa.large_string())), pa.list_(pa.string())),
    (pa.array([["a"], None], pa.list_(pa.dictionary(pa.int32(), pa.string()))), pa.list_(pa.string())),
    (pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.uint8())), pa.map_(pa.string(), pa.int16())),
    (pa.array([{"x": 255}, None], pa.struct([("x", pa.uint8())])), pa.struct([("x", pa.int16())])),
    (pa.array(["a", None], pa.string_view()), pa.string()),
    (pa.array([b"a", None], pa.binary_view()), pa.binary()),
    (pa.array([b"ab", None], pa.binary(2)), pa.binary()),
    (pa.array([1.5, None], pa.float16()), pa.float32()),
    (pa.array([1_000, None], pa.duration("ns")), pa.duration("us")),
]


@pytest.mark.parametrize(("column", "expected"), TYPES, ids=[str(type_[0].type) for type_ in TYPES])
def test_parquet_types_that_only_arrow_has_are_widened_at_any_depth(
    tmp_path: Path, column: pa.Array, expected: pa.DataType
) -> None:
    pq.write_table(pa.table({"c": column}), tmp_path / "a.parquet")
    source = ParquetSource(parquet(tmp_path), None)
    source.assign(*discover(parquet(tmp_path), ()))
    spec = source.spec()
    assert spec is not None
    assert spec.table == pa.schema([("c", expected)])
    batch = source.read(1000, 0)
    assert isinstance(batch, Reading)
    assert batch.content.to_pylist() == [{"c": value} for value in column.cast(expected).to_pylist()]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([dt.time(1, 2)], pa.time64("us")),
        pa.array([dt.time(1, 2)], pa.time32("ms")),
        pa.array([{"x": dt.time(1, 2)}]),
        pa.array([1], pa.decimal256(60, 2)),
    ],
)
def test_parquet_types_that_spark_does_not_have_are_refused_with_file_and_column(
    tmp_path: Path, column: pa.Array
) -> None:
    pq.write_table(pa.table({"c": column, "d": [1]}), tmp_path / "a.parquet")
    source = ParquetSource(parquet(tmp_path), None)
    source.assign(*discover(parquet(tmp_path), ()))
    with pytest.raises(UserError, match=r"column 'c' of the source file a\.parquet is .*, which Spark cannot read"):
        source.spec()
    declared = ParquetSource(parquet(tmp_path), pa.schema([("d", pa.int64())]))
    declared.assign(*discover(parquet(tmp_path), ()))
    declared.spec()
    batch = declared.read(1000, 0)
    assert isinstance(batch, Reading)
    assert batch.content.to_pylist() == [{"d": 1}]


def test_int96_is_an_instant_in_every_year_at_any_depth(tmp_path: Path) -> None:
    moments = [-62_135_596_800_000_000, 0, 253_402_300_799_999_999]
    instants = pa.array(moments, pa.int64()).cast(pa.timestamp("us"))
    table = pa.table({"t": instants, "a": pa.ListArray.from_arrays([0, 1, 2, 3], instants)})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True, store_schema=False)
    source = ParquetSource(parquet(tmp_path), None)
    source.assign(*discover(parquet(tmp_path), ()))
    spec = source.spec()
    assert spec is not None
    instant = pa.timestamp("us", "UTC")
    assert spec.table == pa.schema([("t", instant), ("a", pa.list_(instant))])
    batch = source.read(1000, 0)
    assert isinstance(batch, Reading)
    assert batch.content["t"].cast(pa.int64()).to_pylist() == moments
    assert batch.content["a"].cast(pa.list_(pa.int64())).to_pylist() == [[moment] for moment in moments]


def test_parquet_text_that_is_not_utf8_is_reported_with_file_and_column(tmp_path: Path) -> None:
    pq.write_table(pa.table({"c": pa.array([b"\xff"]).view(pa.string())}), tmp_path / "a.parquet")
    source = ParquetSource(parquet(tmp_path), None)
    source.assign(*discover(parquet(tmp_path), ()))
    source.spec()
    with pytest.raises(DataError, match=r"the source file a\.parquet: column 'c' has text that is not UTF-8"):
        source.read(1000, 0)


def test_columns_that_spark_keeps_in_the_names_of_folders_are_not_lost(tmp_path: Path) -> None:
    for folder, number in (("day=2026-03-01/city=a%2Fb", 1), (f"day={_NULL}/city=c", 2)):
        (tmp_path / folder).mkdir(parents=True)
        pq.write_table(pa.table({"x": [number]}), tmp_path / folder / "part.parquet")
    with pytest.raises(UserError, match=r"in a folder that encodes the column 'day': give the source a schema="):
        ParquetSource(parquet(tmp_path), None).spec()
    declared = pa.schema([("x", pa.int64()), ("city", pa.string()), ("day", pa.date32())])
    source = ParquetSource(parquet(tmp_path), declared)
    source.spec()
    source.assign(*discover(parquet(tmp_path), ()))
    reading = source.read(1 << 20, 0)
    assert isinstance(reading, Reading)
    assert sorted(reading.content.to_pylist(), key=lambda row: row["x"]) == [
        {"x": 1, "city": "a/b", "day": dt.date(2026, 3, 1)},
        {"x": 2, "city": "c", "day": None},
    ]


def test_declared_parquet_columns_are_found_in_any_case(tmp_path: Path) -> None:
    pq.write_table(pa.table({"Id": [7]}), tmp_path / "a.parquet")
    source = ParquetSource(parquet(tmp_path), pa.schema([("id", pa.int32())]))
    source.spec()
    source.assign(*discover(parquet(tmp_path), ()))
    reading = source.read(1 << 20, 0)
    assert isinstance(reading, Reading)
    assert reading.content.to_pylist() == [{"id": 7}]


@pytest.mark.parametrize("names", [["a", "a", "b"], ["a", "A", "b"]])
def test_parquet_columns_of_one_name_are_refused_if_they_are_read(tmp_path: Path, names: list[str]) -> None:
    pq.write_table(pa.table([[1], [2], [3]], names=names), tmp_path / "x.parquet")
    with pytest.raises(UserError, match=r"x\.parquet has more than one column '[aA]' \(in any case\): give"):
        ParquetSource(parquet(tmp_path), None).spec()
    found = []
    for wanted in ("a", "A", "b"):
        source = ParquetSource(parquet(tmp_path), pa.schema([(wanted, pa.int32())]))
        source.spec()
        source.assign(*discover(parquet(tmp_path), ()))
        try:
            reading = source.read(1 << 20, 0)
        except UserError as error:
            assert f"x.parquet has more than one column '{wanted}'" in str(error)  # noqa: PT017  not each name fails
        else:
            assert isinstance(reading, Reading)
            found += reading.content.to_pylist()
    assert found == ([{"b": 3}] if names[1] == "a" else [{"a": 1}, {"A": 2}, {"b": 3}])


def test_parquet_without_a_file_has_no_schema_yet(tmp_path: Path) -> None:
    assert ParquetSource(parquet(tmp_path), None).spec() is None


def test_parquet_files_that_do_not_fit_are_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"y": [1]}), tmp_path / "b.parquet")
    source = ParquetSource(parquet(tmp_path), None)
    source.spec()
    source.assign(*discover(parquet(tmp_path), ()))
    with pytest.raises(UserError, match=r"b\.parquet has no column 'x'"):
        source.read(1000, 0)
    (tmp_path / "c.parquet").write_bytes(b"junk")
    with pytest.raises(UserError, match=r"c\.parquet cannot be read as Parquet"):
        discover(parquet(tmp_path), ())


def opening(tmp_path: Path) -> ParquetSource:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    source = ParquetSource(parquet(tmp_path), None)
    source.spec()
    source.close()
    source.assign((SplitState("a.parquet", 0, 1),), complete=True)
    return source


@pytest.mark.parametrize("kind", [PermissionError, NotADirectoryError, IsADirectoryError])
def test_a_parquet_file_that_the_author_must_fix_is_named(tmp_path: Path, kind: type[OSError]) -> None:
    source = opening(tmp_path)
    broken(source, kind("no"))
    with pytest.raises(UserError, match=r"a\.parquet cannot be read as Parquet: no"):
        source.read(1000, 0)


@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, "i/o error"), TimeoutError("timed out"), OSError("AWS Error NETWORK_CONNECTION")]
)
def test_storage_that_fails_is_not_the_authors_error(tmp_path: Path, error: OSError) -> None:
    source = opening(tmp_path)
    broken(source, error)
    with pytest.raises(SourceUnavailable, match=str(error.args[-1])) as caught:
        source.read(1000, 0)
    assert cause_of(caught.value) == FailureCause.FAULT


@pytest.mark.parametrize("damage", [b"\x00", b"\xff"])
def test_a_parquet_file_with_a_damaged_footer_is_named(tmp_path: Path, damage: bytes) -> None:
    source = opening(tmp_path)
    whole = (tmp_path / "a.parquet").read_bytes()
    footer = 8 + int.from_bytes(whole[-8:-4], "little")
    (tmp_path / "a.parquet").write_bytes(whole[:-footer] + damage * (footer - 8) + whole[-8:])
    with pytest.raises(UserError, match=r"a\.parquet cannot be read as Parquet"):
        source.read(1000, 0)


def broken(source: ParquetSource, error: OSError) -> None:
    """Makes every file of a source fail to open."""

    class Broken:
        def open_input_file(self, _: str) -> pa.NativeFile:
            raise error

    assert source._base is not None
    source._base = Location(source._base.uri, Broken(), source._base.path)


def test_a_half_written_file_of_a_continuous_folder_is_left_out_until_it_is_readable(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "b.parquet")
    whole = (tmp_path / "b.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(whole[:-10])
    folder = parquet(tmp_path, continuous=True)
    source = ParquetSource(folder, None)
    assert source.spec() is not None, "the schema comes from a file that can be read"
    assert discover(folder, ()) == ((SplitState("b.parquet", 0, 1),), False)
    (tmp_path / "a.parquet").write_bytes(whole)
    assert discover(folder, ("b.parquet",)) == ((SplitState("a.parquet", 0, 1),), False)


def test_a_restored_source_whose_folder_was_emptied_has_lost_files(tmp_path: Path) -> None:
    source = ParquetSource(parquet(tmp_path), None)
    source.assign((SplitState("a.parquet", 2, 2), SplitState("b.parquet", 1, 2)), complete=True)
    with pytest.raises(UserError, match=r"b\.parquet was removed before it was read completely"):
        source.spec()
    done = ParquetSource(parquet(tmp_path), None)
    done.assign((SplitState("a.parquet", 2, 2),), complete=True)
    assert done.spec() is None
    assert done.complete


@pytest.mark.parametrize("newcomer", [{"x": ["text"]}, {"x": [1], "y": [2]}, {"z": [1]}])
def test_a_file_that_sorts_before_the_assigned_ones_does_not_change_the_schema(
    tmp_path: Path, newcomer: dict[str, list[object]]
) -> None:
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "b.parquet")
    before = ParquetSource(parquet(tmp_path), None).spec()
    pq.write_table(pa.table(newcomer), tmp_path / "a.parquet")
    source = ParquetSource(parquet(tmp_path), None)
    source.assign((SplitState("b.parquet", 1, 2),), complete=True)
    assert source.spec() == before
    assert rows_of(source, 100) == [2]


def test_subtasks_agree_on_the_schema_after_a_restart_though_later_files_are_wider(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": [1], "y": [2]}), tmp_path / "b.parquet")
    specs = []
    for name in ("a.parquet", "b.parquet"):
        source = ParquetSource(parquet(tmp_path), None)
        source.assign((SplitState(name, 0, 1),), complete=True)
        specs.append(source.spec())
    assert specs[0] == specs[1] == ParquetSource(parquet(tmp_path), None).spec()


def test_a_parquet_split_assigned_twice_is_not_read_twice(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "a.parquet")
    source = ParquetSource(parquet(tmp_path), None)
    source.spec()
    for _ in range(2):
        source.assign((SplitState("a.parquet", 0, 2),), complete=True)
    assert isinstance(source.read(1, 0), Reading)
    source.assign((SplitState("a.parquet", 0, 2),), complete=True)
    assert rows_of(source, 100) == [2]


def made(source: RangeSource, budget: int, now_ms: int) -> list[tuple[int, int]]:
    batch = source.read(budget, now_ms)
    if not isinstance(batch, Reading):
        return []
    ranges = [tuple(map(int, line.split(b","))) for line in batch.content[0].splitlines()]
    rows = [(partition, n) for partition, first, last in ranges for n in range(first, last + 1)]
    assert len(rows) == batch.rows
    return rows


def test_the_generator_makes_every_number_once() -> None:
    source = RangeSource(GeneratorSource(partitions=2, rows_per_partition=1000))
    source.assign((SplitState("0", 0, 1000), SplitState("1", 990, 1000)), complete=True)
    rows = []
    while new := made(source, 16 * 300, 0):
        rows += new
    assert sorted(rows) == [(0, n) for n in range(1000)] + [(1, n) for n in range(990, 1000)]
    assert isinstance(source.read(100, 0), Exhausted)


def test_a_partition_assigned_twice_is_not_made_twice() -> None:
    source = RangeSource(GeneratorSource(rows_per_partition=4))
    for _ in range(2):
        source.assign((SplitState("0", 0, 4),), complete=True)
        rows = made(source, 16 * 2, 0)
    assert rows == [(0, 2), (0, 3)]


def test_the_generator_keeps_its_rate() -> None:
    source = RangeSource(GeneratorSource(rows_per_second=1000))
    source.assign((SplitState("0", 500, -1),), complete=True)
    assert isinstance(source.read(10**6, 5000), Idle)
    assert made(source, 10**6, 5100) == [(0, n) for n in range(500, 600)]
    assert isinstance(source.read(10**6, 5101), Idle)
    assert made(source, 10**6, 6000)[-1] == (0, 1499)


@pytest.mark.parametrize("rate", [1e308, 5e-324])
def test_a_rate_that_no_clock_can_keep_breaks_nothing(rate: float) -> None:
    """Of a job that was submitted before rates were bounded."""
    source = RangeSource(GeneratorSource(rows_per_second=rate))
    source.assign((SplitState("0", 0, 50),), complete=True)
    assert isinstance(source.read(1_000, 0), Reading if rate > 1 else Idle)


def test_a_slow_rate_still_produces_rows() -> None:
    source = RangeSource(GeneratorSource(rows_per_second=2))
    source.assign((SplitState("0", 0, 3),), complete=True)
    wait = source.read(10**6, 0)
    assert isinstance(wait, Idle)
    assert 0 < wait.wait_ms <= 500
    assert [made(source, 10**6, now) for now in (500, 1000, 1500)] == [[(0, 0)], [(0, 1)], [(0, 2)]]


def test_long_ranges_are_cut_so_that_spark_makes_no_huge_array() -> None:
    source = RangeSource(GeneratorSource())
    source.assign((SplitState("0", 0, 200_001),), complete=True)
    batch = source.read(1 << 40, 0)
    assert isinstance(batch, Reading)
    assert len(batch.content[0].splitlines()) == 5


def test_batches_start_small_and_grow_to_the_target() -> None:
    sizer = BatchSizer(target_ms=300, max_bytes=10_000_000)
    sizes = []
    for _ in range(10):
        sizes.append(sizer.budget_bytes)
        sizer.observed(sizer.budget_bytes, 20 + sizer.budget_bytes / 10_000, full=True)
    assert sizes[:3] == [50_000, 200_000, 800_000]
    assert 2_000_000 < sizes[-1] < 3_000_000


def test_one_slow_batch_is_chance_and_two_are_too_large() -> None:
    sizer = BatchSizer(target_ms=300, max_bytes=1 << 30)
    sizer.observed(50_000, 10, full=True)
    sizer.observed(200_000, 5000, full=True)
    assert sizer.budget_bytes == 200_000
    sizer.observed(200_000, 5000, full=True)
    assert sizer.budget_bytes == 100_000
    for _ in range(10):
        sizer.observed(100_000, 5000, full=True)
    assert sizer.budget_bytes == 50_000


def test_a_batch_that_has_read_all_there_was_is_followed_by_a_pause() -> None:
    sizer = BatchSizer(target_ms=300, max_bytes=1 << 30, interval_ms=100)
    assert sizer.pause(1_000) is None
    sizer.observed(10, 30, full=False, may_pause=True)
    assert sizer.pause(1_030) == Idle(70)
    assert sizer.pause(1_099) == Idle(1)
    assert sizer.pause(1_100) is None
    sizer.observed(50_000, 30, full=False)
    assert sizer.pause(1_130) is None, "more is there to read"
    sizer.observed(10, 120, full=False, may_pause=True)
    assert sizer.pause(1_250) is None, "the batch took longer than the interval"


def test_a_generator_may_pause_when_no_split_is_due_and_it_is_not_at_its_end() -> None:
    def may_pause(source: RangeSource, now_ms: int) -> bool:
        reading = source.read(1 << 20, now_ms)
        assert isinstance(reading, Reading)
        return reading.may_pause

    for by_split, expected in ((False, [True]), (True, [False, True])):
        source = RangeSource(GeneratorSource(partitions=2, rows_per_partition=2_000, rows_per_second=1_000), by_split)
        source.assign((SplitState("0", 0, 2_000), SplitState("1", 0, 2_000)), complete=True)
        source.read(1 << 20, 0)  # the rate counts from here
        assert [may_pause(source, 1_000) for _ in expected] == expected, "both splits are due"
        assert not any(may_pause(source, 2_000) for _ in expected), "the end is not put off"
        assert isinstance(source.read(1 << 20, 2_000), Exhausted)


def test_parquet_may_pause_when_more_files_may_come(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "a.parquet")
    for complete in (False, True):
        folder = parquet(tmp_path, continuous=not complete)
        source = ParquetSource(folder, None)
        assert source.spec() is not None
        source.assign(*discover(folder, ()))
        reading = source.read(1 << 20, 0)
        assert isinstance(reading, Reading)
        assert reading.may_pause is not complete


def taken_by(cost_ms: Callable[[int, int], float], batches: int) -> list[tuple[int, float]]:
    """Bytes and ms of batches. cost_ms: of the number of a batch and its size."""
    sizer, taken = BatchSizer(target_ms=300, max_bytes=64 << 20), []
    for number in range(batches):
        size = sizer.budget_bytes
        taken.append((size, cost_ms(number, size)))
        sizer.observed(*taken[-1], full=True)
    return taken


def on_a_shared_core(at_a_time: int, seed: int) -> tuple[float, float]:
    """The bytes' share of the processor time of 150 batches, and how long the slowest of them but one took, in ms.

    A batch has 40 ms of processor time, and 1 ms for 40 KB. It takes turns with others, by chance more or fewer.
    """
    chance = random.Random(seed)
    turns = [max(1.0, at_a_time * math.exp(chance.gauss(-0.125, 0.5))) for _ in range(150)]
    taken = taken_by(lambda number, size: (40 + size / 40_000) * turns[number], 150)
    used_ms = sum(size / 40_000 for size, _ in taken)
    return used_ms / (used_ms + 40 * len(taken)), sorted(ms for _, ms in taken)[-2]


@pytest.mark.parametrize(
    ("at_a_time", "share", "slowest_ms"), [(8, 0.3, 2_000), (16, 0.3, 7_000), (24, 0.3, 9_000), (40, 0.3, 11_000)]
)
def test_where_many_subtasks_share_a_core_their_bytes_take_a_good_part_of_the_time(
    at_a_time: int, share: float, slowest_ms: float
) -> None:
    found = [on_a_shared_core(at_a_time, seed) for seed in range(15)]
    assert statistics.median(found_share for found_share, _ in found) > share
    assert statistics.median(slowest for _, slowest in found) < slowest_ms, "barriers wait for a batch"


def test_a_single_stall_or_a_slow_start_makes_no_batch_long_for_long() -> None:
    def cost_ms(size: int) -> float:
        return 320 + size * 0.008

    steady = taken_by(lambda _, size: cost_ms(size), 80)
    stalled = taken_by(lambda number, size: cost_ms(size) + 10_000 * (number == 20), 80)
    assert [size for size, _ in stalled] == [size for size, _ in steady]
    slow_start = [ms for _, ms in taken_by(lambda number, size: cost_ms(size) + 8_000 * 0.6**number, 80)]
    assert sum(ms > 1_500 for ms in slow_start[8:]) <= 4


def test_a_load_that_rises_makes_batches_smaller() -> None:
    taken = taken_by(lambda number, size: (40 + size / 40_000) * (10 if number >= 20 else 1), 60)
    assert max(ms for _, ms in taken[24:]) < 2_000
    assert min(size for size, _ in taken[24:]) > 1_000_000


def read_with(fixed_ms: float, ms_per_byte: float, batches: int = 60) -> tuple[float, list[int]]:
    """The bytes a millisecond, and the sizes, of batches that each take fixed_ms and a time by their size."""
    taken = taken_by(lambda _, size: fixed_ms + size * ms_per_byte, batches)
    sizes, took_ms = [size for size, _ in taken], [ms for _, ms in taken]
    assert max(took_ms[2:]) <= 4 * took_ms[0], "barriers wait for a batch"
    return sum(sizes) / sum(took_ms), sizes


@pytest.mark.parametrize("fixed_ms", [460, 600, 1000])
def test_batches_that_are_slow_whatever_their_size_are_not_the_smallest(fixed_ms: float) -> None:
    smallest = 50_000 / fixed_ms
    assert read_with(fixed_ms, ms_per_byte=1e-4)[0] > 15 * smallest


def test_batches_that_are_slow_for_their_size_stay_small_after_one_try() -> None:
    _, sizes = read_with(fixed_ms=20, ms_per_byte=0.012)
    assert sizes[:4] == [50_000, 50_000, 100_000, 100_000]
    assert set(sizes[4:]) == {50_000}


def test_slow_batches_that_were_not_full_are_not_made_larger() -> None:
    sizer = BatchSizer(target_ms=300, max_bytes=1 << 30)
    for _ in range(10):
        sizer.observed(1000, 600, full=False)
    assert sizer.budget_bytes == 50_000


def test_a_batch_that_was_not_full_does_not_grow_the_next() -> None:
    sizer = BatchSizer(target_ms=300, max_bytes=1 << 30)
    sizer.observed(10, 5, full=False)
    assert sizer.budget_bytes == 50_000
    assert BatchSizer(300, 1000).budget_bytes == 1000
