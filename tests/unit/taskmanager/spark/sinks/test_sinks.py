"""What is particular to each sink."""

from __future__ import annotations

import dataclasses
import datetime as dt
import errno
import json
import shutil
import sqlite3
import sys
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lockgate_common import storage as filesystem
from lockgate_common.storage import Location
from lockgate_proto.messages import ConsoleSink, FailureCause, FileFormat, FileSink, SinkTransaction, SqlSink
from lockgate_taskmanager.runtime.failures import cause_of, text_of
from lockgate_taskmanager.spark.sinks import jsonlines, staged
from lockgate_taskmanager.spark.sinks.console import ConsoleSink as ConsoleWriter
from lockgate_taskmanager.spark.sinks.files import FileSink as FileWriter
from lockgate_taskmanager.spark.sinks.foreach import ForeachBatchSink as ForeachBatchCaller
from lockgate_taskmanager.spark.sinks.foreach import FunctionFailed
from lockgate_taskmanager.spark.sinks.sql import SqlSink as SqlWriter
from lockgate_taskmanager.spark.sinks.sql import last_per_key
from lockgate_taskmanager.spark.sinks.transaction import SinkContext
from lockgate_taskmanager.state.backend import FileBackend, InlineBackend
from lockgate_taskmanager.task.program import DataError, StateUnreadable, Unavailable, UserCodeFailed, UserError
from pyspark.errors import AnalysisException, PythonException

from tests.unit.taskmanager.spark.object_store import ObjectStore

pytestmark = pytest.mark.usefixtures("processes_apart")

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])


def context(attempt: int = 1, subtask: int = 0) -> SinkContext:
    return SinkContext("job", "run", attempt, "v", subtask, "op", "operator 'op'")


def rows(*pairs: tuple[str | None, int | None]) -> pa.Table:
    return pa.table([[k for k, _ in pairs], [n for _, n in pairs]], schema=SCHEMA)


def writer(path: Path, attempt: int = 1) -> FileWriter:
    sink = FileWriter(context(attempt), FileSink(str(path), FileFormat.PARQUET))
    sink.prepare(SCHEMA)
    return sink


def persisted(sink: Any, checkpoint_id: int) -> tuple[SinkTransaction, ...]:
    return tuple(sealed.persist(InlineBackend(1 << 20).writer(checkpoint_id)) for sealed in sink.seal(checkpoint_id))


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


def test_a_committed_file_removed_by_a_consumer_is_no_error(tmp_path: Path) -> None:
    sink = writer(tmp_path)
    sink.write(rows(("a", 1)))
    stored = persisted(sink, 7)
    sink.commit(7)
    (tmp_path / "part-run-7-op-0-0.parquet").unlink()
    writer(tmp_path, attempt=2).restore(stored)
    assert not list(tmp_path.glob("part-*"))
    later = SinkTransaction(8, 0, ("_staging/run/a1-op-0-1.parquet",), None, ("part-run-8-op-0-0.parquet",))
    with pytest.raises(UserError, match="is missing"):
        writer(tmp_path, attempt=3).restore([later])


def test_a_late_commit_of_a_replaced_attempt_does_not_lower_the_marker(tmp_path: Path) -> None:
    zombie, fresh = writer(tmp_path), writer(tmp_path, attempt=2)
    for sink, checkpoint in ((zombie, 1), (fresh, 2)):
        sink.write(rows(("a", checkpoint)))
        persisted(sink, checkpoint)
    fresh.commit(2)
    zombie.commit(1)
    assert (tmp_path / "_staging/run/committed-op-0").read_text() == "2"


def test_a_replaced_attempt_that_was_frozen_inside_a_commit_does_not_lower_the_marker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zombie, fresh = writer(tmp_path), writer(tmp_path, attempt=2)
    zombie.write(rows(("a", 10)))
    stored = persisted(zombie, 10)
    exists, slept = filesystem.exists, []

    def after_a_long_sleep(location: Location) -> bool:  # the marker has been read by now
        if not slept:
            slept.append(location)
            fresh.restore(stored)
            fresh.write(rows(("a", 11)))
            persisted(fresh, 11)
            fresh.commit(11)
        return exists(location)

    monkeypatch.setattr(filesystem, "exists", after_a_long_sleep)
    zombie.commit(10)
    assert slept
    assert (tmp_path / "_staging/run/committed-op-0").read_text() == "11"
    assert len(list(tmp_path.glob("part-*"))) == 2


