"""Reads orders from SQLite tables with a source, and writes them to a folder with a sink, both written here."""

from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from examples.frame import Example, Place
from examples.frame.example import compare
from lockgate import CustomSink, CustomSource, Job, Transaction

_SHOPS, _ORDERS = ("north", "south"), 120_000


class Tables(CustomSource):
    """Rows of tables that only grow. A split is a table, an offset a row number: they stay what they are."""

    schema = "shop STRING, id BIGINT, cents BIGINT"

    def __init__(self, database: Path) -> None:
        self.database = database

    def open(self) -> None:
        self._connection = sqlite3.connect(self.database, check_same_thread=False)

    def splits(self) -> Mapping[str, int | None]:
        return {shop: self._connection.execute(f"SELECT max(rowid) FROM {shop}").fetchone()[0] for shop in _SHOPS}

    def read(self, split: str, start: int, end: int) -> pa.Table:
        """Rows of a shop after `start`, up to `end`. The default `plan` fits: an offset is a number of rows."""
        query = f"SELECT id, cents FROM {split} WHERE rowid > ? AND rowid <= ? ORDER BY rowid"
        rows = self._connection.execute(query, (start, end)).fetchall()
        return pa.table(
            {"shop": [split] * len(rows), "id": [row[0] for row in rows], "cents": [row[1] for row in rows]}
        )

    def close(self) -> None:
        self._connection.close()


class Folder(CustomSink):
    """JSON lines, a file for each transaction. A rename shows it: all of it, and once however often it is repeated."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self) -> None:
        (self.folder / "staged").mkdir(parents=True, exist_ok=True)

    def stage(self, transaction: Transaction, rows: pa.Table) -> None:
        """Writes the rows to a file that `commit` publishes. It must be complete and survive a power failure."""
        with self._staged(transaction).open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows.to_pylist())
            file.flush()
            os.fsync(file.fileno())

    def commit(self, transaction: Transaction) -> None:
        if self._staged(transaction).exists():  # else it was committed before
            os.replace(self._staged(transaction), self.folder / f"{transaction.name}.jsonl")

    def abort(self, transaction: Transaction) -> None:
        self._staged(transaction).unlink(missing_ok=True)

    def staged(self) -> Iterator[str]:
        return (path.name for path in (self.folder / "staged").iterdir())

    def _staged(self, transaction: Transaction) -> Path:
        return self.folder / "staged" / transaction.name


def _make_input(place: Place) -> int:
    choice = place.random()
    with closing(sqlite3.connect(place.input / "orders.db")) as connection, connection:
        for shop in _SHOPS:
            connection.execute(f"CREATE TABLE {shop} (id INTEGER, cents INTEGER)")
            orders = ((choice.randrange(10**6), choice.randrange(10**4)) for _ in range(_ORDERS))
            connection.executemany(f"INSERT INTO {shop} VALUES (?, ?)", orders)
    return len(_SHOPS) * _ORDERS


def _pipeline(place: Place) -> Job:
    job = Job("own connectors", parallelism=2, checkpoint_interval_ms=500)
    orders = job.read_from(Tables(place.input / "orders.db"))
    orders.filter("cents > 0").write_to(Folder(place.output / "orders"))
    return job


def _check(place: Place) -> list[str]:
    found: Counter[tuple[str, int, int]] = Counter()
    for path in (place.output / "orders").glob("*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            found[row["shop"], row["id"], row["cents"]] += 1
    wanted: Counter[tuple[str, int, int]] = Counter()
    with closing(sqlite3.connect(place.input / "orders.db")) as connection:
        for shop in _SHOPS:
            rows = connection.execute(f"SELECT id, cents FROM {shop} WHERE cents > 0")
            wanted.update((shop, number, cents) for number, cents in rows)
    return compare(found, wanted, "number of orders")


EXAMPLE = Example("a source and a sink written in Python, exactly once", _make_input, _pipeline, _check)
