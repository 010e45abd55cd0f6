"""What was acknowledged outlives a loss of power: state, metadata, graphs, and what file sinks stage and show."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.json as pajson
import pyarrow.parquet as pq
import pytest
from lockgate_common.storage import locate, write_durably
from lockgate_coordinator.runtime.metadata_files import MetadataFiles, Run
from lockgate_proto import messages as m
from lockgate_proto.codec import encode
from lockgate_taskmanager.spark.sinks.files import FileSink
from lockgate_taskmanager.spark.sinks.transaction import Sink, SinkContext
from lockgate_taskmanager.state.backend import download, load, make_backend

from tests.forgetful_disk import ForgetfulDisk

pytestmark = pytest.mark.spark

ROWS = pa.table({"k": ["a", "b"], "n": [1, 2]})
RUN = Run("job", "run")
READERS: dict[m.FileFormat, Callable[[Path], pa.Table]] = {
    m.FileFormat.PARQUET: pq.read_table,
    m.FileFormat.CSV: pacsv.read_csv,
    m.FileFormat.JSON_LINES: pajson.read_json,
}


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ForgetfulDisk:
    root = tmp_path / "disk"
    root.mkdir()
    return ForgetfulDisk(root, monkeypatch)


def test_the_disk_forgets_unsynced_data(disk: ForgetfulDisk) -> None:
    (disk.root / "unsynced").write_text("x")
    with (disk.root / "named").open("w") as file:
        file.write("kept")
        file.flush()
        os.fsync(file.fileno())
        file.write(" lost")
    (disk.root / "folder").mkdir()
    descriptor = os.open(disk.root, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    (disk.root / "folder" / "later").write_text("x")
    (disk.root / "later").write_text("x")
    disk.crash()
    found = {path.relative_to(disk.root).as_posix(): path for path in disk.root.rglob("*")}
    assert found.keys() == {"unsynced", "named", "folder"}, "the folder was synced when these names were there"
    assert found["unsynced"].read_text() == ""
    assert found["named"].read_text() == "kept"


def test_a_file_that_is_written_durably_is_whole_or_the_one_before(disk: ForgetfulDisk) -> None:
    location = locate(str(disk.root)).child("deep/down/file")
    write_durably(location, b"first")
    disk.crash()
    write_durably(location, b"second")
    disk.crash()
    assert Path(location.path).read_bytes() == b"second"
    assert [path.name for path in Path(location.path).parent.iterdir()] == ["file"]


@pytest.mark.parametrize("is_shared", [False, True])
def test_state_that_is_acknowledged_is_there(disk: ForgetfulDisk, tmp_path: Path, is_shared: bool) -> None:
    choice = m.StateBackend(backend=m.FilesystemBackend())
    writer = make_backend(choice, (disk.root / "c" / "job" / "run").as_uri(), "a1-v-0").writer(3)
    (tmp_path / "table.sst").write_bytes(b"sst" * 100)
    handle = writer.store("op", pa.py_buffer(b"state"), is_shared=is_shared)
    file = writer.store_file("table", tmp_path / "table.sst", is_shared=is_shared)
    disk.crash()
    assert load(handle).to_pybytes() == b"state"
    download(file, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"sst" * 100


def test_metadata_and_graphs_that_zookeeper_points_to_are_there(disk: ForgetfulDisk) -> None:
    files = MetadataFiles(str(disk.root / "storage"), "c")
    metadata = m.CheckpointMetadata(1, "job", "run", 3, m.CheckpointKind.CHECKPOINT, 5)
    stored = files.write(RUN, metadata, encode(metadata))
    graph = files.write_graph(RUN, b"graph")
    disk.crash()
    assert files.read(stored.pointer, stored.checksum) == metadata
    assert files.read_graph(graph.pointer, graph.checksum) == b"graph"


def attempt(disk: ForgetfulDisk, file_format: m.FileFormat, number: int) -> Sink:
    context = SinkContext("job", "run", number, "v", 0, "op", "the sink", parallelism=1)
    sink = FileSink(context, m.FileSink(str(disk.root / "out"), file_format))
    sink.prepare(ROWS.schema)
    return sink


def visible_rows(disk: ForgetfulDisk, file_format: m.FileFormat) -> list[dict[str, object]]:
    files = sorted((disk.root / "out").glob("part-*"))
    return [row for file in files for row in READERS[file_format](file).to_pylist()]


@pytest.mark.parametrize("file_format", READERS)
def test_rows_staged_by_a_file_sink_are_committed_by_the_next_attempt(
    disk: ForgetfulDisk, file_format: m.FileFormat, tmp_path: Path
) -> None:
    backend = make_backend(None, (tmp_path / "state").as_uri(), "p")
    sink = attempt(disk, file_format, 1)
    sink.restore(())
    sink.write(ROWS)
    (pending,) = sink.seal(7)
    transaction = pending.persist(backend.writer(7))
    disk.crash()
    after = attempt(disk, file_format, 2)
    after.restore((transaction,))
    assert visible_rows(disk, file_format) == ROWS.to_pylist()
    disk.crash()
    assert visible_rows(disk, file_format) == ROWS.to_pylist(), "and are there after the next loss of power, too"
    attempt(disk, file_format, 3).restore((transaction,))
    assert visible_rows(disk, file_format) == ROWS.to_pylist()


@pytest.mark.parametrize("file_format", READERS)
def test_rows_that_a_file_sink_has_committed_stay(
    disk: ForgetfulDisk, file_format: m.FileFormat, tmp_path: Path
) -> None:
    backend = make_backend(None, (tmp_path / "state").as_uri(), "p")
    sink = attempt(disk, file_format, 1)
    sink.restore(())
    sink.write(ROWS)
    (pending,) = sink.seal(7)
    pending.persist(backend.writer(7))
    sink.commit(7)
    disk.crash()
    assert visible_rows(disk, file_format) == ROWS.to_pylist()
