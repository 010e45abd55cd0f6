"""What is particular to the sink that appends to Delta tables."""

from __future__ import annotations

import datetime as dt
import importlib.util
import json
import threading
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.schema import ArrayType, PrimitiveType
from lockgate_common import storage as filesystem
from lockgate_proto.messages import DeltaSink as DeltaOptions
from lockgate_proto.messages import FailureCause, SinkTransaction
from lockgate_taskmanager.runtime.failures import cause_of
from lockgate_taskmanager.spark.sinks import staged
from lockgate_taskmanager.spark.sinks.delta import DeltaSink
from lockgate_taskmanager.spark.sinks.delta_log import DeltaLog
from lockgate_taskmanager.spark.sinks.delta_store import located, s3_options
from lockgate_taskmanager.spark.sinks.transaction import SinkContext
from lockgate_taskmanager.state.backend import InlineBackend
from lockgate_taskmanager.task.program import DataError, StateUnreadable, Unavailable, UserError

from tests.unit.taskmanager.spark.delta_tables import rows_of

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])


def writer(
    path: Path, attempt: int = 1, subtask: int = 0, run: str = "run", schema: pa.Schema = SCHEMA, **options: str
) -> DeltaSink:
    where = SinkContext("job", run, attempt, "v", subtask, "op", "operator 'op'")
    sink = DeltaSink(where, DeltaOptions(str(path), options))
    sink.prepare(schema)
    return sink


def rows(*pairs: tuple[str | None, int | None]) -> pa.Table:
    return pa.table([[k for k, _ in pairs], [n for _, n in pairs]], schema=SCHEMA)


def staged_rows(sink: DeltaSink, checkpoint_id: int, *pairs: tuple[str, int]) -> tuple[SinkTransaction, ...]:
    sink.write(rows(*pairs))
    backend = InlineBackend(1 << 20)
    return tuple(sealed.persist(backend.writer(checkpoint_id)) for sealed in sink.seal(checkpoint_id))


def found(path: Path) -> list[tuple[str, int]]:
    return sorted((row["k"], row["n"]) for row in rows_of(path))


def entries(path: Path) -> list[dict[str, Any]]:
    """The log, each entry with its actions by name."""
    files = sorted((path / "_delta_log").glob("*.json"))
    return [
        {key: value for line in file.read_text().splitlines() for key, value in json.loads(line).items()}
        for file in files
    ]


def after_a_long_sleep(sink: DeltaSink, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None]) -> None:
    """Lets the sink freeze inside its commit: it has looked at the log, and `meanwhile` happens before it writes."""
    commit = sink._log._commit

    def late(table: Any, entry: Any) -> None:
        monkeypatch.setattr(sink._log, "_commit", commit)
        meanwhile()
        commit(table, entry)

    monkeypatch.setattr(sink._log, "_commit", late)


def compact(path: Path) -> None:
    """What maintenance does: the rows stand in other files, and the old ones are gone."""
    table = DeltaTable(path)
    table.optimize.compact()
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)


def test_a_checkpoint_is_one_entry_of_the_log_that_says_whose_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged, "_SPILL_BYTES", 10)
    sink = writer(tmp_path)
    sink.write(rows(("a", 1)))
    (stored,) = staged_rows(sink, 7, ("b", 2))
    assert stored.files == ("_staging/run/a1-op-0-0.parquet", "_staging/run/a1-op-0-1.parquet")
    assert (stored.folder, stored.job_key, stored.run_id) == (tmp_path.as_uri(), "job", "run")
    assert not DeltaTable.is_deltatable(str(tmp_path))
    sink.commit(7)
    staged_rows(sink, 8, ("c", 3))
    sink.commit(8)
    assert found(tmp_path) == [("a", 1), ("b", 2), ("c", 3)]
    assert [entry["txn"] for entry in entries(tmp_path)] == [
        {"appId": "lockgate/job/run/op/0", "version": version} for version in (7, 8)
    ]
    names = {Path(uri).name for uri in DeltaTable(tmp_path).file_uris()}
    assert names == {"part-run-7-op-0-0.parquet", "part-run-7-op-0-1.parquet", "part-run-8-op-0-0.parquet"}
    (entry,) = DeltaTable(tmp_path).history(1)
    assert entry["userMetadata"] == "lockgate job job, checkpoint 8, op 0"
    sink.close()
    assert not (tmp_path / "_staging").exists()


