"""Stored state that was damaged or made up: refused as unreadable, in a sentence, before any of it is used."""

from __future__ import annotations

import contextlib
import io
import json
import zipfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from lockgate_proto.messages import Aggregate, AggregateFunction, KeyedAggregate, OperatorState, StateHandle, StateKind
from lockgate_taskmanager.state.factory import StoreFactory
from lockgate_taskmanager.state.format import state_file
from lockgate_taskmanager.state.format.state_file import About
from lockgate_taskmanager.state.rocksdb import frozen_database
from lockgate_taskmanager.state.rocksdb.engine import Database
from lockgate_taskmanager.state.rows.row_store import RowSpec
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.task.program import StateUnreadable

COLUMNS = pa.schema([("k", pa.int64()), ("__hash", pa.int64())])
ABOUT = About(COLUMNS, "signature", 8)
FILES = {"CURRENT": "MANIFEST-5\n", "MANIFEST-5": "some text that can be compressed, compressed, compressed"}
DEEP = "[" * 100_000 + "]" * 100_000


def rows(places: np.ndarray) -> pa.RecordBatch:
    return pa.record_batch([places, places], schema=COLUMNS)


def saying(**changes: str) -> pa.Buffer:
    """A file that says something else of itself."""
    source = pa.ipc.open_file(state_file.write(np.arange(100), rows, ABOUT))
    said = {key.decode(): value.decode() for key, value in source.schema.metadata.items()}
    schema = source.schema.with_metadata(said | {f"lockgate.{name}": text for name, text in changes.items()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as file:
        for number in range(source.num_record_batches):
            file.write_batch(source.get_batch(number).replace_schema_metadata(schema.metadata))
    return sink.getvalue()


def read(data: pa.Buffer) -> state_file.Stored:
    return state_file.read(data, "f", signature="signature", max_parallelism=8, wanted=range(8))


def test_an_unchanged_state_file_is_read() -> None:
    assert sum(batch.num_rows for batch in read(saying()).batches) == 100


@pytest.mark.parametrize("name", ["key_groups", "owned", "ahead", "gone", "watermark", "max_parallelism"])
@pytest.mark.parametrize("text", [DEEP, "", "null", "7.5", '{"a": 1}', "[1e999]", "[[1, 2]]", '["x", "y"]', "[-1, 9]"])
def test_a_file_that_says_something_impossible_is_unreadable(name: str, text: str) -> None:
    with pytest.raises(StateUnreadable, match="the state file f "):
        read(saying(**{name: text}))


def test_a_file_of_another_format_is_refused_with_both_versions() -> None:
    with pytest.raises(
        StateUnreadable, match=r"the state file f has format 6, and Lockgate \d\S+ reads 1 or 2 or 3 or 4"
    ):
        read(saying(format="6"))


@pytest.mark.parametrize("groups", [[0], list(range(7)), list(range(9))])
def test_no_batch_is_left_out_because_its_key_group_is_not_listed(groups: list[int]) -> None:
    with pytest.raises(StateUnreadable, match="it should list 8 whole numbers"):
        read(saying(key_groups=json.dumps(groups)))


@pytest.mark.parametrize("hashes", [pa.array([0.0] * 100), pa.array([0, None] * 50), pa.array(["x"] * 100)])
def test_hashes_are_whole_numbers(hashes: pa.Array) -> None:
    def take(places: np.ndarray) -> pa.RecordBatch:
        return pa.record_batch([places, hashes.take(pa.array(places))], names=["k", "__hash"])

    with pytest.raises(StateUnreadable, match=r"column '__hash' has the type|its column __hash has a NULL"):
        read(state_file.write(np.arange(100), take, ABOUT))


def test_rows_by_key_need_their_columns() -> None:
    spec = RowSpec("op", "a test", ("k",), 8, range(8))
    about = About(COLUMNS, spec.signature, 8)
    with pytest.raises(StateUnreadable, match="cannot be read as rows by key: it has other columns"):
        spec.read(state_file.write(np.arange(100), rows, about), "f")


@pytest.mark.parametrize("about", ["[]", "7", DEEP, '{"lockgate.format": 1}', "{}", '{"lockgate.format": "1"}'])
def test_an_archive_that_says_something_impossible_is_unreadable(about: str, tmp_path: Path) -> None:
    with pytest.raises(StateUnreadable, match="of operator op inside the checkpoint"):
        restore(archive(about), tmp_path)


@pytest.mark.parametrize("missing", FILES)
def test_an_archive_without_the_list_of_its_tables_is_unreadable_and_no_outage(missing: str, tmp_path: Path) -> None:
    about = json.dumps(state_file.described(ABOUT, "1"))
    with pytest.raises(StateUnreadable, match="cannot be read as a database"):
        restore(archive(about, {name: text for name, text in FILES.items() if name != missing}), tmp_path)


def test_a_damaged_archive_is_unreadable(tmp_path: Path) -> None:
    whole = archive(json.dumps(state_file.described(ABOUT, "1")))
    restore(whole, tmp_path / "whole")
    for at in range(30, len(whole)):
        damaged = whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]
        with contextlib.suppress(StateUnreadable):
            restore(damaged, tmp_path / str(at))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, 99])
