"""What travels through a channel, and how record tables become messages of a good size and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
from lockgate_common.arrow_input import read_stream
from lockgate_proto.messages import Barrier, EndOfInput, LoopProbe, RecordBatch, SplitPosition, SplitRange, Watermark

from lockgate_taskmanager.exchange.errors import RecordTooLarge

Element: TypeAlias = pa.Table | Barrier | Watermark | EndOfInput | LoopProbe

CONTROL_BYTES = 64
MESSAGE_BYTES = 1024 * 1024  # grpcio is fastest between 64 KiB and 1 MiB a message
LARGEST_MESSAGE_BYTES = 60 * 1024 * 1024  # just below rpc.MAX_MESSAGE_BYTES


@dataclass(frozen=True, slots=True)
class ChannelId:
    """The upstream end of a channel, as its receiver names it."""

    vertex_id: str
    subtask: int


@dataclass(frozen=True, slots=True)
class BatchPiece:
    """What an element is of a source's batch, in a job that may restart in part.

    more: as in StreamElement; ranges: what was read for the batch.
    """

    more: bool = False
    ranges: tuple[SplitRange, ...] = ()

    @property
    def read_to(self) -> tuple[SplitPosition, ...]:
        """As in StreamElement."""
        return () if self.more else tuple(SplitPosition(known.split, known.end) for known in self.ranges)


ALONE = BatchPiece()


def size_of(element: Element) -> int:
    """The size of the element in a bounded queue, in bytes."""
    return max(int(element.nbytes), CONTROL_BYTES) if isinstance(element, pa.Table) else CONTROL_BYTES


def split(table: pa.Table, target_bytes: int = MESSAGE_BYTES) -> Iterator[pa.Table]:
    """The table in slices of about `target_bytes`, twice that at most unless one row has more, at least one row each; a
    small or empty table as it is.
    """
    if table.nbytes <= target_bytes or table.num_rows <= 1:
        yield table
        return
    rows = min(max(1, int(table.num_rows * target_bytes / table.nbytes)), table.num_rows - 1)
    for start in range(0, table.num_rows, rows):
        piece = table.slice(start, rows)
        if piece.nbytes > 2 * target_bytes:  # large rows are next to each other
            yield from split(piece, target_bytes)
        else:
            yield piece


def sendable(table: pa.Table, target_bytes: int = MESSAGE_BYTES) -> list[pa.Table]:
    """The same for messages. Raises RecordTooLarge if no message carries one of them."""
    pieces = list(split(table, target_bytes))
    for piece in pieces:  # several rows are far below the limit; a message is a little larger than its table
        if piece.num_rows == 1 and piece.nbytes > LARGEST_MESSAGE_BYTES // 2:
            to_message(piece)
    return pieces


def to_message(table: pa.Table) -> RecordBatch:
    """One record batch in an Arrow IPC stream. Raises RecordTooLarge."""
    whole = table.combine_chunks()
    batches = whole.to_batches()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, whole.schema) as writer:
        for batch in batches or [_no_rows(whole.schema)]:
            writer.write_batch(batch)
    data = sink.getvalue()
    if data.size > LARGEST_MESSAGE_BYTES:
        raise RecordTooLarge(
            f"{table.num_rows} record(s) take {data.size >> 20} MiB in one message, the exchange carries at most "
            f"{LARGEST_MESSAGE_BYTES >> 20} MiB; make the values smaller before the records leave this operator"
        )
    return RecordBatch(arrow_ipc=data.to_pybytes(), rows=table.num_rows)


def from_message(message: RecordBatch) -> pa.Table:
    """The table of a received message. Raises pyarrow.ArrowInvalid for bytes that `to_message` does not make."""
    return read_stream(message.arrow_ipc, message.rows)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], type=field.type) for field in schema], schema=schema)