def test_files_rewritten_by_maintenance_are_not_added_again(tmp_path: Path) -> None:
    """The log alone knows that the rows are there: the file that held them is not."""
    sink = writer(tmp_path)
    stored = staged_rows(sink, 1, ("a", 1))
    sink.commit(1)
    staged_rows(sink, 2, ("b", 2))
    sink.commit(2)
    compact(tmp_path)
    assert not list(tmp_path.glob("part-run-1-*"))
    for attempt, run in ((2, "run"), (1, "other")):
        writer(tmp_path, attempt, run=run).restore(stored)
        assert found(tmp_path) == [("a", 1), ("b", 2)]


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("is_rewritten", [True, False])
def test_a_zombie_that_was_frozen_inside_its_commit_adds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_new: bool, is_rewritten: bool
) -> None:
    """It has seen that checkpoint 5 is not in the log, and by the time it writes it is."""
    zombie = writer(tmp_path)
    if not is_new:
        staged_rows(zombie, 4, ("before", 0))
        zombie.commit(4)
    stored = staged_rows(zombie, 5, ("a", 1))

    def successor() -> None:
        fresh = writer(tmp_path, attempt=2)
        fresh.restore(stored)
        staged_rows(fresh, 6, ("b", 2))
        fresh.commit(6)
        if is_rewritten:
            compact(tmp_path)

    after_a_long_sleep(zombie, monkeypatch, successor)
    zombie.commit(5)
    assert found(tmp_path) == [("a", 1), ("b", 2), *([] if is_new else [("before", 0)])]
    versions = [entry["txn"]["version"] for entry in entries(tmp_path) if "txn" in entry]
    assert versions == ([5, 6] if is_new else [4, 5, 6])


def test_a_zombie_that_sleeps_before_it_names_its_files_finds_them_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zombie = writer(tmp_path)
    staged_rows(zombie, 4, ("before", 0))
    zombie.commit(4)
    stored = staged_rows(zombie, 5, ("a", 1))
    publish = zombie._publish

    def late(source: Any, final: Any) -> None:
        writer(tmp_path, attempt=2).restore(stored)
        compact(tmp_path)
        assert not list(tmp_path.glob("part-run-5-*"))
        publish(source, final)

    monkeypatch.setattr(zombie, "_publish", late)
    zombie.commit(5)
    assert found(tmp_path) == [("a", 1), ("before", 0)]


