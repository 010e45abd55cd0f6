"""The interval join on real Spark: against nested loops, restored in the middle, windows behind it, and refusals."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from lockgate_proto.messages import (
    Edge,
    EventTime,
    FileFormat,
    FileSink,
    FileSource,
    FilesystemBackend,
    GeneratorSource,
    IntervalJoin,
    JobGraph,
    JoinSide,
    KeyedAggregate,
    Partitioning,
    RocksdbBackend,
    StateBackend,
    StateKind,
    TumblingWindow,
    Window,
)
from lockgate_taskmanager.task.program import StateUnreadable, UserError

from tests.committed import rows_of
from tests.join_homes import count_of

from .graphs import HASH, count_by, graph, sql, vertex
from .results import EPOCH, late_of, millis, rescale

pytestmark = [pytest.mark.integration, pytest.mark.rotating]

Job = Callable[..., Any]
START_MS = 1_772_323_200_000
LOWER, UPPER = -500, 2000
JOIN = IntervalJoin(("id",), ("order_id",), "at", "paid_at", LOWER, UPPER)
LEFT, RIGHT = JoinSide.LEFT, JoinSide.RIGHT
MILLIS = sql("SELECT *, unix_millis(paid_at) AS paid_ms FROM input")
SIDES = (
    Edge("orders", "join", HASH, JOIN.left_keys, join_side=LEFT),
    Edge("payments", "join", HASH, JOIN.right_keys, join_side=RIGHT),
)


def write_input(folder: Path, rows: int = 1500) -> tuple[list[tuple[str, int]], list[tuple[str | None, int, int]]]:
    """Orders (id, ms) and payments (order_id, ms, cents), two files each over two minutes, by a second out of order."""
    rng = random.Random(5)
    orders: list[tuple[str, int]] = []
    payments: list[tuple[str | None, int, int]] = []
    for name in ("orders", "payments"):
        (folder / name).mkdir()
        for number in range(2):
            lines = []
            for row in range(rows):
                ms = START_MS + 120_000 * row // rows + rng.randrange(1000)
                key = f"o{int(rng.paretovariate(0.6)) % 400}"
                if name == "orders":
                    orders.append((key, ms))
                    lines.append(json.dumps({"id": key, "at": ms}))
                else:
                    payments.append((None if row % 50 == 0 else key, ms, row))
                    at = (EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds")
                    lines.append(json.dumps({"order_id": payments[-1][0], "paid_at": at, "cents": row}))
            (folder / name / f"{number}.json").write_text("\n".join(lines) + "\n")
    return orders, payments


def source(name: str, folder: Path, schema: str, time: str, parallelism: int) -> Any:
    read = FileSource(path=str(folder / name), format=FileFormat.JSON_LINES, schema=schema)
    return vertex(name, read, EventTime(time, "", 1000, 0), sql("SELECT * FROM input"), parallelism=parallelism)


def payments_of_orders(folder: Path, parallelism: int = 2) -> JobGraph:
    """Pairs, written where they are made."""
    sink = FileSink(str(folder / "out"), FileFormat.PARQUET)
    return graph(
        source("orders", folder, "id STRING, at BIGINT", "at", parallelism),
        source("payments", folder, "order_id STRING, paid_at TIMESTAMP, cents BIGINT", "paid_at", parallelism),
        vertex("join", JOIN, MILLIS, sink, parallelism=parallelism),
        edges=SIDES,
    )


def payments_in_windows(folder: Path) -> JobGraph:
    """Pairs that go on to a sink and to windows on the time of the left."""
    plain = payments_of_orders(folder)
    sink = FileSink(str(folder / "out"), FileFormat.PARQUET)
    per_second = KeyedAggregate(("id",), count_by("id").aggregates, Window(TumblingWindow(1000), "at"))
    return graph(
        *plain.vertices[:2],
        vertex("join", JOIN, MILLIS, parallelism=2),
        vertex("pairs", sink),
        vertex("windows", per_second, replace(sink, path=str(folder / "windows"))),
        edges=(*SIDES, Edge("join", "pairs", Partitioning.REBALANCE), Edge("join", "windows", HASH, ("id",))),
    )


def in_small_batches(run: Any) -> Any:
    """Several from each file."""
    for name in ("orders", "payments"):
        run.fix_batch_size(name, 20_000)
    return run


def nested_loops(orders: list[Any], payments: list[Any]) -> Counter[tuple[str, int, int, int]]:
    by_key: dict[str, list[tuple[int, int]]] = {}
    for key, ms, cents in payments:
        by_key.setdefault(key, []).append((ms, cents))
    found: Counter[tuple[str, int, int, int]] = Counter()
    for key, ms in orders:
        for paid, cents in by_key.get(key, ()):
            if ms + LOWER <= paid <= ms + UPPER:
                found[key, ms, paid, cents] += 1
    return found


def check_exact(run: Any, folder: Path, orders: list[Any], payments: list[Any]) -> None:
    """Every pair is there once; closes the run."""
    found = Counter((row["id"], row["at"], row["paid_ms"], row["cents"]) for row in rows_of(folder / "out"))
    assert found == nested_loops(orders, payments)
    assert late_of(run) == 0
    run.close()


def test_pairs_are_exact_across_attempts_and_in_time_for_windows_behind_them(job: Job, tmp_path: Path) -> None:
    orders, payments = write_input(tmp_path)
    run = in_small_batches(job(payments_in_windows(tmp_path)))
    for _ in range(3):
        run.batch("orders", 0)
        run.batch("payments", 1)
        run.batch("orders", 1)
    kept = run.checkpoint(1)
    run.batch("payments", 0)
    run.checkpoint(2, commit=False)
    run.close()
    run.start(kept, 1)
    run.batch("payments", 0)
    kept = run.checkpoint(3)
    run.close()
    run.start(kept, 3)
    run.to_end()
    run.checkpoint(4)
    wanted = nested_loops(orders, payments)
    pairs = rows_of(tmp_path / "out")
    assert set(pairs[0]) == {"id", "at", "order_id", "paid_at", "cents", "paid_ms"}
    assert Counter((row["id"], row["at"], row["paid_ms"], row["cents"]) for row in pairs) == wanted
    assert late_of(run) == 0
    fired = Counter()
    for key, at, _, _ in wanted.elements():
        fired[key, at - at % 1000] += 1
    windows = rows_of(tmp_path / "windows")
    shown = {(row["id"], millis(row["window_start"])): row["n"] for row in windows}
    assert shown == fired
    assert len(shown) == len(windows), "a window fires once"
    counters = {counter.operator_id: counter for program in run.programs.values() for counter in program.counters()}
    assert counters["join0"].records_out > 0
    run.close()


def test_increments_of_a_join_are_exact_across_attempts(job: Job, tmp_path: Path) -> None:
    orders, payments = write_input(tmp_path)
    made = payments_of_orders(tmp_path)
    run = job(replace(made, state_backend=StateBackend(FilesystemBackend(), full_every=5)))

    def fill(number: int) -> None:
        for name in ("orders", "payments"):  # what was read ahead of the other side waits
            run.fix_batch_size(name, 60_000 if number < 3 else 3_000)
            run.batch(name, number % 2)

    chains = run.chained(fill, "join", 9)
    assert max(chains) > 1, "no snapshot built on another one"
    pairs = rows_of(tmp_path / "out")
    found = Counter((row["id"], row["at"], row["paid_ms"], row["cents"]) for row in pairs)
    assert found == nested_loops(orders, payments)
    assert late_of(run) == 0
    run.close()


@pytest.mark.parametrize("backend", [None, RocksdbBackend(memory_bytes=16 << 20)], ids=["memory", "rocksdb"])
def test_two_three_two_subtasks_find_every_pair_once(job: Job, tmp_path: Path, backend: RocksdbBackend | None) -> None:
    choice = None if backend is None else StateBackend(backend)

    def at(parallelism: int) -> JobGraph:
        return replace(payments_of_orders(tmp_path, parallelism), state_backend=choice)

    orders, payments = write_input(tmp_path)
    run = in_small_batches(job(at(2)))
    for checkpoint_id, parallelism in ((1, 3), (2, 2)):
        for name in ("orders", "payments"):
            run.batch(name, 0)
            run.batch(name, 1)
        kept = run.checkpoint(checkpoint_id)
        rescale(run, at(parallelism), kept, checkpoint_id)
    assert sum(count_of(run.programs["join", index]._join._store) for index in range(2)) > 100, "rows wait"
    run.to_end()
    run.checkpoint(3)
    check_exact(run, tmp_path, orders, payments)


def test_rows_with_nested_columns_wait_in_rocksdb_across_attempts(job: Job, tmp_path: Path) -> None:
    orders, payments = write_input(tmp_path)
    plain = payments_of_orders(tmp_path)
    left, *others = plain.vertices
    query = sql("SELECT *, named_struct('ids', array(id, NULL), 'at', map(id, at)) AS about FROM input")
    left = replace(left, operators=(*left.operators[:-1], replace(left.operators[-1], kind=query)))
    choice = StateBackend(RocksdbBackend(memory_bytes=16 << 20))
    run = in_small_batches(job(replace(plain, vertices=(left, *others), state_backend=choice)))
    for number in range(1, 4):
        for name in ("orders", "payments"):
            run.batch(name, 0)
            run.batch(name, 1)
        kept = run.checkpoint(number)
        states = [state for key in kept if key[0] == "join" for state in kept[key].operators]
        assert sum(state.kind is StateKind.ROCKSDB_STATE for state in states) == 4, "both sides of two subtasks"
        run.close()
        run.start(kept, number)
    run.to_end()
    run.checkpoint(4)
    for row in rows_of(tmp_path / "out"):
        assert row["about"] == {"ids": [row["id"], None], "at": [(row["id"], row["at"])]}
    check_exact(run, tmp_path, orders, payments)


def test_a_drain_loses_no_pair_of_rows_before_and_after_it(job: Job, tmp_path: Path) -> None:
    orders, payments = write_input(tmp_path)
    run = in_small_batches(job(payments_of_orders(tmp_path)))
    for _ in range(2):
        run.batch("payments", 0)
        run.batch("payments", 1)
    run.batch("orders", 1)
    run.batch("orders", 0)
    run.drain()
    kept = run.checkpoint(1)
    run.close()
    run.start(kept, 1)
    run.to_end()
    run.checkpoint(2)
    check_exact(run, tmp_path, orders, payments)


def test_rows_that_no_partner_can_come_for_are_forgotten(job: Job, tmp_path: Path) -> None:
    write_input(tmp_path)
    run = in_small_batches(job(payments_of_orders(tmp_path)))
    run.to_end()
    stores = [run.programs["join", index]._join._store for index in range(2)]
    waiting = sum(len(side.rows) for store in stores for side in store.sides.values())
    assert 0 < waiting < 5000, "of 6,000 rows the last few seconds, and places that are not worth clearing"
    run.close()


def numbers(name: str, extra: str, join_key: str = "k") -> Any:
    query = f"SELECT sequence % 5 AS {join_key}, sequence * 10 AS at, {extra} FROM input"
    return vertex(name, GeneratorSource(1, 200), sql(query), EventTime("at", "", 0, 0))


def joined_numbers(join: IntervalJoin, left: Any, right: Any, out: Path) -> JobGraph:
    return graph(
        left,
        right,
        vertex("join", join, FileSink(str(out), FileFormat.PARQUET)),
        edges=(
            Edge("left", "join", HASH, join.left_keys, join_side=LEFT),
            Edge("right", "join", HASH, join.right_keys, join_side=RIGHT),
        ),
    )


SAME_TIME = IntervalJoin(("k",), ("K",), "at", "at", 0, 0, "", "right_")


def test_a_shared_key_appears_once_and_prefixes_distinguish_the_rest(job: Job, tmp_path: Path) -> None:
    run = job(joined_numbers(SAME_TIME, numbers("left", "1 AS v"), numbers("right", "2 AS v", "K"), tmp_path / "out"))
    run.to_end()
    run.checkpoint(1)
    rows = rows_of(tmp_path / "out")
    assert len(rows) == 200
    assert set(rows[0]) == {"k", "at", "v", "right_at", "right_v"}
    assert all((row["v"], row["right_v"], row["at"]) == (1, 2, row["right_at"]) for row in rows)
    run.close()


@pytest.mark.parametrize("no_time", ["NULL", "1793000000000000000L", "9223372036854775807L", "-9223372036854775807L"])
def test_late_records_and_those_without_a_time_are_counted_and_in_no_pair(
    job: Job, tmp_path: Path, no_time: str
) -> None:
    """The second of these is in nanoseconds. The others are times for "never": no TIMESTAMP can hold any of them."""
    old = vertex(
        "right",
        GeneratorSource(1, 200),
        sql(f"SELECT sequence % 5 AS K, IF(sequence % 4 = 0, {no_time}, sequence * 10) AS at, 2 AS v FROM input"),
        EventTime("at", "", 0, 0),
    )
    run = job(joined_numbers(SAME_TIME, numbers("left", "1 AS v"), old, tmp_path / "out"))
    run.to_end()
    run.checkpoint(1)
    assert len(rows_of(tmp_path / "out")) == 150
    assert late_of(run) == 50
    run.close()


@pytest.mark.parametrize(
    ("change", "right", "message"),
    [
        ({"right_prefix": ""}, "2 AS v", r"operator 'join0': both sides of the join have a column 'at'.*right_prefix"),
        ({"right_keys": ("no",)}, "2 AS v", r"edge right -> join: unknown key column 'no'; the columns are: K, at, v"),
        ({"right_keys": ("v",)}, "'x' AS v", r"left 'k' is int64, right 'v' is string; give them the same type"),
        ({"left_time": "CAST(at AS STRING)"}, "2 AS v", r"of type string; it must be a TIMESTAMP"),
    ],
)
def test_sides_that_do_not_fit_are_refused_with_the_remedy(
    job: Job, tmp_path: Path, change: dict[str, Any], right: str, message: str
) -> None:
    join = replace(SAME_TIME, **change)
    run = job(joined_numbers(join, numbers("left", "1 AS v"), numbers("right", right, "K"), tmp_path), start=False)

    def attempt() -> None:
        run.start()
        run.to_end()

    with pytest.raises(UserError, match=message):
        attempt()


def test_other_bounds_are_not_restored(job: Job, tmp_path: Path) -> None:
    left, right = numbers("left", "1 AS v"), numbers("right", "2 AS v", "K")
    run = job(joined_numbers(SAME_TIME, left, right, tmp_path / "out"))
    run.batch("left")
    kept = run.checkpoint(1)
    run.close()
    again = job(joined_numbers(replace(SAME_TIME, upper_ms=9), left, right, tmp_path / "out"), start=False)
    with pytest.raises(StateUnreadable, match="keep keys, times and bounds as they were, or give the join another id"):
        again.start(kept, 1)


def test_the_ends_of_the_interval_are_exact_to_the_microsecond(job: Job, tmp_path: Path) -> None:
    """As in plain Spark. One time is in whole milliseconds, which goes with microseconds."""
    at = "2026-03-01T00:00:01.0005"  # microsecond 500 of its millisecond
    near = ["00.500499", "00.500500", "00.500501", "03.000499", "03.000500", "03.000501"]
    (tmp_path / "orders").mkdir()
    (tmp_path / "payments").mkdir()
    (tmp_path / "orders" / "0").write_text(json.dumps({"id": "a", "at": at}) + "\n")
    lines = [json.dumps({"order_id": "a", "paid_at": f"2026-03-01T00:00:{text}", "cents": 1}) for text in near]
    (tmp_path / "payments" / "0").write_text("\n".join(lines) + "\n")
    run = job(
        graph(
            source("orders", tmp_path, "id STRING, at TIMESTAMP", "at", 1),
            source("payments", tmp_path, "order_id STRING, paid_at TIMESTAMP, cents BIGINT", "paid_at", 1),
            vertex("join", JOIN, sql("SELECT *, date_format(paid_at, 'ss.SSSSSS') AS near FROM input")),
            vertex("end", sql("SELECT * FROM input")),
            edges=(*SIDES, Edge("join", "end", Partitioning.REBALANCE)),
        )
    )
    run.to_end()
    assert sorted(row["near"] for row in run.rows("end")) == near[1:5]
    assert set(run.rows("end")[0]) == {"id", "at", "order_id", "paid_at", "cents", "near"}
