"""Record batches as values of a BINARY column."""

from __future__ import annotations

import datetime as dt
import gc
from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa
import pytest
from lockgate_taskmanager.spark.keyed.ipc_batches import ROWS_AT_ONCE, SCHEMA, batches_of, opened, sealed, sealing

NESTED = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(38, 4)),
        ("tags", pa.map_(pa.string(), pa.list_(pa.int64()))),
        ("who", pa.struct([("name", pa.string())])),
        ("nothing", pa.null()),
    ]
)
ROWS = [
    {
        "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        "price": Decimal("12.5000"),
        "tags": [("a", [1, None])],
        "who": {"name": "é"},
        "nothing": None,
    },
    dict.fromkeys(NESTED.names),
]
PLAIN = pa.schema([("n", pa.int64())])
FIRST = pa.RecordBatch.from_pylist(ROWS, NESTED)
SECOND = pa.record_batch([[1, 2, 3]], schema=PLAIN)


def test_batches_come_out_as_they_went_in_with_their_schema() -> None:
    rows = list(sealed([FIRST, SECOND, FIRST.slice(1)], (NESTED, PLAIN)))
    assert all(row.schema == SCHEMA and row.num_rows == 1 for row in rows)
    found = list(opened(pa.Table.from_batches(rows).combine_chunks().to_batches(), (NESTED, PLAIN)))
    assert found == [(0, FIRST), (1, SECOND), (0, FIRST.slice(1))]
    for _, batch in found:
        batch.validate(full=True)


def test_what_is_read_lies_where_arrow_wants_it() -> None:
    rows = pa.Table.from_batches(sealed([SECOND] * 5, (PLAIN,))).combine_chunks()
    shifted = pa.concat_arrays([pa.array([b"odd"]), rows.column(1).combine_chunks()]).slice(1)
    moved = pa.RecordBatch.from_arrays([rows.column(0).combine_chunks(), shifted], schema=SCHEMA)
    for _, batch in opened([moved], (PLAIN,)):
        assert batch.column(0).buffers()[1].address % 8 == 0


def test_a_call_sees_nothing_of_it() -> None:
    def doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.schema.names == PLAIN.names:
                yield pa.record_batch([[2 * n for n in batch.column(0).to_pylist()]], schema=PLAIN)

    call = sealing(doubled, (NESTED, PLAIN), (PLAIN,))
    made = list(opened(call(sealed([FIRST, SECOND], (NESTED, PLAIN))), (PLAIN,)))
    assert [batch.column(0).to_pylist() for _, batch in made] == [[2, 4, 6]]
    assert list(call(iter(()))) == []


@pytest.mark.parametrize("count", [0, 1, ROWS_AT_ONCE, 20_000])
def test_a_table_is_cut_into_batches_with_rows(count: int) -> None:
    table = pa.concat_tables(
        [PLAIN.empty_table(), pa.table({"n": pa.array(range(count), pa.int64())}), PLAIN.empty_table()]
    )
    batches = list(batches_of(table))
    assert sum(batch.num_rows for batch in batches) == count
    assert all(0 < batch.num_rows <= ROWS_AT_ONCE for batch in batches)


def test_large_rows_are_in_batches_of_their_own() -> None:
    table = pa.table({"b": [bytes(3 << 20), bytes(3 << 20), b"x", bytes(9 << 20)]})
    batches = list(batches_of(table))
    assert pa.Table.from_batches(batches) == table
    assert max(batch.nbytes for batch in batches) < 10 << 20


def test_a_batch_of_other_types_is_cast_or_refused() -> None:
    wanted = pa.schema([("n", pa.float64())])
    ((_, batch),) = opened(sealed([SECOND], (wanted,)), (wanted,))
    assert batch.column(0).to_pylist() == [1.0, 2.0, 3.0]
    with pytest.raises(pa.ArrowInvalid):
        list(sealed([pa.record_batch({"n": ["x"]})], (wanted,)))


@pytest.fixture
def usual() -> Iterator[tuple[int, int, int]]:
    """Thresholds of the garbage collector."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield gc.get_threshold()
    gc.set_threshold(*before)


def test_the_garbage_collector_waits_only_while_a_call_runs(usual: tuple[int, int, int]) -> None:
    seen = []

    def watched(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            seen.append(gc.get_threshold())
            yield batch

    call, rows = sealing(watched, (PLAIN,), (PLAIN,)), list(sealed([SECOND] * 2, (PLAIN,)))
    assert list(call(iter(rows))) == rows
    assert gc.get_threshold() == usual
    stopped = call(iter(rows))
    next(stopped)
    stopped.close()
    assert gc.get_threshold() == usual
    assert len(seen) == 3
    assert all(seen_[0] > usual[0] and seen_[1:] == usual[1:] for seen_ in seen)


@pytest.mark.parametrize("first", [0, 1_000_000])
def test_an_author_who_collects_less_often_still_does(usual: tuple[int, int, int], first: int) -> None:
    gc.set_threshold(first, *usual[1:])

    def watched(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        assert gc.get_threshold()[0] == first
        yield from batches

    assert len(list(sealing(watched, (PLAIN,), (PLAIN,))(sealed([SECOND], (PLAIN,))))) == 1