class Crash(BaseException):
    """The end of the process."""


def crash(*_: object) -> None:
    raise Crash


def two_files(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[FileWriter, tuple[SinkTransaction, ...]]:
    """An attempt that has staged two files for checkpoint 7."""
    monkeypatch.setattr(staged, "_SPILL_BYTES", 10)
    sink = writer(path)
    for number in range(2):
        sink.write(rows(("abcdef", number)))
    return sink, persisted(sink, 7)


def take(path: Path) -> set[str]:
    """A consumer moves all that it can see away."""
    found = set(path.glob("part-*"))
    for file in found:
        file.unlink()
    return {file.name for file in found}


BOTH = {"part-run-7-op-0-0.parquet", "part-run-7-op-0-1.parquet"}


@pytest.fixture(params=["disk", "store"])
def storage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "store":
        monkeypatch.setattr(filesystem, "locate", ObjectStore().locate)


@pytest.mark.usefixtures("storage")
@pytest.mark.parametrize("moved", [0, 1, 2])
def test_a_crash_after_the_marker_and_some_files_while_a_consumer_takes_them_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    sink, stored = two_files(tmp_path, monkeypatch)
    publish, done = sink._publish, []

    def publish_some(*names: Location) -> None:
        if len(done) < moved:
            done.append(publish(*names))
        if len(done) == moved:
            raise Crash

    monkeypatch.setattr(sink, "_publish", publish_some)
    with pytest.raises(Crash):
        sink.commit(7)
    before = take(tmp_path)
    assert len(before) == moved
    writer(tmp_path, attempt=2).restore(stored)
    after = take(tmp_path)
    assert (before | after, before & after) == (BOTH, set())
    writer(tmp_path, attempt=3).restore(stored)
    assert take(tmp_path) == set(), "each was shown once"


@pytest.mark.usefixtures("storage")
def test_a_crash_before_the_marker_has_shown_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, stored = two_files(tmp_path, monkeypatch)
    with monkeypatch.context() as patched:
        patched.setattr(filesystem, "write_durably", crash)
        with pytest.raises(Crash):
            sink.commit(7)
    assert take(tmp_path) == set()
    writer(tmp_path, attempt=2).restore(stored)
    assert take(tmp_path) == BOTH


def test_a_crash_of_an_object_store_between_copy_and_delete_shows_the_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystem, "locate", ObjectStore().locate)
    sink, stored = two_files(tmp_path, monkeypatch)
    monkeypatch.setattr(sink, "_publish", lambda source, target: (shutil.copyfile(source.path, target.path), crash()))
    with pytest.raises(Crash):
        sink.commit(7)
    writer(tmp_path, attempt=2).restore(stored)
    assert take(tmp_path) == BOTH
    assert not list(tmp_path.glob("_staging/run/a*")), "nothing is left to be shown again"


@pytest.mark.usefixtures("storage")
def test_a_staged_file_that_is_lost_is_reported_by_every_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, stored = two_files(tmp_path, monkeypatch)
    (tmp_path / stored[0].files[1]).unlink()
    for attempt in (sink, writer(tmp_path, attempt=2), writer(tmp_path, attempt=3)):
        with pytest.raises(UserError, match=r"a1-op-0-1\.parquet is missing"):
            attempt.restore(stored)
    assert take(tmp_path) == set(), "a checkpoint is shown as a whole"


def test_a_replaced_attempt_whose_files_were_committed_and_taken_while_it_looked_at_them_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zombie, stored = two_files(tmp_path, monkeypatch)
    exists, slept = filesystem.exists, []

    def after_a_long_sleep(location: Location) -> bool:  # the marker was not there yet
        if not slept:
            slept.append(location)
            writer(tmp_path, attempt=2).restore(stored)
            assert take(tmp_path) == BOTH
        return exists(location)

    monkeypatch.setattr(filesystem, "exists", after_a_long_sleep)
    zombie.commit(7)
    assert slept
    assert take(tmp_path) == set()


