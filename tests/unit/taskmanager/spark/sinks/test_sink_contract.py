"""The contract of transactional sinks, over each: hidden until the commit, shown once, however often it commits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.json as pajson
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from lockgate_common import storage as filesystem
from lockgate_proto.messages import DeltaSink, FileFormat, FileSink, KafkaSink, SinkTransaction, SqlSink, SqlWriteMode
from lockgate_taskmanager.spark.sinks.custom import CustomWriter
from lockgate_taskmanager.spark.sinks.delta import DeltaSink as DeltaWriter
from lockgate_taskmanager.spark.sinks.delta_log import DeltaLog
from lockgate_taskmanager.spark.sinks.files import FileSink as FileWriter
from lockgate_taskmanager.spark.sinks.foreach import ForeachBatchSink as ForeachBatchCaller
from lockgate_taskmanager.spark.sinks.kafka import KafkaSink as KafkaWriter
from lockgate_taskmanager.spark.sinks.sql import SqlSink as SqlWriter
from lockgate_taskmanager.spark.sinks.transaction import Sink, SinkContext
from lockgate_taskmanager.state.backend import FileBackend

from tests.connectors import JsonFolder
from tests.kafka_broker import KafkaBroker
from tests.unit.taskmanager.spark.delta_tables import in_a_store, rows_of
from tests.unit.taskmanager.spark.object_store import ObjectStore

pytestmark = pytest.mark.usefixtures("processes_apart")

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])
READERS: dict[FileFormat, tuple[str, Callable[[Path], pa.Table]]] = {
    FileFormat.PARQUET: ("parquet", pq.read_table),
    FileFormat.CSV: ("csv", lambda path: pacsv.read_csv(path)),
    FileFormat.JSON_LINES: ("json", lambda path: pajson.read_json(path)),
}


class TextKafkaWriter(KafkaWriter):
    """Takes numbers as the other sinks do; Kafka gets their digits."""

    def prepare(self, schema: pa.Schema) -> None:
        super().prepare(pa.schema([schema.field("k"), ("n", pa.string())]))

    def write(self, table: pa.Table) -> None:
        super().write(table.set_column(1, "n", table.column("n").cast(pa.string())))


class Case:
    """One kind of sink in a folder: makes attempts of it and says what is visible. url: of a database sink."""

    def __init__(self, kind: str, folder: Path, url: str = "", broker: KafkaBroker | None = None) -> None:
        self.kind = kind
        self.folder = folder
        self.url = url
        self.broker = broker
        self.topics = ("", "") if broker is None else (broker.topic(), broker.topic())
        self.appends = kind.endswith("append")
        self.attempts = 0
        self.calls: dict[int, list[dict[str, Any]]] = {}
        self.backend = FileBackend(str(folder / "state"), "a")

    def attempt(self, subtask: int = 0, parallelism: int = 0, run: str = "run") -> Sink:
        self.attempts += 1
        where = SinkContext("job", run, self.attempts, "v", subtask, "op", "operator 'op'", parallelism)
        sink: Sink
        if self.url:
            mode = SqlWriteMode.APPEND if self.appends else SqlWriteMode.UPSERT
            sink = SqlWriter(where, SqlSink(self.url, "t", () if self.appends else ("k",), mode))
        elif self.broker is not None:
            topic, commits = self.topics
            sink = TextKafkaWriter(where, KafkaSink(self.broker.servers, topic, "k", "n", commits_topic=commits))
        elif self.kind == "custom":
            sink = CustomWriter(where, JsonFolder(self.folder / "out"))
        elif self.kind == "foreach":
            sink = ForeachBatchCaller(where, self._called, lambda table: table)
        elif self.kind == "delta":
            sink = DeltaWriter(where, DeltaSink(str(self.folder / "out")))
        else:
            sink = FileWriter(where, FileSink(str(self.folder / "out"), FileFormat[self.kind]))
        sink.prepare(SCHEMA)
        return sink

    def _called(self, table: pa.Table, checkpoint_id: int) -> None:
        self.calls[checkpoint_id] = table.to_pylist()

    def visible(self) -> list[tuple[str, int]]:
        if self.url:
            engine = sa.create_engine(self.url)
            with engine.begin() as connection:
                found = [(row.k, row.n) for row in connection.execute(sa.text("SELECT k, n FROM t"))]
            engine.dispose()
            return sorted(found)
        rows: list[dict[str, Any]] = []
        if self.broker is not None:
            return sorted(((key or b"").decode(), int(value or b"")) for key, value in self.broker.read(self.topics[0]))
        if self.kind == "custom":
            rows = JsonFolder(self.folder / "out").visible()
        elif self.kind == "foreach":
            rows = [row for batch in self.calls.values() for row in batch]
        elif self.kind == "delta":
            rows = rows_of(self.folder / "out")
        else:
            extension, reader = READERS[FileFormat[self.kind]]
            for path in (self.folder / "out").glob(f"part-*.{extension}"):
                rows += reader(path).to_pylist()
        return sorted((row["k"], row["n"]) for row in rows)

    def persist(self, pending: Any, checkpoint_id: int) -> tuple[SinkTransaction, ...]:
        return tuple(item.persist(self.backend.writer(checkpoint_id)) for item in pending)


ON_A_SERVER = [pytest.param(f"postgresql-{mode}", marks=pytest.mark.integration) for mode in ("upsert", "append")]


@pytest.fixture(
    params=[
        "PARQUET",
        "CSV",
        "JSON_LINES",
        "store",
        "sqlite-upsert",
        "sqlite-append",
        "custom",
        "foreach",
        "kafka",
        "delta",
        "delta-store",
        *ON_A_SERVER,
    ]
)
def case(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    url = ""
    if request.param == "store":
        monkeypatch.setattr(filesystem, "locate", ObjectStore().locate)
        return Case("PARQUET", tmp_path)
    if request.param == "delta-store":
        monkeypatch.setattr(DeltaLog, "_located", in_a_store)
        return Case("delta", tmp_path)
    if request.param.startswith("sqlite"):
        url = f"sqlite:///{tmp_path}/db"
    elif request.param.startswith("postgresql"):
        url = request.getfixturevalue("postgresql").new_database()
    broker = request.getfixturevalue("kafka") if request.param == "kafka" else None
    return Case(request.param, tmp_path, url, broker)


def rows(*pairs: tuple[str, int]) -> pa.Table:
    return pa.table([[k for k, _ in pairs], [n for _, n in pairs]], schema=SCHEMA)


def test_nothing_shows_before_the_commit(case: Case) -> None:
    sink = case.attempt()
    sink.write(rows(("a", 1)))
    sink.write(rows(("b", 2)))
    assert case.visible() == []
    case.persist(sink.seal(1), 1)
    assert case.visible() == []
    sink.commit(1)
    assert case.visible() == [("a", 1), ("b", 2)]
    sink.close()


def test_records_after_the_barrier_wait_for_the_next(case: Case) -> None:
    sink = case.attempt()
    sink.write(rows(("a", 1)))
    pending = sink.seal(1)
    sink.write(rows(("b", 2)))
    case.persist(pending, 1)
    sink.commit(1)
    assert case.visible() == [("a", 1)]
    case.persist(sink.seal(2), 2)
    sink.commit(2)
    assert case.visible() == [("a", 1), ("b", 2)]


def test_committing_again_changes_nothing(case: Case) -> None:
    sink = case.attempt()
    sink.write(rows(("a", 1)))
    case.persist(sink.seal(1), 1)
    assert sink.commit(1) is True, "there was output"
    assert sink.commit(1) is False
    assert case.visible() == [("a", 1)]


def test_a_commit_that_was_carried_out_and_then_failed_is_tried_again_and_changes_nothing(case: Case) -> None:
    sink = case.attempt()
    sink.write(rows(("a", 1)))
    (pending,) = sink.seal(1)
    case.persist((pending,), 1)
    sink._commit(pending)  # its outcome was unknown: it stays among what is to be committed
    sink.commit(1)
    assert case.visible() == [("a", 1)]


def test_an_aborted_checkpoint_is_committed_with_the_next(case: Case) -> None:
    sink = case.attempt()
    sink.write(rows(("a", 1)))
    sink.seal(1)  # never persisted: the checkpoint was declined
    sink.write(rows(("b", 2)))
    stored = case.persist(sink.seal(2), 2)
    assert [checkpoint.checkpoint_id for checkpoint in stored] == [1, 2]
    sink.commit(2)
    assert case.visible() == [("a", 1), ("b", 2)]


def test_a_restored_pending_transaction_is_committed(case: Case) -> None:
    first = case.attempt()
    first.write(rows(("a", 1)))
    stored = case.persist(first.seal(1), 1)
    first.write(rows(("lost", 9)))
    second = case.attempt()
    second.restore(stored)
    assert case.visible() == [("a", 1)]
    second.write(rows(("b", 2)))
    case.persist(second.seal(2), 2)
    second.commit(2)
    assert case.visible() == [("a", 1), ("b", 2)]


def test_a_commit_that_was_done_before_the_crash_is_not_done_twice(case: Case) -> None:
    first = case.attempt()
    first.write(rows(("a", 1)))
    stored = case.persist(first.seal(1), 1)
    first.commit(1)
    second = case.attempt()
    second.restore(stored)
    second.restore(stored)
    assert case.visible() == [("a", 1)]


def test_a_zombie_cannot_publish_output_outside_a_completed_snapshot(case: Case) -> None:
    """The zombie's own commit comes late: what it shows is the same that the new attempt has shown."""
    if case.kind == "foreach":
        pytest.skip("the author's function is called again, with the same checkpoint id")
    zombie = case.attempt()
    zombie.write(rows(("a", 1)))
    stored = case.persist(zombie.seal(1), 1)
    fresh = case.attempt()
    fresh.restore(stored)
    fresh.write(rows(("a", 2)))
    case.persist(fresh.seal(2), 2)
    fresh.commit(2)
    before = case.visible()
    zombie.commit(1)
    assert case.visible() == before


