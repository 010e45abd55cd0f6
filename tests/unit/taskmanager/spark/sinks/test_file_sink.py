"""What is particular to the sink that writes files: staging, what it refuses, and what its formats hold."""

from __future__ import annotations

import dataclasses
import datetime as dt
import errno
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from lockgate_common import storage as filesystem
from lockgate_common.storage import Location
from lockgate_proto.messages import FailureCause, FileFormat, FileSink, SinkTransaction
from lockgate_taskmanager.runtime.failures import cause_of
from lockgate_taskmanager.spark.sinks import jsonlines, staged
from lockgate_taskmanager.spark.sinks.files import FileSink as FileWriter
from lockgate_taskmanager.task.program import Unavailable, UserError

from tests.unit.taskmanager.spark.object_store import ObjectStore
from tests.unit.taskmanager.spark.sink_rows import SCHEMA, context, persisted, rows, writer

pytestmark = pytest.mark.usefixtures("processes_apart")


def test_file_names_and_an_empty_staging_folder_goes_away(tmp_path: Path) -> None:
    sink = writer(tmp_path)
    (tmp_path / "_staging" / "run").mkdir(parents=True)
    sink.close()
    assert list(tmp_path.iterdir()) == []
    sink.write(rows(("a", 1)))
    (stored,) = persisted(sink, 7)
    assert stored.files == ("_staging/run/a1-op-0-0.parquet",)
    assert stored.targets == ("part-run-7-op-0-0.parquet",)
    assert stored.folder == tmp_path.as_uri()
    sink.commit(7)
    sink.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["_staging", "part-run-7-op-0-0.parquet"]
    assert [path.name for path in (tmp_path / "_staging" / "run").iterdir()] == ["committed-op-0"]


def test_sealing_writes_no_file(tmp_path: Path) -> None:
    sink = writer(tmp_path)
    sink.write(rows(("a", 1)))
    sink.seal(1)
    assert not list(tmp_path.rglob("*.parquet"))


def test_much_output_between_barriers_is_spilled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged, "_SPILL_BYTES", 10)
    sink = writer(tmp_path)
    for number in range(3):
        sink.write(rows(("abcdef", number)))
    assert len(list(tmp_path.glob("_staging/run/*"))) == 3
    persisted(sink, 1)
    sink.commit(1)
    assert len(list(tmp_path.glob("part-*"))) == 3


def test_a_full_disk_is_reported_with_the_staged_file_that_did_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: pa.Table, stream: pa.NativeFile) -> None:
        stream.write(b"the part that fitted")
        raise OSError(errno.ENOSPC, "Error writing bytes to file")

    sink = writer(tmp_path)
    monkeypatch.setattr(sink, "_kind", dataclasses.replace(sink._kind, write=full))
    sink.write(rows(("a", 1)))
    with pytest.raises(OSError, match=r"Error writing bytes to file: '.*/_staging/run/a1-op-0-0\.parquet'"):
        persisted(sink, 7)
    assert not list(tmp_path.rglob("*.parquet")), "each checkpoint would leave such a part"


def test_close_removes_only_unsealed_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged, "_SPILL_BYTES", 10)
    sink = writer(tmp_path)
    sink.write(rows(("abcdef", 1)))
    stored = persisted(sink, 1)
    sink.write(rows(("abcdef", 2)))
    assert len(list(tmp_path.glob("_staging/run/*"))) == 2
    sink.close()
    assert [path.name for path in tmp_path.glob("_staging/run/*")] == ["a1-op-0-0.parquet"]
    writer(tmp_path, attempt=2).restore(stored)  # checkpoint 1 was completed after all
    assert len(list(tmp_path.glob("part-*"))) == 1


def test_a_file_that_is_neither_staged_nor_committed_is_an_error_that_names_it(tmp_path: Path) -> None:
    sink = writer(tmp_path)
    lost = SinkTransaction(1, 0, ("_staging/run/a1-op-0-0.parquet",), None, ("part-run-1-op-0-0.parquet",))
    with pytest.raises(
        UserError, match=r"a1-op-0-0\.parquet is missing and .*part-run-1-op-0-0\.parquet does not exist"
    ):
        sink.restore([lost])


def test_a_staged_file_is_durable_with_every_folder_above_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    sync = filesystem.sync_folder
    monkeypatch.setattr(filesystem, "sync_folder", lambda path: (synced.append(path), sync(path)))
    sink = writer(tmp_path / "new" / "out")
    assert synced == [str(tmp_path), str(tmp_path / "new")], "the sink's folder was made just now"
    sink.write(rows(("a", 1)))
    persisted(sink, 7)
    staging = tmp_path / "new" / "out" / "_staging"
    assert synced[2:] == [str(staging / "run"), str(staging), str(staging.parent)]


