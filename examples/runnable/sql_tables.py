"""Orders as rows that are appended to one table of a database, their totals as rows that are replaced in another."""

from __future__ import annotations

import json
from collections import Counter

import sqlalchemy as sa

from examples.frame import Example, Place
from examples.frame.example import compare, json_rows
from lockgate import Job, count, sum_

_FILES, _ORDERS, _CITIES = 4, 40_000, 500


def make_input(place: Place) -> int:
    """Files of orders with unique ids; returns their number."""
    choice = place.random()
    for number in range(_FILES):
        orders = (
            {
                "id": number * _ORDERS + row,
                "city": f"city{choice.randrange(_CITIES):03d}",
                "cents": choice.randrange(9999),
            }
            for row in range(_ORDERS)
        )
        (place.input / f"{number}.json").write_text("\n".join(map(json.dumps, orders)) + "\n", encoding="utf-8")
    return _FILES * _ORDERS


def pipeline(name: str, place: Place, url: str) -> Job:
    """The job, with the tables in the database that `url` names."""
    job = Job(name, parallelism=2, checkpoint_interval_ms=500)
    orders = job.read_json(place.input, schema="id BIGINT, city STRING, cents BIGINT")
    orders.write_sql(url, "orders", mode="append")
    totals = orders.key_by("city").aggregate(orders=count(), cents=sum_("cents"))
    totals.write_sql(url, "totals", key="city")
    return job


def check(place: Place, url: str) -> list[str]:
    """Both tables against the files."""
    rows: Counter[tuple[int, str, int]] = Counter()
    orders: Counter[str] = Counter()
    cents: Counter[str] = Counter()
    for json_row in json_rows(place.input.iterdir()):
        rows[json_row["id"], json_row["city"], json_row["cents"]] += 1
        orders[json_row["city"]] += 1
        cents[json_row["city"]] += json_row["cents"]
    engine = sa.create_engine(url)
    with engine.connect() as database:
        appended = Counter(tuple(row) for row in database.exec_driver_sql("SELECT id, city, cents FROM orders"))
        totals = {row[0]: (row[1], int(row[2])) for row in database.exec_driver_sql("SELECT * FROM totals")}
    engine.dispose()
    return compare(appended, rows, "number of rows of order") + compare(
        totals, {city: (orders[city], cents[city]) for city in orders}, "number and sum of the orders of"
    )


def _url(place: Place) -> str:
    return f"sqlite:///{place.output}/shop.db"


EXAMPLE = Example(
    "rows appended to one SQLite table, totals upserted in another, exactly once",
    make_input,
    lambda place: pipeline("sql tables", place, _url(place)),
    lambda place: check(place, _url(place)),
)