def test_another_run_does_not_repeat_the_commits_of_the_first_one(case: Case) -> None:
    """A run that starts from a checkpoint of another one finds there what that one has committed already."""
    if case.kind == "foreach":
        pytest.skip("the author's function is called again, with the same checkpoint id")
    first = case.attempt()
    first.write(rows(("a", 1)))
    stored = case.persist(first.seal(1), 1)
    first.commit(1)
    second = case.attempt(run="other")
    second.restore(stored)
    second.write(rows(("b", 2)))
    case.persist(second.seal(2), 2)
    second.commit(2)
    assert case.visible() == [("a", 1), ("b", 2)]


def test_equal_rows_are_all_there_where_rows_are_appended(case: Case) -> None:
    if case.kind in ("sqlite-upsert", "postgresql-upsert"):
        pytest.skip("an upsert keeps one row of each key")
    sink = case.attempt()
    for checkpoint_id in (1, 2):
        sink.write(rows(("a", 1), ("a", 1)))
        sink.write(rows(("a", 1)))
        case.persist(sink.seal(checkpoint_id), checkpoint_id)
        sink.commit(checkpoint_id)
    assert case.visible() == [("a", 1)] * 6


def test_an_empty_stretch_makes_no_transaction(case: Case) -> None:
    sink = case.attempt()
    sink.write(SCHEMA.empty_table())
    assert sink.seal(1) == ()
    sink.commit(1)
    assert case.visible() == []


