"""The SQL sink on a real PostgreSQL server: types, refusals, crashes, locks."""

from __future__ import annotations

import datetime as dt
import random
import re
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from lockgate_proto.messages import FailureCause, SinkTransaction, SqlSink, SqlWriteMode
from lockgate_taskmanager.runtime.failures import cause_of, text_of
from lockgate_taskmanager.spark.sinks.sql import SqlSink as SqlWriter
from lockgate_taskmanager.spark.sinks.transaction import SinkContext
from lockgate_taskmanager.state.backend import InlineBackend
from lockgate_taskmanager.task.program import DataError, Unavailable, UserError

from tests.postgresql_server import PASSWORD, PostgresqlServer

pytestmark = [pytest.mark.integration, pytest.mark.rotating]

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])
UPSERT, APPEND = SqlWriteMode.UPSERT, SqlWriteMode.APPEND
MOMENT = dt.datetime(2024, 2, 29, 23, 59, 58, 123456)
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False]),
    "int8": (pa.int8(), [-128, 127]),
    "int16": (pa.int16(), [-(2**15), 2**15 - 1]),
    "int32": (pa.int32(), [-(2**31), 2**31 - 1]),
    "int64": (pa.int64(), [-(2**63), 2**63 - 1]),
    "float": (pa.float32(), [0.5, float("-inf")]),
    "double": (pa.float64(), [0.1 + 0.2, float("inf")]),
    "string": (pa.string(), ["", "Grüße 'quoted' {a,b} \\ \" \N{GRINNING FACE}"]),
    "binary": (pa.binary(), [b"", b"\x00\xff\\"]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "decimal": (pa.decimal128(9, 2), [Decimal("-1234567.89"), Decimal("0.10")]),
    "wide decimal": (pa.decimal128(38, 0), [Decimal(10**30), Decimal(0)]),
    "timestamp": (pa.timestamp("us"), [MOMENT, dt.datetime(1969, 12, 31)]),
    "zoned": (pa.timestamp("us", "UTC"), [MOMENT.replace(tzinfo=dt.UTC), dt.datetime(1970, 1, 1, tzinfo=dt.UTC)]),
}
ODD_NAMES = ("order", "my column", "50%", "a:b", "n(1)", "x.y", "it's", 'say "so"', "[0]", "ключ", "Upper")


@pytest.fixture
def url(postgresql: PostgresqlServer) -> str:
    return postgresql.new_database()


@pytest.fixture
def sink() -> Iterator[Callable[..., SqlWriter]]:
    made: list[SqlWriter] = []

    def make(url: str, *keys: str, table: str = "t", subtask: int = 0, schema: pa.Schema = SCHEMA) -> SqlWriter:
        mode = UPSERT if keys else APPEND
        context = SinkContext("job", "run", len(made) + 1, "v", subtask, "op", "operator 'op'")
        made.append(SqlWriter(context, SqlSink(url, table, keys, mode)))
        made[-1].prepare(schema)
        return made[-1]

    yield make
    for sql_writer in made:
        sql_writer.close()


def rows(*pairs: tuple[str, int | None]) -> pa.Table:
    return pa.table([[k for k, _ in pairs], [n for _, n in pairs]], schema=SCHEMA)


def persisted(sink: SqlWriter, checkpoint_id: int) -> tuple[SinkTransaction, ...]:
    return tuple(sealed.persist(InlineBackend(1 << 24).writer(checkpoint_id)) for sealed in sink.seal(checkpoint_id))


def written(sink: SqlWriter, table: pa.Table, checkpoint_id: int = 1) -> tuple[SinkTransaction, ...]:
    sink.write(table)
    stored = persisted(sink, checkpoint_id)
    sink.commit(checkpoint_id)
    return stored


