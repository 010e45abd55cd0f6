"""Record batches as values of one BINARY column, each an Arrow IPC message. Also used in Spark's Python workers.

Spark would turn the columns of a batch into rows and back, on the way to a Python worker and on the way from it, which
takes longer than most functions. A BINARY value is passed on as it is, whatever is in it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

Call = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
SCHEMA = pa.schema([("schema", pa.int32()), ("batch", pa.binary())])
"""schema: its number among those that both sides know."""
ROWS_AT_ONCE = 8_192
"""Few enough for a processor's cache."""
_NEW_OBJECTS = 5_000  # before Python's garbage collector looks at them; usually 700
_BYTES_AT_ONCE = 4 << 20  # so that Spark passes large batches on piece by piece, as it does with rows


def batches_of(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """The rows of a table in batches that are neither too long nor too large; none of no rows."""
    for chunk in table.to_batches():
        fitting = chunk.num_rows * _BYTES_AT_ONCE // max(1, chunk.nbytes)
        step = min(ROWS_AT_ONCE, max(1, fitting))
        yield from (chunk.slice(start, step) for start in range(0, chunk.num_rows, step))


def sealed(batches: Iterable[pa.RecordBatch], schemas: Sequence[pa.Schema]) -> Iterator[pa.RecordBatch]:
    """A row for each batch. schemas: of the batches, which differ in their names."""
    numbers = {tuple(schema.names): number for number, schema in enumerate(schemas)}
    for batch in batches:
        number = numbers[tuple(batch.schema.names)]
        if batch.schema.types != schemas[number].types:  # a message does not have its types
            batch = batch.cast(schemas[number])
        row = [[number], [batch.serialize().to_pybytes()]]
        yield pa.RecordBatch.from_arrays(list(map(pa.array, row, SCHEMA.types)), schema=SCHEMA)


def opened(rows: Iterable[pa.RecordBatch], schemas: Sequence[pa.Schema]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batches in the rows, each with the number of its schema."""
    for row in rows:
        for number, message in zip(*row.columns, strict=True):
            place = number.as_py()
            yield place, pa.ipc.read_record_batch(message.as_py(), schemas[place])  # a copy: its memory is aligned


def sealing(call: Call, given: Sequence[pa.Schema], made: Sequence[pa.Schema]) -> Call:
    """The same for Spark. given, made: schemas of the batches that it takes, and of those that it makes."""

    def sealed_call(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with _few_collections():
            yield from sealed(call(batch for _, batch in opened(rows, given)), made)

    return sealed_call


@contextmanager
def _few_collections() -> Iterator[None]:
    """The objects of a batch live until it is sent, so there is nothing to collect among them. But so many new ones
    would let the collector go through all objects of the process once in a while.
    """
    usual = gc.get_threshold()
    if usual[0]:  # else the author has switched it off
        gc.set_threshold(max(_NEW_OBJECTS, usual[0]), *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