def test_a_subtask_that_replaces_several_calls_the_function_once_for_an_id(tmp_path: Path) -> None:
    calls: list[tuple[int, list[str]]] = []

    def called(table: pa.Table, checkpoint_id: int) -> None:
        calls.append((checkpoint_id, table["k"].to_pylist()))

    staged: list[SinkTransaction] = []
    for subtask in (0, 1):
        sink = ForeachBatchCaller(context(subtask=subtask), called, lambda table: table)
        backend = FileBackend(str(tmp_path), f"a{subtask}")
        for checkpoint_id in (6, 7):  # 6 was aborted
            sink.write(rows((f"{subtask}-{checkpoint_id}", 1)))
            pending = sink.seal(checkpoint_id)
        staged += [sealed.persist(backend.writer(7)) for sealed in pending]
    heir = ForeachBatchCaller(context(attempt=2), called, lambda table: table)
    for _ in range(2):
        heir.restore(staged)
    assert calls == [(6, ["0-6", "1-6"]), (7, ["0-7", "1-7"])] * 2


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


def test_an_object_store_that_fails_has_committed_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectStore()
    monkeypatch.setattr(filesystem, "locate", store.locate)
    sink = writer(tmp_path)
    sink.write(rows(("a", 1)))
    stored = persisted(sink, 7)
    store.trouble = OSError("AWS Error SLOW_DOWN")
    with pytest.raises(OSError, match="SLOW_DOWN"):
        sink.commit(7)
    assert not list(tmp_path.glob("part-*"))
    writer(tmp_path, attempt=2).restore(stored)
    (committed,) = tmp_path.glob("part-*")
    writer(tmp_path, attempt=3).restore(stored)
    assert list(tmp_path.glob("part-*")) == [committed]


def test_output_lost_by_an_object_store_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem, "locate", ObjectStore().locate)
    sink = writer(tmp_path)
    sink.write(rows(("a", 1)))
    (stored,) = persisted(sink, 7)
    (tmp_path / stored.files[0]).unlink()
    with pytest.raises(UserError, match="committed output has been removed"):
        sink.commit(7)


def other_run(path: Path) -> FileWriter:
    where = SinkContext("job", "other", 1, "v", 0, "op", "operator 'op'")
    return FileWriter(where, FileSink(str(path), FileFormat.PARQUET))


def test_another_run_commits_the_savepoints_staged_output_and_accepts_removed_files(tmp_path: Path) -> None:
    sink = writer(tmp_path)
    sink.write(rows(("a", 1)))
    stored = persisted(sink, 7)
    other_run(tmp_path).restore(stored)
    (tmp_path / "part-run-7-op-0-0.parquet").unlink()
    other_run(tmp_path).restore(stored)
    assert not list(tmp_path.glob("part-*"))


def test_another_run_with_another_path_is_refused_with_the_path_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = writer(tmp_path / "old")
    sink.write(rows(("a", 1)))
    stored = persisted(sink, 7)
    moved = other_run(tmp_path / "new")
    with pytest.raises(UserError, match=r"start with the path file://.*/old$"):
        moved.restore(stored)
    with monkeypatch.context() as patched:
        patched.setattr(sink, "_publish", crash)
        with pytest.raises(Crash):
            sink.commit(7)
    with pytest.raises(UserError, match=r"start with the path file://.*/old$"):
        moved.restore(stored)  # its commit has begun there, and shown nothing
    sink.commit(7)
    moved.restore(stored)  # all of it is visible where it was staged
    (tmp_path / "old" / "part-run-7-op-0-0.parquet").unlink()
    moved.restore(stored)


