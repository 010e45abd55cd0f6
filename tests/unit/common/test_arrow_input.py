"""Arrow data of others: what takes more memory than its bytes, or is damaged, is refused before it is read."""

from __future__ import annotations

import contextlib
import random

import numpy as np
import pyarrow as pa
import pytest
from lockgate_common import arrow_input

TABLE = pa.table({"word": [f"w{number % 7}" for number in range(1000)], "count": np.arange(1000)})
HUGE = 4_000_000


def stream(table: pa.Table, compression: str | None = None) -> bytes:
    """An IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def file(table: pa.Table, compression: str | None = None) -> bytes:
    """An IPC file."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=300)
    return bytes(sink.getvalue())


def read_file(data: bytes) -> pa.Table:
    """Every batch of a file."""
    opened = arrow_input.open_file(data)
    batches = [arrow_input.batch(opened, number) for number in range(opened.num_record_batches)]
    return pa.Table.from_batches(batches, opened.schema)


def test_files_written_by_lockgate_are_read() -> None:
    assert arrow_input.read_stream(stream(TABLE), 1000).equals(TABLE)
    assert arrow_input.read_stream(stream(TABLE.slice(0, 0)), 0).num_rows == 0
    assert read_file(file(TABLE)).equals(TABLE)
    assert arrow_input.read_stream(pa.py_buffer(stream(TABLE))).equals(TABLE)


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_bomb_takes_no_memory(compression: str) -> None:
    zeros = pa.table({"n": np.zeros(HUGE, np.int64)})
    before = pa.total_allocated_bytes()
    for read, data in ((arrow_input.read_stream, stream(zeros, compression)), (read_file, file(zeros, compression))):
        with pytest.raises(pa.ArrowInvalid, match="it is compressed"):
            read(data)
    del zeros
    assert pa.total_allocated_bytes() <= before


def test_a_compressed_dictionary_is_refused_too() -> None:
    words = pa.table({"word": pa.array(["a" * 100_000, "b"]).dictionary_encode()})
    with pytest.raises(pa.ArrowInvalid, match="it is compressed"):
        arrow_input.read_stream(stream(words, "zstd"))
    assert arrow_input.read_stream(stream(words), 2).equals(words)


@pytest.mark.parametrize("rows", [1, 999, 1001])
def test_other_rows_than_announced_are_refused(rows: int) -> None:
    with pytest.raises(pa.ArrowInvalid, match=f"says 1000 rows, but {rows} were announced"):
        arrow_input.read_stream(stream(TABLE), rows)


def test_rows_without_content_have_a_bound() -> None:
    many = arrow_input.MOST_ROWS_OF_NOTHING
    assert arrow_input.read_stream(stream(pa.table({"n": pa.nulls(many)})), many).num_rows == many
    with pytest.raises(pa.ArrowInvalid, match="rows do not fit"):
        arrow_input.read_stream(stream(pa.table({"n": pa.nulls(many + 1)})), many + 1)


def test_a_batch_that_says_more_rows_than_it_has_bytes_for_is_refused() -> None:
    data = stream(pa.table({"n": np.arange(1000)}))
    claimed = data.replace((1000).to_bytes(8, "little"), (10_000).to_bytes(8, "little"))
    assert claimed != data
    with pytest.raises(pa.ArrowInvalid):
        arrow_input.read_stream(claimed, 10_000)


@pytest.mark.parametrize("length", [0, 1, 7, 8, 100, 500, 5_000])
def test_half_of_it_is_refused(length: int) -> None:
    with pytest.raises(pa.ArrowInvalid):
        arrow_input.read_stream(stream(TABLE)[:length], 1000)
    with pytest.raises(pa.ArrowInvalid):
        read_file(file(TABLE)[:length])


@pytest.mark.parametrize("data", [b"", b"nonsense", b"ARROW1\0\0" + b"\xff" * 100 + b"ARROW1"])
def test_invalid_arrow_data_is_refused(data: bytes) -> None:
    with pytest.raises(pa.ArrowInvalid):
        arrow_input.read_stream(data)
    with pytest.raises(pa.ArrowInvalid):
        read_file(data)


def test_flipped_bits_are_read_or_refused() -> None:
    """Values that have changed are the checksum's to find; nothing else may come of it, a crash least of all."""
    choice = random.Random(7)
    for make, read in ((stream, arrow_input.read_stream), (file, read_file)):
        whole = make(TABLE.slice(0, 50))
        for _ in range(500):
            damaged = bytearray(whole)
            damaged[choice.randrange(len(whole))] ^= 1 << choice.randrange(8)
            try:
                read(bytes(damaged))
            except (pa.ArrowException, OSError, ValueError):
                continue


def changed(data: bytes, old: bytes, new: bytes) -> bytes:
    """The data with one place overwritten."""
    assert len(old) == len(new)
    assert data.count(old) == 1
    return data.replace(old, new)


def test_an_offset_in_the_middle_that_points_elsewhere_is_refused() -> None:
    offsets = np.array([0, 3, 6, 9], np.int32)
    data = stream(pa.table({"word": ["abc", "def", "ghi"]}))
    wild = np.array([0, 3, 1 << 30, 9], np.int32)
    with pytest.raises(arrow_input.ArrowInputError, match=r"(?i)offset"):
        arrow_input.read_stream(changed(data, offsets.tobytes(), wild.tobytes()))


def test_an_index_beyond_its_dictionary_is_refused() -> None:
    indices = np.array([0, 1, 0, 1, 1], np.int32)
    words = pa.table({"word": pa.DictionaryArray.from_arrays(pa.array(indices), ["a", "b"])})
    wild = np.array([0, 1, 0, 1 << 24, 1], np.int32)
    with pytest.raises(arrow_input.ArrowInputError, match="out of bounds"):
        arrow_input.read_stream(changed(stream(words), indices.tobytes(), wild.tobytes()))


def test_text_that_is_not_utf8_is_refused_in_rows_and_in_names() -> None:
    table = pa.table({"long name": pa.array(["some text"])})
    for old, new in ((b"some text", b"some \xfftxt"), (b"long name", b"long\xffname")):
        with pytest.raises(arrow_input.ArrowInputError):
            arrow_input.read_stream(changed(stream(table), old, new))
    nested = pa.table({"s": pa.array([{"inner name": 1}])})
    with pytest.raises(arrow_input.ArrowInputError):
        arrow_input.read_stream(changed(stream(nested), b"inner name", b"inner\xffname"))


def test_whatever_is_damaged_there_is_one_error() -> None:
    for data, read in ((stream(TABLE), arrow_input.read_stream), (file(TABLE), read_file)):
        for at in range(0, 700, 3):
            for value in (0x00, 0x7F, 0xFF):
                with contextlib.suppress(arrow_input.ArrowInputError):
                    read(data[:at] + bytes([value]) + data[at + 1 :])