def test_subtasks_that_commit_at_the_same_moment_make_one_table_and_lose_nothing(tmp_path: Path) -> None:
    sinks = [writer(tmp_path, subtask=number) for number in range(6)]
    start, failed = threading.Barrier(len(sinks)), []

    def commit(number: int) -> None:
        try:
            for checkpoint_id in (1, 2, 3):
                staged_rows(sinks[number], checkpoint_id, (f"{number}-{checkpoint_id}", checkpoint_id))
                start.wait(60)
                sinks[number].commit(checkpoint_id)
        except Exception as error:
            failed.append(error)
            start.abort()

    threads = [threading.Thread(target=commit, args=(number,)) for number in range(len(sinks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert found(tmp_path) == sorted((f"{n}-{c}", c) for n in range(6) for c in (1, 2, 3))
    assert [("metaData" in entry) for entry in entries(tmp_path)] == [True] + [False] * 17


def test_appends_tolerate_changes_of_others_to_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = writer(tmp_path)
    for checkpoint_id in (1, 2):
        staged_rows(sink, checkpoint_id, (str(checkpoint_id), 0))
        sink.commit(checkpoint_id)

    def others() -> None:
        DeltaTable(tmp_path).optimize.compact()
        DeltaTable(tmp_path).delete("k = '1'")
        write_deltalake(tmp_path, rows(("theirs", 1)), mode="append")

    staged_rows(sink, 3, ("3", 0))
    after_a_long_sleep(sink, monkeypatch, others)
    sink.commit(3)
    assert found(tmp_path) == [("2", 0), ("3", 0), ("theirs", 1)]


def test_a_death_between_the_names_and_the_log_is_made_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = writer(tmp_path)
    stored = staged_rows(first, 1, ("a", 1))

    def die(*_: Any) -> None:
        raise OSError("the storage is away")

    monkeypatch.setattr(first._log, "_commit", die)
    with pytest.raises(
        Unavailable, match=r"operator 'op': the Delta table file://.* did not accept the rows: the storage"
    ):
        first.commit(1)
    assert list(tmp_path.glob("part-*"))
    assert found(tmp_path) == []
    writer(tmp_path, attempt=2).restore(stored)
    assert found(tmp_path) == [("a", 1)]


def test_output_removed_before_its_commit_is_reported(tmp_path: Path) -> None:
    sink = writer(tmp_path)
    (stored,) = staged_rows(sink, 1, ("a", 1))
    (tmp_path / stored.files[0]).unlink()
    with pytest.raises(UserError, match="committed output has been removed"):
        sink.commit(1)


def test_a_commit_that_never_gets_through_is_a_fault_that_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = writer(tmp_path)
    staged_rows(sink, 1, ("a", 1))

    def refused(*_: Any) -> None:
        raise CommitFailedError("\x1b[31mtoo many\x1b[0m writers\n   0: <unknown>\n")

    monkeypatch.setattr(sink._log, "_commit", refused)
    with pytest.raises(
        Unavailable, match=r"10 tries to commit checkpoint 1 .* have failed: too many writers$"
    ) as caught:
        sink.commit(1)
    assert cause_of(caught.value) is FailureCause.FAULT


def test_leftovers_of_ended_attempts_are_deleted_and_no_vacuum_takes_pending_files(tmp_path: Path) -> None:
    dead = writer(tmp_path)
    staged_rows(dead, 1, ("a", 1))
    dead.commit(1)
    staged_rows(dead, 2, ("never", 2))  # the checkpoint was never complete
    alive = writer(tmp_path, attempt=2)
    alive.restore([])
    assert not list(tmp_path.glob("_staging/run/*"))
    stored = staged_rows(alive, 3, ("b", 3))
    compact(tmp_path)
    assert (tmp_path / stored[0].files[0]).exists()
    alive.commit(3)
    assert found(tmp_path) == [("a", 1), ("b", 3)]


def test_a_table_is_made_with_the_types_of_the_rows_and_null_anywhere(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("s", pa.string(), nullable=False),
            ("void", pa.int8()),
            ("d", pa.decimal128(10, 2)),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("local", pa.timestamp("us")),
            ("list", pa.list_(pa.field("element", pa.struct([pa.field("x", pa.float64(), nullable=False)]), False))),
            ("map", pa.map_(pa.string(), pa.binary())),
        ]
    )
    at = dt.datetime(2026, 3, 14, 15, 9, 26, 535897)
    row = {
        "s": "a",
        "void": 1,
        "d": Decimal("1.50"),
        "day": at.date(),
        "at": at.replace(tzinfo=dt.UTC),
        "local": at,
        "list": [{"x": 0.5}],
        "map": [("b", b"c")],
    }
    sink = writer(tmp_path, schema=schema)
    sink.write(pa.Table.from_pylist([row], schema))
    sink.seal(1)
    sink.commit(1)
    assert rows_of(tmp_path) == [row]
    made = DeltaTable(tmp_path).schema().fields
    assert [field.type for field in made[:4]] == [PrimitiveType(n) for n in ("string", "byte", "decimal(10,2)", "date")]
    assert all(field.nullable for field in made)
    assert made[6].type.contains_null
    assert made[6].type.element_type.fields[0].nullable
    again = writer(tmp_path, attempt=2, schema=schema)
    again.write(pa.Table.from_pylist([row], schema))
    again.seal(2)
    again.commit(2)
    assert rows_of(tmp_path) == [row, row]


def table_with(path: Path, *fields: Field, **more: Any) -> None:
    DeltaTable.create(path, Schema(list(fields)), **more)


K, N = Field("k", "string"), Field("n", "long")


@pytest.mark.parametrize(
    ("fields", "more", "sentence"),
    [
        ((K,), {}, r"has no column 'n'; its columns are: k$"),
        ((Field("K", "string"), N), {}, r"has no column 'k'; its columns are: K, n$"),
        ((K, Field("n", "integer")), {}, r"has column 'n' as integer, but the rows have long; cast it$"),
        ((K, N, Field("x", "string", nullable=False)), {}, r"requires a value for column 'x', which the rows do not"),
        ((K, N), {"partition_by": ["k"]}, r"is partitioned by k; only tables without partitions can be appended to$"),
        (
            (K, N, Field("l", ArrayType(PrimitiveType("string"), contains_null=False))),
            {},
            r"forbids NULL inside column 'l', which this sink cannot check$",
        ),
        (
            (K, Field("n", "long", metadata={"delta.generationExpression": "length(k)"})),
            {},
            r"has values that are computed or checked in column 'n'",
        ),
        ((K, N), {"configuration": {"delta.columnMapping.mode": "name"}}, r"maps its columns to other names"),
    ],
)
def test_a_table_that_does_not_fit_the_rows_is_reported_before_the_first_row(
    tmp_path: Path, fields: tuple[Field, ...], more: dict[str, Any], sentence: str
) -> None:
    table_with(tmp_path, *fields, **more)
    with pytest.raises(UserError, match=rf"^operator 'op': the Delta table file://\S+ {sentence}"):
        writer(tmp_path)


def test_a_constraint_that_would_not_be_checked_is_refused(tmp_path: Path) -> None:
    table_with(tmp_path, K, N)
    DeltaTable(tmp_path).alter.add_constraint({"positive": "n > 0"})
    with pytest.raises(UserError, match=r"has the constraint positive, which this sink cannot check$"):
        writer(tmp_path)


def test_a_feature_that_is_unknown_here_is_refused(tmp_path: Path) -> None:
    table_with(tmp_path, K, N)
    log = tmp_path / "_delta_log" / "00000000000000000000.json"
    newer = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly", "rowTracking"]}
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    log.write_text("\n".join(json.dumps({"protocol": newer} if "protocol" in action else action) for action in actions))
    with pytest.raises(UserError, match=r"has the feature rowTracking, which this sink cannot write$"):
        writer(tmp_path)


def test_missing_columns_are_null_and_forbidden_nulls_are_reported(tmp_path: Path) -> None:
    table_with(tmp_path, Field("k", "string", nullable=False), N, Field("more", "date"))
    sink = writer(tmp_path)
    staged_rows(sink, 1, ("a", 1))
    sink.commit(1)
    assert rows_of(tmp_path) == [{"k": "a", "n": 1, "more": None}]
    sink.write(rows(("b", None)))
    with pytest.raises(
        DataError, match=r"a row has NULL in column 'k', which the Delta table file://\S+ forbids; filter"
    ):
        sink.write(rows(("b", 1), (None, 2)))


def test_a_table_changed_under_the_job_is_reported_at_the_commit_and_nothing_is_lost(tmp_path: Path) -> None:
    sink = writer(tmp_path)
    stored = staged_rows(sink, 1, ("a", 1))
    table_with(tmp_path, Field("k", "long"), N)
    with pytest.raises(UserError, match=r"has column 'k' as long, but the rows have string; cast it$"):
        sink.commit(1)
    write_deltalake(tmp_path, rows(), mode="overwrite", schema_mode="overwrite")
    writer(tmp_path, attempt=2).restore(stored)
    assert found(tmp_path) == [("a", 1)]


def test_null_forbidden_by_a_table_created_meanwhile_is_reported_at_the_commit(tmp_path: Path) -> None:
    sink = writer(tmp_path)
    staged_rows(sink, 1, ("a", 1))
    staged_rows(sink, 2, (None, 2))
    table_with(tmp_path, Field("k", "string", nullable=False), N)
    sink.commit(1)
    with pytest.raises(
        DataError, match=r"does not allow NULL in column 'k', and some rows have NULL there; filter such rows"
    ):
        sink.commit(2)
    assert found(tmp_path) == [("a", 1)]


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (pa.schema([("d", pa.duration("us"))]), r"column 'd' of type duration\[us\] has no counterpart in Delta; cast"),
        (pa.schema([("n", pa.null())]), r"column 'n' of type null has no counterpart in Delta; cast it$"),
        (pa.schema([("count(1)", pa.int64())]), r"column 'count\(1\)' cannot be in a Delta table: give it a name"),
        (pa.schema([("l", pa.list_(pa.null()))]), r"column 'l' of type .* has no counterpart in Delta; cast it$"),
        (pa.schema([("s", pa.struct([("a b", pa.int64())]))]), r"column 'a b' cannot be in a Delta table"),
        (pa.schema([("a", pa.int64()), ("A", pa.int64())]), r"the columns 'a' and 'A' differ in case only"),
    ],
)
def test_columns_that_no_delta_table_can_have_are_reported(tmp_path: Path, schema: pa.Schema, sentence: str) -> None:
    with pytest.raises(UserError, match=rf"^operator 'op': {sentence}"):
        writer(tmp_path, schema=schema)