@pytest.mark.parametrize(
    ("staged", "target"),
    [
        ("_staging/run/../../a1-op-0-0.parquet", "part-run-1-op-0-0.parquet"),
        ("_staging/../a1-op-0-0.parquet", "part-run-1-op-0-0.parquet"),
        ("/etc/passwd", "part-run-1-op-0-0.parquet"),
        ("_staging/run/a1-op-0-0.parquet", "../part-run-1-op-0-0.parquet"),
        ("_staging/run/a1-op-0-0.parquet", "/tmp/part-run-1-op-0-0.parquet"),
        ("_staging/run/a1-op-0-0.parquet", ""),
    ],
)
def test_a_forged_snapshot_moves_no_file(tmp_path: Path, staged: str, target: str) -> None:
    forged = SinkTransaction(1, 0, (staged,), None, (target,))
    with pytest.raises(StateUnreadable, match="names files that no file sink has staged"):
        writer(tmp_path).restore([forged])
    with pytest.raises(StateUnreadable):
        writer(tmp_path).restore([SinkTransaction(1, 0, ("_staging/run/a1-op-0-0.parquet",))])


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


def sql(path: Path, table: str = "t", keys: tuple[str, ...] = ("k",), subtask: int = 0) -> SqlWriter:
    return SqlWriter(context(subtask=subtask), SqlSink(f"sqlite:///{path}/db", table, keys))


def test_upsert_keeps_the_last_value_of_a_key(tmp_path: Path) -> None:
    sink = sql(tmp_path)
    sink.prepare(SCHEMA)
    for checkpoint, batches in enumerate([[(("a", 1), ("b", 1)), (("a", 2),)], [(("a", None), ("c", 3))]], 1):
        for batch in batches:
            sink.write(rows(*batch))
        persisted(sink, checkpoint)
        sink.commit(checkpoint)
    with sqlite3.connect(tmp_path / "db") as database:
        assert sorted(database.execute("SELECT * FROM t").fetchall()) == [("a", None), ("b", 1), ("c", 3)]
        assert database.execute("SELECT checkpoint FROM lockgate_commits").fetchall() == [(2,)]


def test_rows_and_ledger_are_one_transaction(tmp_path: Path) -> None:
    sink = sql(tmp_path)
    sink.prepare(SCHEMA)
    with sqlite3.connect(tmp_path / "db") as database:
        database.execute("CREATE TRIGGER no BEFORE INSERT ON t WHEN NEW.n = 13 BEGIN SELECT RAISE(ABORT, 'no 13'); END")
    sink.write(rows(("a", 1), ("b", 13)))
    persisted(sink, 1)
    with pytest.raises(DataError, match="refused the rows: no 13"):
        sink.commit(1)
    with sqlite3.connect(tmp_path / "db") as database:
        assert database.execute("SELECT count(*) FROM t").fetchone() == (0,)
        assert database.execute("SELECT count(*) FROM lockgate_commits").fetchone() == (0,)
        database.execute("DROP TRIGGER no")
    sink.commit(1)
    with sqlite3.connect(tmp_path / "db") as database:
        assert database.execute("SELECT count(*) FROM t").fetchone() == (2,)