@pytest.mark.parametrize("keys", [("k",), ()], ids=["upsert", "append"])
def test_every_type_and_null_arrive_as_they_were(
    postgresql: PostgresqlServer, url: str, sink: Callable[..., SqlWriter], keys: tuple[str, ...]
) -> None:
    schema = pa.schema([("k", pa.int64()), *[(name, kind) for name, (kind, _) in TYPES.items()]])
    columns = {name: [*values, None] for name, (_, values) in TYPES.items()}
    table = pa.table({"k": [0, 1, 2], **columns}, schema=schema)
    written(sink(url, *keys, schema=schema), table)
    found = postgresql.execute("SELECT * FROM t ORDER BY k", url)
    assert [dict(zip(schema.names, row, strict=True)) for row in found] == table.to_pylist()


@pytest.mark.parametrize("name", sorted(set(TYPES) - {"float", "double"}))
def test_every_type_as_a_key(postgresql: PostgresqlServer, url: str, sink: Callable[..., SqlWriter], name: str) -> None:
    kind, values = TYPES[name]
    schema = pa.schema([("k", kind), ("n", pa.int64())])
    upsert = sink(url, "k", schema=schema)
    written(upsert, pa.table({"k": values, "n": [1, 2]}, schema=schema), 1)
    written(upsert, pa.table({"k": values[::-1], "n": [3, 4]}, schema=schema), 2)
    assert postgresql.execute("SELECT n FROM t ORDER BY n", url) == [(3,), (4,)], "updated, not added"


def test_columns_are_distinguished_with_any_names(
    postgresql: PostgresqlServer, url: str, sink: Callable[..., SqlWriter]
) -> None:
    schema = pa.schema([(name, pa.int64()) for name in ODD_NAMES])
    upsert = sink(url, ODD_NAMES[0], ODD_NAMES[3], schema=schema)
    written(upsert, pa.table({name: [n] for n, name in enumerate(ODD_NAMES)}, schema=schema), 1)
    second = pa.table({name: [n if n in (0, 3) else -n] for n, name in enumerate(ODD_NAMES)}, schema=schema)
    written(upsert, second.select(ODD_NAMES[::-1]).select(ODD_NAMES), 2)
    assert postgresql.execute("SELECT * FROM t", url) == [(0, -1, -2, 3, -4, -5, -6, -7, -8, -9, -10)]


def test_more_rows_than_one_statement_holds(
    postgresql: PostgresqlServer, url: str, sink: Callable[..., SqlWriter]
) -> None:
    schema = pa.schema([("k", pa.int64())])
    written(sink(url, schema=schema), pa.table({"k": range(25_001)}, schema=schema))
    assert postgresql.execute("SELECT count(*), count(DISTINCT k) FROM t", url) == [(25_001, 25_001)]


def test_a_moment_is_the_same_in_every_time_zone_of_the_server(
    postgresql: PostgresqlServer, url: str, sink: Callable[..., SqlWriter]
) -> None:
    postgresql.execute(f"ALTER DATABASE {sa.make_url(url).database} SET timezone = 'Asia/Tokyo'")
    postgresql.execute("CREATE TABLE t (k text PRIMARY KEY, aware timestamp, naive timestamptz)", url)
    schema = pa.schema([("k", pa.string()), ("aware", pa.timestamp("us", "UTC")), ("naive", pa.timestamp("us"))])
    aware = MOMENT.replace(tzinfo=dt.UTC)
    written(sink(url, "k", schema=schema), pa.table([["a"], [aware], [MOMENT]], schema=schema))
    assert postgresql.execute("SELECT aware, extract(epoch FROM naive) FROM t", url) == [
        (MOMENT, Decimal(f"{aware.timestamp():.6f}"))
    ]


def test_the_ledger_is_in_the_schema_of_the_table(
    postgresql: PostgresqlServer, url: str, sink: Callable[..., SqlWriter]
) -> None:
    postgresql.execute("CREATE SCHEMA app", url)
    written(sink(url, "k", table="app.t"), rows(("a", 1)), 7)
    assert postgresql.execute("SELECT job, run, operator, subtask, checkpoint FROM app.lockgate_commits", url) == [
        ("job", "run", "op", 0, 7)
    ]
    assert postgresql.execute("SELECT * FROM app.t", url) == [("a", 1)]