def test_a_missing_package_is_reported_with_the_extra_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"pip install 'lockgate\[delta\]'$"):
        writer(tmp_path)


def test_another_run_with_another_table_is_refused_with_the_table_it_needs(tmp_path: Path) -> None:
    sink = writer(tmp_path / "old")
    stored = staged_rows(sink, 7, ("a", 1))
    moved = writer(tmp_path / "new", run="other")
    with pytest.raises(UserError, match=r"is not committed there, but .*; start with file://\S+/old$"):
        moved.restore(stored)
    sink.commit(7)
    moved.restore(stored)
    assert (found(tmp_path / "old"), found(tmp_path / "new")) == ([("a", 1)], [])


def test_two_runs_of_one_job_do_not_take_each_others_ids_for_their_own(tmp_path: Path) -> None:
    """A job that is restarted counts its checkpoints from 1 again."""
    for run in ("run", "other"):
        sink = writer(tmp_path, run=run)
        staged_rows(sink, 1, (run, 1))
        sink.commit(1)
    assert found(tmp_path) == [("other", 1), ("run", 1)]


@pytest.mark.parametrize(
    "strange",
    [
        SinkTransaction(1, 0, name="x"),
        SinkTransaction(1, 0, ("_staging/run/a1-op-0-0.csv",), None, ("part-run-1-op-0-0.csv",)),
        SinkTransaction(1, 0, ("../a1-op-0-0.parquet",), None, ("part-run-1-op-0-0.parquet",)),
    ],
)
def test_output_of_another_kind_of_sink_is_reported(tmp_path: Path, strange: SinkTransaction) -> None:
    with pytest.raises(StateUnreadable):
        writer(tmp_path).restore([strange])


