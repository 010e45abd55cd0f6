"""Appends paid orders to a Delta table: every order once, and one commit of the log a checkpoint and subtask."""

from __future__ import annotations

from collections import Counter

from deltalake import DeltaTable

from examples.frame import Example, Place
from examples.frame.example import compare, json_rows
from lockgate import Job

_FILES, _ORDERS = 4, 40_000
_CITIES = ("Accra", "Bergen", "Cusco", "Dakar", "Essen")
_SCHEMA = "id BIGINT, city STRING, cents BIGINT"


def _make_input(place: Place) -> int:
    choice = place.random()
    for number in range(_FILES):
        rows = (
            f'{{"id": {order}, "city": "{choice.choice(_CITIES)}", "cents": {choice.randrange(-500, 10_000)}}}\n'
            for order in range(number * _ORDERS, (number + 1) * _ORDERS)
        )
        (place.input / f"{number}.json").write_text("".join(rows), encoding="utf-8")
    return _FILES * _ORDERS


def _pipeline(place: Place) -> Job:
    job = Job("delta table", parallelism=2, checkpoint_interval_ms=500)
    job.read_json(place.input, schema=_SCHEMA).filter("cents > 0").write_delta(place.output / "orders")
    return job


def _check(place: Place) -> list[str]:
    table = DeltaTable(place.output / "orders")
    found = Counter(tuple(row.values()) for row in table.to_pyarrow_table(columns=["id", "city", "cents"]).to_pylist())
    paid = (row for row in json_rows(sorted(place.input.iterdir())) if row["cents"] > 0)
    wanted = Counter((row["id"], row["city"], row["cents"]) for row in paid)
    commits = Counter(entry["userMetadata"] for entry in table.history() if "userMetadata" in entry)
    repeated = [f"the log has {times} commits of {name}" for name, times in commits.items() if times > 1]
    return compare(found, wanted, "number of orders") + repeated


EXAMPLE = Example("orders appended to a Delta table, exactly once", _make_input, _pipeline, _check)