def test_many_subtasks_write_one_sqlite_file_at_once(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def work(subtask: int) -> None:
        try:
            sink = sql(tmp_path, subtask=subtask)
            sink.prepare(SCHEMA)
            for checkpoint in range(1, 6):
                sink.write(rows(*[(f"{subtask}-{n}", checkpoint) for n in range(50)]))
                persisted(sink, checkpoint)
                sink.commit(checkpoint)
            sink.close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,), name=f"sink-{n}") for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with sqlite3.connect(tmp_path / "db") as database:
        assert database.execute("SELECT count(*), min(n) FROM t").fetchone() == (200, 5)


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("CREATE TABLE t (k TEXT PRIMARY KEY)", "no column 'n'; its columns are: k"),
        ("CREATE TABLE t (k TEXT PRIMARY KEY, n BLOB)", "column 'n' as BLOB, but the rows have BIGINT"),
        ("CREATE TABLE t (k TEXT, n BIGINT)", r"no primary key or unique constraint on \(k\)"),
        ("CREATE TABLE t (k TEXT PRIMARY KEY, n BIGINT, z INT NOT NULL)", "requires a value for column 'z'"),
        (
            "CREATE TABLE t (k TEXT, n BIGINT); CREATE UNIQUE INDEX some ON t (k) WHERE n > 0",
            r"no primary key or unique constraint on \(k\)",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused_at_the_start(tmp_path: Path, ddl: str, message: str) -> None:
    with sqlite3.connect(tmp_path / "db") as database:
        database.executescript(ddl)
    with pytest.raises(UserError, match=message):
        sql(tmp_path).prepare(SCHEMA)


@pytest.mark.parametrize(
    ("table", "schema", "message"),
    [
        ("t", pa.schema([("k", pa.string()), ("K", pa.string())]), "refused the table t: duplicate column name: K"),
        ("sqlite_t", SCHEMA, "refused the table sqlite_t: object name reserved for internal use"),
        ("shop.t", SCHEMA, "SQLite has no schema 'shop'; write the table's name without it"),
    ],
)
def test_a_table_that_sqlite_never_makes_is_the_authors_error(
    tmp_path: Path, table: str, schema: pa.Schema, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        sql(tmp_path, table=table).prepare(schema)
    sql(tmp_path, table="main.t").prepare(SCHEMA)


def test_a_foreign_table_in_the_place_of_the_ledger_is_the_authors_error(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "db") as database:
        database.execute("CREATE TABLE lockgate_commits (a INT)")
    sink = sql(tmp_path)
    sink.prepare(SCHEMA)
    sink.write(rows(("a", 1)))
    sink.seal(1)
    with pytest.raises(UserError, match="refused the rows: table lockgate_commits has no column named job"):
        sink.commit(1)


def test_a_database_that_may_only_be_read_is_the_authors_error(tmp_path: Path) -> None:
    (tmp_path / "db").touch()
    url = f"sqlite:///file:{tmp_path}/db?mode=ro&uri=true"
    with pytest.raises(UserError, match="refused the table t: attempt to write a readonly database"):
        SqlWriter(context(), SqlSink(url, "t", ("k",))).prepare(SCHEMA)


@pytest.mark.parametrize(("change", "message"), [("BEGIN IMMEDIATE", "locked"), ("PRAGMA max_page_count = 1", "full")])
def test_a_database_that_is_locked_or_full_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, message: str
) -> None:
    monkeypatch.setattr("lockgate_taskmanager.spark.sinks.database._SQLITE_BUSY_TIMEOUT_S", 0)
    sink = sql(tmp_path)
    sink.prepare(SCHEMA)
    sink.write(rows(("a" * 100_000, 1)))
    sink.seal(1)
    other = sqlite3.connect(tmp_path / "db", isolation_level=None)
    with sink._database.engine.connect() as same:
        (other.execute if message == "locked" else same.connection.driver_connection.execute)(change)
    with pytest.raises(Unavailable, match=message):
        sink.commit(1)
    other.close()


@pytest.mark.parametrize(
    ("path", "message"),
    [("no/db", "this task manager has no folder .*/no; create it"), ("", "this is a folder; name a file")],
)
def test_a_path_that_holds_no_database_is_the_authors_error(tmp_path: Path, path: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        SqlWriter(context(), SqlSink(f"sqlite:///{tmp_path}/{path}", "t", ("k",))).prepare(SCHEMA)


def test_a_table_that_fits_is_used(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "db") as database:
        database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, k VARCHAR(20) UNIQUE, n INT, note TEXT)")
    sink = sql(tmp_path)
    sink.prepare(SCHEMA)
    sink.write(rows(("a", 1)))
    persisted(sink, 1)
    sink.commit(1)
    with sqlite3.connect(tmp_path / "db") as database:
        assert database.execute("SELECT k, n FROM t").fetchall() == [("a", 1)]


def test_types_survive_in_a_created_table(tmp_path: Path) -> None:
    table = pa.table(
        {
            "k": pa.array([1], pa.int32()),
            "f": [1.5],
            "b": [True],
            "d": [dt.date(2020, 1, 2)],
            "t": pa.array([dt.datetime(2020, 1, 2, 3)], pa.timestamp("us")),
            "x": [b"\x00"],
        }
    )
    sink = sql(tmp_path)
    sink.prepare(table.schema)
    sink.write(table)
    persisted(sink, 1)
    sink.commit(1)
    with sqlite3.connect(tmp_path / "db") as database:
        found = database.execute("SELECT * FROM t").fetchall()
    assert found == [(1, 1.5, 1, "2020-01-02", "2020-01-02 03:00:00.000000", b"\x00")]


def test_a_wrong_key_and_a_null_key_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown key column 'nope'; the columns are: k, n"):
        sql(tmp_path, keys=("nope",)).prepare(SCHEMA)
    sink = sql(tmp_path)
    sink.prepare(SCHEMA)
    with pytest.raises(DataError, match="NULL in key column 'k'"):
        sink.write(rows((None, 1)))


def test_a_port_that_is_not_a_number_is_an_error_of_the_job_and_shows_no_password() -> None:
    with pytest.raises(UserError, match=r"operator 'op': .* its port is not a number") as raised:
        SqlWriter(context(), SqlSink("postgresql://user:secret@host:54x2/db", "t", ("k",)))
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "rest",
    ["p@SECRET@db/x", "p@SECRET/y@db/x", "p@SECRET?y@db/x", "p?a=1@SECRET/x", "p@q@SECRET@db:5432/x", "p@db/x@SECRET"],
)
def test_an_at_sign_in_a_password_is_refused_before_a_part_of_it_is_taken_for_the_host(rest: str) -> None:
    with pytest.raises(UserError, match="more than one @: write %40 for each that is not before the host") as raised:
        SqlWriter(context(), SqlSink(f"postgresql://u:{rest}", "t", ("k",)))
    assert "SECRET" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "u:p@db/x",
        "u:p%40ss@db:5432/x?sslmode=require",
        "u:p/s#s?s:s@db/x",
        "u@v:p@db/x",
        "u@db/x",
        "/x?user=u@v&password=p@w&host=/run",
        "u:p@db/x?options=a@b",
        "u:p@/x?host=[::1]",
    ],
)
def test_at_signs_that_cannot_be_taken_for_anothers_are_kept(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(UserError, match="driver is not installed"):  # comes behind the check
        SqlWriter(context(), SqlSink(f"postgresql://{url}", "t", ("k",)))


def test_a_missing_driver_is_reported_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(UserError, match=r"pip install 'lockgate\[postgresql\]'"):
        SqlWriter(context(), SqlSink("postgresql://user:secret@host/db", "t", ("k",)))


def test_another_driver_is_refused_with_the_right_spelling() -> None:
    with pytest.raises(UserError, match=r"postgresql\+psycopg2:// is not supported; write postgresql://"):
        SqlWriter(context(), SqlSink("postgresql+psycopg2://user:secret@host/db", "t", ("k",)))


def test_a_function_that_raises_is_a_fault_that_keeps_its_message() -> None:
    def failing(_: object, checkpoint_id: int) -> None:
        raise ConnectionError(f"no route for {checkpoint_id}")

    sink = ForeachBatchCaller(context(), failing, lambda table: table)
    sink.write(rows(("a", 1)))
    persisted(sink, 7)
    with pytest.raises(FunctionFailed, match=r"operator 'op': .* raised ConnectionError: no route for 7") as raised:
        sink.commit(7)
    assert cause_of(raised.value) is FailureCause.USER_CODE


def test_a_function_whose_task_raises_may_pass_and_what_it_makes_of_the_rows_does_not() -> None:
    raising: list[Exception] = [
        PythonException("ConnectionError: no route"),
        AnalysisException("no such column"),
        KeyError("no such column"),
    ]

    def failing(*_: object) -> None:
        raise raising[0]

    sink = ForeachBatchCaller(context(), failing, lambda table: table)
    sink.write(rows(("a", 1)))
    sink.seal(7)
    with pytest.raises(UserCodeFailed, match="no route"):
        sink.commit(7)
    for _ in range(2):
        raising.pop(0)
        with pytest.raises(DataError, match="no such column"):
            sink.commit(7)


@pytest.mark.parametrize("url", ["nonsense", "mysql://x/y", "nosuch://x"])
def test_a_database_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(UserError, match="operator 'op'"):
        SqlWriter(context(), SqlSink(url, "t", ("k",)))


def test_an_unreachable_database_is_a_fault_reported_in_one_sentence(tmp_path: Path) -> None:
    sink = SqlWriter(context(), SqlSink(f"sqlite:///{tmp_path}/db", "t", ("k",)))
    (tmp_path / "db").symlink_to("db")  # neither its folder nor what it is explains the failure
    with pytest.raises(Unavailable, match="unable to open") as caught:
        sink.prepare(SCHEMA)
    assert cause_of(caught.value) is FailureCause.FAULT
    assert "\n" not in text_of(caught.value), "no stack trace"


def test_a_table_that_only_has_keys(tmp_path: Path) -> None:
    sink = sql(tmp_path)
    table = rows(("a", 1), ("b", 2)).select(["k"])
    sink.prepare(table.schema)
    for checkpoint in (1, 2):
        sink.write(table)
        persisted(sink, checkpoint)
        sink.commit(checkpoint)
    with sqlite3.connect(tmp_path / "db") as database:
        assert database.execute("SELECT count(*) FROM t").fetchone() == (2,)


def test_last_per_key_is_sorted_by_key_and_the_last() -> None:
    found = last_per_key(rows(("c", 1), ("b", 1), ("a", 2), ("b", 3)), ("k",))
    assert found.to_pydict() == {"k": ["a", "b", "c"], "n": [2, 3, 1]}


@pytest.mark.parametrize(
    "values",
    [
        [True, False],
        [2, 1],
        [b"b", b"a"],
        [dt.date(2020, 1, 2), dt.date(2020, 1, 1)],
        [dt.datetime(2020, 1, 2), dt.datetime(2020, 1, 1)],
        [Decimal("2.5"), Decimal("1.5")],
        [2.5, 1.5],
    ],
    ids=lambda values: type(values[0]).__name__,
)
def test_every_type_of_key_can_be_sorted(values: list[Any]) -> None:
    table = pa.table({"k": [*values, values[0]], "n": [1, 2, 3]})
    assert last_per_key(table, ("k",)).to_pydict() == {"k": values[::-1], "n": [2, 3]}


def test_the_console_shows_the_first_rows(capsys: pytest.CaptureFixture[str]) -> None:
    sink = ConsoleWriter(context(), ConsoleSink(rows=2))
    sink.write(rows(("a", 1), ("b", 2), ("c", 3)))
    printed = capsys.readouterr().out
    assert "3 rows" in printed
    assert "b" in printed.split("\n")[3]
    assert "... 1 more rows" in printed
    assert sink.seal(1) == ()


def test_the_console_shows_every_value_exactly_on_a_line_of_its_row(capsys: pytest.CaptureFixture[str]) -> None:
    days, moment = pa.date32(), pa.timestamp("us")
    columns = [
        (pa.array([2**53 + 1, None]), str(2**53 + 1)),
        (pa.array([2_932_897, None], days), "+10000-01-01"),
        (pa.array([2**63 - 1, None], moment), "+294247-01-10T04:00:54.775807"),
        (pa.array([0, None], pa.timestamp("us", "UTC")), "1970-01-01T00:00:00.000000Z"),
        (pa.array([[2_932_897, None], None], pa.list_(days)), "[+10000-01-01, NULL]"),
        (pa.array([{"a": 1, "d": 2_932_897}, None], pa.struct([("a", pa.int64()), ("d", days)])), "{1, +10000-01-01}"),
        (pa.array([[("a", 1), ("b", None)], None], pa.map_(pa.string(), days)), "{a -> 1970-01-02, b -> NULL}"),
        (pa.array([Decimal("1.10"), None]), "1.10"),
        (pa.array([1.5, None]), "1.5"),
        (pa.array([True, None]), "True"),
        (pa.array(["a\nb\x1b[2J", None]), "a\\nb\\u001b[2J"),
        (pa.array([b"\xff", None]), r"b'\xff'"),
    ]
    ConsoleWriter(context(), ConsoleSink()).write(pa.Table.from_arrays([a for a, _ in columns], ["x"] * len(columns)))
    _, names, first, second = capsys.readouterr().out.splitlines()
    assert names.split() == ["x"] * len(columns)
    assert first.split() == " ".join(text for _, text in columns).split()
    assert second.split() == ["NULL"] * len(columns)
    assert len(names) == len(first) == len(second), "aligned"
