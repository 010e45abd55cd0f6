"""The contract of transactional sinks, over each: hidden until the commit, shown once, however often it commits."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.json as pajson
import pyarrow.parquet as pq
import pytest
from lockgate_proto.messages import FileFormat, FileSink, SinkTransaction, SqlSink

from taskmanager.spark.sinks.files import FileSink as FileWriter
from taskmanager.spark.sinks.foreach import ForeachBatchSink as ForeachBatchCaller
from taskmanager.spark.sinks.sql import SqlSink as SqlWriter
from taskmanager.spark.sinks.transaction import Sink, SinkContext
from taskmanager.state.backend import FileBackend

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])
READERS: dict[FileFormat, tuple[str, Callable[[Path], pa.Table]]] = {
    FileFormat.PARQUET: ("parquet", pq.read_table),
    FileFormat.CSV: ("csv", lambda path: pacsv.read_csv(path)),
    FileFormat.JSON_LINES: ("json", lambda path: pajson.read_json(path)),
}


class Case:
    """One kind of sink in a folder: makes attempts of it and says what is visible."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.attempts = 0
        self.calls: dict[int, list[dict[str, Any]]] = {}
        self.backend = FileBackend(str(folder / "state"), "a")

    def attempt(self, subtask: int = 0) -> Sink:
        self.attempts += 1
        where = SinkContext("job", "run", self.attempts, "v", subtask, "op", "operator 'op'")
        sink: Sink
        if self.kind == "sql":
            sink = SqlWriter(where, SqlSink(f"sqlite:///{self.folder}/db", "t", ("k",)))
        elif self.kind == "foreach":
            sink = ForeachBatchCaller(where, self._called, lambda table: table)
        else:
            sink = FileWriter(where, FileSink(str(self.folder / "out"), FileFormat[self.kind]))
        sink.prepare(SCHEMA)
        return sink

    def _called(self, table: pa.Table, checkpoint_id: int) -> None:
        self.calls[checkpoint_id] = table.to_pylist()

    def visible(self) -> list[tuple[str, int]]:
        if self.kind == "sql":
            with sqlite3.connect(self.folder / "db") as database:
                return sorted(database.execute("SELECT k, n FROM t").fetchall())
        rows: list[dict[str, Any]] = []
        if self.kind == "foreach":
            rows = [row for batch in self.calls.values() for row in batch]
        else:
            extension, reader = READERS[FileFormat[self.kind]]
            for path in (self.folder / "out").glob(f"part-*.{extension}"):
                rows += reader(path).to_pylist()
        return sorted((row["k"], row["n"]) for row in rows)

    def persist(self, pending: Any, checkpoint_id: int) -> tuple[SinkTransaction, ...]:
        return tuple(one.persist(self.backend.writer(checkpoint_id)) for one in pending)


@pytest.fixture(params=["PARQUET", "CSV", "JSON_LINES", "sql", "foreach"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    return Case(request.param, tmp_path)


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


def test_what_came_after_the_barrier_waits_for_the_next(case: Case) -> None:
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
    sink.commit(1)
    sink.commit(1)
    assert case.visible() == [("a", 1)]


def test_an_aborted_checkpoint_is_committed_with_the_next(case: Case) -> None:
    sink = case.attempt()
    sink.write(rows(("a", 1)))
    sink.seal(1)  # never persisted: the checkpoint was declined
    sink.write(rows(("b", 2)))
    stored = case.persist(sink.seal(2), 2)
    assert [one.checkpoint_id for one in stored] == [1, 2]
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


def test_a_zombie_cannot_show_what_is_not_in_a_completed_snapshot(case: Case) -> None:
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
        for one in sink.seal(1):
            one.persist(backend.writer(1))
    for sink in sinks:
        sink.commit(1)
    assert len(case.visible()) == (2 if case.kind != "foreach" else 1)