def test_rows_and_ledger_are_one_transaction(
    postgresql: PostgresqlServer, url: str, sink: Callable[..., SqlWriter]
) -> None:
    append = sink(url)
    postgresql.execute("ALTER TABLE t ADD CONSTRAINT small CHECK (n < 13)", url)
    append.write(rows(("a", 1), ("b", 13)))
    persisted(append, 1)
    with pytest.raises(DataError, match='refused the rows: new row for relation "t" violates check constraint "small"'):
        append.commit(1)
    assert postgresql.execute("SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM lockgate_commits)", url) == [
        (0, 0)
    ]
    postgresql.execute("ALTER TABLE t DROP CONSTRAINT small", url)
    append.commit(1)
    assert postgresql.execute("SELECT count(*) FROM t", url) == [(2,)]


def test_many_subtasks_upsert_the_same_keys_without_a_deadlock(
    postgresql: PostgresqlServer, url: str, sink: Callable[..., SqlWriter]
) -> None:
    sinks = [sink(url, "k", subtask=number) for number in range(3)]
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            keys = [f"k{n:03d}" for n in range(300)]
            for checkpoint_id in range(1, 9):
                ordered = keys[number * 100 :] + keys[: number * 100]
                written(sinks[number], rows(*[(key, checkpoint_id) for key in ordered]), checkpoint_id)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert postgresql.execute("SELECT count(*) FROM t", url) == [(300,)]


