"""What is particular to the sink that upserts into a database."""

from __future__ import annotations

import datetime as dt
import sqlite3
import sys
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lockgate_proto.messages import FailureCause, SqlSink
from lockgate_taskmanager.runtime.failures import cause_of, text_of
from lockgate_taskmanager.spark.sinks.sql import SqlSink as SqlWriter
from lockgate_taskmanager.spark.sinks.sql import last_per_key
from lockgate_taskmanager.task.program import DataError, Unavailable, UserError

from tests.unit.taskmanager.spark.sink_rows import SCHEMA, context, persisted, rows

pytestmark = pytest.mark.usefixtures("processes_apart")


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
