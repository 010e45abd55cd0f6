"""Arrow data that others have written, checked before it takes memory: by what its headers say, it is no bomb.

Lockgate writes Arrow data uncompressed. Data that is compressed is refused, so that what is read never takes more
memory than its bytes do, and tables of rows without content have a bound. Every offset, index and text is checked: one
that points elsewhere would end the process, in whatever reads it later.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

MOST_ROWS_OF_NOTHING = 1 << 24
"""Of one stream or file; rows of columns that take no bytes. Any other row takes a bit at least."""

_CONTINUATION = 0xFFFFFFFF
_MAGIC = b"ARROW1"
_RECORD_BATCH, _DICTIONARY_BATCH = 3, 2
_BLOCK_BYTES = 24

Data = Any  # what has the buffer protocol: bytes, a pyarrow.Buffer; or a pyarrow.MemoryMappedFile


class ArrowInputError(pa.ArrowInvalid):  # type: ignore[misc]
    """The data is no Arrow data, or would take more memory than its bytes. The message says which."""


def read_stream(data: Data, rows: int | None = None) -> pa.Table:
    """The table of an IPC stream. rows: how many there have to be. Raises ArrowInputError."""
    view = memoryview(data)
    _check_rows(list(_in_stream(view)), view.nbytes, rows)
    with _one_error(), pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        table = reader.read_all()
        _check_names(table.schema)
        table.validate(full=True)
    return table


def open_file(data: Data) -> pa.ipc.RecordBatchFileReader:
    """An IPC file, for batches to be read one by one with `batch`. Raises ArrowInputError."""
    if isinstance(data, pa.NativeFile):
        data.seek(0)
        data = data.read_buffer()
    content = pa.py_buffer(data)
    _check_rows(list(_in_file(memoryview(content))), content.size, None)
    with _one_error():
        file = pa.ipc.open_file(content)
        _check_names(file.schema)
    return file


def batch(file: pa.ipc.RecordBatchFileReader, number: int) -> pa.RecordBatch:
    """A record batch of the file. Raises ArrowInputError."""
    with _one_error():
        found = file.get_batch(number)
        found.validate(full=True)
    return found


def read_schema(data: Data) -> pa.Schema:
    """A schema that was stored alone. Raises ArrowInputError."""
    with _one_error():
        schema = pa.ipc.read_schema(pa.py_buffer(data))
        _check_names(schema)
    return schema


@contextmanager
def _one_error() -> Iterator[None]:
    """pyarrow raises an OSError or one of its own exceptions for damaged data, even without any disk access."""
    try:
        yield
    except ArrowInputError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ArrowInputError(str(error)) from error


def _check_names(schema: pa.Schema) -> None:
    """Raises UnicodeDecodeError for the name of a column, or of a part of one, that is no text."""
    waiting = list(schema)
    while waiting:
        field = waiting.pop()
        assert field.name is not None
        waiting += [field.type.field(number) for number in range(field.type.num_fields)]


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of FlatBuffers: where it starts, and where the list of its fields does."""

    view: memoryview
    start: int

    def place(self, field: int) -> int:
        """Where a field is; 0 when it is not there, which stands for its default."""
        fields = self.start - _number(self.view, "<i", self.start)
        entry = 4 + 2 * field
        if entry >= _number(self.view, "<H", fields):
            return 0
        offset = _number(self.view, "<H", fields + entry)
        return self.start + offset if offset else 0

    def number(self, field: int, form: str) -> int:
        """A number."""
        place = self.place(field)
        return _number(self.view, form, place) if place else 0

    def table(self, field: int) -> _Table | None:
        """Another table."""
        place = self.place(field)
        return _Table(self.view, place + _number(self.view, "<I", place)) if place else None


def _in_stream(view: memoryview) -> Iterator[int]:
    """The rows of each record batch."""
    place = 0
    while place < view.nbytes:
        head, behind = _message(view, place)
        if head is None:
            return
        yield from _rows(head)
        place = behind + max(0, head.number(3, "<q"))
    if place > view.nbytes:
        raise ArrowInputError("it ends in the middle of a batch")


def _in_file(view: memoryview) -> Iterator[int]:
    """The same of a file, whose end says where its batches are."""
    end = view.nbytes - len(_MAGIC)
    if view.nbytes < 4 * len(_MAGIC) or bytes(view[end:]) != _MAGIC:
        raise ArrowInputError("it is not an Arrow file")
    length = _number(view, "<i", end - 4)
    footer_start = end - 4 - length
    footer = _Table(view, footer_start + _number(view, "<I", footer_start))
    for field in (2, 3):  # dictionaries, record batches
        place = footer.place(field)
        if not place:
            continue
        vector = place + _number(view, "<I", place)
        for number in range(_number(view, "<I", vector)):
            head, _ = _message(view, _number(view, "<q", vector + 4 + number * _BLOCK_BYTES))
            if head is None:
                raise ArrowInputError("a batch is not where the file says")
            yield from _rows(head)


def _message(view: memoryview, place: int) -> tuple[_Table | None, int]:
    """A message's header, None at the end of a stream, and the place behind it."""
    if _number(view, "<I", place) != _CONTINUATION:
        raise ArrowInputError("it is not Arrow data, or of a version before 0.15")
    length = _number(view, "<i", place + 4)
    if length == 0:
        return None, place + 8
    behind = place + 8 + length
    if length < 0 or behind > view.nbytes:
        raise ArrowInputError("a header ends beyond the data")
    return _Table(view[:behind], place + 8 + _number(view, "<I", place + 8)), behind


def _rows(head: _Table) -> Iterator[int]:
    """The rows of a record batch; nothing for a schema. Raises ArrowInputError for a batch that is compressed."""
    kind = head.number(1, "<B")
    if kind not in (_RECORD_BATCH, _DICTIONARY_BATCH):
        return
    content = head.table(2)
    if kind == _DICTIONARY_BATCH and content is not None:
        content = content.table(1)
    if content is None:
        raise ArrowInputError("a batch has no header")
    if content.place(3):
        raise ArrowInputError("it is compressed, and could expand to any size; send it uncompressed")
    if kind == _RECORD_BATCH:
        yield content.number(0, "<q")


def _check_rows(found: list[int], size: int, rows: int | None) -> None:
    total = sum(found)
    if min(found, default=0) < 0 or (rows is not None and total != rows):
        raise ArrowInputError(f"its header says {total} rows, but {rows} were announced")
    if total > max(8 * size, MOST_ROWS_OF_NOTHING):
        raise ArrowInputError(f"{total} rows do not fit {size} bytes")


def _number(view: memoryview, form: str, place: int) -> int:
    try:
        if place < 0:
            raise ArrowInputError("a header points before the data")
        return int(struct.unpack_from(form, view, place)[0])
    except struct.error as error:
        raise ArrowInputError("a header points beyond the data") from error