@pytest.mark.parametrize("keys", [("k",), ()], ids=["upsert", "append"])
def test_a_frozen_attempt_does_not_hold_the_next_one_up(
    postgresql: PostgresqlServer,
    url: str,
    sink: Callable[..., SqlWriter],
    keys: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The zombie stands still between taking the ledger's line and committing, with the lock in its hands."""
    zombie, fresh = sink(url, *keys), sink(url, *keys)
    zombie.write(rows(("a", 1)))
    stored = persisted(zombie, 1)
    has_claimed, should_continue = threading.Event(), threading.Event()
    limits: list[Any] = []
    claimed = zombie._claimed

    def freeze(connection: sa.Connection, *arguments: Any) -> bool:
        result = claimed(connection, *arguments)
        limits.append(connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar())
        connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 200")  # no test waits for 10 s
        has_claimed.set()
        assert should_continue.wait(60)
        return result

    monkeypatch.setattr(zombie, "_claimed", freeze)
    refused: list[BaseException] = []

    def commit_late() -> None:
        try:
            zombie.commit(1)
        except Unavailable as error:
            refused.append(error)

    thread = threading.Thread(target=commit_late)
    thread.start()
    assert has_claimed.wait(60)
    fresh.restore(stored)
    written(fresh, rows(("b", 2)), 2)
    should_continue.set()
    thread.join()
    assert limits == ["10s"]
    assert len(refused) == 1, "the server has ended the zombie's transaction"
    assert postgresql.execute("SELECT k, n FROM t ORDER BY k", url) == [("a", 1), ("b", 2)]


def test_a_server_that_dies_is_a_fault_and_the_next_attempt_continues(
    own_postgresql: PostgresqlServer, sink: Callable[..., SqlWriter]
) -> None:
    url = own_postgresql.new_database()
    first = sink(url)
    written(first, rows(("a", 1)), 1)
    first.write(rows(("b", 2)))
    stored = persisted(first, 2)
    own_postgresql.kill()
    with pytest.raises(Unavailable, match="Connection refused") as caught:
        first.commit(2)
    assert cause_of(caught.value) is FailureCause.FAULT
    assert PASSWORD not in str(caught.value)
    assert "\n" not in text_of(caught.value), "no stack trace"
    own_postgresql.start()
    sink(url).restore(stored)
    sink(url).restore(stored)
    assert own_postgresql.execute("SELECT k, n FROM t ORDER BY k", url) == [("a", 1), ("b", 2)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"password": "wrong"}, 'password authentication failed for user "lockgate"'),
        ({"username": "nobody-knows"}, 'password authentication failed for user "nobody-knows"'),
        ({"database": "nowhere"}, 'database "nowhere" does not exist'),
    ],
)
def test_a_permanently_refused_connection_is_the_authors_error(url: str, change: dict[str, str], message: str) -> None:
    wrong = sa.make_url(url).set(**change).render_as_string(hide_password=False)  # type: ignore[arg-type]
    context = SinkContext("job", "run", 1, "v", 0, "op", "operator 'op'")
    with pytest.raises(UserError, match=re.escape(message)) as caught:
        SqlWriter(context, SqlSink(wrong, "t", ("k",))).prepare(SCHEMA)
    assert str(caught.value).startswith("operator 'op': the database postgresql+psycopg://")
    assert "\n" not in str(caught.value)
    assert "wrong" not in str(caught.value)
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    ("ddl", "keys", "message"),
    [
        ("", ("k",), 'refused the table no.t: schema "no" does not exist'),
        (
            "CREATE TABLE t (k text PRIMARY KEY, n text)",
            ("k",),
            "column 'n' as TEXT, but the rows have BIGINT; cast it",
        ),
        ("CREATE TABLE t (k text PRIMARY KEY, n boolean)", ("k",), "column 'n' as BOOLEAN, but the rows have BIGINT"),
        (
            "CREATE TABLE t (k uuid PRIMARY KEY, n bigint)",
            ("k",),
            "column 'k' as UUID, but the rows have TEXT; cast it",
        ),
        ("CREATE TABLE t (k text PRIMARY KEY)", ("k",), "has no column 'n'; its columns are: k"),
        ("CREATE TABLE t (k text, n bigint)", ("k",), "has no primary key or unique constraint on (k)"),
        (
            "CREATE TABLE t (k text, n bigint); CREATE UNIQUE INDEX ON t (k) WHERE n > 0",
            ("k",),
            "has no primary key or unique constraint on (k)",
        ),
        ("CREATE TABLE t (id int PRIMARY KEY, k text, n bigint)", (), "requires a value for column 'id'"),
        ("CREATE TABLE t (k text, n bigint, z int NOT NULL)", (), "requires a value for column 'z'"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_at_the_start(
    postgresql: PostgresqlServer,
    url: str,
    sink: Callable[..., SqlWriter],
    ddl: str,
    keys: tuple[str, ...],
    message: str,
) -> None:
    for statement in filter(None, ddl.split("; ")):
        postgresql.execute(statement, url)
    with pytest.raises(UserError, match=re.escape(message)) as caught:
        sink(url, *keys, table="t" if ddl else "no.t")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("is_there", "message"),
    [
        (False, "refused the table t: permission denied for schema public"),
        (
            True,
            "refused the table lockgate_commits, in which commits are recorded: permission denied for schema public",
        ),
    ],
)
def test_a_user_without_the_right_to_create_tables_learns_which_one_is_missing(
    postgresql: PostgresqlServer, url: str, is_there: bool, message: str
) -> None:
    if is_there:
        postgresql.execute("CREATE TABLE t (k text PRIMARY KEY, n bigint)", url)
    postgresql.execute("DO $$ BEGIN CREATE ROLE reader LOGIN PASSWORD 'r'; EXCEPTION WHEN OTHERS THEN NULL; END $$")
    own = postgresql.url(sa.make_url(url).database or "", "reader", "r")
    context = SinkContext("job", "run", 1, "v", 0, "op", "operator 'op'")
    with pytest.raises(UserError, match=message):
        SqlWriter(context, SqlSink(own, "t", ("k",))).prepare(SCHEMA)


def test_a_table_that_fits_is_used(postgresql: PostgresqlServer, url: str, sink: Callable[..., SqlWriter]) -> None:
    postgresql.execute(
        "CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, k varchar(20), n numeric, "
        "at timestamptz NOT NULL DEFAULT now(), double_n numeric GENERATED ALWAYS AS (n * 2) STORED)",
        url,
    )
    postgresql.execute("CREATE UNIQUE INDEX ON t (k)", url)
    upsert = sink(url, "k")
    written(upsert, rows(("a", 1), ("b", 2)), 1)
    written(upsert, rows(("a", 3)), 2)
    found = postgresql.execute("SELECT k, n, double_n FROM t ORDER BY k", url)
    assert found == [("a", 3, 6), ("b", 2, 4)]


def test_a_constraint_that_is_checked_later_serves_no_upsert(
    postgresql: PostgresqlServer, url: str, sink: Callable[..., SqlWriter]
) -> None:
    postgresql.execute("CREATE TABLE t (k text PRIMARY KEY DEFERRABLE, n bigint)", url)
    upsert = sink(url, "k")
    upsert.write(rows(("a", 1)))
    persisted(upsert, 1)
    with pytest.raises(UserError, match="refused the rows: ON CONFLICT does not support deferrable unique constraints"):
        upsert.commit(1)


def test_a_key_that_is_too_long_for_an_index_is_an_error_of_the_records(
    url: str, sink: Callable[..., SqlWriter]
) -> None:
    upsert = sink(url, "k")
    upsert.write(rows((random.Random(1).randbytes(2_000).hex(), 1)))
    persisted(upsert, 1)
    with pytest.raises(DataError, match="refused the rows: index row size"):
        upsert.commit(1)


def test_a_value_that_does_not_fit_is_one_sentence(
    postgresql: PostgresqlServer, url: str, sink: Callable[..., SqlWriter]
) -> None:
    postgresql.execute("CREATE TABLE t (k varchar(20), n bigint)", url)
    append = sink(url)
    append.write(rows(("a" * 21, 1)))
    persisted(append, 1)
    with pytest.raises(DataError, match=re.escape("value too long for type character varying(20)")) as caught:
        append.commit(1)
    assert "\n" not in str(caught.value)


def test_a_nul_in_text_is_refused_before_it_is_in_a_snapshot(url: str, sink: Callable[..., SqlWriter]) -> None:
    with pytest.raises(DataError, match="operator 'op': column 'k' has text with a NUL in it"):
        sink(url).write(rows(("a\x00b", 1)))


def test_keys_that_are_one_for_postgresql_are_one_row(
    postgresql: PostgresqlServer, url: str, sink: Callable[..., SqlWriter]
) -> None:
    schema = pa.schema([("k", pa.float64()), ("n", pa.int64())])
    upsert = sink(url, "k", schema=schema)
    nan = float("nan")
    upsert.write(pa.table({"k": [0.0, nan, -0.0, -nan], "n": [1, 2, 3, 4]}, schema=schema))
    persisted(upsert, 1)
    upsert.commit(1)
    assert postgresql.execute("SELECT k::text, n FROM t ORDER BY k", url) == [("0", 3), ("NaN", 4)]


@pytest.mark.parametrize("theirs", ["numeric(38, 2)", "numeric(20)", "double precision"])
def test_a_column_that_rounds_decimals_is_refused(
    postgresql: PostgresqlServer, url: str, sink: Callable[..., SqlWriter], theirs: str
) -> None:
    postgresql.execute(f"CREATE TABLE t (k text PRIMARY KEY, d {theirs})", url)
    schema = pa.schema([("k", pa.string()), ("d", pa.decimal128(38, 10))])
    with pytest.raises(UserError, match=r"column 'd' as .*, which does not keep the rows' DECIMAL\(38,10\)"):
        sink(url, "k", schema=schema)


def test_a_table_that_vanishes_is_one_sentence(
    postgresql: PostgresqlServer, url: str, sink: Callable[..., SqlWriter]
) -> None:
    append = sink(url)
    postgresql.execute("DROP TABLE t", url)
    append.write(rows(("a", 1)))
    persisted(append, 1)
    with pytest.raises(UserError, match=r'refused the rows: relation "t" does not exist$'):
        append.commit(1)