def test_a_commit_is_on_the_disk_when_it_returns_also_one_that_was_made_by_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync = filesystem.sync_file
    monkeypatch.setattr(filesystem, "sync_file", lambda path: (sync(path), synced.append(Path(path).name)))
    sink = writer(tmp_path)
    stored = staged_rows(sink, 1, ("a", 1))
    sink.commit(1)
    assert synced[-3:] == ["00000000000000000000.json", "_delta_log", tmp_path.name]
    synced.clear()
    writer(tmp_path, attempt=2).restore(stored)
    assert synced[-3:] == ["00000000000000000000.json", "_delta_log", tmp_path.name]


def test_secrets_come_from_the_environment_and_stay_out_of_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE_SECRET", "pst")
    log = DeltaLog(str(tmp_path), {"AWS_SECRET_ACCESS_KEY": "${STORE_SECRET}"}, "operator 'op'")
    assert log._options == {"AWS_SECRET_ACCESS_KEY": "pst"}
    assert str(log._failed("cannot be read", OSError("pst is wrong"))).endswith("cannot be read: *** is wrong")
    with pytest.raises(
        UserError, match=r"the option x is \$\{NOWHERE\}, which is not set in the task manager's environment"
    ):
        DeltaLog(str(tmp_path), {"x": "${NOWHERE}"}, "operator 'op'")


def test_an_unknown_storage_is_an_error_of_the_author(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^operator 'op': the location foo://x cannot be used: "):
        DeltaLog("foo://x", {}, "operator 'op'")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write to .*/file"):
        writer(tmp_path / "file")


def test_options_for_s3_are_translated_for_pyarrow() -> None:
    options = {
        "AWS_ACCESS_KEY_ID": "a",
        "aws_secret_access_key": "b",
        "region": "eu-north-1",
        "AWS_ENDPOINT_URL": "http://store:9000",
        "AWS_ALLOW_HTTP": "true",
    }
    found = s3_options(options)
    endpoint = {"endpoint_override": "http://store:9000", "scheme": "http"}
    assert found == {"access_key": "a", "secret_key": "b", "region": "eu-north-1", **endpoint}
    place = located("s3://shop/a/orders/", options)
    assert (place.uri, place.path, place.fs.region) == ("s3://shop/a/orders", "shop/a/orders", "eu-north-1")
    assert place.child("x").path == "shop/a/orders/x"


def test_an_unreadable_log_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / "00000000000000000000.json").write_text("nonsense\n")
    with pytest.raises(Unavailable, match=r"^operator 'op': the Delta table file://\S+ cannot be read: .+") as caught:
        writer(tmp_path)
    assert "\n" not in str(caught.value)