def test_an_archive_compressed_in_another_way_is_unreadable_and_no_outage(method: int, tmp_path: Path) -> None:
    """One flipped bit in the directory is enough. bz2 raises OSError for what it cannot read, as an outage does."""
    data = bytearray(archive(json.dumps(state_file.described(ABOUT, "1"))))
    at = data.index(b"PK\x01\x02") + 10
    data[at : at + 2] = method.to_bytes(2, "little")
    with pytest.raises(StateUnreadable, match="compressed in a way"):
        restore(bytes(data), tmp_path)


def archive(about: str, files: Mapping[str, str] = FILES) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("about.json", about)
        for name, text in files.items():
            file.writestr(name, text)
    return target.getvalue()


def restore(data: bytes, folder: Path) -> None:
    state = OperatorState("op", StateKind.ROCKSDB_STATE, StateHandle(inline=data))
    frozen_database.restore_files(state, folder / "database", "signature", 8)


@pytest.mark.skipif(find_spec("rocksdict") is None, reason="needs rocksdict")
def test_a_damaged_database_is_unreadable_and_not_tried_again(tmp_path: Path) -> None:
    database = Database(tmp_path / "db")
    database.put([b"key"], [b"value"])
    database.checkpoint(tmp_path / "copy")
    database.close()
    (manifest,) = (tmp_path / "copy").glob("MANIFEST*")
    manifest.write_bytes(b"no manifest of a database" * 100)
    with pytest.raises(StateUnreadable, match="a stored database is damaged"):
        Database(tmp_path / "copy")


def test_state_of_other_types_than_its_columns_is_unreadable(tmp_path: Path) -> None:
    spec = StoreSpec("op", KeyedAggregate(("k",), (Aggregate("n", AggregateFunction.COUNT, ""),)), 8, range(8))
    partials = pa.schema([("k", pa.int64()), ("__hash", pa.int64()), ("__rows", pa.int64())])
    stored = pa.schema([("k", pa.int64()), ("__hash", pa.int64()), ("n#count", pa.string())])

    def take(places: np.ndarray) -> pa.RecordBatch:
        return pa.record_batch([places, places, pa.array([f"text {place}" for place in places])], schema=stored)

    data = state_file.write(np.arange(100), take, About(partials, spec.signature, 8)).to_pybytes()
    state = OperatorState("op", StateKind.KEYED_STATE, StateHandle(inline=data))
    with pytest.raises(StateUnreadable, match="the stored state of operator op does not fit it"):
        StoreFactory(None, ScratchFolder(tmp_path, "state-")).restored(spec, [state], 1)