def test_two_subtasks_do_not_meet(case: Case) -> None:
    sinks = [case.attempt(subtask) for subtask in (0, 1)]
    for subtask, sink in enumerate(sinks):
        sink.write(rows((f"k{subtask}", subtask)))
        backend = FileBackend(str(case.folder / "state"), f"a-{subtask}")
        for sealed in sink.seal(1):
            sealed.persist(backend.writer(1))
    for sink in sinks:
        sink.commit(1)
    assert len(case.visible()) == (2 if case.kind != "foreach" else 1)


def test_a_subtask_commits_the_output_of_two_for_one_checkpoint(case: Case) -> None:
    """A job that was scaled down: subtask 0 stands in for the old subtask 1, too."""
    if case.kind == "foreach":
        pytest.skip("an old attempt that wakes up calls again, with the rows of its own")
    staged: list[SinkTransaction] = []
    old = [case.attempt(subtask) for subtask in (0, 1)]
    for subtask, sink in enumerate(old):
        sink.write(rows((f"k{subtask}", subtask)))
        case.backend = FileBackend(str(case.folder / "state"), f"a{subtask}")
        staged += case.persist(sink.seal(1), 1)
    for times in range(2):
        heir = case.attempt(0, parallelism=1)
        heir.restore(staged)
        assert case.visible() == [("k0", 0), ("k1", 1)], times
        heir.write(rows((f"more{times}", 1)))
        case.persist(heir.seal(2 + times), 2 + times)
        heir.close()
    for sink in old:
        sink.commit(1)  # an old attempt wakes up
    assert case.visible() == [("k0", 0), ("k1", 1)]


def test_staged_files_of_a_removed_subtask_are_deleted_by_its_replacement(case: Case) -> None:
    if case.url or case.kind in ("custom", "foreach", "kafka"):
        pytest.skip("stages no files of its own")
    gone = case.attempt(2)
    gone.write(rows(("never", 1)))
    case.persist(gone.seal(1), 1)
    staged = list((case.folder / "out" / "_staging").rglob("a1-*"))
    assert staged
    case.attempt(1, parallelism=2).restore([])
    assert [path for path in staged if path.exists()] == staged, "not its business"
    case.attempt(0, parallelism=2).restore([])
    assert not [path for path in staged if path.exists()]