def test_a_new_attempt_removes_only_leftovers_of_older_ones(tmp_path: Path) -> None:
    staging = tmp_path / "_staging" / "run"
    staging.mkdir(parents=True)
    for name in ("a1-op-0-5", "a1-op-1-0", "a2-op-0-0", "a3-op-0-0", "a1-other-0-0"):
        (staging / f"{name}.parquet").write_text("x")
    writer(tmp_path, attempt=3).restore([])
    left = {path.stem for path in staging.iterdir()}
    assert left == {"a1-op-1-0", "a3-op-0-0", "a1-other-0-0"}


def test_a_folder_that_cannot_be_written_is_an_error_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"operator 'op': cannot write to .*file/out"):
        writer(tmp_path / "file" / "out")


def test_a_file_in_the_place_of_the_folder_and_a_forbidden_folder_are_the_authors_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write to"):
        writer(tmp_path / "file")
    monkeypatch.setattr(staged.os, "access", lambda *_: False)
    with pytest.raises(UserError, match=r"cannot write to .*permission denied"):
        writer(tmp_path)


@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, "i/o error"), TimeoutError("timed out"), OSError("AWS Error NETWORK_CONNECTION")]
)
def test_storage_that_fails_at_the_start_is_not_the_authors_error(tmp_path: Path, error: OSError) -> None:
    class Broken:
        def create_dir(self, *_: str, **__: bool) -> None:
            raise error

    sink = FileWriter(context(), FileSink(str(tmp_path), FileFormat.PARQUET))
    sink._folder = Location(sink._folder.uri, Broken(), sink._folder.path)
    with pytest.raises(Unavailable, match=f"operator 'op': cannot write to .*{error.args[-1]}") as caught:
        sink.prepare(SCHEMA)
    assert cause_of(caught.value) == FailureCause.FAULT


REFUSED = "AWS Error ACCESS_DENIED during PutObject operation: No response body."


def test_credentials_that_may_not_write_are_the_authors_error_unless_they_have_written_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(REFUSED)

    sink = writer(tmp_path)
    sink.write(rows(("a", 1)))
    with monkeypatch.context() as patched:
        patched.setattr(sink, "_kind", dataclasses.replace(sink._kind, write=refuse))
        with pytest.raises(UserError, match=f"operator 'op': cannot write to {tmp_path.as_uri()}: {REFUSED}"):
            persisted(sink, 1)
    persisted(sink, 2)
    sink.write(rows(("b", 2)))
    monkeypatch.setattr(sink, "_kind", dataclasses.replace(sink._kind, write=refuse))
    with pytest.raises(OSError, match=REFUSED):
        persisted(sink, 3)


@pytest.mark.parametrize(("text", "kind"), [(REFUSED, UserError), ("AWS Error SLOW_DOWN", Unavailable)])
def test_a_storage_that_fails_a_restore_is_named_with_the_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, kind: type[Exception]
) -> None:
    store = ObjectStore()
    monkeypatch.setattr(filesystem, "locate", store.locate)
    sink = writer(tmp_path)
    sink.write(rows(("a", 1)))
    stored = persisted(sink, 7)
    store.trouble = OSError(text)
    with pytest.raises(kind, match=f"operator 'op': cannot write to .*: {text}"):
        writer(tmp_path, attempt=2).restore(stored)


def test_text_is_no_format_to_write(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not TEXT"):
        FileWriter(context(), FileSink(str(tmp_path), FileFormat.TEXT))


def test_csv_refuses_nested_columns(tmp_path: Path) -> None:
    sink = FileWriter(context(), FileSink(str(tmp_path), FileFormat.CSV))
    with pytest.raises(UserError, match="CSV cannot hold column 'x'"):
        sink.prepare(pa.schema([("x", pa.list_(pa.int64()))]))


def test_json_lines_are_exact() -> None:
    table = pa.table(
        {
            "i": pa.array([2**53 + 1, None]),
            "f": [0.1 + 0.2, float("nan")],
            "d": pa.array([Decimal("12345678901234567890.10"), None], pa.decimal128(38, 2)),
            "s": ['quote " back \\ line \n bell \x07 é', None],
            "t": pa.array([dt.datetime(2020, 1, 2, 3, 4, 5, 6), None], pa.timestamp("us", "UTC")),
            "b": [True, None],
            "l": [[1, None], None],
        }
    )
    first, second = jsonlines.to_lines(table).decode().splitlines()
    found = json.loads(first, parse_float=str)
    assert found["i"] == 2**53 + 1
    assert float(found["f"]) == 0.1 + 0.2
    assert found["d"] == "12345678901234567890.10"
    assert found["s"] == table["s"][0].as_py()
    assert found["t"] == "2020-01-02T03:04:05.000006Z"
    assert (found["b"], found["l"]) == (True, [1, None])
    assert json.loads(second) == dict.fromkeys("idstbl") | {"f": "NaN"}
    assert jsonlines.to_lines(table.slice(0, 0)) == b""
    assert jsonlines.to_lines(pa.concat_tables([table, table]).slice(1, 2)).count(b"\n") == 2
